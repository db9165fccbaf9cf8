"""ONNX files: onnx's checker takes them, and ONNX Runtime computes of them what the library does."""

import json
import pathlib
import re
import shutil

import numpy as np
import pytest

import unmetal
from onnx_running import close, network_tolerance, node_tolerance, run
from sources import Filters
from unmetal import NNDefaultPadding, NNPadding, NNPaddingMethod, train

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

def encoded(graph, device, *pictures):
    images = [unmetal.ImageBatch.from_array(device, batch) for batch in pictures]
    exported = []
    with device.new_command_queue().command_buffer() as command_buffer:
        result = graph.encode_batch(command_buffer, images, intermediate_images=exported)
        for batch in (result, *exported):
            batch.synchronize(command_buffer)
    return [np.asarray(batch) for batch in (result, *exported)]


def judge_graph(folder, device, graph, *pictures, tolerance=node_tolerance):
    path = folder / "graph.onnx"
    unmetal.onnx.export_graph(graph, [batch.shape[1:] for batch in pictures], path)
    for found, expected in zip(run(path, *pictures), encoded(graph, device, *pictures), strict=True):
        close(found, expected, tolerance)
    return path


random = np.random.default_rng(1)
size = (9, 11, 8)


def policy(*bits):
    method = NNPaddingMethod.SizeValidOnly
    for bit in bits:
        method |= bit
    return NNDefaultPadding.padding(method)


class Custom(NNPadding):
    """Changes what a policy of the library's cannot: edge modes, offsets, channels."""

    padding_method = NNPaddingMethod.SizeSame | NNPaddingMethod.Custom

    def __init__(self, **properties):
        super().__init__()
        self.properties = properties

    def destination_image_descriptor(self, images, states, kernel, suggested):
        for name, value in self.properties.items():
            if name in ("width", "height", "feature_channels"):
                setattr(suggested, name, value)
            else:
                setattr(kernel, name, value)
        return suggested


clamp = {"edge_mode": unmetal.ImageEdgeMode.Clamp}
zero = {"edge_mode": unmetal.ImageEdgeMode.Zero}
policies = {
    "same": policy(NNPaddingMethod.SizeSame),
    "same-right": policy(NNPaddingMethod.SizeSame, NNPaddingMethod.AddRemainderToBottomRight),
    "valid": policy(),
    "valid-bottom-right": policy(NNPaddingMethod.AlignBottomRight),
    "full": policy(NNPaddingMethod.SizeFull),
    "top-left": policy(NNPaddingMethod.SizeFull, NNPaddingMethod.AlignTopLeft),
    "clamp": Custom(**clamp),
    "zero": Custom(**zero),
    "moved": Custom(offset=unmetal.Offset(3, -1, 0)),
    "moved-clamp": Custom(offset=unmetal.Offset(-1, 2, 0), **clamp),
    "smaller": Custom(width=3, height=4),
    "channels": Custom(source_feature_channel_offset=4, source_feature_channel_max_count=4, feature_channels=4),
}


def filters(width, height, inputs, outputs, biases=True, groups=1, depth_wise=False, **fields):
    of_filter = 1 if depth_wise else inputs // groups
    weights = random.standard_normal((outputs, height, width, of_filter)).astype(np.float32)
    source = Filters(weights, random.standard_normal(outputs).astype(np.float32) if biases else None, inputs)
    if depth_wise:
        source.descriptor = unmetal.CNNDepthWiseConvolutionDescriptor(width, height, inputs, outputs)
    elif "sub_pixel_scale_factor" in fields:
        source.descriptor = unmetal.CNNSubPixelConvolutionDescriptor(width, height, inputs, outputs)
    else:
        source.descriptor.groups = groups
    for name, value in fields.items():
        setattr(source.descriptor, name, value)
    return source


def convolution(*shape, **fields):
    return lambda image: unmetal.CNNConvolutionNode(image, filters(*shape, **fields))


def strides(x, y):
    return {"stride_in_pixels_x": x, "stride_in_pixels_y": y}


def dilations(x, y):
    return {"dilation_rate_x": x, "dilation_rate_y": y}


