"""`unmetal export`: of each network of the program ONNX Runtime computes what `unmetal predict` prints."""

import json
import os
import pathlib
import sys

import numpy as np
import pytest

root = pathlib.Path(__file__).resolve().parents[3]
os.environ.setdefault("UNMETAL_PROGRAM", str(root / "build/release/tools/unmetal"))  # scripts/test-python builds it
os.environ.setdefault("UNMETAL_RUN_SECONDS", "120")
sys.path.insert(0, str(root / "tests/program"))
import harness  # noqa: E402
from onnx_running import close, network_tolerance, run  # noqa: E402

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

networks = ["lenet", "mnist-cnn", "small-cnn", "resnet18:16", "resnet50:8", "alexnet-lrn:16", "unet-small", "style:8"]
count, side, classes = 100, harness.SIDE, harness.CLASSES


def done(*arguments):
    result = harness.run(*arguments)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data set, and pictures."""
    made = tmp_path_factory.mktemp("program")
    harness.write_data(made / "data", training=32, test=16)
    pixels = np.random.default_rng(1).integers(256, size=(count, side, side), dtype=np.uint8)
    (made / "pictures").mkdir()
    for number, picture in enumerate(pixels):
        (made / "pictures" / f"{number:03}.png").write_bytes(harness.png(side, side, picture.tobytes()))
    np.save(made / "pixels.npy", pixels)
    return made


def predicted(checkpoint, pictures, names):
    lines = done("predict", "--json", "--top", classes, checkpoint, pictures).splitlines()
    rows = [{entry["name"]: entry["probability"] for entry in json.loads(line)["classes"]} for line in lines]
    return np.array([[row[name] for name in names] for row in rows], np.float32)[:, None, None, :]


def logarithms(probabilities):
    return np.log(np.maximum(probabilities, 1e-30))


@pytest.mark.parametrize("network", networks)
def test_networks_of_the_program(network, folder, tmp_path):
    out, file = tmp_path / "run", tmp_path / "network.onnx"
    done("train", "--data", f"fashion-mnist:{folder / 'data'}", "--net", network, "--batch", 16, "--epochs", 1,
         "--normalize", "computed", "--out", out)
    checkpoint = out / "best.safetensors"
    assert done("export", "--checkpoint", checkpoint, "--onnx", file) == \
        f"wrote {file}: {network} for pictures of {side}x{side}x1, {classes} classes\n"
    metadata = {entry.key: json.loads(entry.value) for entry in onnx.load(file).metadata_props}
    mean, deviation = (np.float32(metadata[f"normalization.{key}"]) for key in ("mean", "deviation"))
    pictures = np.load(folder / "pixels.npy")[..., None].astype(np.float32) / np.float32(255)
    found, = run(file, (pictures - mean) / deviation)
    # A probability of a network with large scores has their error times their size; its logarithm has not.
    close(logarithms(found), logarithms(predicted(checkpoint, folder / "pictures", metadata["classes"])), network_tolerance)
    done("export", checkpoint, file, "--scores")
    scores, = run(file, (pictures - mean) / deviation)
    exponentials = np.exp(scores - scores.max(axis=3, keepdims=True))
    close(logarithms(exponentials / exponentials.sum(axis=3, keepdims=True)), logarithms(found), network_tolerance)


def test_a_model_is_tuned_on_a_folder_of_pictures(tmp_path):
    """Layers and weights of a resnet in an ONNX file; another number of classes."""
    import test_onnx_networks
    model, pictures, out = tmp_path / "resnet18.onnx", tmp_path / "pictures", tmp_path / "run"
    random = np.random.default_rng(8)
    onnx.save(test_onnx_networks.ResNet18(8, 1000, random).model(), model)
    for name, brightness in (("dark", 0), ("bright", 96)):
        (pictures / name).mkdir(parents=True)
        for number in range(24):
            pixels = random.integers(64, size=(32, 32), dtype=np.uint8) + np.uint8(brightness)
            (pictures / name / f"{number}.png").write_bytes(harness.png(32, 32, pixels.tobytes()))
    printed = done("train", "--data", f"folder:{pictures}", "--picture-size", "32x32x3", "--net", model, "--init-from",
                   model, "--batch", 8, "--epochs", 6, "--seed", 1, "--out", out)
    assert "the last layer, fc, is another one and begins anew" in printed
    checkpoint = out / "best.safetensors"
    assert json.loads(done("eval", "--json", checkpoint))["accuracy"] > 0.8
    line, = done("predict", "--json", checkpoint, pictures / "dark/0.png").splitlines()
    assert {entry["name"] for entry in json.loads(line)["classes"]} == {"dark", "bright"}
