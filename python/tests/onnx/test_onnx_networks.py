"""One of the published networks; the others take longer (published_networks.py)."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import unmetal  # noqa: E402
from published_networks import judge_forward  # noqa: E402
from test_onnx_import import found, judge  # noqa: E402
from unmetal import train  # noqa: E402


def test_squeezenet(tmp_path):
    judge_forward("squeezenet", tmp_path / "network.onnx")


class ResNet18:
    """As torch.onnx writes torchvision's: names of layers and tensors, and the operators. Its packages need more than Debian has."""

    def __init__(self, width, classes, random):
        self.nodes, self.tensors, self.random = [], {}, random
        value = self.normalised("conv1", "bn1", "input", 3, width, 7, 2, 3)
        value = self.add("MaxPool", [self.add("Relu", [value])], kernel_shape=[3, 3], strides=[2, 2],
                         pads=[1, 1, 1, 1], dilations=[1, 1], ceil_mode=0)
        channels = width
        for stage in range(4):
            for block in range(2):
                outputs = width << stage
                value = self.block(f"layer{stage + 1}.{block}", value, channels, outputs,
                                   2 if stage > 0 and block == 0 else 1)
                channels = outputs
        value = self.add("Flatten", [self.add("GlobalAveragePool", [value])], axis=1)
        self.tensor("fc.weight", (classes, channels))
        self.tensor("fc.bias", (classes,))
        self.nodes.append(helper.make_node("Gemm", [value, "fc.weight", "fc.bias"], ["output"], name="/fc/Gemm",
                                           alpha=1.0, beta=1.0, transB=1))

    def tensor(self, name, shape):
        scale = np.sqrt(2 / np.prod(shape[1:])) if len(shape) > 1 else 0.1
        self.tensors[name] = (self.random.standard_normal(shape) * scale).astype(np.float32)

    def add(self, kind, inputs, **attributes):
        name = f"/{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name + "_output_0"], name=name, **attributes))
        return name + "_output_0"

    def normalised(self, conv, norm, value, inputs, outputs, size, stride, pad):
        self.tensor(f"{conv}.weight", (outputs, inputs, size, size))
        value = self.add("Conv", [value, f"{conv}.weight"], dilations=[1, 1], group=1, kernel_shape=[size, size],
                         pads=[pad] * 4, strides=[stride, stride])
        roles = ["weight", "bias", "running_mean", "running_var"]
        for role in roles:
            self.tensor(f"{norm}.{role}", (outputs,))
        for role in ("weight", "running_var"):
            self.tensors[f"{norm}.{role}"] = np.abs(self.tensors[f"{norm}.{role}"]) + np.float32(1)
        return self.add("BatchNormalization", [value, *(f"{norm}.{role}" for role in roles)], epsilon=1e-5,
                        momentum=0.9, training_mode=0)

    def block(self, label, value, inputs, outputs, stride):
        inner = self.normalised(f"{label}.conv1", f"{label}.bn1", value, inputs, outputs, 3, stride, 1)
        inner = self.normalised(f"{label}.conv2", f"{label}.bn2", self.add("Relu", [inner]), outputs, outputs, 3, 1, 1)
        if stride != 1 or inputs != outputs:
            value = self.normalised(f"{label}.downsample.0", f"{label}.downsample.1", value, inputs, outputs, 1, stride, 0)
        return self.add("Relu", [self.add("Add", [inner, value])])

    def model(self):
        graph = helper.make_graph(
            self.nodes, "main_graph",
            [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 3, "height", "width"])],
            [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", None])],
            [numpy_helper.from_array(value, name) for name, value in self.tensors.items()])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def resnet18(tmp_path_factory):
    path = tmp_path_factory.mktemp("resnet") / "resnet18.onnx"
    onnx.save(ResNet18(8, 1000, np.random.default_rng(8)).model(), path)
    return path


def test_a_resnet_of_pytorch_is_what_it_was(resnet18):
    judge(resnet18, np.random.default_rng(9).standard_normal((2, 3, 64, 96), np.float32))
    network = unmetal.onnx.load(resnet18, pictures=(64, 64, 3))
    assert {"conv1", "bn1", "layer2.0.downsample.0", "layer4.1.bn2", "fc"} <= set(network.labels)


def test_a_resnet_of_pytorch_is_tuned_for_other_classes(resnet18):
    random = np.random.default_rng(10)
    network = unmetal.onnx.load(resnet18, classes=2, pictures=(32, 32, 3))
    before = found(unmetal.onnx.load(resnet18, pictures=(32, 32, 3)), np.ones((1, 3, 32, 32), np.float32))
    assert before.shape[1] == 1000 and network.output_shape == (1, 1, 2)
    labels = np.arange(32, dtype=np.uint32) % 2
    pictures = random.integers(64, size=(32, 32, 32, 3), dtype=np.uint8) + (labels * 96).astype(np.uint8)[:, None, None, None]
    data = train.Dataset(pictures, labels)
    train.Trainer(network, optimizer="adam", epochs=6, batch_size=8, learning_rate=0.003).fit(data)
    assert network.evaluate(data).accuracy > 0.9


def test_weights_and_names_of_a_file(tmp_path):
    path = tmp_path / "network.onnx"
    first, second, other = (train.Network((8, 6, 3), seed=seed) for seed in range(3))
    first.input.dense(2)
    second.input.dense(2)
    other.input.dense(5)
    unmetal.onnx.export_network(first, path, class_names=["cat", "dog"])
    assert unmetal.onnx.class_names(path) == ["cat", "dog"]
    assert unmetal.onnx.load_weights(second, path) is None
    picture = np.random.default_rng(2).random((1, 8, 6, 3), np.float32)
    assert np.array_equal(second.predict(picture), first.predict(picture))
    assert np.array_equal(unmetal.onnx.load(path).predict(picture), first.predict(picture))
    assert unmetal.onnx.load_weights(other, path, keep_head=True) == "dense1"
    with pytest.raises(unmetal.Error, match="it has no layer \"dense1\" with as many weights"):
        unmetal.onnx.load_weights(other, path)
    path.write_bytes(b"no model")
    with pytest.raises(unmetal.Error, match="cannot import .*network.onnx: "):
        unmetal.onnx.load(path)