windows = {
    "convolution": convolution(3, 5, 8, 6),
    "convolution-even": convolution(4, 2, 8, 6, biases=False),
    "convolution-strided": convolution(3, 2, 8, 4, **strides(2, 3)),
    "convolution-dilated": convolution(3, 2, 8, 4, **dilations(2, 3)),
    "convolution-groups": convolution(3, 3, 8, 6, groups=2),
    "convolution-depth-wise": convolution(3, 3, 8, 16, depth_wise=True),
    "maximum": lambda image: unmetal.CNNPoolingMaxNode(image, 3, 2, 2, 1),
    "maximum-dilated": lambda image: unmetal.CNNDilatedPoolingMaxNode(image, 2, 3, 1, 1, 3, 2),
    "average": lambda image: unmetal.CNNPoolingAverageNode(image, 3, 4, 2, 3),
    "norm": lambda image: unmetal.CNNPoolingL2NormNode(image, 2, 3, 1, 2),
}


@pytest.mark.parametrize("name", windows)
@pytest.mark.parametrize("padding", policies)
def test_windows(name, padding, device, tmp_path):
    pictures = random.standard_normal((3, *size)).astype(np.float32)
    if padding == "channels" and name.startswith("convolution"):
        node = convolution(3, 3, 4, 4)(unmetal.NNImageNode())
    else:
        node = windows[name](unmetal.NNImageNode())
    node.padding_policy = policies[padding]
    judge_graph(tmp_path, device, unmetal.NNGraph(device, node.result_image), pictures)


@pytest.mark.parametrize("band", [0, 1, 2])
def test_an_average_that_counts_some_zeros(band, device, tmp_path):
    node = unmetal.CNNPoolingAverageNode(unmetal.NNImageNode(), 4, 5, 2, 1)
    node.padding_policy = Custom(**clamp, zero_pad_size_x=band, zero_pad_size_y=1)
    graph = unmetal.NNGraph(device, node.result_image)
    judge_graph(tmp_path, device, graph, random.standard_normal((3, *size)).astype(np.float32))


transposed = {
    "valid": policy(), "same": policy(NNPaddingMethod.SizeSame), "full": policy(NNPaddingMethod.SizeFull),
    "same-right": policy(NNPaddingMethod.SizeSame, NNPaddingMethod.AddRemainderToBottomRight)}


@pytest.mark.parametrize("padding", transposed)
@pytest.mark.parametrize("fields", [{}, strides(2, 3), dilations(2, 1), {**strides(3, 2), "groups": 2},
                                    {**strides(4, 5), "biases": False}], ids=str)
def test_transposed_convolutions(padding, fields, device, tmp_path):
    node = unmetal.CNNConvolutionTransposeNode(unmetal.NNImageNode(), filters(3, 2, 8, 6, **fields))
    node.padding_policy = transposed[padding]
    graph = unmetal.NNGraph(device, node.result_image)
    judge_graph(tmp_path, device, graph, random.standard_normal((3, *size)).astype(np.float32))


@pytest.mark.parametrize("width, height, stride", [(3, 3, 2), (4, 2, 3), (1, 1, 4)])
def test_a_convolution_is_undone(width, height, stride, device, tmp_path):
    down = unmetal.CNNConvolutionNode(unmetal.NNImageNode(), filters(width, height, 8, 4, **strides(stride, stride)))
    up = unmetal.CNNConvolutionTransposeNode(down.result_image, filters(width, height, 4, 8, **strides(stride, stride)),
                                             down.result_state)
    graph = unmetal.NNGraph(device, up.result_image)
    path = judge_graph(tmp_path, device, graph, random.standard_normal((3, *size)).astype(np.float32))
    assert [entry.shape[1:] for entry in onnxruntime.InferenceSession(path).get_outputs()] == [[8, 9, 11]]


