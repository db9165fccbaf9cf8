"""ONNX operators by our kernels: `results(node, version, inputs, shapes)`, as arrays.

Pictures come and go as NCHW and are NHWC in between; tensors of other ranks become pictures as each operator says. What
no kernel computes raises DoesNotApply with the reason.
"""

import numpy as np
import onnx

import unmetal
from unmetal import CNNNeuronType, ImageEdgeMode

device = unmetal.mtl.create_system_default_device()
queue = device.new_command_queue()


class DoesNotApply(Exception):
    """Why our kernels do not cover a case."""


def demand(holds, reason):
    if not holds:
        raise DoesNotApply(reason)


def batch(array):
    return unmetal.ImageBatch.from_array(device, np.ascontiguousarray(array, np.float32))


def poisoned(shape):
    return unmetal.ImageBatch.from_array(device, np.full(shape, np.nan, np.float32))


def run(kernel, source, shape):
    """The result of a kernel with one source, both NHWC. What it does not write is NaN."""
    destination = poisoned(shape)
    with queue.command_buffer() as command_buffer:
        kernel.encode_batch(command_buffer, batch(source), destination)
    return np.asarray(destination)


def pictures(array):
    """(N, C) and more axes to NHWC; a single further axis is x, of three or more all but the last one are y."""
    count, channels, *spatial = array.shape
    width = spatial[-1] if spatial else 1
    return array.reshape(count, channels, -1, width).transpose(0, 2, 3, 1)


def tensor(array, shape):
    """The inverse of pictures, for a tensor of this shape."""
    return array.transpose(0, 3, 1, 2).reshape(shape)


def flat(array):
    """A tensor whose axes do not matter, as one row of pixels."""
    return array.reshape(1, 1, -1, 1)


def planes(array):
    """As pictures, where two spatial axes are the most."""
    demand(array.ndim in (3, 4), "images have two spatial axes")
    return pictures(array)


