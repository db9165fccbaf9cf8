"""The examples run and do what they say."""

import pathlib
import re
import subprocess
import sys

import pytest

examples = pathlib.Path(__file__).parents[2] / "examples"


def output_of(name, *arguments):
    found = subprocess.run([sys.executable, examples / name, *arguments], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_train_fashion_mnist():
    first, last, accuracy = map(float, re.findall(r"[\d.]+", output_of("train_fashion_mnist.py", "60")))
    assert last < first / 2 and accuracy > 0.6


def test_autograd_function():
    pytest.importorskip("torch")
    errors = re.findall(r"differs by (\S+)", output_of("autograd_function.py"))
    assert len(errors) == 2 and all(float(error) < 1e-5 for error in errors)


def test_plots(tmp_path):
    pytest.importorskip("matplotlib")
    output_of("plots.py", "--steps", "20", "--out", str(tmp_path))
    drawn = sorted(tmp_path.iterdir())
    assert [path.name for path in drawn] == ["confusion.png", "filters.png", "losses.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)
