"""Neural networks on arrays: `unmetal.nn.functional`."""

from . import functional as functional
