"""Normalisation layers, neurons, losses, optimisers and ready-made data sources, against NumPy in float64."""

import numpy as np
import pytest

import unmetal
from sources import close, floats

permanent = unmetal.Image.default_allocator()


def unit(terms):
    """What a float32 computation of so many steps may be off, relative to the largest number in it."""
    return terms * float(np.finfo(np.float32).eps)


def parameters(base):
    """A class of a normalisation's data sources, of one base alone."""

    class Parameters(base):
        def __init__(self, channels, **attributes):
            super().__init__()
            self.number_of_feature_channels = channels
            self.epsilon = 1e-3
            for name, value in attributes.items():
                setattr(self, name, value)

    return Parameters


BatchParameters = parameters(unmetal.CNNBatchNormalizationDataSource)
InstanceParameters = parameters(unmetal.CNNInstanceNormalizationDataSource)
GroupParameters = parameters(unmetal.CNNGroupNormalizationDataSource)


def normalized(x, axes, gamma, beta, incoming, epsilon=1e-3):
    """y, dx, dL/dgamma and dL/dbeta (both before the sum over pixels)."""
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    root = 1 / np.sqrt(variance + epsilon)
    h = (x - mean) * root
    scaled = incoming * gamma
    dx = root * (scaled - scaled.mean(axes, keepdims=True) - h * (scaled * h).mean(axes, keepdims=True))
    return gamma * h + beta, dx, incoming * h, incoming


def test_batch_normalization(device, queue, random):
    x, incoming = (random.standard_normal((3, 4, 5, 6)).astype(np.float32) for _ in range(2))
    gamma, beta = (random.standard_normal(6).astype(np.float32) for _ in range(2))
    source = BatchParameters(6, gamma=gamma, beta=beta, mean=np.full(6, 2), variance=np.full(6, 4))
    normalization = unmetal.CNNBatchNormalization(device, source)
    statistics = unmetal.CNNBatchNormalizationStatistics(device)
    sums = unmetal.CNNBatchNormalizationStatisticsGradient(device)
    gradient = unmetal.CNNBatchNormalizationGradient(device)
    images, gradients = (unmetal.ImageBatch.from_array(device, array) for array in (x, incoming))
    results, outgoing = (unmetal.ImageBatch.from_array(device, np.zeros_like(x)) for _ in range(2))
    state = normalization.result_state(images[0])
    assert isinstance(state, unmetal.CNNBatchNormalizationState) and state.batch_normalization is normalization
    with queue.command_buffer() as command_buffer:
        statistics.encode_batch(command_buffer, images, state)
        normalization.encode_batch(command_buffer, images, state, results)
        sums.encode_batch(command_buffer, gradients, images, state)
        gradient.encode_batch(command_buffer, gradients, images, state, outgoing)
    y, dx, of_gamma, of_beta = normalized(x.astype(np.float64), (0, 1, 2), gamma, beta, incoming)
    for found, expected in ((results, y), (outgoing, dx)):
        assert np.abs(np.asarray(found) - expected).max() <= unit(64) * np.abs(expected).max()
    for buffer, expected in ((state.gradient_for_gamma, of_gamma), (state.gradient_for_beta, of_beta)):
        assert close(floats(buffer), expected.sum((0, 1, 2)), np.abs(expected).sum((0, 1, 2)) + 1, 60)
    assert close(floats(state.mean), x.astype(np.float64).mean((0, 1, 2)), np.abs(x).mean((0, 1, 2)), 4)
    assert state.element_count == 60 and isinstance(state.gradient_for_mean, unmetal.Vector)
    assert floats(state.gamma).tolist() == gamma.tolist()

    with queue.command_buffer() as command_buffer:  # without a state: the source's statistics
        normalization.destination_image_allocator = permanent
        result = normalization.encode(command_buffer, images[0])
    expected = gamma * (x[0].astype(np.float64) - 2) / np.sqrt(4 + 1e-3) + beta
    assert np.abs(np.asarray(result) - expected).max() <= unit(16) * np.abs(expected).max()

    source.gamma = source.beta = None  # 1 and 0
    normalization.reload_gamma_and_beta_from_data_source()
    source.mean, source.variance = [0] * 6, [1] * 6
    normalization.reload_from_data_source()
    normalization.epsilon = 0
    with queue.command_buffer() as command_buffer:
        result = normalization.encode(command_buffer, images[0])
    assert np.array_equal(np.asarray(result), x[0])
    assert normalization.data_source is source and normalization.number_of_feature_channels == 6
    with pytest.raises(unmetal.Error, match="gamma is 2 values|gamma"):
        source.gamma = [1, 2]
        normalization.reload_gamma_and_beta_from_data_source()
    with pytest.raises(unmetal.Error):
        statistics.encode(queue.command_buffer(), images[0])


