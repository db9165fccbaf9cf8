"""The training part of Metal Performance Shaders: images, states, command buffers, kernels and their gradients.

Classes of Metal itself (devices, queues, command buffers, buffers) are in `unmetal.mtl`, all others here.
"""

from ._core import *  # noqa: F403
from ._core import __version__ as __version__
from ._random import manual_seed as manual_seed
from ._random import next_seed as next_seed

from . import _values as _values  # noqa: E402  completes the classes
import unmetal.onnx as onnx  # noqa: E402  in place of the extension's
import unmetal.train as train  # noqa: E402  in place of the extension's
import unmetal.mtl as mtl  # noqa: E402  in place of the extension's

__all__ = [name for name in dir() if not name.startswith("_")]
