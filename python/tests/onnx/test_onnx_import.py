"""What ONNX files become: networks that compute what ONNX Runtime does, and learn what PyTorch does."""

import numpy as np
import pytest

import unmetal
from unmetal import train

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

random = np.random.default_rng(3)
size = (4, 9, 11)  # channels, height, width
tolerance = 1e-5


def values(*shape):
    return random.normal(size=shape).astype(np.float32)


def model(nodes, constants, shape=size, operator_set=17, result_rank=4):
    graph = helper.make_graph(
        nodes, "test", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * result_rank)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", operator_set)],
                             ir_version=min(10, 8 if operator_set < 20 else 10))
    return made


def expected(path, pictures):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: pictures})[0]


def found(network, pictures):
    """The results, channels first."""
    device = unmetal.mtl.create_system_default_device()
    graph = network.make_inference_graph(softmax=False)
    batch = unmetal.ImageBatch.from_array(device, np.ascontiguousarray(pictures.transpose(0, 2, 3, 1)))
    with device.new_command_queue().command_buffer() as command_buffer:
        result = graph.encode_batch(command_buffer, [batch])
        result.synchronize(command_buffer)
    return np.asarray(result).transpose(0, 3, 1, 2)


def judge(path, pictures, allowed=tolerance):
    theirs = expected(path, pictures)
    ours = found(unmetal.onnx.load(path, pictures=(*pictures.shape[2:], pictures.shape[1])), pictures)
    if theirs.ndim == 2:
        theirs = theirs[:, :, None, None]
    assert ours.shape == theirs.shape
    largest = np.abs(theirs).max()
    assert np.abs(ours - theirs).max() <= allowed * max(largest, 1e-30)


def node(kind, *others, outputs=("y",), **attributes):
    return helper.make_node(kind, ["x", *others], list(outputs), **attributes)


scale = np.abs(values(4)) + np.float32(0.5)
channel = (4, 1, 1)
positive = np.abs(values(*channel)) + np.float32(0.5)


def pointwise(kind, **attributes):
    return [node(kind, **attributes)], {}


def after_relu(kind, *others, constants=None, **attributes):
    """Of values from 0.5 on."""
    return [helper.make_node("Abs", ["x"], ["a"]), helper.make_node("Add", ["a", "half"], ["b"]),
            helper.make_node(kind, ["b", *others], ["y"], **attributes)], \
        {"half": np.float32(0.5), **(constants or {})}


