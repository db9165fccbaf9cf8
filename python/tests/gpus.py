"""The GPU of the tests that need one, and streams. Without it, modules of tests that import this are skipped."""

import contextlib

import pytest
import torch

import unmetal
from unmetal import mtl

try:
    gpu = mtl.device_named("cuda")
except unmetal.Error as error:  # the build, the driver or the device is missing, says the sentence
    pytest.skip(str(error), allow_module_level=True)

LONG = 200_000_000  # clock cycles of the GPU, a tenth of a second


@pytest.fixture(params=["default", "own"])
def stream(request):
    """The stream that PyTorch uses."""
    own = torch.cuda.Stream()
    with torch.cuda.stream(own) if request.param == "own" else contextlib.nullcontext():
        yield torch.cuda.current_stream()
