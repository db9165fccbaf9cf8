from ._core.mtl import *
