"""The order of axes that functions take unless told otherwise."""

from __future__ import annotations

from typing import Literal, Optional, cast

import unmetal

Layout = Literal["NHWC", "NCHW"]

_default: Layout = "NHWC"


def layout_of(function: str, layout: Optional[str]) -> Layout:
    """What a function was given; None: the default one of this moment."""
    if layout is None:
        return _default
    if layout not in ("NHWC", "NCHW"):
        raise unmetal.ArgumentError(f"{function}: layout is {layout!r}, expected 'NHWC' or 'NCHW'")
    return cast(Layout, layout)


def set_default_layout(layout: Layout) -> None:
    """What `layout` is where functions of `unmetal.nn.functional` are not given one: 'NHWC', which it is at first, or 'NCHW',
    PyTorch's order.

    One default for all threads of the process. Each function reads it once, when it is called; set it before the threads
    start whose calls are to see it."""
    global _default
    _default = layout_of("set_default_layout", layout if layout is not None else "None")


def get_default_layout() -> Layout:
    """'NHWC' or 'NCHW'."""
    return _default