descriptors = [(unmetal.CNNNeuronType.ReLU, 0), (unmetal.CNNNeuronType.ReLU, 0.25), (unmetal.CNNNeuronType.Linear, 2, -1),
               (unmetal.CNNNeuronType.Sigmoid,), (unmetal.CNNNeuronType.HardSigmoid, 0.5, 0.25),
               (unmetal.CNNNeuronType.TanH, 2, 0.5), (unmetal.CNNNeuronType.Absolute,),
               (unmetal.CNNNeuronType.SoftPlus, 0.5, 2), (unmetal.CNNNeuronType.SoftSign,),
               (unmetal.CNNNeuronType.ELU, 0.75), (unmetal.CNNNeuronType.ReLUN, 0, 1), (unmetal.CNNNeuronType.ReLUN, 0.5, 1),
               (unmetal.CNNNeuronType.ReLUN, 0, -1), (unmetal.CNNNeuronType.Power, 1, 5, 2.5),
               (unmetal.CNNNeuronType.Exponential, 0.5, 1, 3), (unmetal.CNNNeuronType.Exponential, 0.5, 1, -1),
               (unmetal.CNNNeuronType.Logarithm, 0.5, 9, 2), (unmetal.CNNNeuronType.Logarithm, 1, 9, -1),
               (unmetal.CNNNeuronType.GeLU,), (unmetal.CNNNeuronType.None_,), "PReLU"]


def descriptor_of(given, channels):
    if given == "PReLU":
        return unmetal.NNNeuronDescriptor.cnn_neuron_prelu_descriptor(random.standard_normal(channels).astype(np.float32))
    return unmetal.NNNeuronDescriptor(*given)


@pytest.mark.parametrize("given", descriptors, ids=str)
def test_neurons(given, device, tmp_path):
    """By themselves, moved by a policy, and fused into a convolution, a sub-pixel convolution and a normalisation."""
    image = unmetal.NNImageNode()
    alone = unmetal.CNNNeuronNode(image, descriptor_of(given, 8))
    alone.padding_policy = Custom(offset=unmetal.Offset(1, -1, 0), width=7)
    fused = unmetal.CNNNeuronNode(convolution(3, 3, 8, 6)(image).result_image, descriptor_of(given, 6))
    inside = convolution(3, 3, 8, 6, fused_neuron_descriptor=descriptor_of(given, 6))(image)
    normalized = unmetal.CNNBatchNormalizationNode(image, Normalization(8))
    behind = unmetal.CNNNeuronNode(normalized.result_image, descriptor_of(given, 8))
    results = [node.result_image for node in (alone, fused, inside, behind)]
    graph = unmetal.NNGraph(device, results)
    pictures = random.uniform(-2, 2, (3, *size)).astype(np.float32)
    if given != "PReLU" and given[0] in (unmetal.CNNNeuronType.Power, unmetal.CNNNeuronType.Logarithm):
        graph = unmetal.NNGraph(device, results[0])
    judge_graph(tmp_path, device, graph, pictures, tolerance=network_tolerance)


class Normalization(unmetal.CNNBatchNormalizationDataSource):
    def __init__(self, channels):
        super().__init__()
        self.number_of_feature_channels = channels
        self.gamma = random.standard_normal(channels).astype(np.float32)
        self.beta = random.standard_normal(channels).astype(np.float32)
        self.mean = random.standard_normal(channels).astype(np.float32)
        self.variance = random.uniform(0.1, 2, channels).astype(np.float32)
        self.epsilon = 0.01
        self.label = "normalization"

    def load(self):
        return True

    def purge(self):
        pass


class OfPictures(unmetal.CNNInstanceNormalizationDataSource):
    def __init__(self, channels):
        super().__init__()
        self.number_of_feature_channels = channels
        self.gamma = random.standard_normal(channels).astype(np.float32)
        self.beta = random.standard_normal(channels).astype(np.float32)
        self.epsilon = 0.01

    def load(self):
        return True

    def purge(self):
        pass


class OfGroups(unmetal.CNNGroupNormalizationDataSource):
    def __init__(self, channels, groups):
        super().__init__()
        self.number_of_feature_channels, self.number_of_groups = channels, groups
        self.gamma = random.standard_normal(channels).astype(np.float32)
        self.beta = random.standard_normal(channels).astype(np.float32)
        self.epsilon = 0.01


def local(kind, *arguments, **fields):
    def made(image):
        node = kind(image, *arguments)
        for name, value in fields.items():
            setattr(node, name, value)
        return node
    return made


def undone(kind, **fields):
    def made(image):
        node = kind(image, image)
        for name, value in fields.items():
            setattr(node, name, value)
        return node
    return made


def concatenated(image):
    first = convolution(1, 1, 8, 3)(image).result_image
    second = convolution(1, 1, 8, 5)(image).result_image
    return unmetal.NNConcatenationNode([first, image, second])


