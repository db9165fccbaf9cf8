"""What type checkers see: the programs of the READMEs and the examples pass mypy --strict and basedpyright."""

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "python" / "examples"

# The types of what users write most.
PROGRAM = """
import numpy as np
import numpy.typing as npt
import unmetal
import unmetal.nn.functional as F
from typing_extensions import assert_type
from unmetal import ArgumentError, Image, ImageBatch, StateBatch, mtl

device = mtl.create_system_default_device()
queue = device.new_command_queue()
with queue.command_buffer() as command_buffer:
    assert_type(command_buffer, mtl.CommandBuffer)
with unmetal.CommandBuffer(queue) as continued:
    assert_type(continued, unmetal.CommandBuffer)
    continued.commit_and_continue()
with queue.command_buffer().blit_command_encoder() as encoder:
    assert_type(encoder, mtl.BlitCommandEncoder)
batch = ImageBatch.from_array(device, np.zeros((4, 1, 1, 1), np.float32))
for image in batch:
    assert_type(image, Image)
assert_type(batch[0], Image)
assert_type(batch[1:3], ImageBatch)
assert_type(StateBatch()[::2], StateBatch)
assert_type(unmetal.CNNPoolingMax(device, 2, 2).copy(), unmetal.CNNPoolingMax)
images: list[Image] = list(batch)
pixels: npt.NDArray[np.float32] = np.zeros((1, 4, 4, 1), np.float32)
pooled = F.max_pool2d(pixels, 2)
assert_type(pooled, npt.NDArray[np.float32])
network = unmetal.train.Network((8, 8, 1), seed=1, device=device)
assert_type(network.input.convolution(4, 3, stride=2).relu() + network.input.max_pool(2), unmetal.train.Features)
trainer = unmetal.train.Trainer(network, optimizer=unmetal.NNOptimizerAdam(device, 0.003), on_epoch=lambda report: report.loss > 0)
assert_type(trainer.fit(unmetal.train.Dataset(np.zeros((4, 8, 8), np.uint8), np.arange(4)))[0].epoch, int)
try:
    unmetal.CNNPoolingMax(device, 0, 2)
except ArgumentError as error:
    assert_type(error.argument, str)
"""


def blocks(document):
    """The programs of a document."""
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), flags=re.DOTALL)


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    written = [PROGRAM, *blocks("README.md"), *blocks("python/README.md")]
    for index, text in enumerate(written):
        (folder / f"program{index}.py").write_text(text)
    for example in EXAMPLES.glob("*.py"):
        (folder / example.name).write_text(example.read_text())
    return folder


def check(programs, *command):
    found = subprocess.run([sys.executable, "-m", *command, *sorted(path.name for path in programs.glob("*.py"))],
                           cwd=programs, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_mypy(programs):
    pytest.importorskip("mypy")
    check(programs, "mypy", "--strict")


def test_basedpyright(programs):
    pytest.importorskip("basedpyright")
    check(programs, "basedpyright", "--level", "error", "--pythonpath", sys.executable)
