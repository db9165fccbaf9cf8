"""Published networks, of the package onnx: their layers become networks here, with random weights, as the files have constants.

Takes minutes and 4 GiB of memory: `scripts/check-all onnx` runs it, scripts/test-python only SqueezeNet (test_onnx_networks.py).
"""

import pathlib

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import unmetal
from test_onnx_import import expected, found
from unmetal import train

folder = pathlib.Path(onnx.__file__).parent / "backend/test/data/light"
names = ["bvlc_alexnet", "zfnet512", "vgg19", "inception_v1", "inception_v2", "resnet50", "densenet121", "squeezenet"]
pictures_shape = (3, 224, 224)


def constants_of(graph):
    """Of operators that fill a shape, by name."""
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return {node.output[0]: shapes[node.input[0]] for node in graph.node if node.op_type == "ConstantOfShape"}


def with_random_weights(name, random, drop=()):
    """A published network whose weights are random numbers of a size that keeps activations moderate."""
    model = onnx.load(folder / f"light_{name}.onnx")
    graph = model.graph
    filled = constants_of(graph)
    filled.update({tensor.name: tensor.dims for tensor in graph.initializer if tensor.data_type == 1})
    variances = {node.input[4] for node in graph.node if node.op_type == "BatchNormalization"}
    scales = {node.input[1] for node in graph.node if node.op_type == "BatchNormalization"}
    kept = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    tensors = [tensor for tensor in graph.initializer if tensor.name not in filled]
    for tensor_name, shape in filled.items():
        shape = tuple(int(extent) for extent in shape)
        values = random.standard_normal(shape, np.float32)
        if len(shape) > 1:
            values *= np.float32(np.sqrt(1.5 / np.prod(shape[1:])))
        else:
            values *= np.float32(0.05)
        if tensor_name in variances or tensor_name in scales:
            values = np.abs(values) + np.float32(1)
        tensors.append(numpy_helper.from_array(values, tensor_name))
    for node in kept:
        if node.op_type in drop:
            node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output[:1]))
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(tensors)
    return model


def judge_forward(name, path):
    random = np.random.default_rng(5)
    onnx.save(with_random_weights(name, random), path)
    pictures = random.standard_normal((1, *pictures_shape), np.float32)
    theirs = expected(path, pictures)
    ours = found(unmetal.onnx.load(path), pictures).reshape(theirs.shape)
    assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(theirs).max()


def torch_result(torch, graph, tensors, pictures):
    """The scores, with PyTorch's functions: what comes before a last Softmax."""
    functional = torch.nn.functional
    picture = next(entry.name for entry in graph.input if entry.name not in tensors)
    values = dict(tensors, **{picture: pictures})
    for node in graph.node:
        given = [values.get(name) for name in node.input]
        attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
        pads = attributes.get("pads", [0, 0, 0, 0])
        kind = node.op_type
        if kind == "Conv":
            padded = functional.pad(given[0], (pads[1], pads[3], pads[0], pads[2]))
            result = functional.conv2d(padded, given[1], given[2] if len(given) > 2 else None, attributes["strides"],
                                       groups=attributes.get("group", 1))
        elif kind == "BatchNormalization":
            result = functional.batch_norm(given[0], given[3].clone(), given[4].clone(), given[1], given[2], True, 0.1,
                                           attributes.get("epsilon", 1e-5))
        elif kind == "MaxPool":
            padded = functional.pad(given[0], (pads[1], pads[3], pads[0], pads[2]), value=-np.inf)
            result = functional.max_pool2d(padded, attributes["kernel_shape"], attributes["strides"])
        elif kind == "AveragePool":
            sides = (pads[1], pads[3], pads[0], pads[2])
            windows = attributes["kernel_shape"], attributes["strides"]
            counted = functional.avg_pool2d(functional.pad(torch.ones_like(given[0]), sides), *windows)
            result = functional.avg_pool2d(functional.pad(given[0], sides), *windows) / counted
        elif kind == "LRN":
            result = functional.local_response_norm(given[0], attributes["size"], attributes["alpha"], attributes["beta"],
                                                    attributes["bias"])
        elif kind == "GlobalAveragePool":
            result = given[0].mean((2, 3), keepdim=True)
        elif kind == "Concat":
            result = torch.cat(given, 1)
        elif kind == "Gemm":
            result = functional.linear(given[0], given[1], given[2])
        elif kind == "Reshape":
            result = given[0].reshape(given[1].tolist()) if node.input[0] in tensors else given[0].flatten(1)
        else:
            result = {"Relu": torch.relu, "Sum": lambda *parts: sum(parts), "Add": torch.add,
                      "Identity": lambda value: value, "Softmax": lambda value: value}[kind](*given)
        values[node.output[0]] = result
    return values[graph.output[0].name].flatten(1)


def judge_training(name, path, rate, steps=5, count=4):
    """Weights after some steps of plain gradient descent, with the same pictures in each."""
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(6)
    model = with_random_weights(name, random, drop=("Dropout",))
    onnx.save(model, path)
    pictures = random.standard_normal((count, *pictures_shape), np.float32)
    labels = random.integers(1000, size=count)
    tensors = {tensor.name: torch.tensor(numpy_helper.to_array(tensor)) for tensor in model.graph.initializer}
    statistics = {name for node in model.graph.node if node.op_type == "BatchNormalization" for name in node.input[3:]}
    used = {name for node in model.graph.node for name in node.input} - statistics
    trained = {key: value.requires_grad_() for key, value in tensors.items()
               if value.is_floating_point() and key in used}
    losses = []
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(torch_result(torch, model.graph, tensors, torch.tensor(pictures)),
                                                 torch.tensor(labels))
        losses.append(float(loss))
        gradients = torch.autograd.grad(loss, list(trained.values()))
        with torch.no_grad():
            for value, gradient in zip(trained.values(), gradients):
                value -= rate * gradient
    network = unmetal.onnx.load(path)
    channels_last = np.ascontiguousarray(pictures.transpose(0, 2, 3, 1))
    data = train.Dataset(channels_last, labels.astype(np.uint32), class_names=[str(i) for i in range(1000)])
    reports = train.Trainer(network, optimizer="sgd", epochs=steps, batch_size=count, learning_rate=rate).fit(data)
    ours = [report.loss for report in reports]
    assert np.allclose(ours, losses, rtol=1e-4), (ours, losses)
    return network, {key: value.detach().numpy() for key, value in tensors.items()}, losses


@pytest.mark.parametrize("name", names)
def test_forward(name, tmp_path):
    judge_forward(name, tmp_path / "network.onnx")


@pytest.mark.parametrize("name, rate", [("squeezenet", 0.01), ("inception_v1", 0.001)])
def test_five_steps(name, rate, tmp_path):
    network, trained, losses = judge_training(name, tmp_path / "network.onnx", rate)
    assert losses[-1] < losses[0]
    unmetal.onnx.export_network(network, tmp_path / "trained.onnx", softmax=False)
    ours = {tensor.name: numpy_helper.to_array(tensor)
            for tensor in onnx.load(tmp_path / "trained.onnx").graph.initializer}
    compared = 0
    for key, theirs in trained.items():
        label = key.removesuffix("_w_0") + ".weight"
        if label not in ours or ours[label].size != theirs.size:
            continue
        compared += 1
        weights = ours[label].reshape(theirs.shape)
        assert np.abs(weights - theirs).max() <= 1e-4 * np.abs(theirs).max(), key
    assert compared > 20