@pytest.mark.parametrize("groups", [0, 2])
def test_instance_and_group_normalization(device, queue, random, groups):
    x, incoming = (random.standard_normal((2, 4, 5, 6)).astype(np.float32) for _ in range(2))
    gamma, beta = (random.standard_normal(6).astype(np.float32) for _ in range(2))
    if groups:
        source = GroupParameters(6, gamma=gamma, beta=beta, number_of_groups=groups)
        kernel = unmetal.CNNGroupNormalization(device, source)
        gradient = unmetal.CNNGroupNormalizationGradient(device)
        assert kernel.number_of_groups == 2
    else:
        source = InstanceParameters(6, gamma=gamma, beta=beta)
        kernel = unmetal.CNNInstanceNormalization(device, source)
        gradient = unmetal.CNNInstanceNormalizationGradient(device)
    images, gradients = (unmetal.ImageBatch.from_array(device, array) for array in (x, incoming))
    kernel.destination_image_allocator = gradient.destination_image_allocator = permanent
    with queue.command_buffer() as command_buffer:
        results, states = kernel.encode_batch(command_buffer, images, destination_states_are_temporary=False)
        outgoing = gradient.encode_batch(command_buffer, gradients, images, states)
    split = (2, 4, 5, groups or 6, -1)
    wide = [array.astype(np.float64).reshape(split) for array in (x, incoming)]
    y, dx, of_gamma, of_beta = normalized(wide[0], (1, 2, 4), gamma.reshape(split[3:]), beta.reshape(split[3:]), wide[1])
    for found, expected in ((results, y), (outgoing, dx)):
        assert np.abs(np.stack([np.asarray(image) for image in found]) - expected.reshape(x.shape)).max() \
            <= unit(64) * np.abs(expected).max()
    for index in range(2):
        assert close(floats(states[index].gradient_for_gamma), of_gamma.reshape(x.shape)[index].sum((0, 1)),
                     np.abs(of_gamma.reshape(x.shape)[index]).sum((0, 1)) + 1, 40)
        assert close(floats(states[index].gradient_for_beta), of_beta.reshape(x.shape)[index].sum((0, 1)),
                     np.abs(of_beta.reshape(x.shape)[index]).sum((0, 1)) + 1, 40)

    sgd = unmetal.NNOptimizerStochasticGradientDescent(device, 0.5)
    new = unmetal.CNNNormalizationGammaAndBetaState(device.new_buffer(24), device.new_buffer(24))
    with queue.command_buffer() as command_buffer:
        sgd.encode(command_buffer, states, [], new)
        kernel.reload_gamma_and_beta(command_buffer, new)
    total = sum(floats(states[index].gradient_for_beta) for index in range(2))
    assert np.allclose(floats(new.beta), beta - 0.5 * total, rtol=unit(8), atol=unit(8))


def test_group_sources_are_checked(device):
    with pytest.raises(unmetal.Error, match="roups"):
        unmetal.CNNGroupNormalization(device, GroupParameters(6, number_of_groups=4))
    with pytest.raises(AttributeError, match="number_of_groups"):
        unmetal.CNNGroupNormalization(device, GroupParameters(6))
    with pytest.raises(TypeError, match="number_of_feature_channels is .*str"):
        unmetal.CNNInstanceNormalization(device, InstanceParameters("six"))
    assert InstanceParameters(2).load() and InstanceParameters(2).copy(device) is None


