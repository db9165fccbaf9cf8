"""The same small nets, trained here and in PyTorch from the same weights."""

import numpy as np
import pytest

import unmetal

torch = pytest.importorskip("torch")

count, classes = 32, 4
permanent = unmetal.Image.default_allocator()


def pictures():
    """Pictures of 12 x 12 with a spot whose place is the class. The seed is fixed: whether a run of float32 comes upon a
    tie at a ReLU or a maximum, where it may go another way than float64, is not to change from day to day."""
    generator = np.random.default_rng(7)
    numbers = generator.integers(0, classes, count).astype(np.uint8)
    values = generator.standard_normal((count, 12, 12, 1)).astype(np.float32) / 2
    for picture, number in zip(values, numbers):
        picture[3 + 6 * (number // 2), 3 + 6 * (number % 2)] += 2
    return values, numbers


class Net:
    """Convolution, neuron, pooling, twice; two fully connected layers with a neuron between them."""

    shapes = ((5, 1, 4), (5, 4, 8), (3, 8, 16), (1, 16, classes))  # kernel size, channels of source and result

    def __init__(self, smooth):
        self.smooth = smooth


class Ours(Net):
    def __init__(self, device, smooth, optimizer):
        super().__init__(smooth)
        self.device = device
        self.layers = [
            unmetal.TrainableConvolution(device, unmetal.CNNConvolutionDescriptor(size, size, inputs, outputs),
                                         f"layer{number}", number + 1, optimizer)
            for number, (size, inputs, outputs) in enumerate(self.shapes)]

    def graph(self):
        pooling = unmetal.CNNPoolingAverageNode if self.smooth else unmetal.CNNPoolingMaxNode
        neuron = unmetal.CNNNeuronTanHNode if self.smooth else unmetal.CNNNeuronReLUNode
        image = unmetal.NNImageNode()
        for layer in self.layers[:2]:
            image = neuron(unmetal.CNNConvolutionNode(image, layer).result_image).result_image
            image = pooling(image, 2).result_image
        image = neuron(unmetal.CNNFullyConnectedNode(image, self.layers[2]).result_image).result_image
        image = unmetal.CNNFullyConnectedNode(image, self.layers[3]).result_image
        descriptor = unmetal.CNNLossDescriptor(unmetal.CNNLossType.SoftMaxCrossEntropy, unmetal.CNNReductionType.Sum)
        descriptor.weight, descriptor.number_of_classes = 1 / count, classes
        ends = unmetal.CNNLossNode(image, descriptor).training_graph()
        return unmetal.NNGraph(self.device, [end.result_image for end in ends], [False] * len(ends))

    def parameters(self):
        """Copies of weights, OHWI, and biases of all layers."""
        with self.device.new_command_queue().command_buffer() as command_buffer:
            for layer in self.layers:
                layer.synchronize(command_buffer)
        return [np.array(values) for layer in self.layers for values in (layer.weights, layer.bias_terms)]

    def train(self, steps):
        values, numbers = pictures()
        images = unmetal.ImageBatch.from_array(self.device, values)
        labels = unmetal.CNNLossLabels.create_class_batch(self.device, count)
        unmetal.CNNLossLabels.write_class_indices(labels, numbers)
        graph, queue, losses = self.graph(), self.device.new_command_queue(), []
        for _ in range(steps):
            with queue.command_buffer() as command_buffer:
                graph.encode_batch(command_buffer, [images], [labels])
                labels.synchronize(command_buffer)
            losses.append(sum(np.asarray(image).item() for image in unmetal.CNNLossLabels.loss_images(labels)))
        return np.array(losses)


class Theirs(Net):
    """PyTorch's, NCHW. `optimizer`: from tensors to one of torch.optim."""

    def __init__(self, smooth, parameters, optimizer, dtype):
        super().__init__(smooth)
        self.dtype = dtype
        self.values = []
        for values in parameters:
            values = values.transpose(0, 3, 1, 2) if values.ndim == 4 else values
            self.values.append(torch.tensor(values.copy(), dtype=dtype, requires_grad=True))
        self.optimizer = optimizer(self.values)

    def forward(self, image):
        functional = torch.nn.functional
        neuron = torch.tanh if self.smooth else torch.relu
        pooling = functional.avg_pool2d if self.smooth else functional.max_pool2d
        weights, biases = self.values[::2], self.values[1::2]
        for layer in range(2):
            image = pooling(neuron(functional.conv2d(image, weights[layer], biases[layer], padding=2)), 2)
        image = neuron(functional.conv2d(image, weights[2], biases[2]))
        return functional.conv2d(image, weights[3], biases[3]).flatten(1)

    def parameters(self):
        return [values.detach().numpy().transpose(0, 2, 3, 1) if values.ndim == 4 else values.detach().numpy()
                for values in self.values]

    def train(self, steps):
        values, numbers = pictures()
        images = torch.tensor(values.transpose(0, 3, 1, 2).copy(), dtype=self.dtype)
        targets = torch.tensor(numbers.astype(np.int64))
        losses = []
        for step in range(1, steps + 1):
            for group in self.optimizer.param_groups:
                if "eps" in group:  # ours is added to the root of the velocity as it is, PyTorch's to the corrected one
                    group["eps"] = 1e-8 / np.sqrt(1 - 0.999**step)
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.forward(images), targets)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return np.array(losses)


def momentum(device):
    descriptor = unmetal.NNOptimizerDescriptor(0.05)
    return (unmetal.NNOptimizerStochasticGradientDescent(device, 0.9, False, descriptor),
            lambda values: torch.optim.SGD(values, lr=float(np.float32(0.05)), momentum=float(np.float32(0.9))))


def adam(device):
    return (unmetal.NNOptimizerAdam(device, 0.005),
            lambda values: torch.optim.Adam(values, lr=float(np.float32(0.005))))


def distance(found, expected):
    """Of two lists of arrays, relative to the second one: the largest that an array has, in the Euclidean norm."""
    return max(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs) for ours, theirs in zip(found, expected))


@pytest.mark.parametrize("optimizer", [momentum, adam])
def test_twenty_steps_agree(device, optimizer):
    ours_optimizer, theirs_optimizer = optimizer(device)
    ours = Ours(device, False, ours_optimizer)
    theirs = Theirs(False, ours.parameters(), theirs_optimizer, torch.float64)
    found, expected = ours.train(20), theirs.train(20)
    assert expected[-1] < 0.9 * expected[0]
    assert np.abs(found / expected - 1).max() <= 1e-5
    assert distance(ours.parameters(), theirs.parameters()) <= 1e-5


@pytest.mark.parametrize("optimizer", [momentum, adam])
def test_two_hundred_steps_are_as_close_as_those_of_pytorch(device, optimizer):
    ours_optimizer, theirs_optimizer = optimizer(device)
    ours = Ours(device, True, ours_optimizer)
    exact, rounded = (Theirs(True, ours.parameters(), theirs_optimizer, dtype) for dtype in (torch.float64, torch.float32))
    found, expected, single = (net.train(200) for net in (ours, exact, rounded))
    assert expected[-1] < 0.1 * expected[0]
    assert np.abs(found / expected - 1).max() <= 10 * np.abs(single / expected - 1).max()
    assert distance(ours.parameters(), exact.parameters()) <= 10 * distance(rounded.parameters(), exact.parameters())
