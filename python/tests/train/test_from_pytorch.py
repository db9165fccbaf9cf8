"""The Python of docs/from-pytorch.md: weights of PyTorch and Keras compute the same here."""

import pathlib
import re
import sys
import types

import numpy as np
import pytest

import unmetal
from unmetal import train

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "from-pytorch.md"
random = np.random.default_rng(3)


def block(words):
    """The code on the page that has these words."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found, = [one for one in blocks if words in one]
    return found


def lenet():
    network = train.Network((28, 28, 1))
    x = network.input.convolution(6, 5, label="conv1").relu().max_pool(2)
    x = x.convolution(16, 5, padding=train.Padding.Valid, label="conv2").relu().max_pool(2)
    x.dense(120, label="fc1").relu().dense(10, label="fc2").softmax()
    return network


def read_weights(network):
    exec(block("read_from_pytorch"), {"unmetal": unmetal, "network": network})


def test_weights_of_pytorch(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    # The package safetensors where it is not installed.
    module = types.ModuleType("safetensors.torch")
    module.save_file = lambda tensors, path: unmetal.write_safetensors(
        path, {name: tensor.numpy() for name, tensor in tensors.items()})
    monkeypatch.setitem(sys.modules, "safetensors", types.ModuleType("safetensors"))
    monkeypatch.setitem(sys.modules, "safetensors.torch", module)
    monkeypatch.chdir(tmp_path)
    nn = torch.nn
    torch.manual_seed(1)
    model = nn.Sequential()
    for name, layer in (("conv1", nn.Conv2d(1, 6, 5, padding=2)), ("relu1", nn.ReLU()), ("pool1", nn.MaxPool2d(2)),
                        ("conv2", nn.Conv2d(6, 16, 5)), ("relu2", nn.ReLU()), ("pool2", nn.MaxPool2d(2)),
                        ("flatten", nn.Flatten()), ("fc1", nn.Linear(400, 120)), ("relu3", nn.ReLU()),
                        ("fc2", nn.Linear(120, 10))):
        model.add_module(name, layer)
    exec(block("save_file(model"), {"model": model})
    network = lenet()
    read_weights(network)
    pictures = random.random((5, 28, 28, 1), np.float32)
    with torch.no_grad():
        expected = torch.softmax(model(torch.from_numpy(pictures.transpose(0, 3, 1, 2).copy())), 1).numpy()
    np.testing.assert_allclose(network.predict(pictures), expected, rtol=1e-4, atol=1e-6)


def test_weights_of_keras(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # As layer.get_weights() has them, of a convolution, a Flatten and a Dense.
    kernel, bias = random.normal(size=(3, 3, 2, 4)).astype(np.float32), random.normal(size=4).astype(np.float32)
    dense, last = random.normal(size=(3 * 5 * 4, 6)).astype(np.float32), random.normal(size=6).astype(np.float32)
    names = {}
    exec(block("def weights_of_keras"), names)
    unmetal.write_safetensors("model.safetensors", {
        name: np.ascontiguousarray(array) for name, array in names["weights_of_keras"](
            [("conv", [kernel, bias], (5, 7, 2)), ("dense", [dense, last], (3, 5, 4))]).items()})
    network = train.Network((5, 7, 2))
    network.input.convolution(4, 3, padding=train.Padding.Valid, label="conv").dense(6, label="dense").softmax()
    read_weights(network)
    picture = random.random((1, 5, 7, 2), np.float32)
    features = np.zeros((3, 5, 4))
    for row in range(3):
        for column in range(5):
            features[row, column] = np.tensordot(picture[0, row:row + 3, column:column + 3], kernel, 3) + bias
    scores = features.reshape(-1) @ dense + last
    expected = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    np.testing.assert_allclose(network.predict(picture)[0], expected, rtol=1e-4, atol=1e-6)