functions = {
    "Sigmoid": lambda x, a, b, c: 1 / (1 + np.exp(-x)), "TanH": lambda x, a, b, c: a * np.tanh(b * x),
    "ReLU": lambda x, a, b, c: np.where(x >= 0, x, a * x), "Linear": lambda x, a, b, c: a * x + b,
    "Absolute": lambda x, a, b, c: abs(x), "SoftSign": lambda x, a, b, c: x / (1 + abs(x)),
    "SoftPlus": lambda x, a, b, c: a * np.log1p(np.exp(b * x)),
    "ELU": lambda x, a, b, c: np.where(x >= 0, x, a * np.expm1(x)),
    "HardSigmoid": lambda x, a, b, c: np.clip(a * x + b, 0, 1),
    "ReLUN": lambda x, a, b, c: np.minimum(np.where(x >= 0, x, a * x), b),
}


@pytest.mark.parametrize("name", functions)
def test_neurons(device, queue, random, image_of, name):
    x = random.standard_normal((4, 5, 3)).astype(np.float32)
    descriptor = unmetal.NNNeuronDescriptor(getattr(unmetal.CNNNeuronType, name))
    neuron, gradient = unmetal.CNNNeuron(device, descriptor), unmetal.CNNNeuronGradient(device, descriptor)
    neuron.destination_image_allocator = gradient.destination_image_allocator = permanent
    with queue.command_buffer() as command_buffer:
        y, state = neuron.encode(command_buffer, image_of(x), destination_state_is_temporary=False)
        dx = gradient.encode(command_buffer, image_of(np.ones_like(x)), image_of(x), state)
    numbers = (neuron.a, neuron.b, neuron.c)
    wide, step = x.astype(np.float64), 1e-6
    expected = functions[name](wide, *numbers)
    assert np.abs(np.asarray(y) - expected).max() <= unit(16)
    slope = (functions[name](wide + step, *numbers) - functions[name](wide - step, *numbers)) / (2 * step)
    smooth = np.abs(wide) > 1e-3  # a difference over a kink is no derivative
    assert np.abs(np.asarray(dx) - slope)[smooth].max() <= 1e-5
    assert neuron.descriptor == descriptor and hash(neuron.descriptor) == hash(descriptor)


def test_neuron_descriptors(device, queue, image_of):
    slopes = unmetal.NNNeuronDescriptor.cnn_neuron_prelu_descriptor([0.5, 2])
    assert slopes.neuron_type == unmetal.CNNNeuronType.PReLU and slopes.data == [0.5, 2]
    neuron = unmetal.CNNNeuronPReLU(device, np.array([0.5, 2], np.float32))
    neuron.destination_image_allocator = permanent
    with queue.command_buffer() as command_buffer:
        y = neuron.encode(command_buffer, image_of(np.full((1, 1, 2), -1, np.float32)))
    assert np.asarray(y).ravel().tolist() == [-0.5, -2]
    assert unmetal.NNNeuronDescriptor().neuron_type == unmetal.CNNNeuronType.None_
    descriptor = unmetal.NNNeuronDescriptor(unmetal.CNNNeuronType.ReLUN, a=0)
    assert (descriptor.a, descriptor.b) == (0, 6)
    descriptor.b = 3
    assert "3" in repr(descriptor)
    with pytest.raises(unmetal.Error):
        unmetal.CNNNeuron(device, unmetal.NNNeuronDescriptor(unmetal.CNNNeuronType.PReLU))


