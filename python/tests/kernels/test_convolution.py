"""Convolution, transposed convolution and fully connected layers with weights from NumPy, against sums in float64."""

import numpy as np
import pytest

import unmetal
from sources import Filters, close, correlation, floats
from unmetal import CNNConvolution, CNNConvolutionGradient, NNDefaultPadding, NNPaddingMethod, Offset

valid = NNDefaultPadding.padding(NNPaddingMethod.SizeValidOnly)


def geometry(random):
    """A random convolution that fits; pairs are (y, x)."""
    kernel, stride, dilation = random.integers(1, 4, 2), random.integers(1, 4, 2), random.integers(1, 3, 2)
    size, offset = random.integers(1, 7, 2), random.integers(-2, 4, 2)
    groups = int(random.integers(1, 4))
    inputs, outputs = groups * int(random.integers(1, 6)), groups * int(random.integers(1, 6))
    source = random.integers(1, 9, 2)
    return source, size, kernel, stride, dilation, offset, groups, inputs, outputs


@pytest.mark.parametrize("number", range(40))
def test_forward_and_gradient(device, queue, random, image_of, poisoned, number):
    extent, size, kernel, stride, dilation, offset, groups, inputs, outputs = geometry(random)
    print(extent, size, kernel, stride, dilation, offset, groups, inputs, outputs)
    source = random.standard_normal((*extent, inputs)).astype(np.float32)
    weights = random.standard_normal((outputs, *kernel, inputs // groups)).astype(np.float32)
    bias = random.standard_normal(outputs).astype(np.float32)
    incoming = random.standard_normal((*size, outputs)).astype(np.float32)
    filters = Filters(weights, bias, inputs, groups=groups, stride_in_pixels_y=int(stride[0]),
                      stride_in_pixels_x=int(stride[1]), dilation_rate_y=int(dilation[0]),
                      dilation_rate_x=int(dilation[1]))
    convolution = CNNConvolution(device, filters)
    gradient = CNNConvolutionGradient(device, filters)
    convolution.offset = Offset(int(offset[1]), int(offset[0]), 0)
    x, y = image_of(source), poisoned(*size, outputs)
    dx = poisoned(*extent, inputs)
    with queue.command_buffer() as command_buffer:
        state = convolution.result_state(x)
        convolution.encode(command_buffer, x, state, y)
        gradient.encode(command_buffer, image_of(incoming), x, state, dx)

    shape = (tuple(size), tuple(offset), tuple(stride), tuple(dilation), groups)
    wide = [array.astype(np.float64) for array in (source, weights, incoming)]
    expected, pull = correlation(wide[0], wide[1], *shape)
    magnitude, pull_magnitude = correlation(abs(wide[0]), abs(wide[1]), *shape)
    terms = weights[0].size + 1
    assert close(y, expected + bias, magnitude + abs(bias), terms)
    for found, exact, most, count in zip((dx, floats(state.gradient_for_weights).reshape(weights.shape)),
                                         pull(wide[2]), pull_magnitude(abs(wide[2])),
                                         (weights.size, incoming[..., 0].size)):
        assert close(found, exact, most, count)
    assert close(floats(state.gradient_for_biases), wide[2].sum((0, 1)), abs(wide[2]).sum((0, 1)),
                 incoming[..., 0].size)
    assert state.convolution is convolution


def test_every_property(device):
    filters = Filters(np.zeros((8, 3, 5, 2), np.float32), inputs=4, groups=2, stride_in_pixels_x=2,
                      stride_in_pixels_y=3, dilation_rate_x=4, dilation_rate_y=5)
    filters.descriptor.fused_neuron_descriptor = unmetal.NNNeuronDescriptor(unmetal.CNNNeuronType.ReLU)
    convolution = CNNConvolution(device, filters)
    assert (convolution.kernel_width, convolution.kernel_height) == (5, 3)
    assert (convolution.stride_in_pixels_x, convolution.stride_in_pixels_y) == (2, 3)
    assert (convolution.dilation_rate_x, convolution.dilation_rate_y) == (4, 5)
    assert (convolution.groups, convolution.input_feature_channels, convolution.output_feature_channels) == (2, 4, 8)
    assert convolution.channel_multiplier == 0 and convolution.sub_pixel_scale_factor == 1
    assert convolution.fused_neuron_descriptor.neuron_type == unmetal.CNNNeuronType.ReLU
    assert convolution.data_source is filters and convolution.label == "filters"
    assert convolution.is_result_state_reused_across_batch
    gradient = CNNConvolutionGradient(device, filters)
    assert (gradient.source_image_feature_channels, gradient.source_gradient_feature_channels) == (4, 8)
    for option in (unmetal.CNNConvolutionGradientOption.GradientWithData, unmetal.CNNConvolutionGradientOption.All):
        gradient.gradient_option = option
        assert gradient.gradient_option == option
    convolution.accumulator_precision_option = unmetal.NNConvolutionAccumulatorPrecisionOption.Half
    assert convolution.accumulator_precision_option == unmetal.NNConvolutionAccumulatorPrecisionOption.Half
    assert filters.descriptor.weight_count == 8 * 3 * 5 * 2
    assert filters.data_type == unmetal.DataType.Float32
    assert filters.calls == ["load", "purge"] * 2


def test_depth_wise_and_sub_pixel_descriptors(device):
    descriptor = unmetal.CNNDepthWiseConvolutionDescriptor(3, 3, 4, 8)
    assert descriptor.channel_multiplier == 2
    filters = Filters(np.zeros((8, 3, 3, 1), np.float32))
    filters.descriptor = descriptor
    assert CNNConvolution(device, filters).channel_multiplier == 2
    filters.weights = np.zeros((8, 3, 3), np.float32)
    CNNConvolution(device, filters)
    descriptor = unmetal.CNNSubPixelConvolutionDescriptor(3, 3, 4, 8)
    descriptor.sub_pixel_scale_factor = 2
    filters = Filters(np.zeros((8, 3, 3, 4), np.float32))
    filters.descriptor = descriptor
    assert CNNConvolution(device, filters).sub_pixel_scale_factor == 2
    with pytest.raises(unmetal.Error, match="input_feature_channels|output_feature_channels"):
        unmetal.CNNDepthWiseConvolutionDescriptor(3, 3, 3, 8)
    with pytest.raises(unmetal.Error, match="kernel_width is 0"):
        unmetal.CNNConvolutionDescriptor(0, 3, 1, 1)


def values(device, queue, convolution, pixel):
    """The result for one pixel."""
    x = unmetal.Image.from_array(device, np.asarray(pixel, np.float32).reshape(1, 1, -1))
    convolution.destination_image_allocator = unmetal.Image.default_allocator()
    with queue.command_buffer() as command_buffer:
        y = convolution.encode(command_buffer, x)
    return np.asarray(y).ravel().tolist()


def test_types_of_weights(device, queue):
    weights = np.array([[1.5, 2], [3, -4]]).reshape(2, 1, 1, 2)
    assert values(device, queue, CNNConvolution(device, Filters(weights.astype(np.float16))), [1, 1]) == [3.5, -1]
    fortran = np.asfortranarray(weights.astype(np.float32))
    assert values(device, queue, CNNConvolution(device, Filters(fortran)), [1, 1]) == [3.5, -1]
    flat = Filters(weights.astype(np.float32))
    flat.weights = flat.weights.ravel()
    assert values(device, queue, CNNConvolution(device, flat), [1, 1]) == [3.5, -1]
    bytes_ = Filters(np.array([[0, 255], [255, 0]], np.uint8).reshape(2, 1, 1, 2))
    bytes_.weights_quantization_type = unmetal.CNNWeightsQuantizationType.Linear
    bytes_.ranges_for_uint8_kernel = [(-1, 1), (2, 4)]
    assert values(device, queue, CNNConvolution(device, bytes_), [1, 10]) == [9, 24]
    bytes_.weights_quantization_type = unmetal.CNNWeightsQuantizationType.LookupTable
    bytes_.lookup_table_for_uint8_kernel = np.arange(256) / 2
    assert values(device, queue, CNNConvolution(device, bytes_), [1, 10]) == [1275, 127.5]
    assert bytes_.data_type == unmetal.DataType.UInt8


def test_reloads_and_export(device, queue):
    filters = Filters(np.ones((1, 1, 1, 2), np.float32), [0.5])
    convolution = CNNConvolution(device, filters)
    assert values(device, queue, convolution, [1, 2]) == [3.5]
    filters.weights[:] = 2  # read where they are, at a reload
    assert values(device, queue, convolution, [1, 2]) == [3.5]
    convolution.reload_weights_and_biases_from_data_source()
    assert values(device, queue, convolution, [1, 2]) == [6.5]
    state = unmetal.CNNConvolutionWeightsAndBiasesState(device, filters.descriptor)
    floats(state.weights)[:] = [3, 4]
    floats(state.biases)[:] = [-1]
    for buffer in (state.weights, state.biases):
        buffer.did_modify_range(0, buffer.length)
    with queue.command_buffer() as command_buffer:
        convolution.reload_weights_and_biases(command_buffer, state)
        exported = convolution.export_weights_and_biases(command_buffer)
        exported.synchronize(command_buffer)
    assert values(device, queue, convolution, [1, 2]) == [10]
    assert floats(exported.weights).tolist() == [3, 4] and floats(exported.biases).tolist() == [-1]
    assert (state.weight_count, state.bias_count, state.weights_offset, state.biases_offset) == (2, 1, 0, 0)
    joined = unmetal.CNNConvolutionWeightsAndBiasesState(
        device.new_buffer(np.array([0, 5, 6, 7], np.float32)), 4, device.new_buffer(np.array([8, 9], np.float32)), 4,
        filters.descriptor)
    with queue.command_buffer() as command_buffer:
        convolution.reload_weights_and_biases(command_buffer, joined)
    assert values(device, queue, convolution, [1, 2]) == [26]
    with pytest.raises(unmetal.Error, match="1 weights"):
        with queue.command_buffer() as command_buffer:
            convolution.reload_weights_and_biases(
                command_buffer, unmetal.CNNConvolutionWeightsAndBiasesState(device.new_buffer(4)))


def test_batches_and_states(device, queue, image_of):
    """The gradients of weights are sums over the batch; later encodes with the state add."""
    filters = Filters(np.ones((1, 1, 1, 1), np.float32))
    convolution, gradient = CNNConvolution(device, filters), CNNConvolutionGradient(device, filters)
    images = [image_of(np.full((1, 1, 1), value, np.float32)) for value in (1, 2, 3)]
    ones = [image_of(np.ones((1, 1, 1), np.float32)) for _ in images]
    convolution.destination_image_allocator = unmetal.Image.default_allocator()
    gradient.destination_image_allocator = unmetal.Image.default_allocator()
    with queue.command_buffer() as command_buffer:
        results, states = convolution.encode_batch(command_buffer, images, destination_states_are_temporary=False)
        gradients = gradient.encode_batch(command_buffer, ones, images, states)
    assert [float(np.asarray(image).item()) for image in results] == [1, 2, 3]
    assert [float(np.asarray(image).item()) for image in gradients] == [1, 1, 1]
    state = states.shared_state
    assert isinstance(state, unmetal.CNNConvolutionGradientState)
    assert floats(state.gradient_for_weights).tolist() == [6]
    with queue.command_buffer() as command_buffer:
        gradient.encode_batch(command_buffer, ones, images, states)
    assert floats(state.gradient_for_weights).tolist() == [12]


def test_fully_connected(device, queue, random, image_of):
    weights = random.standard_normal((3, 2, 4, 5)).astype(np.float32)
    source = random.standard_normal((2, 4, 5)).astype(np.float32)
    filters = Filters(weights)
    connected = unmetal.CNNFullyConnected(device, filters)
    gradient = unmetal.CNNFullyConnectedGradient(device, filters)
    connected.destination_image_allocator = gradient.destination_image_allocator = unmetal.Image.default_allocator()
    incoming = random.standard_normal((1, 1, 3)).astype(np.float32)
    with queue.command_buffer() as command_buffer:
        y, state = connected.encode(command_buffer, image_of(source), destination_state_is_temporary=False)
        dx = gradient.encode(command_buffer, image_of(incoming), image_of(source), state)
    wide = weights.astype(np.float64)
    assert close(np.asarray(y).ravel(), np.einsum("oyxi,yxi->o", wide, source),
                 np.einsum("oyxi,yxi->o", abs(wide), abs(source)), source.size)
    assert close(dx, np.einsum("o,oyxi->yxi", incoming.ravel(), wide),
                 np.einsum("o,oyxi->yxi", abs(incoming).ravel(), abs(wide)), 3)
    assert np.array_equal(floats(state.gradient_for_weights).reshape(weights.shape),
                          incoming.reshape(3, 1, 1, 1) * source)


def test_transposed_convolution_undoes_sizes(device, queue, random, image_of):
    """Its result is the data gradient of the convolution with rotated weights, and has the size of that one's source."""
    source = random.standard_normal((7, 6, 2)).astype(np.float32)
    down = CNNConvolution(device, Filters(random.standard_normal((3, 3, 3, 2)).astype(np.float32),
                                          stride_in_pixels_x=2, stride_in_pixels_y=2))
    weights = random.standard_normal((2, 3, 3, 3)).astype(np.float32)
    filters = Filters(weights, stride_in_pixels_x=2, stride_in_pixels_y=2)
    up = unmetal.CNNConvolutionTranspose(device, filters)
    gradient = unmetal.CNNConvolutionTransposeGradient(device, filters)
    for kernel in (down, up, gradient):
        kernel.destination_image_allocator = unmetal.Image.default_allocator()
    with queue.command_buffer() as command_buffer:
        small, state = down.encode(command_buffer, image_of(source), destination_state_is_temporary=False)
        large, up_state = up.encode(command_buffer, small, state, destination_state_is_temporary=False)
        again = up.encode(command_buffer, small, state)
        back = gradient.encode(command_buffer, large, small, up_state)
    assert (large.height, large.width, large.feature_channels) == source.shape
    assert np.array_equal(np.asarray(large), np.asarray(again))
    assert up_state.convolution is down and up_state.convolution_transpose is up
    assert up_state.convolution_gradient_state is state and isinstance(
        up_state, unmetal.CNNConvolutionTransposeGradientState)
    rotated = weights[:, ::-1, ::-1].transpose(3, 1, 2, 0).astype(np.float64)
    size = np.asarray(small).shape[:2]
    offset = (down.offset.y, down.offset.x)
    for signs, place in ((lambda array: array, "value"), (abs, "magnitude")):
        _, pull = correlation(np.zeros(source.shape), signs(rotated), size, offset, (2, 2))
        if place == "value":
            expected = pull(np.asarray(small, np.float64))[0]
        else:
            assert close(large, expected, pull(abs(np.asarray(small, np.float64)))[0], weights.size)
    wide = np.asarray(large, np.float64)
    exact, _ = correlation(wide, rotated, size, offset, (2, 2))
    assert close(back, exact, correlation(abs(wide), abs(rotated), size, offset, (2, 2))[0], weights.size)


def test_coding_keeps_the_weights(device, queue):
    convolution = CNNConvolution(device, Filters(np.full((1, 1, 1, 2), 3, np.float32), [1]))
    archiver = unmetal.KeyedArchiver()
    convolution.encode(archiver)
    copy = CNNConvolution.decode(unmetal.KeyedUnarchiver(archiver.encoded_data(), device))
    assert values(device, queue, copy, [1, 2]) == [10]
    source = copy.data_source
    assert source.weights.tolist() == [[[[3, 3]]]] and source.bias_terms == [1]
    assert source.descriptor.input_feature_channels == 2 and source.label == "filters"
    assert values(device, queue, convolution.copy(), [1, 2]) == [10]


@pytest.mark.parametrize("attribute, value, error, sentence", [
    ("weights", np.zeros((2, 1, 1, 3)), TypeError, "expected float32, float16 or uint8"),
    ("weights", np.zeros((2, 3, 1, 1), np.float32), ValueError, r"\(2, 3, 1, 1\), expected \(2, 1, 1, 3\)"),
    ("weights", np.zeros(5, np.float32), unmetal.Error, "20 bytes, expected 24"),
    ("weights", "text", TypeError, "weights is .*str.*, expected an array"),
    ("weights", None, TypeError, "weights is .*NoneType"),
    ("weights", np.zeros((2, 1, 1, 3), np.uint8), unmetal.Error, "weights_quantization_type"),
    ("bias_terms", [1], unmetal.Error, "bias_terms is 1 values, expected 2"),
    ("bias_terms", "text", TypeError, "bias_terms is .*str.*, expected numbers"),
    ("descriptor", 3, TypeError, "descriptor is .*int.*, expected a CNNConvolutionDescriptor"),
    ("label", 3, TypeError, "label is .*int.*, expected text"),
])
def test_wrong_attributes_raise(device, attribute, value, error, sentence):
    filters = Filters(np.zeros((2, 1, 1, 3), np.float32))
    setattr(filters, attribute, value)
    with pytest.raises(error, match=sentence):
        CNNConvolution(device, filters)
    assert filters.calls in ([], ["load", "purge"])


def test_wrong_uses_raise(device, queue, image_of):
    class Nothing(unmetal.CNNConvolutionDataSource):
        pass

    with pytest.raises(AttributeError, match="is to be defined by the subclass"):
        CNNConvolution(device, Nothing())
    with pytest.raises(TypeError):
        CNNConvolution(device, None)
    filters = Filters(np.zeros((2, 1, 1, 3), np.float32))
    convolution = CNNConvolution(device, filters)
    with pytest.raises(unmetal.Error, match="2 feature channels|2, expected 3|feature channels"):
        convolution.encode(queue.command_buffer(), image_of(np.zeros((1, 1, 2), np.float32)))
    gradient = CNNConvolutionGradient(device, filters)
    with pytest.raises(unmetal.Error):
        gradient.encode(queue.command_buffer(), image_of(np.zeros((1, 1, 2), np.float32)),
                        image_of(np.zeros((1, 1, 3), np.float32)))