def side_by_side(image):
    node = concatenated(image)
    node.channel_alignment = 1
    return node


def padded(mode, before=(1, 2, 3), after=(3, 1, 2), fill=0.0):
    def made(image):
        node = unmetal.NNPadNode(image, unmetal.ImageCoordinate(*before), unmetal.ImageCoordinate(*after), mode)
        node.fill_value = fill
        return node
    return made


def bilinear(x, y, align_corners=False, centers=False):
    def made(image):
        node = unmetal.CNNUpsamplingBilinearNode(image, x, y, align_corners)
        node.half_pixel_centers = centers
        return node
    return made


def sums_of_channels(image):
    node = unmetal.NNReductionFeatureChannelsSumNode(image)
    node.weight = 0.3
    return node


nodes = {
    "fully-connected": lambda image: unmetal.CNNFullyConnectedNode(image, filters(11, 9, 8, 5)),
    "sub-pixels": convolution(3, 3, 8, 12, sub_pixel_scale_factor=2),
    "sub-pixels-neuron": convolution(3, 3, 8, 12, sub_pixel_scale_factor=2, fused_neuron_descriptor=descriptor_of("PReLU", 12)),
    "batch-normalization": lambda image: unmetal.CNNBatchNormalizationNode(image, Normalization(8)),
    "instance-normalization": lambda image: unmetal.CNNInstanceNormalizationNode(image, OfPictures(8)),
    "group-normalization": lambda image: unmetal.CNNGroupNormalizationNode(image, OfGroups(8, 2)),
    "layer-normalization": lambda image: unmetal.CNNGroupNormalizationNode(image, OfGroups(8, 1)),
    "channels-odd": local(unmetal.CNNCrossChannelNormalizationNode, 3, alpha=2.0, beta=0.75, delta=0.5),
    "channels-operator": local(unmetal.CNNCrossChannelNormalizationNode, 5, alpha=2.0, beta=0.75, delta=2.0),
    "channels-even": local(unmetal.CNNCrossChannelNormalizationNode, 4, alpha=2.0, beta=0.75, delta=0.5),
    "channels-all": local(unmetal.CNNCrossChannelNormalizationNode, 21, alpha=2.0, beta=0.75, delta=0.5),
    "spatial": local(unmetal.CNNSpatialNormalizationNode, 3, alpha=0.5, beta=0.75, delta=0.5),
    "spatial-even": local(unmetal.CNNSpatialNormalizationNode, 4, alpha=0.5, beta=0.75, delta=0.5),
    "contrast": local(unmetal.CNNLocalContrastNormalizationNode, 5, alpha=0.5, delta=1.0, p0=0.5, pm=2.0, ps=3.0),
    "softmax": unmetal.CNNSoftMaxNode,
    "logarithm-of-softmax": unmetal.CNNLogSoftMaxNode,
    "addition": undone(unmetal.NNAdditionNode, primary_scale=2.0, secondary_scale=-0.5, bias=0.25),
    "subtraction": undone(unmetal.NNSubtractionNode, primary_scale=2.0, maximum_value=0.5),
    "multiplication": undone(unmetal.NNMultiplicationNode, minimum_value=0.25, maximum_value=0.5),
    "division": undone(unmetal.NNDivisionNode, secondary_scale=2.0, bias=1.0),
    "row-of-rows": undone(unmetal.NNAdditionNode, secondary_stride_in_pixels_x=0),
    "number": undone(unmetal.NNMultiplicationNode, secondary_stride_in_pixels_x=0, secondary_stride_in_pixels_y=0,
                     secondary_stride_in_feature_channels=0),
    "first-channel": undone(unmetal.NNSubtractionNode, primary_stride_in_feature_channels=0),
    "concatenation": concatenated,
    "concatenation-dense": side_by_side,
    "nearest": lambda image: unmetal.CNNUpsamplingNearestNode(image, 3, 2),
    "bilinear": bilinear(2, 3),
    "bilinear-corners": bilinear(3, 2, align_corners=True),
    "bilinear-centers": bilinear(2, 4, centers=True),
    "scale-up": lambda image: unmetal.NNBilinearScaleNode(image, unmetal.mtl.Size(17, 20, 1)),
    "scale-down": lambda image: unmetal.NNBilinearScaleNode(image, unmetal.mtl.Size(5, 4, 1)),
    "lanczos-up": lambda image: unmetal.NNLanczosScaleNode(image, unmetal.mtl.Size(17, 20, 1)),
    "lanczos-down": lambda image: unmetal.NNLanczosScaleNode(image, unmetal.mtl.Size(5, 4, 1)),
    "pad": padded(unmetal.ImageEdgeMode.Zero),
    "pad-channels": padded(unmetal.ImageEdgeMode.Zero, fill=2.0),
    "pad-constant": padded(unmetal.ImageEdgeMode.Constant, fill=2.0),
    "pad-edge": padded(unmetal.ImageEdgeMode.Clamp),
    "pad-mirror": padded(unmetal.ImageEdgeMode.Mirror),
    "pad-mirror-twice": padded(unmetal.ImageEdgeMode.Mirror, (25, 20, 9), (1, 30, 17)),
    "pad-mirror-with-edge": padded(unmetal.ImageEdgeMode.MirrorWithEdge, (25, 2, 9), (0, 30, 17)),
    "reshape": lambda image: unmetal.NNReshapeNode(image, 4, 6, 33),
    "gram": lambda image: unmetal.NNGramMatrixCalculationNode(image, 0.01),
    "row-minimum": unmetal.NNReductionRowMinNode, "row-maximum": unmetal.NNReductionRowMaxNode,
    "row-sum": unmetal.NNReductionRowSumNode, "row-mean": unmetal.NNReductionRowMeanNode,
    "column-minimum": unmetal.NNReductionColumnMinNode, "column-maximum": unmetal.NNReductionColumnMaxNode,
    "column-sum": unmetal.NNReductionColumnSumNode, "column-mean": unmetal.NNReductionColumnMeanNode,
    "spatial-mean": unmetal.NNReductionSpatialMeanNode,
    "channels-minimum": unmetal.NNReductionFeatureChannelsMinNode,
    "channels-maximum": unmetal.NNReductionFeatureChannelsMaxNode,
    "channels-mean": unmetal.NNReductionFeatureChannelsMeanNode, "channels-sum": sums_of_channels,
    "channels-argument-minimum": unmetal.NNReductionFeatureChannelsArgumentMinNode,
    "channels-argument-maximum": unmetal.NNReductionFeatureChannelsArgumentMaxNode,
}


