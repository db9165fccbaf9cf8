"""The graph: nodes, training, updates by data sources written in Python, handles, exports, lifetimes and errors."""

import gc
import threading
import weakref

import numpy as np
import pytest

import unmetal
from sources import Filters, floats

softmax = unmetal.CNNLossDescriptor(unmetal.CNNLossType.SoftMaxCrossEntropy, unmetal.CNNReductionType.Sum)


class Named(unmetal.Handle):
    def __init__(self, label):
        super().__init__()
        self.label = label


def digits(device, random, count):
    """Pictures of 12 x 12 with a bright spot whose place is the class, and labels."""
    classes = random.integers(0, 4, count).astype(np.uint8)
    pictures = random.standard_normal((count, 12, 12, 1)).astype(np.float32) / 4
    for picture, number in zip(pictures, classes):
        picture[3 + 6 * (number // 2), 3 + 6 * (number % 2)] += 3
    labels = unmetal.CNNLossLabels.create_class_batch(device, count)
    unmetal.CNNLossLabels.write_class_indices(labels, classes)
    return pictures, classes, unmetal.ImageBatch.from_array(device, pictures), labels


def network(make_layer, source):
    """Convolution, ReLU, pooling, twice; two fully connected layers: the network that is trained on MNIST, smaller."""
    def convolve(image, *shape):
        node = unmetal.CNNConvolutionNode(image, make_layer(*shape))
        return unmetal.CNNPoolingMaxNode(unmetal.CNNNeuronReLUNode(node.result_image).result_image, 2).result_image

    image = convolve(convolve(source, 5, 5, 1, 4, "conv1"), 5, 5, 4, 8, "conv2")
    image = unmetal.CNNFullyConnectedNode(image, make_layer(3, 3, 8, 16, "dense1")).result_image
    image = unmetal.CNNNeuronReLUNode(image).result_image
    return unmetal.CNNFullyConnectedNode(image, make_layer(1, 1, 16, 4, "dense2"))


def training_graph(device, last, count):
    descriptor = unmetal.CNNLossDescriptor(softmax.loss_type, softmax.reduction_type)
    descriptor.weight, descriptor.number_of_classes = 1 / count, 4
    loss = unmetal.CNNLossNode(last.result_image, descriptor)
    ends = loss.training_graph()
    return unmetal.NNGraph(device, [end.result_image for end in ends], [False] * len(ends))


def loss_of(labels):
    return sum(np.asarray(image).item() for image in unmetal.CNNLossLabels.loss_images(labels))


def train(queue, graph, images, labels, steps):
    losses = []
    for _ in range(steps):
        with queue.command_buffer() as command_buffer:
            assert len(graph.encode_batch(command_buffer, [images], [labels])) == 0  # no result is needed
            labels.synchronize(command_buffer)
        losses.append(loss_of(labels))
    return losses


def test_training_with_ready_made_layers(device, queue, random):
    count = 32
    adam = unmetal.NNOptimizerAdam(device, 0.01)
    layers = []

    def layer(width, height, inputs, outputs, label):
        shape = unmetal.CNNConvolutionDescriptor(width, height, inputs, outputs)
        layers.append(unmetal.TrainableConvolution(device, shape, label, len(layers) + 1, adam))
        return layers[-1]

    source = unmetal.NNImageNode()
    last = network(layer, source)
    graph = training_graph(device, last, count)
    pictures, classes, images, labels = digits(device, random, count)
    losses = train(queue, graph, images, labels, 40)
    assert losses[-1] < losses[0] / 5
    assert all(np.isfinite(losses))
    assert layers[0].optimizer.time_step == 40

    inference = unmetal.NNGraph(device, last.result_image)
    with queue.command_buffer() as command_buffer:
        result = inference.encode_batch(command_buffer, [images])
    found = np.array([np.asarray(image).ravel() for image in result])
    assert (found.argmax(1) == classes).mean() > 0.9


class Descent(Filters):
    """Its own optimiser: momentum on the device, or by NumPy on the host."""

    alive = 0

    def __init__(self, device, weights, on_device=True):
        super().__init__(weights, np.zeros(len(weights), np.float32))
        Descent.alive += 1
        self.updates = 0
        if on_device:
            descriptor = unmetal.NNOptimizerDescriptor(0.05)
            self.optimizer = unmetal.NNOptimizerStochasticGradientDescent(device, 0.9, False, descriptor)
            self.momentum = [unmetal.Vector(device, unmetal.VectorDescriptor(size))
                             for size in (weights.size, len(weights))]

    def __del__(self):
        Descent.alive -= 1

    def update_with_command_buffer(self, command_buffer, gradient_state, source_state):
        self.updates += 1
        result = unmetal.CNNConvolutionWeightsAndBiasesState.create_temporary(command_buffer, self.descriptor)
        self.optimizer.encode(command_buffer, gradient_state, source_state, self.momentum, result)
        return result

    def update_with_gradient_state(self, gradient_state, source_state):
        self.updates += 1
        assert source_state.weight_count == self.weights.size
        self.weights -= 0.05 * floats(gradient_state.gradient_for_weights).reshape(self.weights.shape)
        self.bias_terms -= 0.05 * floats(gradient_state.gradient_for_biases)
        return True


def python_network(device, random, on_device, style):
    layers = []

    def layer(width, height, inputs, outputs, label):
        weights = random.standard_normal((outputs, height, width, inputs)) * np.sqrt(2 / (height * width * inputs))
        layers.append(Descent(device, weights.astype(np.float32), on_device))
        layers[-1].label = label
        return layers[-1]

    last = network(layer, unmetal.NNImageNode())
    node = last
    while node is not None:
        if isinstance(node, unmetal.CNNConvolutionNode):
            node.training_style = style
        node = before(node)
    return layers, last


def before(node):
    """The node in front of one of a chain, found through a gradient node, which holds the source."""
    source = node.gradient_filter(unmetal.NNImageNode()).source_image
    return source.producer


@pytest.mark.parametrize("on_device", [True, False])
def test_training_with_sources_of_ones_own(device, queue, random, on_device):
    style = unmetal.NNTrainingStyle.UpdateDeviceGPU if on_device else unmetal.NNTrainingStyle.UpdateDeviceCPU
    layers, last = python_network(device, random, on_device, style)
    count = 32
    graph = training_graph(device, last, count)
    _, _, images, labels = digits(device, random, count)
    losses = train(queue, graph, images, labels, 60)
    assert losses[-1] < losses[0] / 2
    assert [layer.updates for layer in layers] == [60] * 4


def test_what_an_update_raises(device, queue, random):
    layers, last = python_network(device, random, True, unmetal.NNTrainingStyle.UpdateDeviceGPU)
    graph = training_graph(device, last, 4)
    _, _, images, labels = digits(device, random, 4)

    class Broken(Descent):
        def update_with_command_buffer(self, *states):
            raise OverflowError("too much")

        def update_with_gradient_state(self, *states):
            raise OverflowError("too much")

    layers[1].__class__ = Broken
    with pytest.raises(OverflowError, match="too much"):
        train(queue, graph, images, labels, 1)
    Broken.update_with_command_buffer = lambda self, *states: 3
    with pytest.raises(TypeError, match="what update_with_command_buffer"):
        train(queue, graph, images, labels, 1)

    layers, last = python_network(device, random, False, unmetal.NNTrainingStyle.UpdateDeviceCPU)
    layers[1].__class__ = Broken
    graph = training_graph(device, last, 4)
    for _ in range(2):  # the first does not block the second
        with pytest.raises(unmetal.Error, match="too much"):
            train(queue, graph, images, labels, 1)


def test_a_graph_keeps_its_sources_alive_and_lets_them_go(device, queue, random):
    gc.collect()
    before = Descent.alive
    layers, last = python_network(device, random, True, unmetal.NNTrainingStyle.UpdateDeviceGPU)
    watched = [weakref.ref(layer) for layer in layers]
    graph = training_graph(device, last, 4)
    del layers, last
    gc.collect()
    assert all(layer() is not None for layer in watched)
    _, _, images, labels = digits(device, random, 4)
    train(queue, graph, images, labels, 2)
    assert [layer().updates for layer in watched] == [2] * 4
    del graph
    gc.collect()
    assert Descent.alive == before and all(layer() is None for layer in watched)


def test_graphs_do_not_leak(device, queue, random):
    _, _, images, labels = digits(device, random, 4)

    def round_of(count):
        for number in range(count):
            on_device = number % 2 == 0
            style = unmetal.NNTrainingStyle.UpdateDeviceGPU if on_device else unmetal.NNTrainingStyle.UpdateDeviceCPU
            _, last = python_network(device, random, on_device, style)
            train(queue, training_graph(device, last, 4), images, labels, 2)
        del last
        gc.collect()
        return Descent.alive, sum(isinstance(kept, (unmetal.NNFilterNode, unmetal.NNImageNode, unmetal.Kernel))
                                  for kept in gc.get_objects())

    before = round_of(4)
    assert round_of(40) == before


def test_handles_order_and_export(device, queue, random, image_of):
    left, right = unmetal.NNImageNode(Named("left")), unmetal.NNImageNode(Named("right"))
    scaled = unmetal.CNNNeuronLinearNode(right, 2, 1)
    scaled.result_image.export_from_graph = True
    scaled.result_image.synchronize_resource = True
    scaled.result_image.image_allocator = unmetal.Image.default_allocator()
    scaled.result_image.handle = Named("scaled")
    sum_ = unmetal.NNAdditionNode(left, scaled.result_image)
    sum_.label = "sum"
    sum_.result_image.handle = Named("result")
    pooled = unmetal.CNNPoolingMaxNode(sum_.result_image, 2)
    pooled.result_state.export_from_graph = True
    pooled.result_state.handle = Named("state")
    graph = unmetal.NNGraph(device, pooled.result_image)
    assert [handle.label for handle in graph.source_image_handles] == ["left", "right"]
    assert graph.source_image_handles[0] is left.handle
    assert [handle.label for handle in graph.intermediate_image_handles] == ["scaled"]
    assert [handle.label for handle in graph.result_state_handles] == ["state"]
    assert graph.result_handle is None and graph.result_image_is_needed
    assert graph.source_state_handles == []
    assert (graph.read_count_for_source_image(0), graph.format) == (1, unmetal.ImageFeatureChannelFormat.Float32)
    with pytest.raises(unmetal.Error):
        graph.read_count_for_source_image(2)

    x, y = (random.standard_normal((4, 4, 3)).astype(np.float32) for _ in range(2))
    intermediates, states = [], []
    with queue.command_buffer() as command_buffer:
        result = graph.encode(command_buffer, [image_of(x), image_of(y)], intermediate_images=intermediates,
                              destination_states=states)
    linear = np.float32(2) * y + np.float32(1)
    assert np.array_equal(np.asarray(intermediates[0]), linear)
    assert np.array_equal(np.asarray(result), (x + linear).reshape(2, 2, 2, 2, 3).max((1, 3)))
    assert len(intermediates) == 1 and isinstance(states[0], unmetal.NNGradientState)
    with queue.command_buffer() as command_buffer:
        batch = graph.encode_batch(command_buffer, [[image_of(x)], [image_of(y)]], intermediate_images=intermediates)
    assert isinstance(intermediates[1], unmetal.ImageBatch) and len(batch) == 1
    assert graph.planned_temporary_bytes >= 0
    assert "NNAdditionNode" in graph.debug_description() or "sum" in graph.debug_description()
    assert graph.write_dot().startswith("digraph")
    assert graph.write_dot(unmetal.GraphPart.Forward) == graph.write_dot()  # it has no gradients


def test_nodes_know_their_neighbours(device):
    source = unmetal.NNImageNode()
    node = unmetal.CNNConvolutionNode(source, Filters(np.zeros((1, 3, 3, 1), np.float32)))
    assert source.producer is None and node.result_image.producer is node
    assert node.result_state.producer is node and node.convolution_gradient_state is node.result_state
    assert isinstance(node.result_state, unmetal.CNNConvolutionGradientStateNode)
    assert node.class_name == "CNNConvolutionNode" and repr(node) == "<CNNConvolutionNode>"
    image = node.result_image
    del node
    gc.collect()
    assert isinstance(image.producer, unmetal.CNNConvolutionNode)  # the image holds it
    gradient = image.producer.gradient_filter(unmetal.NNImageNode())
    assert isinstance(gradient, unmetal.CNNConvolutionGradientNode)
    assert gradient.source_image is source and gradient.weights is image.producer.weights
    assert gradient.gradient_state is image.producer.result_state
    gradient.training_style = unmetal.NNTrainingStyle.UpdateDeviceNone
    assert gradient.training_style == unmetal.NNTrainingStyle.UpdateDeviceNone


def test_the_node_handler_sees_each_gradient_node(device):
    source = unmetal.NNImageNode()
    first = unmetal.CNNNeuronTanHNode(source)
    sum_ = unmetal.NNAdditionNode(first.result_image, unmetal.CNNNeuronSigmoidNode(first.result_image).result_image)
    seen = []
    ends = sum_.training_graph(unmetal.NNImageNode(), lambda *nodes: seen.append(nodes))
    assert [type(gradient).__name__ for gradient, *_ in seen].count("CNNNeuronGradientNode") == 2
    assert [forward for _, forward, *_ in seen].count(None) == 1  # where gradients meet
    assert seen[-1][1] is first and seen[-1][2] is source
    assert len(ends) == 1 and isinstance(ends[0].result_image, unmetal.NNImageNode)

    def refuse(*nodes):
        raise LookupError("not this one")

    with pytest.raises(LookupError, match="not this one"):
        sum_.training_graph(unmetal.NNImageNode(), refuse)


def test_execute_async(device, image_of, monkeypatch):
    node = unmetal.CNNNeuronAbsoluteNode(unmetal.NNImageNode())
    graph = unmetal.NNGraph(device, node.result_image)
    done, seen = threading.Event(), []

    def handler(result, error):
        seen.append((result, error, threading.current_thread() is threading.main_thread()))
        done.set()

    returned = graph.execute_async([image_of(np.full((2, 2, 1), -3, np.float32))], handler)
    assert done.wait(30)
    assert seen == [(returned, "", False)] and (np.asarray(returned) == 3).all()

    raised = threading.Event()
    monkeypatch.setattr("sys.unraisablehook", lambda unraisable: raised.set())

    def broken(result, error):
        raise RuntimeError("in a handler")

    graph.execute_async([image_of(np.zeros((2, 2, 1), np.float32))], broken)
    assert raised.wait(30)


def test_properties(device, permanent):
    node = unmetal.CNNDropoutNode(unmetal.NNImageNode(), 0.75, 3)
    assert (node.keep_probability, node.seed, node.mask_stride_in_pixels) == (0.75, 3, unmetal.mtl.Size(1, 1, 1))
    graph = unmetal.NNGraph(device, node.result_image)
    graph.random_counters = [5]
    assert graph.random_counters == [5] and graph.copy().random_counters == [5]
    with pytest.raises(unmetal.Error):
        graph.random_counters = [1, 2]
    for name, value in (("format", unmetal.ImageFeatureChannelFormat.Float16), ("output_state_is_temporary", True),
                        ("stops_at_non_finite_values", True), ("destination_image_allocator", permanent),
                        ("options", unmetal.KernelOptions.AllowReducedPrecision)):
        setattr(graph, name, value)
        assert getattr(graph, name) == value


def test_a_graph_stops_at_what_is_not_finite(device, queue, image_of):
    node = unmetal.CNNNeuronLogarithmNode(unmetal.NNImageNode())
    graph = unmetal.NNGraph(device, node.result_image)
    graph.stops_at_non_finite_values = True
    with pytest.raises(unmetal.Error, match="CNNNeuron"):
        with queue.command_buffer() as command_buffer:
            graph.encode(command_buffer, [image_of(np.full((1, 1, 1), -1, np.float32))])


def test_coding(device, queue, random):
    adam = unmetal.NNOptimizerAdam(device, 0.01)

    def layer(width, height, inputs, outputs, label):
        return unmetal.TrainableConvolution(device, unmetal.CNNConvolutionDescriptor(width, height, inputs, outputs),
                                            label, 7, adam)

    graph = training_graph(device, network(layer, unmetal.NNImageNode()), 4)
    _, _, images, labels = digits(device, random, 4)
    train(queue, graph, images, labels, 3)
    archiver = unmetal.KeyedArchiver()
    graph.encode(archiver)
    again = unmetal.NNGraph.decode(unmetal.KeyedUnarchiver(archiver.encoded_data(), device))
    assert train(queue, again, images, labels, 3) == train(queue, graph, images, labels, 3)


def test_wrong_uses_raise(device, queue, image_of):
    with pytest.raises(unmetal.Error):
        unmetal.NNGraph(device, [])
    node = unmetal.CNNNeuronReLUNode(unmetal.NNImageNode())
    with pytest.raises(unmetal.Error):
        unmetal.NNGraph(device, [node.result_image], [True, False])
    with pytest.raises(TypeError):
        unmetal.CNNNeuronReLUNode(None)
    graph = unmetal.NNGraph(device, node.result_image)
    with pytest.raises(unmetal.Error):
        graph.encode(queue.command_buffer(), [])
    with pytest.raises(unmetal.Error):
        unmetal.NNAdditionNode([unmetal.NNImageNode()])
    with pytest.raises(unmetal.Error, match="gradient"):
        unmetal.NNReductionFeatureChannelsArgumentMaxNode(node.result_image).training_graph(unmetal.NNImageNode())
    with pytest.raises(unmetal.Error):
        node.gradient_filter(unmetal.NNImageNode()).gradient_filter(unmetal.NNImageNode())
    absent = Filters(np.zeros((1, 1, 1, 1), np.float32))
    absent.descriptor.kernel_width = 2
    with pytest.raises(ValueError, match="expected"):
        unmetal.NNGraph(device, unmetal.CNNConvolutionNode(unmetal.NNImageNode(), absent).result_image)
