"""Networks as ONNX files."""

from ._core.onnx import *  # noqa: F403
