# What is imported from a stub by name or by star is exported: `mypy --strict` finds every class here.
from . import mtl as mtl
from . import onnx as onnx
from . import train as train
from ._core import *
from ._core import __version__ as __version__
from ._random import manual_seed as manual_seed
from ._random import next_seed as next_seed