class Windows:
    """Sizes and places of the windows of a convolution or pooling; (y, x), and pads as (before, behind)."""

    def __init__(self, node, extent, kernel):
        axes = len(kernel)
        self.kernel = self.pair(kernel, 1)
        self.stride = self.pair(node.get("strides", [1] * axes), 1)
        self.dilation = self.pair(node.get("dilations", [1] * axes), 1)
        self.extent = extent
        self.dilated = tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation))
        self.pads = self.pads_of(node, axes)
        self.ceil = node.get("ceil_mode", 0)

    @staticmethod
    def pair(values, missing):
        return (missing, *values) if len(values) == 1 else tuple(values)

    def pads_of(self, node, axes):
        kind = node.get("auto_pad", b"NOTSET")
        if kind in (b"SAME_UPPER", b"SAME_LOWER"):
            totals = [max((-(-size // s) - 1) * s + k - size, 0)
                      for size, s, k in zip(self.extent, self.stride, self.dilated)]
            return [(t // 2, t - t // 2) if kind == b"SAME_UPPER" else (t - t // 2, t // 2) for t in totals]
        pads = node.get("pads", [0] * 2 * axes)
        return list(zip(self.pair(pads[:axes], 0), self.pair(pads[axes:], 0)))

    def size(self):
        """Pixels of the result."""
        found = []
        for size, s, k, (before, behind) in zip(self.extent, self.stride, self.dilated, self.pads):
            count = (size + before + behind - k + (s - 1) * self.ceil) // s + 1
            found.append(count - 1 if self.ceil and (count - 1) * s >= size + before else count)
        return tuple(found)

    def offset(self):
        """Where our windows' centres begin."""
        y, x = (k // 2 - before for k, (before, _) in zip(self.dilated, self.pads))
        return unmetal.Offset(x, y, 0)


class Filters(unmetal.CNNConvolutionDataSource):
    def __init__(self, weights, bias, inputs, groups, windows):
        super().__init__()
        self.weights, self.bias_terms = np.ascontiguousarray(weights), bias
        self.descriptor = unmetal.CNNConvolutionDescriptor(windows.kernel[1], windows.kernel[0], inputs, len(weights))
        self.descriptor.groups = groups
        self.descriptor.stride_in_pixels_y, self.descriptor.stride_in_pixels_x = windows.stride
        self.descriptor.dilation_rate_y, self.descriptor.dilation_rate_x = windows.dilation


def convolution(node, inputs, shapes):
    source, weights = planes(inputs[0]), planes(inputs[1])
    windows = Windows(node, source.shape[1:3], inputs[1].shape[2:])
    filters = Filters(weights, inputs[2] if len(inputs) > 2 else None, source.shape[3], node.get("group", 1), windows)
    kernel = unmetal.CNNConvolution(device, filters)
    kernel.offset = windows.offset()
    return tensor(run(kernel, source, (len(source), *windows.size(), len(weights))), shapes[0])


def transposed_convolution(node, inputs, shapes):
    source, weights = planes(inputs[0]), planes(inputs[1])
    groups = node.get("group", 1)
    windows = Windows({name: value for name, value in node.items() if name != "auto_pad"}, source.shape[1:3],
                      inputs[1].shape[2:])
    additional = Windows.pair(node.get("output_padding", [0] * (source.ndim - 2)), 0)
    whole = [(n - 1) * s + k + more
             for n, s, k, more in zip(windows.extent, windows.stride, windows.dilated, additional)]
    kind = node.get("auto_pad", b"NOTSET")
    wanted = node.get("output_shape")
    if kind in (b"SAME_UPPER", b"SAME_LOWER") and not wanted:
        wanted = [n * s for n, s in zip(windows.extent, windows.stride)]
    if wanted:
        totals = [w - n for w, n in zip(whole, Windows.pair(wanted, 1))]
        windows.pads = [(t // 2, t - t // 2) if kind == b"SAME_UPPER" else (t - t // 2, t // 2) for t in totals]
    size = [w - sum(pads) for w, pads in zip(whole, windows.pads)]
    # [in][y][x][out / groups] to [out][y][x][in / groups], rotated by 180 degrees
    split = weights[:, ::-1, ::-1].reshape(groups, -1, *weights.shape[1:])
    rotated = split.transpose(0, 4, 2, 3, 1).reshape(-1, *weights.shape[1:3], split.shape[1])
    filters = Filters(rotated, inputs[2] if len(inputs) > 2 else None, source.shape[3], groups, windows)
    kernel = unmetal.CNNConvolutionTranspose(device, filters)
    kernel.kernel_offset_y, kernel.kernel_offset_x = (before + k // 2 - (k - 1)
                                                      for k, (before, _) in zip(windows.dilated, windows.pads))
    return tensor(run(kernel, source, (len(source), *size, len(rotated))), shapes[0])


def padded(source, pads, value):
    """NNPad around pictures: pads (before, behind) of y and x."""
    pad = unmetal.NNPad(device, unmetal.ImageCoordinate(pads[1][0], pads[0][0], 0),
                        unmetal.ImageCoordinate(pads[1][1], pads[0][1], 0))
    pad.fill_value, pad.edge_mode = value, ImageEdgeMode.Constant
    pad.offset = unmetal.Offset(-pads[1][0], -pads[0][0], 0)
    count, height, width, channels = source.shape
    return run(pad, source, (count, height + sum(pads[0]), width + sum(pads[1]), channels))


def pooling(node, inputs, shapes):
    demand(len(shapes) == 1, "the places of the maxima are not a result")
    source = planes(inputs[0])
    windows = Windows(node, source.shape[1:3], node["kernel_shape"])
    size, operator = windows.size(), node["operator"]
    arguments = (windows.kernel[1], windows.kernel[0])
    strides = (windows.stride[1], windows.stride[0])
    if operator == "MaxPool":
        if max(windows.dilation) > 1:  # at the edge, Clamp reads pixels that a dilated window leaves out
            source, windows.pads = padded(source, windows.pads, -np.inf), [(0, 0), (0, 0)]
        kernel = unmetal.CNNDilatedPoolingMax(device, *arguments, windows.dilation[1], windows.dilation[0], *strides)
        kernel.edge_mode = ImageEdgeMode.Clamp
    else:
        demand(max(windows.dilation) == 1, "of the pooling kernels the maximum alone has dilation")
        if operator == "LpPool":
            demand(node.get("p", 2) == 2, "norms are Euclidean")
            kernel = unmetal.CNNPoolingL2Norm(device, *arguments, *strides)
        else:
            kernel = unmetal.CNNPoolingAverage(device, *arguments, *strides)
            kernel.edge_mode = ImageEdgeMode.Clamp
            if node.get("count_include_pad", 0):
                kernel.zero_pad_size_y, kernel.zero_pad_size_x = (before for before, _ in windows.pads)
    kernel.offset = windows.offset()
    return tensor(run(kernel, source, (len(source), *size, source.shape[3])), shapes[0])


def global_pooling(node, inputs, shapes):
    source = pictures(inputs[0])
    count, height, width, channels = source.shape
    if node["operator"] == "GlobalAveragePool":
        kernel = unmetal.NNReduceSpatialMean(device)
    else:
        made = unmetal.CNNPoolingMax if node["operator"] == "GlobalMaxPool" else unmetal.CNNPoolingL2Norm
        kernel = made(device, width, height)
        kernel.offset = unmetal.Offset(width // 2, height // 2, 0)
    return tensor(run(kernel, source, (count, 1, 1, channels)), shapes[0])


def parameters(base):
    """A class of data sources with the values of a node, of one base alone."""

    class Parameters(base):
        def __init__(self, node, channels, **attributes):
            super().__init__()
            self.number_of_feature_channels, self.epsilon = channels, node.get("epsilon", 1e-5)
            for name, value in attributes.items():
                setattr(self, name, value)

    return Parameters


BatchParameters = parameters(unmetal.CNNBatchNormalizationDataSource)
InstanceParameters = parameters(unmetal.CNNInstanceNormalizationDataSource)
GroupParameters = parameters(unmetal.CNNGroupNormalizationDataSource)


def batch_normalization(node, inputs, shapes):
    source = pictures(inputs[0])
    gamma, beta, mean, variance = inputs[1:]
    parameters = BatchParameters(node, source.shape[3], gamma=gamma, beta=beta, mean=mean, variance=variance)
    kernel = unmetal.CNNBatchNormalization(device, parameters)
    if not node.get("training_mode", 0):
        return tensor(run(kernel, source, source.shape), shapes[0])
    images, results = batch(source), poisoned(source.shape)
    state = kernel.result_state(images[0])
    with queue.command_buffer() as command_buffer:
        unmetal.CNNBatchNormalizationStatistics(device).encode_batch(command_buffer, images, state)
        kernel.encode_batch(command_buffer, images, state, results)
    momentum = node.get("momentum", 0.9)
    running = [old * momentum + found.contents.view(np.float32) * (1 - momentum)
               for old, found in ((mean, state.mean), (variance, state.variance))]
    return [tensor(np.asarray(results), shapes[0]), *running]


def instance_normalization(node, inputs, shapes):
    source = pictures(inputs[0])
    parameters = InstanceParameters(node, source.shape[3], gamma=inputs[1], beta=inputs[2])
    return tensor(run(unmetal.CNNInstanceNormalization(device, parameters), source, source.shape), shapes[0])


def group_normalization(node, inputs, shapes):
    source = pictures(inputs[0])
    parameters = GroupParameters(node, source.shape[3], gamma=inputs[1], beta=inputs[2],
                                 number_of_groups=node["num_groups"])
    return tensor(run(unmetal.CNNGroupNormalization(device, parameters), source, source.shape), shapes[0])


def response_normalization(node, inputs, shapes):
    source = pictures(inputs[0])
    kernel = unmetal.CNNCrossChannelNormalization(device, node["size"])
    kernel.alpha, kernel.beta, kernel.delta = node.get("alpha", 1e-4), node.get("beta", 0.75), node.get("bias", 1.0)
    return tensor(run(kernel, source, source.shape), shapes[0])


def softmax(node, inputs, shapes):
    """The axis becomes the channels, the others pixels. Before version 13 all axes from that one on are one."""
    source, old = inputs[0], node["version"] < 13
    axis = node.get("axis", 1 if old else -1)
    if old:
        source, axis = source.reshape(*source.shape[:axis], -1), axis % source.ndim
    moved = np.moveaxis(source, axis, -1)
    made = unmetal.CNNSoftMax if node["operator"] == "Softmax" else unmetal.CNNLogSoftMax
    flattened = moved.reshape(1, 1, -1, moved.shape[-1])
    return np.moveaxis(run(made(device), flattened, flattened.shape).reshape(moved.shape), -1, axis).reshape(shapes[0])


def concatenation(node, inputs, shapes):
    """The axis becomes the channels, the others pixels."""
    axis = node["axis"]
    moved = [np.moveaxis(part, axis, -1) for part in inputs]
    sources = [batch(part.reshape(1, 1, -1, part.shape[-1])) for part in moved]
    kernel = unmetal.NNConcatenation(device, len(sources))
    kernel.channel_alignment = 1
    pixels = moved[0].size // moved[0].shape[-1]
    result = poisoned((1, 1, pixels, sum(part.shape[-1] for part in moved)))
    with queue.command_buffer() as command_buffer:
        kernel.encode_batch(command_buffer, sources, result)
    return np.moveaxis(np.asarray(result).reshape(*moved[0].shape[:-1], -1), -1, axis)


arithmetic_classes = {"Add": unmetal.CNNAdd, "Sub": unmetal.CNNSubtract, "Mul": unmetal.CNNMultiply,
                      "Div": unmetal.CNNDivide}


def arithmetic(node, inputs, shapes):
    """A picture (y, x, channel) of the last three axes; an axis of one element is repeated by a stride of 0."""
    demand(all(operand.dtype == np.float32 for operand in inputs), "images hold no integers and no float64")
    whole = [operand.reshape((1,) * (4 - operand.ndim) + operand.shape) for operand in inputs]
    demand(whole[0].shape[0] == 1 == whole[1].shape[0], "batches are not broadcast")
    kernel = arithmetic_classes[node["operator"]](device)
    for name, operand in zip(("primary", "secondary"), whole):
        for axis, suffix in enumerate(("pixels_y", "pixels_x", "feature_channels"), 1):
            setattr(kernel, f"{name}_stride_in_{suffix}", int(operand.shape[axis] > 1))
    result = poisoned(np.broadcast_shapes(*(operand.shape for operand in whole)))
    with queue.command_buffer() as command_buffer:
        kernel.encode_batch(command_buffer, *(batch(operand) for operand in whole), result)
    return np.asarray(result).reshape(shapes[0])


edge_modes = {"constant": ImageEdgeMode.Constant, "edge": ImageEdgeMode.Clamp, "reflect": ImageEdgeMode.Mirror}


def pad(node, inputs, shapes):
    """Integers go through float32, which holds them."""
    mode = node.get("mode", b"constant").decode()
    demand(mode in edge_modes, "no edge mode goes around")
    source = pictures(inputs[0])
    assert np.array_equal(source.astype(np.float32), source)
    if "pads" in node:
        values, axes, fill = node["pads"], range(4), node.get("value", 0.0)
    else:
        values = inputs[1]
        axes = [int(axis) % 4 for axis in inputs[3]] if len(inputs) > 3 else range(4)
        fill = float(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else 0.0
    pads = {axis: (int(before), int(behind))
            for axis, before, behind in zip(axes, values[:len(axes)], values[len(axes):])}
    demand(pads.get(0, (0, 0)) == (0, 0), "batches are not padded")
    channels, rows, columns = (pads.get(axis, (0, 0)) for axis in (1, 2, 3))
    kernel = unmetal.NNPad(device, *(unmetal.ImageCoordinate(*(pair[end] for pair in (columns, rows, channels)))
                                     for end in (0, 1)))
    kernel.fill_value, kernel.edge_mode = fill, edge_modes[mode]
    kernel.offset = unmetal.Offset(-columns[0], -rows[0], 0)
    count, _, height, width = shapes[0]
    return tensor(run(kernel, source, (count, height, width, shapes[0][1])), shapes[0]).astype(inputs[0].dtype)


def cut(node, inputs, shapes):
    """A tensor of three axes is a picture whose channels are an axis that is cut at a multiple of four."""
    source, starts, ends = inputs[:3]
    axes = inputs[3] if len(inputs) > 3 else range(len(starts))
    steps = inputs[4] if len(inputs) > 4 else [1] * len(starts)
    demand(all(step == 1 for step in steps), "slices have no steps")
    ranges = [(0, size) for size in source.shape]
    for axis, start, end in zip(axes, starts, ends):
        first, behind, _ = slice(int(start), int(end)).indices(source.shape[axis])
        demand(first < behind, "images have elements")
        ranges[axis % 3] = (first, behind)
    last = max(axis for axis in range(3) if ranges[axis][0] % 4 == 0)
    order = [axis for axis in range(3) if axis != last] + [last]
    kernel = unmetal.NNSlice(device)
    y, x, c = (ranges[axis] for axis in order)
    kernel.offset = unmetal.Offset(x[0], y[0], 0)
    kernel.source_feature_channel_offset, kernel.source_feature_channel_max_count = c[0], c[1] - c[0]
    shape = [ranges[axis][1] - ranges[axis][0] for axis in order]
    result = run(kernel, source.transpose(order)[None], (1, *shape))[0]
    return result.transpose(np.argsort(order))


def reshape(node, inputs, shapes):
    """The order of elements is that of a picture (y, x, channel): the last two axes are x and channel."""
    demand(inputs[0].size, "images have elements")

    def picture(shape):
        shape = (1, 1, *shape)
        return (1, int(np.prod(shape[:-2])), *shape[-2:])

    return run(unmetal.NNReshape(device), inputs[0].reshape(picture(inputs[0].shape)), picture(shapes[0])).reshape(shapes[0])


def product(node, inputs, shapes):
    transpose_left, transpose_right = bool(node.get("transA", 0)), bool(node.get("transB", 0))
    beta = node.get("beta", 1.0) if len(inputs) > 2 else 0.0
    rows, columns = shapes[0]
    kernel = unmetal.MatrixMultiplication(device, rows, columns, inputs[0].shape[0 if transpose_left else 1],
                                          transpose_left=transpose_left, transpose_right=transpose_right,
                                          alpha=node.get("alpha", 1.0), beta=beta)
    addend = np.broadcast_to(inputs[2], shapes[0]) if len(inputs) > 2 else np.full(shapes[0], np.nan, np.float32)
    left, right, result = (unmetal.Matrix.from_array(device, np.ascontiguousarray(values), copy=True)
                           for values in (*inputs[:2], addend))
    with queue.command_buffer() as command_buffer:
        kernel.encode(command_buffer, left, right, result)
    return np.asarray(result)


def dropout(node, inputs, shapes):
    demand(len(inputs) > 2 and bool(inputs[2]), "inference leaves dropout out")
    demand(float(inputs[1]) == 0, "NumPy's random numbers are not ours")
    kernel = unmetal.CNNDropout(device, keep_probability=1.0, seed=1)
    result = run(kernel, flat(inputs[0]), flat(inputs[0]).shape).reshape(shapes[0])
    if len(shapes) == 1:
        return result
    return [result, run(kernel, flat(np.ones_like(inputs[0])), flat(inputs[0]).shape).reshape(shapes[1]).astype(bool)]


def upsample(source, shape):
    kernel = unmetal.CNNUpsamplingNearest(device, shape[3] // source.shape[2], shape[2] // source.shape[1])
    return tensor(run(kernel, source, (shape[0], shape[2], shape[3], shape[1])), shape)


def resize(node, inputs, shapes):
    if node["operator"] == "Upsample":
        return upsample(pictures(inputs[0]), shapes[0])
    mode, coordinates = node.get("mode", b"nearest"), node.get("coordinate_transformation_mode", b"half_pixel")
    demand(mode != b"cubic", "no cubic interpolation")
    demand(not node.get("antialias", 0), "bilinear interpolation does not filter")
    source, shape = pictures(inputs[0]), shapes[0]
    axes = [axis % 4 for axis in node.get("axes", range(4))]
    scale = [result / own for own, result in zip(inputs[0].shape, shape)]
    if inputs[2] is not None and inputs[2].size:
        for axis, factor in zip(axes, inputs[2]):
            scale[axis] = float(factor)
    if mode == b"nearest":
        demand(all(s == shape[axis] / inputs[0].shape[axis] and s.is_integer() for axis, s in enumerate(scale)),
               "nearest neighbours are for factors that are whole numbers")
        demand((coordinates, node.get("nearest_mode", b"round_prefer_floor")) == (b"half_pixel", b"round_prefer_floor"),
               "source pixels become blocks of one size")
        return upsample(source, shape)
    size = shape[3], shape[2]
    if coordinates == b"tf_crop_and_resize":
        demand(node.get("extrapolation_value", 0.0) == 0, "outside of an image is 0")
        half = len(inputs[1]) // 2
        begin, end = (dict(zip(axes, (float(value) for value in part))) for part in (inputs[1][:half], inputs[1][half:]))
        region = unmetal.NormalizedRegion(begin[3], begin[2], end[3] - begin[3], end[2] - begin[2])
        kernel = unmetal.NNCropAndResizeBilinear(device, *size, [region])
    elif coordinates == b"align_corners" and all(scale[axis] * inputs[0].shape[axis] == shape[axis] for axis in (2, 3)):
        kernel = unmetal.NNResizeBilinear(device, *size, align_corners=True)
    else:
        # ImageBilinearScale's position is (x + 0.5 - move) / scale - 0.5; ONNX's size, scale * source, may be no integer
        own, wide = (inputs[0].shape[3], inputs[0].shape[2]), (shape[3], shape[2])
        scale, move = scale[:1:-1], [0.0, 0.0]
        if coordinates == b"half_pixel_symmetric":
            move = [(w - n * s) / 2 for n, w, s in zip(own, wide, scale)]
        elif coordinates == b"align_corners":
            scale = [(n * s - 1) / (n - 1) for n, s in zip(own, scale)]
            move = [0.5 - 0.5 * s for s in scale]
        elif coordinates == b"pytorch_half_pixel":  # position 0 where the result is one pixel
            move = [0.5 - 0.5 * s if w == 1 else 0.0 for w, s in zip(wide, scale)]
        else:
            assert coordinates == b"half_pixel", coordinates
        kernel = unmetal.ImageBilinearScale(device, *size)
        kernel.scale_transform = unmetal.ScaleTransform(*scale, *move)
        kernel.edge_mode = ImageEdgeMode.Clamp
    return tensor(run(kernel, source, (shape[0], shape[2], shape[3], shape[1])), shape)


def neuron_of(node, inputs):
    """The descriptor of a function of one element, and the elements as pixels."""
    make, operator = unmetal.NNNeuronDescriptor, node["operator"]
    plain = {"Relu": CNNNeuronType.ReLU, "Sigmoid": CNNNeuronType.Sigmoid, "Tanh": CNNNeuronType.TanH,
             "Abs": CNNNeuronType.Absolute, "Softplus": CNNNeuronType.SoftPlus, "Softsign": CNNNeuronType.SoftSign,
             "Exp": CNNNeuronType.Exponential, "Log": CNNNeuronType.Logarithm}
    if operator in plain:
        return make(plain[operator])
    if operator == "LeakyRelu":
        return make(CNNNeuronType.ReLU, node.get("alpha", 0.01))
    if operator == "Elu":
        return make(CNNNeuronType.ELU, node.get("alpha", 1.0))
    if operator == "HardSigmoid":
        return make(CNNNeuronType.HardSigmoid, node.get("alpha", 0.2), node.get("beta", 0.5))
    if operator == "Neg":
        return make(CNNNeuronType.Linear, -1.0, 0.0)
    if operator == "Gelu":
        demand(node.get("approximate", b"none") == b"none", "GeLU is the exact one")
        return make(CNNNeuronType.GeLU)
    if operator == "Pow":
        demand(inputs[1].size == 1, "exponents are one number")
    exponent = {"Sqrt": 0.5, "Reciprocal": -1.0}.get(operator) or float(inputs[1].item())
    return make(CNNNeuronType.Power, 1.0, 0.0, exponent)


def activation(node, inputs, shapes):
    demand(inputs[0].dtype == np.float32, "images hold no integers and no float64")
    if node["operator"] == "PRelu":  # each element a channel of its own
        source, slopes = inputs[0].reshape(1, 1, 1, -1), inputs[1]
        if node["version"] < 7:  # one for each channel, the second axis
            slopes = slopes.reshape(-1, *(1,) * (inputs[0].ndim - 2))
        kernel = unmetal.CNNNeuronPReLU(device, np.broadcast_to(slopes, inputs[0].shape).ravel())
    else:
        source, kernel = flat(inputs[0]), unmetal.CNNNeuron(device, neuron_of(node, inputs))
    return run(kernel, source, source.shape).reshape(shapes[0])


operators = {
    "Conv": convolution, "ConvTranspose": transposed_convolution, "MaxPool": pooling, "AveragePool": pooling,
    "LpPool": pooling, "GlobalMaxPool": global_pooling, "GlobalAveragePool": global_pooling,
    "GlobalLpPool": global_pooling, "BatchNormalization": batch_normalization,
    "InstanceNormalization": instance_normalization, "GroupNormalization": group_normalization,
    "LRN": response_normalization, "Softmax": softmax, "LogSoftmax": softmax, "Resize": resize, "Upsample": resize,
    "Concat": concatenation, "Pad": pad, "Slice": cut, "Reshape": reshape, "Gemm": product, "Dropout": dropout,
    **dict.fromkeys(arithmetic_classes, arithmetic),
    **dict.fromkeys(("Relu", "LeakyRelu", "PRelu", "Sigmoid", "HardSigmoid", "Tanh", "Abs", "Softplus", "Softsign",
                     "Elu", "Exp", "Log", "Gelu", "Pow", "Sqrt", "Reciprocal", "Neg"), activation),
}


def results(node, version, inputs, shapes):
    """What a node gives. `version`: of the operator set; `shapes`: of the results that are asked for."""
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    attributes.update(operator=node.op_type, version=version)
    found = operators[node.op_type](attributes, inputs, shapes)
    return found if isinstance(found, list) else [found]