@pytest.mark.parametrize("name", nodes)
def test_nodes(name, device, tmp_path):
    graph = unmetal.NNGraph(device, nodes[name](unmetal.NNImageNode()).result_image)
    pictures = random.standard_normal((3, *size)).astype(np.float32)
    judge_graph(tmp_path, device, graph, pictures, tolerance=network_tolerance)


@pytest.mark.parametrize("kind", unmetal.NNComparisonType)
def test_comparisons(kind, device, tmp_path):
    node = unmetal.NNComparisonNode(unmetal.NNImageNode(), unmetal.NNImageNode())
    node.comparison_type = kind
    pictures = random.integers(0, 4, (2, 3, *size)).astype(np.float32)
    judge_graph(tmp_path, device, unmetal.NNGraph(device, node.result_image), *pictures)


class Named(unmetal.Handle):
    def __init__(self, label):
        super().__init__()
        self.label = label


def test_several_inputs_and_outputs_with_names(device, tmp_path):
    left, right = unmetal.NNImageNode(Named("left")), unmetal.NNImageNode()
    total = unmetal.NNAdditionNode(left, right)
    total.label = "total"
    total.result_image.export_from_graph = True
    total.result_image.handle = Named("sum")
    total.result_image.image_allocator = unmetal.Image.default_allocator()
    relu = unmetal.CNNNeuronReLUNode(total.result_image)
    graph = unmetal.NNGraph(device, [relu.result_image, unmetal.CNNSoftMaxNode(relu.result_image).result_image])
    pictures = [random.standard_normal((3, *size)).astype(np.float32) for _ in range(2)]
    model = onnx.load(judge_graph(tmp_path, device, graph, *pictures)).graph
    assert [entry.name for entry in model.input] == ["left", "input"]
    assert [entry.name for entry in model.output] == ["output", "output_2", "sum"]
    assert [(node.name, node.op_type) for node in model.node] == [
        ("total/Add", "Add"), ("CNNNeuron/Relu", "Relu"), ("CNNSoftMax/Softmax", "Softmax")]