def test_losses(device, queue, random, image_of):
    predictions = random.standard_normal((2, 3, 4)).astype(np.float32)
    targets = random.random((2, 3, 4)).astype(np.float32)
    weights = random.random((2, 3, 4)).astype(np.float32)
    descriptor = unmetal.CNNLossDescriptor(unmetal.CNNLossType.MeanSquaredError, unmetal.CNNReductionType.Mean)
    descriptor.weight = 0.5
    loss = unmetal.CNNLoss(device, descriptor)
    loss.destination_image_allocator = permanent
    assert loss.weight == 0.5 and loss.descriptor == descriptor
    for labels in (unmetal.CNNLossLabels(device, targets, weights),
                   unmetal.CNNLossLabels(device, image_of(targets), image_of(weights))):
        with queue.command_buffer() as command_buffer:
            gradient = loss.encode(command_buffer, image_of(predictions), labels)
        difference = predictions.astype(np.float64) - targets
        expected = 0.5 * (weights * difference**2).mean()
        assert abs(np.asarray(labels.loss_image).item() - expected) <= unit(32) * expected
        assert np.abs(np.asarray(gradient) - weights * difference).max() <= unit(8) * np.abs(difference).max()
    with pytest.raises(ValueError, match="three dimensions"):
        unmetal.CNNLossLabels(device, targets[0])
    with pytest.raises(unmetal.Error):
        loss.encode(queue.command_buffer(), image_of(predictions), unmetal.CNNLossLabels(device, targets[:, :2].copy()))
    descriptor.number_of_classes = 0
    with pytest.raises(unmetal.Error, match="number_of_classes"):
        unmetal.CNNLoss(device, descriptor)
    with pytest.raises(unmetal.Error):
        unmetal.CNNLossLabels.write_class_indices(unmetal.CNNLossLabels.create_class_batch(device, 2),
                                                  np.zeros(3, np.uint8))


def test_class_indices_have_32_bits_and_are_checked(device, queue, permanent, image_of):
    write = unmetal.CNNLossLabels.write_class_indices
    descriptor = unmetal.CNNLossDescriptor(unmetal.CNNLossType.MeanSquaredError, unmetal.CNNReductionType.Sum)
    loss = unmetal.CNNLoss(device, descriptor)
    loss.destination_image_allocator = permanent
    labels = unmetal.CNNLossLabels.create_class_batch(device, 1)
    predictions = image_of(np.zeros((1, 1, 1000), np.float32))
    for number_type in (np.uint32, np.int32, np.int64, np.uint64):
        write(labels, np.array([7, 999], number_type)[1:])
        with queue.command_buffer() as command_buffer:
            gradient = loss.encode_batch(command_buffer, unmetal.ImageBatch([predictions]), labels)[0]
        assert np.flatnonzero(np.asarray(gradient)).tolist() == [999]
    write(labels, np.array([1000]))
    with pytest.raises(unmetal.Error, match="image 0 has class index 1000"):
        with queue.command_buffer() as command_buffer:
            loss.encode_batch(command_buffer, unmetal.ImageBatch([predictions]), labels)
    for wrong in (-1, 2**32):
        with pytest.raises(unmetal.Error, match=f"class index {wrong}"):
            write(labels, np.array([wrong]))
    with pytest.raises(TypeError):
        write(labels, np.array([0.5]))
    known = unmetal.CNNLossLabels.create_class_batch(device, 1, number_of_classes=10)
    with pytest.raises(unmetal.Error, match="less than 10"):
        write(known, np.array([10]))


class Halving(unmetal.NNLossCallback):
    def scalar_weight(self, source_image, destination_image):
        self.seen = source_image.width, destination_image.width
        return 0.5


def test_losses_that_are_images(device, queue, random):
    x, t = (random.standard_normal((2, 3, 3, 2)).astype(np.float32) for _ in range(2))
    descriptor = unmetal.CNNLossDescriptor(unmetal.CNNLossType.MeanSquaredError, unmetal.CNNReductionType.Mean)
    loss, gradient = unmetal.NNForwardLoss(device, descriptor), unmetal.NNLossGradient(device, descriptor)
    initial = unmetal.NNInitialGradient(device)
    loss.property_call_back = Halving()
    for kernel in (loss, gradient, initial):
        kernel.destination_image_allocator = permanent
    images, labels = (unmetal.ImageBatch.from_array(device, array) for array in (x, t))
    with queue.command_buffer() as command_buffer:
        found, states = loss.encode_batch(command_buffer, images, labels=labels,
                                          destination_states_are_temporary=False)
        ones = initial.encode_batch(command_buffer, found)
        outgoing = gradient.encode_batch(command_buffer, ones, images, labels, [], states)
    difference = x.astype(np.float64) - t
    for index in range(2):
        assert abs(np.asarray(found[index]).item() - 0.5 * (difference[index]**2).mean()) <= unit(64)
        assert np.abs(np.asarray(outgoing[index]) - difference[index] / 18).max() <= unit(16)
    assert loss.property_call_back.seen == (3, 1)
    loss.property_call_back = unmetal.NNLossCallback.__subclasses__()[0]()
    loss.property_call_back = None
    loss.weight = 2
    assert loss.weight == 2 and loss.property_call_back is None
    with pytest.raises(unmetal.Error):
        loss.encode(queue.command_buffer(), images[0])


