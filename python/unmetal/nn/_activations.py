"""Activations, softmax and dropout."""

import numpy as np

import unmetal
from unmetal import CNNNeuronType, NNNeuronDescriptor
from unmetal.nn._arrays import checked, filled, floats, moved, of_arrays, on_host, shape_of, type_of
from unmetal.nn._calls import Call


def _lines(array, axis, name="input"):
    """[1][all others][1][axis]: what is done to each element, or along one axis."""
    array = moved(floats(array, name), axis, -1)
    return array.reshape(1, -1, 1, array.shape[-1]), array.shape


def _restored(lines, shape, axis):
    return moved(lines.reshape(shape), -1, axis)


def _channels(array, layout):
    checked(layout in ("NHWC", "NCHW"), "functional", "layout", repr(layout), "'NHWC' or 'NCHW'")
    return 1 if layout == "NCHW" and np.ndim(array) > 1 else -1


def _neuron(input, descriptor, axis, device):
    lines, shape = _lines(input, axis)
    return Call(unmetal.CNNNeuron(device, descriptor), [lines], lines.shape), shape


def _applied(input, descriptor, device, layout="NHWC"):
    axis = _channels(input, layout)
    call, shape = _neuron(input, descriptor, axis, device)
    return _restored(call.run(), shape, axis)


def _pulled(grad_output, input, descriptor, device, layout="NHWC"):
    axis = _channels(input, layout)
    call, shape = _neuron(input, descriptor, axis, device)
    call.remember()
    gradient = unmetal.CNNNeuronGradient(call.device, descriptor)
    checked(shape_of(grad_output) == shape_of(input), "backward", "grad_output", shape_of(grad_output), shape_of(input))
    return _restored(call.pull(gradient, _lines(grad_output, axis, "grad_output")[0]), shape, axis)


@of_arrays
def neuron(input, descriptor, *, layout="NHWC", device=None):
    """The function of any NNNeuronDescriptor, of each element of an array of any shape. Of PReLU the channels of `layout`
    (the last axis, or the one after the first) have the slopes."""
    return _applied(input, descriptor, device, layout)


@of_arrays
def neuron_backward(grad_output, input, descriptor, *, layout="NHWC", device=None):
    """Gradient of input."""
    return _pulled(grad_output, input, descriptor, device, layout)


@of_arrays
def relu(input, *, device=None):
    """max(x, 0)."""
    return _applied(input, NNNeuronDescriptor(CNNNeuronType.ReLU, 0), device)


@of_arrays
def relu_backward(grad_output, input, *, device=None):
    """Gradient of input."""
    return _pulled(grad_output, input, NNNeuronDescriptor(CNNNeuronType.ReLU, 0), device)


@of_arrays
def leaky_relu(input, negative_slope=0.01, *, device=None):
    """x if x >= 0 else negative_slope x."""
    return _applied(input, NNNeuronDescriptor(CNNNeuronType.ReLU, negative_slope), device)


@of_arrays
def leaky_relu_backward(grad_output, input, negative_slope=0.01, *, device=None):
    """Gradient of input."""
    return _pulled(grad_output, input, NNNeuronDescriptor(CNNNeuronType.ReLU, negative_slope), device)


@of_arrays
def relu6(input, *, device=None):
    """min(max(x, 0), 6)."""
    return _applied(input, NNNeuronDescriptor(CNNNeuronType.ReLUN, 0, 6), device)


@of_arrays
def relu6_backward(grad_output, input, *, device=None):
    """Gradient of input."""
    return _pulled(grad_output, input, NNNeuronDescriptor(CNNNeuronType.ReLUN, 0, 6), device)


@of_arrays
def prelu(input, weight, *, layout="NHWC", device=None):
    """x if x >= 0 else weight[channel] x; `weight` [C], a constant: it has no gradient here."""
    return _applied(input, _slopes(input, weight, layout), device, layout)


@of_arrays
def prelu_backward(grad_output, input, weight, *, layout="NHWC", device=None):
    """Gradient of input."""
    return _pulled(grad_output, input, _slopes(input, weight, layout), device, layout)


def _slopes(input, weight, layout):
    channels, weight = np.shape(input)[_channels(input, layout)], on_host(floats(weight, "weight"))
    checked(weight.shape in ((1,), (channels,)), "prelu", "weight", f"of shape {weight.shape}", f"[{channels}] or [1]")
    return NNNeuronDescriptor.cnn_neuron_prelu_descriptor(np.broadcast_to(weight, (channels,)).tolist())


@of_arrays
def elu(input, alpha=1.0, *, device=None):
    """x if x >= 0 else alpha (exp(x) - 1)."""
    return _applied(input, NNNeuronDescriptor(CNNNeuronType.ELU, alpha), device)


@of_arrays
def elu_backward(grad_output, input, alpha=1.0, *, device=None):
    """Gradient of input."""
    return _pulled(grad_output, input, NNNeuronDescriptor(CNNNeuronType.ELU, alpha), device)


@of_arrays
def gelu(input, *, device=None):
    """0.5 x (1 + erf(x / sqrt(2)))."""
    return _applied(input, NNNeuronDescriptor(CNNNeuronType.GeLU), device)


@of_arrays
def gelu_backward(grad_output, input, *, device=None):
    """Gradient of input."""
    return _pulled(grad_output, input, NNNeuronDescriptor(CNNNeuronType.GeLU), device)


@of_arrays
def sigmoid(input, *, device=None):
    """1 / (1 + exp(-x))."""
    return _applied(input, NNNeuronDescriptor(CNNNeuronType.Sigmoid), device)