def test_a_dropout_is_left_out(device, tmp_path):
    dropout = unmetal.CNNDropoutNode(unmetal.NNImageNode(), 0.5)
    unmetal.onnx.export_graph(unmetal.NNGraph(device, dropout.result_image), [size], tmp_path / "graph.onnx")
    pictures = random.standard_normal((3, *size)).astype(np.float32)
    assert np.array_equal(run(tmp_path / "graph.onnx", pictures)[0], pictures)
    relu = unmetal.CNNNeuronReLUNode(unmetal.NNImageNode())
    dropout = unmetal.CNNDropoutNode(relu.result_image, 0.5)
    graph = unmetal.NNGraph(device, [relu.result_image, dropout.result_image])
    unmetal.onnx.export_graph(graph, [size], tmp_path / "graph.onnx")
    for result in run(tmp_path / "graph.onnx", pictures):
        assert np.array_equal(result, np.maximum(pictures, 0))


def random_network(seed):
    """A classifier of random layers."""
    print(f"network {seed}")
    chosen = np.random.default_rng(seed)
    shape = int(chosen.integers(12, 30)), int(chosen.integers(12, 30)), int(chosen.integers(1, 5))
    network = train.Network(shape, seed=seed)
    x = network.input
    for _ in range(chosen.integers(3, 9)):
        x = random_layer(x, chosen)
    if chosen.random() < 0.3:
        x = x.global_average_pool()
    x.dense(int(chosen.integers(2, 12)), biases=bool(chosen.random() < 0.5))
    return network, chosen


def random_layer(x, chosen):
    channels, kernel = int(4 * chosen.integers(1, 6)), int(chosen.integers(1, 6))
    padding = train.Padding.Same if chosen.random() < 0.6 or min(x.height, x.width) < 8 else train.Padding.Valid
    stride = int(chosen.integers(1, 3)) if min(x.height, x.width) > 7 else 1
    activations = ("relu", "leaky_relu", "relu6", "elu", "gelu", "sigmoid", "hard_sigmoid", "tanh", "softplus", "softsign")

    def convolution():
        dilation = 2 if chosen.random() < 0.3 and kernel < 4 else 1
        groups = 2 if x.channels % 2 == 0 and chosen.random() < 0.4 else 1
        return x.convolution(channels, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups,
                             biases=bool(chosen.random() < 0.5))

    def shortcut():
        y = x.convolution(x.channels, 3).batch_normalization().relu()
        return x + y if chosen.random() < 0.5 else x.concatenate(y)

    kinds = (convolution, convolution, shortcut,
             lambda: x.convolution(channels, 3).batch_normalization().relu(),
             lambda: x.convolution(channels, 3).instance_normalization(),
             lambda: x.convolution(channels, 3).group_normalization(2),
             lambda: getattr(x, str(chosen.choice(activations)))(),
             lambda: x.cross_channel_normalization(size=int(chosen.integers(1, 6))),
             lambda: x.max_pool(min(kernel, 4), stride=stride, padding=padding),
             lambda: x.average_pool(min(kernel, 4), stride=stride, padding=padding),
             lambda: x.dropout(0.25),
             lambda: x.transposed_convolution(4, kernel, stride=2) if x.height < 16 else x,
             lambda: x.upsample(2, chosen.choice([train.UpsamplingMode.Nearest, train.UpsamplingMode.Bilinear]))
             if x.height < 16 else x)
    return kinds[chosen.integers(len(kinds))]()


def trained_a_little(network, chosen):
    """Running statistics, biases and factors that are not those at the beginning."""
    count, classes = 32, network.output_shape[2]
    data = train.Dataset(chosen.random((count, *network.input_shape), np.float32), chosen.integers(classes, size=count),
                         [str(index) for index in range(classes)])
    train.Trainer(network, epochs=2, batch_size=16, learning_rate=1e-3).fit(data)


