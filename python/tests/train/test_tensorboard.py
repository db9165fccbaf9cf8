"""`unmetal train --tensorboard`: TensorBoard reads what metrics.csv says."""

import csv
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

root = pathlib.Path(__file__).resolve().parents[3]
os.environ.setdefault("UNMETAL_PROGRAM", str(root / "build/release/tools/unmetal"))  # scripts/test-python builds it
os.environ.setdefault("UNMETAL_RUN_SECONDS", "120")
sys.path.insert(0, str(root / "tests/program"))
import harness  # noqa: E402

columns = {"train_loss": "loss/train", "validation_loss": "loss/validation", "train_accuracy": "accuracy/train",
           "validation_accuracy": "accuracy/validation", "learning_rate": "training/learning_rate",
           "epoch": "training/epoch"}


@pytest.fixture
def arguments(tmp_path):
    harness.write_data(tmp_path / "data", training=64, test=32)
    return ["train", "--data", f"fashion-mnist:{tmp_path / 'data'}", "--net", "lenet", "--batch", "8", "--out",
            str(tmp_path / "run"), "--epochs"]


def train(*arguments):
    done = harness.run(*arguments)
    assert (done.returncode, done.stderr) == (0, "")


def events_in(folder):
    accumulator = accumulators.EventAccumulator(str(folder), accumulators.STORE_EVERYTHING_SIZE_GUIDANCE)
    accumulator.Reload()
    return accumulator


def compare(folder):
    """Of a run that was killed the last row may stand in the one file alone."""
    with open(folder / "metrics.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    events = events_in(folder)
    for column, tag in columns.items():
        expected = [(int(row["step"]), float(np.float32(row[column]))) for row in rows if row[column]]
        found = [(event.step, event.value) for event in events.Scalars(tag)] if tag in events.Tags()["scalars"] else []
        assert found == expected, tag
    return events


def test_what_tensorboard_reads(arguments, tmp_path):
    train(*arguments, 2, "--tensorboard")
    events = compare(tmp_path / "run")
    tensors = harness.header(tmp_path / "run" / "best.safetensors").keys() - {"__metadata__", "random.counters"}
    assert tensors and set(events.Tags()["histograms"]) == tensors | {f"gradient/{name}" for name in tensors}
    histogram = events.Histograms("conv1.weight")[-1].histogram_value
    assert histogram.num == sum(histogram.bucket) == 150 and histogram.min < 0 < histogram.max
    gradient = events.Histograms("gradient/conv1.weight")[-1].histogram_value
    assert gradient.num == 150 and 0 < gradient.sum_squares < 150
    assert events.Tags()["images"][:2] == ["confusion", "worst/01"] and len(events.Tags()["images"]) == 25
    image = events.Images("worst/01")[-1]
    assert (image.width, image.height) == (28, 28) and image.encoded_image_string.startswith(b"\x89PNG")
    layers = {node.name: list(node.input) for node in events.Graph().node}
    assert layers["input"] == [] and layers["conv1"] == ["input"]


def test_a_killed_run_can_be_read_and_goes_on(arguments, tmp_path):
    run = tmp_path / "run"
    program = subprocess.Popen([harness.PROGRAM, *arguments, "100000", "--tensorboard"], stdout=subprocess.DEVNULL)
    while not (run / "metrics.csv").exists() or (run / "metrics.csv").read_text().count("\n") < 30:
        time.sleep(0.02)
    program.send_signal(signal.SIGKILL)
    program.wait()
    killed = events_in(run).Scalars("loss/train")
    assert [event.step for event in killed] == list(range(1, len(killed) + 1)) and len(killed) >= 29
    last = next(run.glob("events.out.tfevents.*"))
    last.write_bytes(last.read_bytes()[:-5])  # as of a power failure
    assert len(events_in(run).Scalars("loss/train")) >= len(killed) - 1
    position = harness.position(run / "checkpoint.safetensors")
    train("train", "--resume", "--out", run, "--epochs", position // 8 + 2)
    compare(run)
    assert len(list(run.glob("events.out.tfevents.*"))) == (2 if position else 1)


def test_nothing_is_written_unless_asked_for(arguments, tmp_path):
    weights = tmp_path / "run" / "best.safetensors"
    train(*arguments, 2, "--tensorboard")
    watched = weights.read_bytes()
    train(*arguments, 2, "--overwrite")
    assert weights.read_bytes() == watched, "the gradients for TensorBoard leave the training as it is"
    assert not list((tmp_path / "run").glob("events*"))
