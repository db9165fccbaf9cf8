from ._core.onnx import *