@of_arrays
def sigmoid_backward(grad_output, input, *, device=None):
    """Gradient of input."""
    return _pulled(grad_output, input, NNNeuronDescriptor(CNNNeuronType.Sigmoid), device)


@of_arrays
def hardsigmoid(input, *, device=None):
    """x / 6 + 1 / 2 within 0 ... 1."""
    return _applied(input, NNNeuronDescriptor(CNNNeuronType.HardSigmoid, 1 / 6, 0.5), device)


@of_arrays
def hardsigmoid_backward(grad_output, input, *, device=None):
    """Gradient of input."""
    return _pulled(grad_output, input, NNNeuronDescriptor(CNNNeuronType.HardSigmoid, 1 / 6, 0.5), device)


@of_arrays
def tanh(input, *, device=None):
    """Hyperbolic tangent."""
    return _applied(input, NNNeuronDescriptor(CNNNeuronType.TanH, 1, 1), device)


@of_arrays
def tanh_backward(grad_output, input, *, device=None):
    """Gradient of input."""
    return _pulled(grad_output, input, NNNeuronDescriptor(CNNNeuronType.TanH, 1, 1), device)


@of_arrays
def softplus(input, beta=1.0, *, device=None):
    """ln(1 + exp(beta x)) / beta. Nothing overflows: there is no threshold."""
    return _applied(input, NNNeuronDescriptor(CNNNeuronType.SoftPlus, 1 / beta, beta), device)


@of_arrays
def softplus_backward(grad_output, input, beta=1.0, *, device=None):
    """Gradient of input."""
    return _pulled(grad_output, input, NNNeuronDescriptor(CNNNeuronType.SoftPlus, 1 / beta, beta), device)


@of_arrays
def softsign(input, *, device=None):
    """x / (1 + |x|)."""
    return _applied(input, NNNeuronDescriptor(CNNNeuronType.SoftSign), device)


@of_arrays
def softsign_backward(grad_output, input, *, device=None):
    """Gradient of input."""
    return _pulled(grad_output, input, NNNeuronDescriptor(CNNNeuronType.SoftSign), device)


def _distributed(made, input, dim, layout, device):
    axis = _channels(input, layout) if dim is None else dim
    lines, shape = _lines(input, axis)
    return Call(made(device), [lines], lines.shape), shape, axis


def _distributed_backward(made, made_gradient, grad_output, input, dim, layout, device):
    call, shape, axis = _distributed(made, input, dim, layout, device)
    result = call.remember()
    checked(shape_of(grad_output) == shape_of(input), "backward", "grad_output", shape_of(grad_output), shape_of(input))
    return _restored(call.pull(made_gradient(call.device), _lines(grad_output, axis, "grad_output")[0], source=result),
                     shape, axis)


@of_arrays
def softmax(input, dim=None, *, layout="NHWC", device=None):
    """exp(x) / sum of exp(x) along axis `dim` of an array of any shape; None: the channels of `layout`."""
    call, shape, axis = _distributed(unmetal.CNNSoftMax, input, dim, layout, device)
    return _restored(call.run(), shape, axis)


@of_arrays
def softmax_backward(grad_output, input, dim=None, *, layout="NHWC", device=None):
    """Gradient of input."""
    return _distributed_backward(unmetal.CNNSoftMax, unmetal.CNNSoftMaxGradient, grad_output, input, dim, layout, device)


@of_arrays
def log_softmax(input, dim=None, *, layout="NHWC", device=None):
    """x - ln(sum of exp(x)) along axis `dim` of an array of any shape; None: the channels of `layout`."""
    call, shape, axis = _distributed(unmetal.CNNLogSoftMax, input, dim, layout, device)
    return _restored(call.run(), shape, axis)


@of_arrays
def log_softmax_backward(grad_output, input, dim=None, *, layout="NHWC", device=None):
    """Gradient of input."""
    return _distributed_backward(unmetal.CNNLogSoftMax, unmetal.CNNLogSoftMaxGradient, grad_output, input, dim, layout,
                                 device)


def _zeros(array):
    """The kernel keeps elements with a probability above 0."""
    array = floats(array, "input")
    return filled(shape_of(array), 0, array, type_of(array))


def _dropped(input, p, seed, device):
    lines, shape = _lines(input, -1)
    return Call(unmetal.CNNDropout(device, 1 - p, seed), [lines], lines.shape), shape


@of_arrays
def dropout(input, p=0.5, training=True, *, seed=0, device=None):
    """Elements of an array of any shape become 0 with probability `p`, the others are divided by 1 - p; as many as `seed`
    draws: the same ones each time. Not `training`: the input."""
    if not training:
        return floats(input, "input")
    if p == 1:
        return _zeros(input)
    call, shape = _dropped(input, p, seed, device)
    return call.run().reshape(shape)


@of_arrays
def dropout_backward(grad_output, input, p=0.5, training=True, *, seed=0, device=None):
    """Gradient of input."""
    checked(shape_of(grad_output) == shape_of(input), "backward", "grad_output", shape_of(grad_output), shape_of(input))
    if not training:
        return floats(grad_output, "grad_output")
    if p == 1:
        return _zeros(grad_output)
    call, shape = _dropped(input, p, seed, device)
    call.remember()
    gradient = unmetal.CNNDropoutGradient(call.device, 1 - p, seed)
    return call.pull(gradient, _lines(grad_output, -1, "grad_output")[0]).reshape(shape)
