from ._core.train import *
