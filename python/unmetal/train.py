"""Networks, data sets and a trainer."""

from ._core.train import *  # noqa: F403