def yolo_descriptor():
    kinds = unmetal.CNNLossType
    return unmetal.CNNYOLOLossDescriptor(kinds.MeanSquaredError, kinds.Huber, kinds.SigmoidCrossEntropy,
                                         kinds.SoftMaxCrossEntropy, unmetal.CNNReductionType.Sum, [1, 1, 2, 3], 2)


def test_yolo_loss(device, queue, image_of):
    """One cell, two anchors, two classes; the object has the size of the second anchor."""
    descriptor = yolo_descriptor()
    descriptor.rescore = False
    loss = unmetal.CNNYOLOLoss(device, descriptor)
    loss.destination_image_allocator = permanent
    predictions = np.zeros((1, 1, 14), np.float32)
    targets = np.zeros((1, 1, 14), np.float32)
    targets[0, 0, 7:] = [0.25, 0.5, 2, 3, 1, 0, 1]
    labels = unmetal.CNNLossLabels(device, targets)
    with queue.command_buffer() as command_buffer:
        gradient = np.asarray(loss.encode(command_buffer, image_of(predictions), labels)).ravel()
    position = 10 * (0.5 - 0.25)**2
    confidence, classes = 100 * np.log(2), 2 * np.log(2)
    absent = 5 * np.log(2)
    size = 10 * 2 * 0.5 * np.log(1 + 1e-5)**2
    expected = position + confidence + classes + absent + size
    assert abs(np.asarray(labels.loss_image).item() - expected) <= unit(64) * expected
    assert abs(gradient[4] - 5 * 0.5) <= unit(16) * 5  # no object: sigmoid(0) - 0
    assert abs(gradient[11] + 100 * 0.5) <= unit(16) * 100  # an object: sigmoid(0) - 1
    assert gradient[:4].tolist() == [0] * 4
    assert (loss.scale_object, loss.number_of_anchor_boxes, loss.anchor_boxes) == (100, 2, [1, 1, 2, 3])
    assert loss.loss_xy.loss_type == unmetal.CNNLossType.MeanSquaredError and loss.descriptor == descriptor
    node = unmetal.CNNYOLOLossNode(unmetal.NNImageNode(), descriptor)
    assert isinstance(node.input_labels, unmetal.NNLabelsNode)


def test_wrong_yolo_descriptors_raise(device):
    descriptor = yolo_descriptor()
    descriptor.number_of_anchor_boxes = 3
    with pytest.raises(unmetal.Error):
        unmetal.CNNYOLOLoss(device, descriptor)
    descriptor = yolo_descriptor()
    descriptor.anchor_boxes = [1, 1, 0, 3]
    with pytest.raises(unmetal.Error):
        unmetal.CNNYOLOLoss(device, descriptor)


def vectors(device, *arrays):
    made = []
    for array in arrays:
        vector = unmetal.Vector(device, unmetal.VectorDescriptor(len(array)))
        np.asarray(vector)[:] = array
        vector.data.did_modify_range(0, vector.data.length)
        made.append(vector)
    return made


