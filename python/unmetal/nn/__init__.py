"""Neural networks on arrays: `unmetal.nn.functional`."""

from . import functional as functional
from ._layout import get_default_layout as get_default_layout
from ._layout import set_default_layout as set_default_layout
