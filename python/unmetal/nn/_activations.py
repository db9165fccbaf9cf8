"""Activations, softmax and dropout."""

import numpy as np

import unmetal
from unmetal import CNNNeuronType, NNNeuronDescriptor
from unmetal.nn._calls import Call, checked, default_device, floats


def _lines(array, axis, name="input"):
    """[1][all others][1][axis]: what is done to each element, or along one axis."""
    array = np.moveaxis(floats(array, name), axis, -1)
    return array.reshape(1, -1, 1, array.shape[-1]), array.shape


def _restored(lines, shape, axis):
    return np.moveaxis(lines.reshape(shape), -1, axis)


def _channels(array, layout):
    checked(layout in ("NHWC", "NCHW"), "functional", "layout", repr(layout), "'NHWC' or 'NCHW'")
    return 1 if layout == "NCHW" and np.ndim(array) > 1 else -1


def _neuron(input, descriptor, axis, device):
    lines, shape = _lines(input, axis)
    return Call(unmetal.CNNNeuron(device or default_device(), descriptor), [lines], lines.shape), shape


def neuron(input, descriptor, *, layout="NHWC", device=None):
    """The function of any NNNeuronDescriptor, of each element of an array of any shape. Of PReLU the channels of `layout`
    (the last axis, or the one after the first) have the slopes."""
    axis = _channels(input, layout)
    call, shape = _neuron(input, descriptor, axis, device)
    return _restored(call.run(), shape, axis)


def neuron_backward(grad_output, input, descriptor, *, layout="NHWC", device=None):
    """Gradient of input."""
    axis = _channels(input, layout)
    call, shape = _neuron(input, descriptor, axis, device)
    call.remember()
    gradient = unmetal.CNNNeuronGradient(call.device, descriptor)
    checked(np.shape(grad_output) == np.shape(input), "backward", "grad_output", np.shape(grad_output), np.shape(input))
    return _restored(call.pull(gradient, _lines(grad_output, axis, "grad_output")[0]), shape, axis)


def relu(input, *, device=None):
    """max(x, 0)."""
    return neuron(input, NNNeuronDescriptor(CNNNeuronType.ReLU, 0), device=device)


def relu_backward(grad_output, input, *, device=None):
    """Gradient of input."""
    return neuron_backward(grad_output, input, NNNeuronDescriptor(CNNNeuronType.ReLU, 0), device=device)


def leaky_relu(input, negative_slope=0.01, *, device=None):
    """x if x >= 0 else negative_slope x."""
    return neuron(input, NNNeuronDescriptor(CNNNeuronType.ReLU, negative_slope), device=device)


def leaky_relu_backward(grad_output, input, negative_slope=0.01, *, device=None):
    """Gradient of input."""
    return neuron_backward(grad_output, input, NNNeuronDescriptor(CNNNeuronType.ReLU, negative_slope), device=device)


def relu6(input, *, device=None):
    """min(max(x, 0), 6)."""
    return neuron(input, NNNeuronDescriptor(CNNNeuronType.ReLUN, 0, 6), device=device)


def relu6_backward(grad_output, input, *, device=None):
    """Gradient of input."""
    return neuron_backward(grad_output, input, NNNeuronDescriptor(CNNNeuronType.ReLUN, 0, 6), device=device)


def prelu(input, weight, *, layout="NHWC", device=None):
    """x if x >= 0 else weight[channel] x; `weight` [C], a constant: it has no gradient here."""
    return neuron(input, _slopes(input, weight, layout), layout=layout, device=device)


def prelu_backward(grad_output, input, weight, *, layout="NHWC", device=None):
    """Gradient of input."""
    return neuron_backward(grad_output, input, _slopes(input, weight, layout), layout=layout, device=device)


def _slopes(input, weight, layout):
    channels, weight = np.shape(input)[_channels(input, layout)], floats(weight, "weight")
    checked(weight.shape in ((1,), (channels,)), "prelu", "weight", f"of shape {weight.shape}", f"[{channels}] or [1]")
    return NNNeuronDescriptor.cnn_neuron_prelu_descriptor(np.broadcast_to(weight, (channels,)).tolist())


def elu(input, alpha=1.0, *, device=None):
    """x if x >= 0 else alpha (exp(x) - 1)."""
    return neuron(input, NNNeuronDescriptor(CNNNeuronType.ELU, alpha), device=device)


def elu_backward(grad_output, input, alpha=1.0, *, device=None):
    """Gradient of input."""
    return neuron_backward(grad_output, input, NNNeuronDescriptor(CNNNeuronType.ELU, alpha), device=device)


def gelu(input, *, device=None):
    """0.5 x (1 + erf(x / sqrt(2)))."""
    return neuron(input, NNNeuronDescriptor(CNNNeuronType.GeLU), device=device)


def gelu_backward(grad_output, input, *, device=None):
    """Gradient of input."""
    return neuron_backward(grad_output, input, NNNeuronDescriptor(CNNNeuronType.GeLU), device=device)


def sigmoid(input, *, device=None):
    """1 / (1 + exp(-x))."""
    return neuron(input, NNNeuronDescriptor(CNNNeuronType.Sigmoid), device=device)