def test_optimizers_on_vectors(device, queue, random):
    g, v = (random.standard_normal(9).astype(np.float32) for _ in range(2))
    descriptor = unmetal.NNOptimizerDescriptor(0.1, 0.5, unmetal.NNRegularizationType.L2, 0.01)
    prepared = 0.5 * g.astype(np.float64) + 0.01 * v

    sgd = unmetal.NNOptimizerStochasticGradientDescent(device, 0.9, False, descriptor)
    gradient, values, momentum = vectors(device, g, v, np.ones(9))
    with queue.command_buffer() as command_buffer:
        sgd.encode(command_buffer, gradient, values, momentum, values)
    kept = 0.9 + 0.1 * prepared
    assert np.abs(np.asarray(values) - (v - kept)).max() <= unit(16)
    assert np.abs(np.asarray(momentum) - kept).max() <= unit(16)
    assert (sgd.momentum_scale, sgd.use_nesterov_momentum) == (np.float32(0.9), False)

    rms = unmetal.NNOptimizerRMSProp(device, 0.9, 1e-8, descriptor)
    gradient, values, squares = vectors(device, g, v, np.ones(9))
    with queue.command_buffer() as command_buffer:
        rms.encode(command_buffer, gradient, values, squares, values)
    kept = 0.9 + 0.1 * prepared**2
    assert np.abs(np.asarray(values) - (v - 0.1 * prepared / (np.sqrt(kept) + 1e-8))).max() <= unit(32)

    adam = unmetal.NNOptimizerAdam(device, 0.9, 0.999, 1e-8, 0, descriptor)
    gradient, values, momentum, velocity, most = vectors(device, g, v, np.zeros(9), np.zeros(9), np.zeros(9))
    with queue.command_buffer() as command_buffer:
        adam.encode(command_buffer, gradient, values, momentum, velocity, values, maximum_velocity_vector=most)
    rate = 0.1 * np.sqrt(1 - 0.999) / (1 - 0.9)
    step = rate * 0.1 * prepared / (np.sqrt(0.001 * prepared**2) + 1e-8)
    assert np.abs(np.asarray(values) - (v - step)).max() <= unit(64)
    assert adam.time_step == 1 and np.abs(np.asarray(most) - 0.001 * prepared**2).max() <= unit(16)
    adam.learning_rate = 1
    assert adam.learning_rate == 1 and adam.copy().time_step == 1
    with pytest.raises(unmetal.Error):
        adam.encode(queue.command_buffer(), *vectors(device, g, v[:3], g, g), values)


def test_loss_scale(device, queue):
    scale = unmetal.LossScale(device, unmetal.LossScaleOptions(initial_scale=8, growth_interval=1))
    sgd = unmetal.NNOptimizerStochasticGradientDescent(device, 1)
    sgd.loss_scale = scale
    gradient, values = vectors(device, [16.0], [5.0])
    with queue.command_buffer() as command_buffer:
        sgd.encode(command_buffer, gradient, values, None, values)
        scale.update(command_buffer)
        scale.synchronize(command_buffer)
    assert np.asarray(values).tolist() == [3]
    assert (scale.scale, scale.skipped_steps, scale.options.growth_interval) == (16, 0, 1)
    gradient, = vectors(device, [np.inf])
    with queue.command_buffer() as command_buffer:
        sgd.encode(command_buffer, gradient, values, None, values)
        scale.update(command_buffer)
        scale.synchronize(command_buffer)
    assert np.asarray(values).tolist() == [3] and (scale.scale, scale.skipped_steps) == (8, 1)
    with pytest.raises(unmetal.Error):
        unmetal.LossScale(device, unmetal.LossScaleOptions(backoff_factor=2))


