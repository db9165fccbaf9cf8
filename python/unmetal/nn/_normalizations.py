"""Normalisations."""

import math

import numpy as np

import unmetal
from unmetal.nn._arrays import checked, floats, of_arrays, on_host, shape_of
from unmetal.nn._calls import Call, batch_of, channels_last, laid_out, numbers, running


def _parameters(base):
    """A class of data sources with copies of arrays; of one base alone, as nanobind 2 has it."""

    class Parameters(base):
        def __init__(self, function, channels, epsilon, **arrays):
            super().__init__()
            self.number_of_feature_channels, self.epsilon = channels, epsilon
            for name, array in arrays.items():
                if array is not None:
                    array = on_host(floats(array, name)).astype(np.float32)
                    checked(array.shape == (channels,), function, name, f"of shape {array.shape}",
                            f"[{channels}], one for each channel")
                setattr(self, name, array)

    return Parameters


_BatchParameters = _parameters(unmetal.CNNBatchNormalizationDataSource)
_InstanceParameters = _parameters(unmetal.CNNInstanceNormalizationDataSource)
_GroupParameters = _parameters(unmetal.CNNGroupNormalizationDataSource)


class _Batch:
    """A batch normalisation: encodes have one state, and statistics of their own."""

    def __init__(self, input, mean, variance, weight, bias, training, eps, layout, device):
        self.source = channels_last(input, layout)
        checked(training or (mean is not None and variance is not None), "batch_norm", "running_mean", None,
                "statistics, unless training")
        parameters = _BatchParameters("batch_norm", self.source.shape[3], eps, gamma=weight, beta=bias, mean=mean,
                                      variance=variance)
        self.call = Call(unmetal.CNNBatchNormalization(device, parameters), [self.source],
                         self.source.shape)
        self.images = self.call.images[0]
        self.state = self.call.forward.result_state(self.images[0])
        self.result = self.call.unwritten(self.call.shape)
        with running(self.call.device, self.result) as (command_buffer, destination):
            if training:
                unmetal.CNNBatchNormalizationStatistics(self.call.device).encode_batch(command_buffer, self.images, self.state)
            self.call.forward.encode_batch(command_buffer, self.images, self.state, destination)


@of_arrays
def batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5, *,
               layout="NHWC", device=None):
    """(x - mean) / sqrt(variance + eps) weight + bias for each channel of `input` [N][H][W][C]; all others are [C]. `training`:
    mean and variance are those of the input, and arrays `running_mean` and `running_var` are changed: by the share `momentum`
    they become mean and unbiased variance. Otherwise they are the running ones."""
    batch = _Batch(input, running_mean, running_var, weight, bias, training, eps, layout, device)
    if training and running_mean is not None:
        count = math.prod(batch.source.shape[:3])
        mean, variance = numbers(batch.state.mean, batch.source), numbers(batch.state.variance, batch.source)
        running_mean[:] = (1 - momentum) * running_mean + momentum * mean
        running_var[:] = (1 - momentum) * running_var + momentum * variance * count / (count - 1)
    return laid_out(batch.result, layout)


@of_arrays
def batch_norm_backward(grad_output, input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1,
                        eps=1e-5, *, layout="NHWC", device=None):
    """Gradients of input, weight and bias; the running statistics stay as they are."""
    batch = _Batch(input, running_mean, running_var, weight, bias, training, eps, layout, device)
    incoming = channels_last(grad_output, layout, "grad_output")
    checked(incoming.shape == batch.source.shape, "backward", "grad_output", shape_of(incoming), shape_of(batch.source))
    outgoing, incoming = batch.call.unwritten(batch.call.shape), batch_of(device, incoming)
    with running(device, outgoing) as (command_buffer, destination):
        unmetal.CNNBatchNormalizationStatisticsGradient(device).encode_batch(command_buffer, incoming, batch.images,
                                                                             batch.state)
        unmetal.CNNBatchNormalizationGradient(device).encode_batch(command_buffer, incoming, batch.images, batch.state,
                                                                   destination)
    return (laid_out(outgoing, layout), numbers(batch.state.gradient_for_gamma, outgoing),
            numbers(batch.state.gradient_for_beta, outgoing))


def _instance(input, weight, bias, eps, layout, device):
    source = channels_last(input, layout)
    parameters = _InstanceParameters("instance_norm", source.shape[3], eps, gamma=weight, beta=bias)
    kernel = unmetal.CNNInstanceNormalization(device, parameters)
    return Call(kernel, [source], source.shape), unmetal.CNNInstanceNormalizationGradient(kernel.device)


def _group(input, num_groups, weight, bias, eps, layout, device):
    source = channels_last(input, layout)
    parameters = _GroupParameters("group_norm", source.shape[3], eps, gamma=weight, beta=bias)
    parameters.number_of_groups = num_groups
    kernel = unmetal.CNNGroupNormalization(device, parameters)
    return Call(kernel, [source], source.shape), unmetal.CNNGroupNormalizationGradient(kernel.device)


def _pulled(call, gradient, grad_output, layout):
    call.remember()
    dx = call.pull(gradient, channels_last(grad_output, layout, "grad_output"))
    of_parameters = (sum(numbers(getattr(call.states[index], name), dx) for index in range(len(call.states)))
                     for name in ("gradient_for_gamma", "gradient_for_beta"))
    return (laid_out(dx, layout), *of_parameters)


@of_arrays
def instance_norm(input, weight=None, bias=None, eps=1e-5, *, layout="NHWC", device=None):
    """(x - mean) / sqrt(variance + eps) weight + bias, with mean and variance of each channel of each image of `input`
    [N][H][W][C]; `weight`, `bias` [C]. PyTorch's running statistics are not kept."""
    return laid_out(_instance(input, weight, bias, eps, layout, device)[0].run(), layout)


@of_arrays
def instance_norm_backward(grad_output, input, weight=None, bias=None, eps=1e-5, *, layout="NHWC", device=None):
    """Gradients of input, weight and bias."""
    return _pulled(*_instance(input, weight, bias, eps, layout, device), grad_output, layout)


@of_arrays
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5, *, layout="NHWC", device=None):
    """As instance_norm, with mean and variance of `num_groups` groups of adjacent channels; weight and bias [C]."""
    return laid_out(_group(input, num_groups, weight, bias, eps, layout, device)[0].run(), layout)


@of_arrays
def group_norm_backward(grad_output, input, num_groups, weight=None, bias=None, eps=1e-5, *, layout="NHWC", device=None):
    """Gradients of input, weight and bias."""
    return _pulled(*_group(input, num_groups, weight, bias, eps, layout, device), grad_output, layout)


def _response(input, size, alpha, beta, k, layout, device):
    source = channels_last(input, layout)
    forward, gradient = (made(device, size) for made in
                         (unmetal.CNNCrossChannelNormalization, unmetal.CNNCrossChannelNormalizationGradient))
    forward.alpha, forward.beta, forward.delta = alpha, beta, k
    return Call(forward, [source], source.shape), gradient


@of_arrays
def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0, *, layout="NHWC", device=None):
    """x (k + alpha / size sum of x^2 over `size` neighbouring channels)^-beta, of `input` [N][H][W][C]."""
    return laid_out(_response(input, size, alpha, beta, k, layout, device)[0].run(), layout)


@of_arrays
def local_response_norm_backward(grad_output, input, size, alpha=1e-4, beta=0.75, k=1.0, *, layout="NHWC", device=None):
    """Gradient of input."""
    call, gradient = _response(input, size, alpha, beta, k, layout, device)
    call.remember()
    return laid_out(call.pull(gradient, channels_last(grad_output, layout, "grad_output")), layout)