def sigmoid_backward(grad_output, input, *, device=None):
    """Gradient of input."""
    return neuron_backward(grad_output, input, NNNeuronDescriptor(CNNNeuronType.Sigmoid), device=device)


def hardsigmoid(input, *, device=None):
    """x / 6 + 1 / 2 within 0 ... 1."""
    return neuron(input, NNNeuronDescriptor(CNNNeuronType.HardSigmoid, 1 / 6, 0.5), device=device)


def hardsigmoid_backward(grad_output, input, *, device=None):
    """Gradient of input."""
    return neuron_backward(grad_output, input, NNNeuronDescriptor(CNNNeuronType.HardSigmoid, 1 / 6, 0.5), device=device)


def tanh(input, *, device=None):
    """Hyperbolic tangent."""
    return neuron(input, NNNeuronDescriptor(CNNNeuronType.TanH, 1, 1), device=device)


def tanh_backward(grad_output, input, *, device=None):
    """Gradient of input."""
    return neuron_backward(grad_output, input, NNNeuronDescriptor(CNNNeuronType.TanH, 1, 1), device=device)


def softplus(input, beta=1.0, *, device=None):
    """ln(1 + exp(beta x)) / beta. Nothing overflows: there is no threshold."""
    return neuron(input, NNNeuronDescriptor(CNNNeuronType.SoftPlus, 1 / beta, beta), device=device)


def softplus_backward(grad_output, input, beta=1.0, *, device=None):
    """Gradient of input."""
    return neuron_backward(grad_output, input, NNNeuronDescriptor(CNNNeuronType.SoftPlus, 1 / beta, beta), device=device)


def softsign(input, *, device=None):
    """x / (1 + |x|)."""
    return neuron(input, NNNeuronDescriptor(CNNNeuronType.SoftSign), device=device)


def softsign_backward(grad_output, input, *, device=None):
    """Gradient of input."""
    return neuron_backward(grad_output, input, NNNeuronDescriptor(CNNNeuronType.SoftSign), device=device)


def _distributed(made, input, dim, layout, device):
    axis = _channels(input, layout) if dim is None else dim
    lines, shape = _lines(input, axis)
    return Call(made(device or default_device()), [lines], lines.shape), shape, axis


def _distributed_backward(made, made_gradient, grad_output, input, dim, layout, device):
    call, shape, axis = _distributed(made, input, dim, layout, device)
    result = call.remember()
    checked(np.shape(grad_output) == np.shape(input), "backward", "grad_output", np.shape(grad_output), np.shape(input))
    return _restored(call.pull(made_gradient(call.device), _lines(grad_output, axis, "grad_output")[0], source=result),
                     shape, axis)


def softmax(input, dim=None, *, layout="NHWC", device=None):
    """exp(x) / sum of exp(x) along axis `dim` of an array of any shape; None: the channels of `layout`."""
    call, shape, axis = _distributed(unmetal.CNNSoftMax, input, dim, layout, device)
    return _restored(call.run(), shape, axis)


def softmax_backward(grad_output, input, dim=None, *, layout="NHWC", device=None):
    """Gradient of input."""
    return _distributed_backward(unmetal.CNNSoftMax, unmetal.CNNSoftMaxGradient, grad_output, input, dim, layout, device)


def log_softmax(input, dim=None, *, layout="NHWC", device=None):
    """x - ln(sum of exp(x)) along axis `dim` of an array of any shape; None: the channels of `layout`."""
    call, shape, axis = _distributed(unmetal.CNNLogSoftMax, input, dim, layout, device)
    return _restored(call.run(), shape, axis)


def log_softmax_backward(grad_output, input, dim=None, *, layout="NHWC", device=None):
    """Gradient of input."""
    return _distributed_backward(unmetal.CNNLogSoftMax, unmetal.CNNLogSoftMaxGradient, grad_output, input, dim, layout,
                                 device)


def _dropped(input, p, seed, device):
    lines, shape = _lines(input, -1)
    return Call(unmetal.CNNDropout(device or default_device(), 1 - p, seed), [lines], lines.shape), shape


def dropout(input, p=0.5, training=True, *, seed=0, device=None):
    """Elements of an array of any shape become 0 with probability `p`, the others are divided by 1 - p; as many as `seed`
    draws: the same ones each time. Not `training`: the input."""
    if not training:
        return floats(input, "input")
    call, shape = _dropped(input, p, seed, device)
    return call.run().reshape(shape)


def dropout_backward(grad_output, input, p=0.5, training=True, *, seed=0, device=None):
    """Gradient of input."""
    checked(np.shape(grad_output) == np.shape(input), "backward", "grad_output", np.shape(grad_output), np.shape(input))
    if not training:
        return floats(grad_output, "grad_output")
    call, shape = _dropped(input, p, seed, device)
    call.remember()
    gradient = unmetal.CNNDropoutGradient(call.device, 1 - p, seed)
    return call.pull(gradient, _lines(grad_output, -1, "grad_output")[0]).reshape(shape)