def test_ready_made_layers_and_files(device, tmp_path):
    adam = unmetal.NNOptimizerAdam(device, 0.01)
    shape = unmetal.CNNConvolutionDescriptor(3, 2, 4, 5)
    layer = unmetal.TrainableConvolution(device, shape, "conv", 1, adam, unmetal.WeightInitialization.Glorot)
    assert layer.weights.shape == (5, 2, 3, 4) and layer.bias_terms.tolist() == [0] * 5
    assert np.abs(layer.weights).max() <= np.sqrt(6 / (24 + 30)) and layer.weights.std() > 0
    assert layer.descriptor.kernel_width == 3 and layer.label == "conv" and not layer.is_frozen
    layer.is_frozen = True
    layer.optimizer.learning_rate = 1
    assert layer.is_frozen and layer.optimizer.learning_rate == 1
    with pytest.raises(ValueError):
        layer.weights[0] = 1  # a view that is read only
    weights = layer.weights
    assert np.shares_memory(weights, layer.weights)
    tensors = layer.tensors()
    assert sorted(tensors) == ["conv.bias", "conv.weight"]
    path = str(tmp_path / "layer.safetensors")
    unmetal.write_safetensors(path, tensors)
    other = unmetal.TrainableConvolution(device, shape, "conv", 2, adam)
    assert not np.array_equal(other.weights, weights)
    other.read(unmetal.SafetensorsFile.read(path))
    assert np.array_equal(other.weights, weights)
    unmetal.write_safetensors(path, {"conv.weight": weights.transpose(0, 3, 1, 2), "conv.bias": layer.bias_terms})
    third = unmetal.TrainableConvolution(device, shape, "conv", 3, adam)
    third.read_from_pytorch(unmetal.SafetensorsFile.read(path))
    assert np.array_equal(third.weights, weights)
    with pytest.raises(unmetal.Error, match="conv.weight"):
        third.read(unmetal.SafetensorsFile.read(path), with_optimizer_state=True)
    expected = weights.copy()
    del layer, tensors
    assert np.array_equal(weights, expected)  # the view keeps the layer

    batch = unmetal.TrainableBatchNormalization(device, 3, "norm", adam, momentum=0.5)
    assert batch.gamma.tolist() == [1] * 3 and batch.variance.tolist() == [1] * 3 and batch.momentum == 0.5
    assert "norm.running_mean" in batch.tensors()
    group = unmetal.TrainableGroupNormalization(device, 4, 2, "group")
    assert group.number_of_groups == 2 and group.optimizer is None
    assert unmetal.TrainableInstanceNormalization(device, 4, "instance", adam).beta.tolist() == [0] * 4
    with pytest.raises(unmetal.Error):
        unmetal.TrainableGroupNormalization(device, 4, 3, "group")
    with pytest.raises(unmetal.Error):
        unmetal.TrainableConvolution(device, shape, "conv", 1, None, adam_form=unmetal.AdamForm.AMSGrad)


class Learning(BatchParameters):
    """Trains gamma and beta on the device and keeps running statistics on the host."""

    def __init__(self, device, channels):
        super().__init__(channels, gamma=np.ones(channels), beta=np.zeros(channels))
        self.sgd = unmetal.NNOptimizerStochasticGradientDescent(device, 0.1)
        self.calls = []

    def update_mean_and_variance_with_command_buffer(self, command_buffer, state):
        self.calls.append("statistics")

    def update_gamma_and_beta_with_command_buffer(self, command_buffer, state):
        self.calls.append("weights")
        result = unmetal.CNNNormalizationGammaAndBetaState.create_temporary(command_buffer,
                                                                            state.number_of_feature_channels)
        self.sgd.encode(command_buffer, state, [], result)
        return result


def test_a_normalisation_of_ones_own_in_a_graph(device, queue, random, image_of):
    source = Learning(device, 3)
    node = unmetal.CNNBatchNormalizationNode(unmetal.NNImageNode(), source)
    loss = unmetal.CNNLossNode(node.result_image, unmetal.CNNLossDescriptor(unmetal.CNNLossType.MeanSquaredError))
    graph = unmetal.NNGraph(device, [end.result_image for end in loss.training_graph()], [False])
    images = [image_of(random.standard_normal((4, 4, 3)).astype(np.float32)) for _ in range(2)]
    labels = [unmetal.CNNLossLabels(device, np.full((4, 4, 3), 2, np.float32)) for _ in range(2)]
    losses = []
    for _ in range(3):
        with queue.command_buffer() as command_buffer:
            graph.encode_batch(command_buffer, [images], [labels])
        losses.append(sum(np.asarray(label.loss_image).item() for label in labels))
    assert source.calls == ["statistics", "weights"] * 3
    assert losses[2] != losses[1] != losses[0]
