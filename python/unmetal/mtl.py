"""What runs the kernels: devices, queues, command buffers and buffers."""

from ._core.mtl import *  # noqa: F403