half, eight = np.float32(0.5), np.sqrt(np.float32(0.5))
cases = {
    "conv": ([node("Conv", "w", "b", pads=[1, 1, 1, 1])], {"w": values(5, 4, 3, 3), "b": values(5)}),
    "conv-rectangular": ([node("Conv", "w", strides=[2, 1], pads=[2, 0, 1, 3], dilations=[1, 2])],
                         {"w": values(5, 4, 3, 2)}),
    "conv-groups": ([node("Conv", "w", group=2, strides=[2, 2])], {"w": values(6, 2, 3, 3)}),
    "conv-depth-wise": ([node("Conv", "w", group=4, auto_pad="SAME_LOWER")], {"w": values(4, 1, 4, 4)}),
    "conv-same-upper": ([node("Conv", "w", auto_pad="SAME_UPPER", strides=[2, 2])], {"w": values(3, 4, 4, 3)}),
    "conv-whole": ([node("Conv", "w", "b")], {"w": values(5, 4, 9, 11), "b": values(5)}),
    "conv-add": ([node("Conv", "w", outputs=["a"]), helper.make_node("Add", ["a", "b"], ["y"])],
                 {"w": values(5, 4, 3, 3), "b": values(1, 5, 1, 1)}),
    "conv-float16-weights": ([helper.make_node("Cast", ["h"], ["w"], to=1), node("Conv", "w")],
                             {"h": values(5, 4, 3, 3).astype(np.float16)}),
    "conv-double-weights": ([helper.make_node("Cast", ["h"], ["w"], to=1), node("Conv", "w")],
                            {"h": values(5, 4, 3, 3).astype(np.float64)}),
    "conv-transposed-weights": ([helper.make_node("Transpose", ["h"], ["w"], perm=[3, 2, 0, 1]), node("Conv", "w")],
                                {"h": values(3, 3, 4, 5)}),
    "deconv": ([node("ConvTranspose", "w", "b", strides=[2, 2])], {"w": values(4, 3, 2, 2), "b": values(3)}),
    "deconv-pads": ([node("ConvTranspose", "w", strides=[2, 2], pads=[1, 1, 1, 1])], {"w": values(4, 3, 4, 4)}),
    "deconv-output-padding": ([node("ConvTranspose", "w", strides=[2, 3], pads=[1, 1, 1, 1], output_padding=[1, 1])],
                              {"w": values(4, 3, 3, 5)}),
    "deconv-uneven": ([node("ConvTranspose", "w", pads=[0, 2, 1, 0])], {"w": values(4, 2, 3, 4)}),
    "gemm": ([node("Flatten", outputs=["f"]), helper.make_node("Gemm", ["f", "w", "b"], ["y"], transB=1)],
             {"w": values(7, 396), "b": values(7)}, 2),
    "gemm-factors": ([node("Flatten", outputs=["f"]),
                      helper.make_node("Gemm", ["f", "w", "b"], ["y"], alpha=0.5, beta=2.0)],
                     {"w": values(396, 7), "b": values(7)}, 2),
    "matmul-add": ([node("Reshape", "s", outputs=["f"]), helper.make_node("MatMul", ["f", "w"], ["m"]),
                    helper.make_node("Add", ["b", "m"], ["y"])],
                   {"s": np.array([-1, 396]), "w": values(396, 7), "b": values(7)}, 2),
    "matmul-twice": ([node("Reshape", "s", outputs=["f"]), helper.make_node("MatMul", ["f", "w"], ["m"]),
                      helper.make_node("Relu", ["m"], ["r"]), helper.make_node("MatMul", ["r", "v"], ["y"])],
                     {"s": np.array([0, -1]), "w": values(396, 7), "v": values(7, 3)}, 2),
    "flatten-relu-gemm": ([node("Flatten", outputs=["f"]), helper.make_node("Relu", ["f"], ["r"]),
                           helper.make_node("Gemm", ["r", "w"], ["y"])], {"w": values(396, 3)}, 2),
    "reshape-by-shape": ([node("Shape", outputs=["s"]), helper.make_node("Gather", ["s", "zero"], ["n"]),
                          helper.make_node("Unsqueeze", ["n", "axis"], ["u"]),
                          helper.make_node("Concat", ["u", "rest"], ["t"], axis=0),
                          node("Reshape", "t", outputs=["f"]), helper.make_node("MatMul", ["f", "w"], ["y"])],
                         {"zero": np.array(0), "axis": np.array([0]), "rest": np.array([-1]), "w": values(396, 3)}, 2),
    "squeeze": ([node("GlobalAveragePool", outputs=["p"]), helper.make_node("Squeeze", ["p", "axes"], ["s"]),
                 helper.make_node("Gemm", ["s", "w"], ["g"]), helper.make_node("Unsqueeze", ["g", "axes"], ["y"])],
                {"axes": np.array([2, 3]), "w": values(4, 3)}),
    "batch-norm": ([node("BatchNormalization", "s", "b", "m", "v", epsilon=1e-3)],
                   {"s": values(4), "b": values(4), "m": values(4), "v": scale}),
    "batch-norm-scaled": ([node("BatchNormalization", "s", "b", "m", "v", outputs=["n"]),
                           helper.make_node("Mul", ["n", "f"], ["k"]), helper.make_node("Add", ["k", "a"], ["y"])],
                          {"s": values(4), "b": values(4), "m": values(4), "v": scale, "f": values(*channel),
                           "a": values(1, *channel)}),
    "instance-norm": ([node("InstanceNormalization", "s", "b")], {"s": values(4), "b": values(4)}),
    "group-norm": ([node("Reshape", "g", outputs=["a"]), helper.make_node("InstanceNormalization", ["a", "o", "z"], ["n"]),
                    helper.make_node("Reshape", ["n", "t"], ["r"]), helper.make_node("Mul", ["r", "s"], ["k"]),
                    helper.make_node("Add", ["k", "b"], ["y"])],
                   {"g": np.array([0, 2, -1]), "o": np.ones(2, np.float32), "z": np.zeros(2, np.float32),
                    "t": np.array([0, *size]), "s": values(*channel), "b": values(*channel)}),
    "lrn": ([node("LRN", size=3, alpha=0.1, beta=0.75, bias=1.5)], {}),
    "relu": pointwise("Relu"), "leaky-relu": pointwise("LeakyRelu", alpha=0.3), "elu": pointwise("Elu", alpha=0.7),
    "sigmoid": pointwise("Sigmoid"), "tanh": pointwise("Tanh"), "hard-sigmoid": pointwise("HardSigmoid", alpha=0.3),
    "softplus": pointwise("Softplus"), "softsign": pointwise("Softsign"), "abs": pointwise("Abs"),
    "selu": pointwise("Selu"), "hard-swish": pointwise("HardSwish"), "exp": pointwise("Exp"),
    "neg": pointwise("Neg"), "identity": ([node("Identity", outputs=["i"]), helper.make_node("Relu", ["i"], ["y"])], {}),
    "prelu": ([node("PRelu", "s")], {"s": values(*channel)}), "prelu-one": ([node("PRelu", "s")], {"s": values(1)}),
    "log": after_relu("Log"), "sqrt": after_relu("Sqrt"), "reciprocal": after_relu("Reciprocal"),
    "pow": after_relu("Pow", "e", constants={"e": np.float32(1.5)}),
    "square": ([node("Pow", "e")], {"e": np.float32(2)}),
    "clip": ([node("Clip", "low", "high")], {"low": np.float32(-0.5), "high": np.float32(0.75)}),
    "clip-6": ([node("Clip", "low", "high")], {"low": np.float32(0), "high": np.float32(6)}),
    "clip-low": ([node("Clip", "low")], {"low": np.float32(0.25)}),
    "clip-high": ([node("Clip", "", "high")], {"high": np.float32(-0.25)}),
    "gelu-erf": ([node("Div", "d", outputs=["a"]), helper.make_node("Erf", ["a"], ["e"]),
                  helper.make_node("Add", ["e", "one"], ["f"]), node("Mul", "f", outputs=["g"]),
                  helper.make_node("Mul", ["g", "half"], ["y"])],
                 {"d": np.float32(2 ** 0.5), "one": np.float32(1), "half": half}),
    "silu": ([node("Sigmoid", outputs=["s"]), node("Mul", "s")], {}),
    "add": ([node("Relu", outputs=["r"]), node("Add", "r")], {}),
    "sub": ([node("Sigmoid", outputs=["r"]), node("Sub", "r")], {}),
    "div": ([node("Sigmoid", outputs=["r"]), node("Div", "r")], {}),
    "sum": ([node("Relu", outputs=["r"]), node("Tanh", outputs=["t"]), node("Sum", "r", "t")], {}),
    "squeeze-and-excitation": ([node("GlobalAveragePool", outputs=["p"]), helper.make_node("Sigmoid", ["p"], ["s"]),
                                node("Mul", "s")], {}),
    "add-number": ([node("Add", "c")], {"c": np.float32(1.5)}), "number-minus": ([
        helper.make_node("Sub", ["c", "x"], ["y"])], {"c": np.float32(1.5)}),
    "number-over": ([helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Div", ["c", "s"], ["y"])],
                    {"c": np.float32(1.5)}),
    "mul-channels": ([node("Mul", "c")], {"c": values(*channel)}),
    "mul-add-channels": ([node("Mul", "c", outputs=["m"]), helper.make_node("Add", ["m", "a"], ["y"])],
                         {"c": values(*channel), "a": values(1, *channel)}),
    "div-channels": ([node("Div", "c")], {"c": positive}), "sub-channels": ([node("Sub", "c")], {"c": positive}),
    "channels-minus": ([helper.make_node("Sub", ["c", "x"], ["y"])], {"c": positive}),
    "concat": ([node("Relu", outputs=["r"]), node("Tanh", outputs=["t"]), node("Concat", "r", "t", axis=1)], {}),
    "max-pool": ([node("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])], {}),
    "max-pool-uneven": ([node("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 2])], {}),
    "max-pool-ceil": ([node("MaxPool", kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1)], {}),
    "max-pool-same": ([node("MaxPool", kernel_shape=[2, 2], auto_pad="SAME_UPPER")], {}),
    "average-pool": ([node("AveragePool", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1])], {}),
    "average-pool-counts": ([node("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)], {}),
    "average-pool-ceil": ([node("AveragePool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)], {}),
    "lp-pool": ([node("LpPool", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 0])], {}),
    "global-average": pointwise("GlobalAveragePool"), "global-max": pointwise("GlobalMaxPool"),
    "global-lp": pointwise("GlobalLpPool"),
    "reduce-mean": ([node("ReduceMean", axes=[2, 3])], {}), "reduce-mean-flat": ([
        node("ReduceMean", axes=[-1, -2], keepdims=0)], {}, 2),
    "softmax": ([node("Softmax", axis=1)], {}),
    "dropout": ([node("Dropout", "r", outputs=["d"]), helper.make_node("Relu", ["d"], ["y"])], {"r": half}),
    "nearest": ([node("Resize", "", "s", mode="nearest", coordinate_transformation_mode="asymmetric",
                      nearest_mode="floor")], {"s": np.array([1, 1, 2, 3], np.float32)}),
    "nearest-half-pixel": ([node("Resize", "", "s", mode="nearest")], {"s": np.array([1, 1, 3, 2], np.float32)}),
    "linear": ([node("Resize", "", "s", mode="linear")], {"s": np.array([1, 1, 2, 2], np.float32)}),
    "linear-corners": ([node("Resize", "", "s", mode="linear", coordinate_transformation_mode="align_corners")],
                       {"s": np.array([1, 1, 2, 3], np.float32)}),
    "linear-asymmetric": ([node("Resize", "", "s", mode="linear", coordinate_transformation_mode="asymmetric")],
                          {"s": np.array([1, 1, 2, 2], np.float32)}),
    "pad": ([node("Pad", "p", "v")], {"p": np.array([0, 0, 1, 2, 0, 0, 3, 0]), "v": np.float32(0.5)}),
    "pad-edge": ([node("Pad", "p", mode="edge")], {"p": np.array([0, 0, 1, 2, 0, 0, 3, 0])}),
    "pad-reflect": ([node("Pad", "p", mode="reflect")], {"p": np.array([0, 0, 1, 2, 0, 0, 3, 0])}),
    "pad-computed": ([helper.make_node("Constant", [], ["turned"], value=numpy_helper.from_array(np.array([3, 4, 1, 2]))),
                      helper.make_node("ConstantOfShape", ["four"], ["none"],
                                       value=numpy_helper.from_array(np.array([0]))),
                      helper.make_node("Concat", ["turned", "none"], ["all"], axis=0),
                      helper.make_node("Reshape", ["all", "pairs"], ["a"]),
                      helper.make_node("Slice", ["a", "last", "first", "zero", "back"], ["b"]),
                      helper.make_node("Transpose", ["b"], ["c"], perm=[1, 0]),
                      helper.make_node("Reshape", ["c", "row"], ["d"]), node("Pad", "d")],
                     {"four": np.array([4]), "pairs": np.array([-1, 2]), "last": np.array([-1]),
                      "first": np.array([np.iinfo(np.int64).min + 1]), "zero": np.array([0]), "back": np.array([-1]),
                      "row": np.array([-1])}),
    "slice-axes": ([helper.make_node("Slice", ["all", "starts", "ends", "axes", "steps"], ["w"]), node("Conv", "w")],
                   {"all": values(5, 9, 3, 5), "starts": np.array([-2, 100, 1]), "ends": np.array([-100, 0, 100]),
                    "axes": np.array([1, 3, 0]), "steps": np.array([-2, -3, 2])}),
    "conv-expanded-bias": ([helper.make_node("Shape", ["w"], ["o"], start=0, end=1),
                            helper.make_node("CastLike", ["half", "x"], ["h"]),
                            helper.make_node("Expand", ["h", "o"], ["b"]), node("Conv", "w", "b")],
                           {"w": values(5, 4, 3, 3), "half": np.float32(0.5)}),
    "reshape-zeros": ([node("Reshape", "s", outputs=["f"], allowzero=1), helper.make_node("MatMul", ["f", "w"], ["y"])],
                      {"s": np.array([-1, 396]), "w": values(396, 3)}, 2),
    "group-norm-by-shape": ([node("Reshape", "g", outputs=["a"]),
                             helper.make_node("InstanceNormalization", ["a", "o", "z"], ["n"]),
                             node("Shape", outputs=["t"]), helper.make_node("Reshape", ["n", "t"], ["y"])],
                            {"g": np.array([0, 2, -1]), "o": np.ones(2, np.float32), "z": np.zeros(2, np.float32)}),
    "group-norm-expanded": ([helper.make_node("CastLike", ["one", "x"], ["c"]), helper.make_node("Expand", ["c", "two"], ["o"]),
                             node("Reshape", "g", outputs=["a"]),
                             helper.make_node("InstanceNormalization", ["a", "o", "z"], ["n"]),
                             helper.make_node("Reshape", ["n", "t"], ["y"])],
                            {"one": np.float32(1), "two": np.array([2]), "g": np.array([0, 2, -1]),
                             "z": np.zeros(2, np.float32), "t": np.array([0, *size])}),
    "layer-norm-row": ([node("GlobalAveragePool", outputs=["p"]), helper.make_node("Flatten", ["p"], ["f"]),
                        helper.make_node("LayerNormalization", ["f", "s", "b"], ["y"], axis=-1)],
                       {"s": values(4), "b": values(4)}, 2),
    "celu": pointwise("Celu", alpha=0.6),
    "squeeze-twice": ([node("GlobalMaxPool", outputs=["p"]), helper.make_node("Squeeze", ["p", "last"], ["a"]),
                       helper.make_node("Squeeze", ["a", "last"], ["s"]), helper.make_node("Gemm", ["s", "w"], ["g"]),
                       helper.make_node("Unsqueeze", ["g", "two"], ["a2"]),
                       helper.make_node("Unsqueeze", ["a2", "last"], ["y"])],
                      {"last": np.array([-1]), "two": np.array([2]), "w": values(4, 3)}),
    "first-pixel": ([node("GlobalMaxPool", outputs=["p"]), helper.make_node("Gather", ["p", "zero"], ["a"], axis=2),
                     helper.make_node("Gather", ["a", "zero"], ["s"], axis=2),
                     helper.make_node("Gemm", ["s", "w"], ["y"])], {"zero": np.array(0), "w": values(4, 3)}, 2),
    "mean-of-row": ([node("Reshape", "s", outputs=["r"]), helper.make_node("ReduceMean", ["r"], ["y"], axes=[-1], keepdims=0)],
                    {"s": np.array([0, 4, 99])}, 2),
    "mean-twice": ([node("ReduceMean", axes=[3], keepdims=0, outputs=["r"]),
                    helper.make_node("ReduceMean", ["r"], ["y"], axes=[2], keepdims=0)], {}, 2),
    "mean-rows": ([node("ReduceMean", axes=[2])], {}), "max-columns": ([node("ReduceMax", axes=[3])], {}),
    "reduce-sum": ([node("ReduceSum", "a")], {"a": np.array([2, 3])}),
    "permute-flatten": ([node("Transpose", perm=[0, 2, 3, 1], outputs=["t"]), helper.make_node("Flatten", ["t"], ["f"]),
                         helper.make_node("Dropout", ["f"], ["d"]), helper.make_node("Gemm", ["d", "w"], ["y"])],
                        {"w": values(396, 3)}, 2),
    "permute-mean": ([node("Transpose", perm=[0, 2, 3, 1], outputs=["t"]),
                      helper.make_node("ReduceMean", ["t"], ["y"], axes=[1, 2], keepdims=0)], {}, 2),
    "permute-twice": ([node("Relu", outputs=["r"]), helper.make_node("Reshape", ["r", "s"], ["a"]),
                       helper.make_node("Transpose", ["a"], ["b"], perm=[0, 2, 1]),
                       helper.make_node("Reshape", ["b", "t"], ["c"]),
                       helper.make_node("Transpose", ["c"], ["y"], perm=[0, 3, 1, 2])],
                      {"s": np.array([0, 4, -1]), "t": np.array([0, 9, 11, 4])}),
    "constants": ([helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(values(3, 4, 2, 2))),
                   helper.make_node("ConstantOfShape", ["s"], ["b"],
                                    value=numpy_helper.from_array(np.array([0.5], np.float32))),
                   node("Conv", "w", "b")], {"s": np.array([3])}),
}


@pytest.mark.parametrize("name", cases)
def test_operators(name, tmp_path):
    nodes, constants, *rank = cases[name]
    path = tmp_path / "model.onnx"
    onnx.save(model(nodes, constants, result_rank=rank[0] if rank else 4), path)
    judge(path, values(3, *size))


def test_data_in_another_file(tmp_path):
    """As torch.onnx.export writes it."""
    weights = values(5, 4, 3, 3)
    made = model([node("Conv", "w", "b")], {"w": weights, "b": values(5)})
    path = tmp_path / "model.onnx"
    onnx.save(made, path, save_as_external_data=True, location="model.onnx.data", size_threshold=0)
    assert path.stat().st_size < weights.nbytes < (tmp_path / "model.onnx.data").stat().st_size
    judge(path, values(2, *size))
    (tmp_path / "model.onnx.data").write_bytes(bytes(100))
    with pytest.raises(unmetal.Error, match='constant "w": its data goes beyond the end of its file'):
        unmetal.onnx.load(path, pictures=(9, 11, 4))


def test_channels_last(tmp_path):
    """As tf2onnx writes it: pictures of batch x height x width x channels."""
    path = tmp_path / "model.onnx"
    height, width, channels = 7, 6, 4
    nodes = [node("Transpose", perm=[0, 3, 1, 2], outputs=["t"]), helper.make_node("Conv", ["t", "w"], ["c"]),
             helper.make_node("Transpose", ["c"], ["l"], perm=[0, 2, 3, 1]), helper.make_node("Reshape", ["l", "s"], ["f"]),
             helper.make_node("MatMul", ["f", "v"], ["y"])]
    onnx.save(model(nodes, {"w": values(5, 4, 3, 3), "s": np.array([-1, 100]), "v": values(100, 3)},
                    shape=(height, width, channels), result_rank=2), path)
    pictures = values(2, height, width, channels)
    network = unmetal.onnx.load(path)
    assert network.input_shape == (height, width, channels)
    ours = found(network, pictures.transpose(0, 3, 1, 2))
    theirs = expected(path, pictures)
    assert np.abs(ours[:, :, 0, 0] - theirs).max() <= tolerance * np.abs(theirs).max()


@pytest.mark.parametrize("name, operator_set", [
    ("gelu", 20), ("mish", 18), ("mean", 18), ("group", 21), ("pad-axes", 18), ("clip", 7), ("dropout", 7),
    ("upsample", 9), ("softmax", 9), ("squeeze", 11), ("pad", 7), ("newest", 23)])
def test_other_versions_of_the_operator_set(name, operator_set, tmp_path):
    made = {
        "gelu": lambda: ([node("Gelu")], {}), "mish": lambda: ([node("Mish")], {}),
        "mean": lambda: ([node("ReduceMean", "a")], {"a": np.array([2, 3])}),
        "group": lambda: ([node("GroupNormalization", "s", "b", num_groups=2)], {"s": values(4), "b": values(4)}),
        "pad-axes": lambda: ([node("Pad", "p", "", "a")], {"p": np.array([1, 2]), "a": np.array([2])}),
        "clip": lambda: ([node("Clip", min=-0.5, max=0.5)], {}), "dropout": lambda: ([node("Dropout", outputs=["d"], ratio=0.25), helper.make_node("Relu", ["d"], ["y"])], {}),
        "upsample": lambda: ([node("Upsample", "s", mode="nearest")], {"s": np.array([1, 1, 2, 2], np.float32)}),
        "softmax": lambda: ([node("GlobalAveragePool", outputs=["p"]), helper.make_node("Softmax", ["p"], ["y"])], {}),
        "squeeze": lambda: ([node("GlobalAveragePool", outputs=["p"]),
                             helper.make_node("Squeeze", ["p"], ["y"], axes=[2, 3])], {}, 2),
        "pad": lambda: ([node("Pad", pads=[0, 0, 1, 1, 0, 0, 2, 2], value=1.0)], {}),
        "newest": lambda: ([node("Conv", "w")], {"w": values(3, 4, 3, 3)}),
    }[name]
    nodes, constants, *rank = made()
    path = tmp_path / "model.onnx"
    onnx.save(model(nodes, constants, operator_set=operator_set, result_rank=rank[0] if rank else 4), path)
    judge(path, values(3, *size))