@pytest.mark.parametrize("seed", range(20))
def test_random_networks(seed, tmp_path):
    network, chosen = random_network(seed)
    trained_a_little(network, chosen)
    pictures = chosen.random((100, *network.input_shape), np.float32)
    expected = network.predict(pictures)[:, None, None, :]
    unmetal.onnx.export_network(network, tmp_path / "network.onnx")
    found, = run(tmp_path / "network.onnx", pictures)
    close(found, expected, network_tolerance)
    unmetal.onnx.export_network(network, tmp_path / "scores.onnx", softmax=False)
    scores, = run(tmp_path / "scores.onnx", pictures)
    exponentials = np.exp(scores - scores.max(axis=3, keepdims=True))
    close(exponentials / exponentials.sum(axis=3, keepdims=True), expected, network_tolerance)


def test_classes_and_normalization_are_metadata(tmp_path):
    network = train.Network((8, 8, 3))
    network.input.convolution(4, 3, label="conv").relu().dense(2, label="dense")
    network.normalization = train.Normalization([0.5, 0.25, 0.125], [1, 2, 4])
    unmetal.onnx.export_network(network, tmp_path / "network.onnx", class_names=["cat", "d\u00f6g \"x\""])
    model = onnx.load(tmp_path / "network.onnx")
    metadata = {entry.key: json.loads(entry.value) for entry in model.metadata_props}
    assert metadata == {"classes": ["cat", "d\u00f6g \"x\""], "normalization.mean": [0.5, 0.25, 0.125],
                        "normalization.deviation": [1, 2, 4]}
    assert (model.ir_version, model.opset_import[0].version, model.producer_name) == (8, 18, "unmetal")
    assert [entry.name for entry in model.graph.initializer] == ["conv.weight", "conv.bias", "dense.weight", "dense.bias"]
    unmetal.onnx.export_network(network, tmp_path / "network.onnx", normalization=train.Normalization([0] * 3, [1] * 3))
    model = onnx.load(tmp_path / "network.onnx")
    assert [entry.key for entry in model.metadata_props] == ["normalization.deviation", "normalization.mean"]


def test_what_is_refused_names_the_node(device, tmp_path):
    loss = unmetal.CNNLossNode(unmetal.NNImageNode(), unmetal.CNNLossDescriptor(
        unmetal.CNNLossType.MeanSquaredError, unmetal.CNNReductionType.Sum))
    loss.label = "error"
    with pytest.raises(unmetal.Error, match='cannot export CNNLossNode "error" to ONNX: it is for training'):
        unmetal.onnx.export_graph(unmetal.NNGraph(device, loss.result_image), [size], tmp_path / "graph.onnx")
    assert not list(tmp_path.iterdir())


def test_the_python_of_the_page(tmp_path, monkeypatch, capsys):
    page = (pathlib.Path(__file__).parents[3] / "docs" / "onnx.md").read_text()
    monkeypatch.chdir(tmp_path)
    network = train.Network((8, 8, 3))
    network.input.convolution(4, 3).relu().dense(2)
    generator = np.random.default_rng(7)
    data = train.Dataset(generator.random((32, 8, 8, 3), np.float32), np.arange(32) % 2)
    for block in re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if "model.onnx" in block:
            shutil.copy("network.onnx", "model.onnx")
        exec(block, {"unmetal": unmetal, "train": train, "network": network, "data": data})
    assert re.fullmatch(r"\[('(cat|dog)'(, )?){4}\]\n", capsys.readouterr().out)


def test_no_node_is_forgotten():
    refused = {"CNNLossNode", "CNNYOLOLossNode", "NNForwardLossNode", "NNInitialGradientNode"}
    bases = {"NNFilterNode", "CNNPoolingNode", "CNNNormalizationNode", "NNBinaryArithmeticNode", "NNUnaryReductionNode",
             "CNNUpsamplingNode", "NNScaleNode"}
    nodes = {name for name, found in vars(unmetal).items() if isinstance(found, type)
             and issubclass(found, unmetal.NNFilterNode) and not issubclass(found, unmetal.NNGradientFilterNode)
             and (found is unmetal.CNNNeuronNode or not issubclass(found, unmetal.CNNNeuronNode))}
    used = set(re.findall(r"unmetal\.(\w+Node)\b", pathlib.Path(__file__).read_text()))
    assert nodes - refused - bases <= used
