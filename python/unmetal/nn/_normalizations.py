"""Normalisations."""

# What arrays and kernels give is Any here.
# mypy: disable-error-code="no-any-return"
from __future__ import annotations

import math
from typing import Any, Optional, Sequence, Tuple, Union

import numpy as np

import unmetal
from unmetal import mtl
from unmetal.nn._arrays import (ArrayType, Data, Shape, cast_to, check_written, checked, floats, of_arrays, on_host,
                                overwrite, shape_of, total)
from unmetal.nn._calls import Call, Samples, batch_of, numbers, running, whole
from unmetal.nn._layout import Layout, layout_of

Gradients = Tuple[ArrayType, ArrayType, ArrayType]


def _set_parameters(source: Any, function: str, channels: int, epsilon: float, **arrays: Any) -> None:
    """Gives a data source copies of arrays."""
    source.number_of_feature_channels, source.epsilon = channels, epsilon
    for name, array in arrays.items():
        if array is not None:
            array = on_host(floats(array, name)).astype(np.float32)
            checked(array.shape == (channels,), function, name, f"of shape {array.shape}",
                    f"[{channels}], one for each channel")
        setattr(source, name, array)


class _BatchParameters(unmetal.CNNBatchNormalizationDataSource):
    def __init__(self, function: str, channels: int, epsilon: float, **arrays: Any):
        super().__init__()
        _set_parameters(self, function, channels, epsilon, **arrays)


class _InstanceParameters(unmetal.CNNInstanceNormalizationDataSource):
    def __init__(self, function: str, channels: int, epsilon: float, **arrays: Any):
        super().__init__()
        _set_parameters(self, function, channels, epsilon, **arrays)


class _GroupParameters(unmetal.CNNGroupNormalizationDataSource):
    def __init__(self, function: str, channels: int, epsilon: float, groups: int, **arrays: Any):
        super().__init__()
        _set_parameters(self, function, channels, epsilon, **arrays)
        self.number_of_groups = groups


class _Batch:
    """A batch normalisation: encodes have one state, and statistics of their own."""

    def __init__(self, source: Data, mean: Any, variance: Any, weight: Any, bias: Any, training: bool, eps: float,
                 device: Any):
        self.source = source
        parameters = _BatchParameters("batch_norm", source.shape[3], eps, gamma=weight, beta=bias, mean=mean,
                                      variance=variance)
        self.call = Call(unmetal.CNNBatchNormalization(device, parameters), [source], source.shape)
        self.device = self.call.device
        self.images = self.call.images[0]
        self.state = self.call.forward.result_state(self.images[0])
        self.result = self.call.unwritten(self.call.shape)
        with running(self.device, self.result) as (command_buffer, destination):
            if training:
                unmetal.CNNBatchNormalizationStatistics(self.device).encode_batch(command_buffer, self.images, self.state)
            self.call.forward.encode_batch(command_buffer, self.images, self.state, destination)

    def statistics(self) -> Tuple[Data, Data]:
        """Mean and unbiased variance of each channel."""
        count = math.prod(self.source.shape[:3])
        mean, variance = numbers(self.state.mean, self.source), numbers(self.state.variance, self.source)
        return mean, variance * (count / (count - 1))

    def pull(self, incoming: Data) -> Tuple[Data, Data, Data]:
        outgoing, gradients = self.call.unwritten(self.call.shape), batch_of(self.device, incoming)
        with running(self.device, outgoing) as (command_buffer, destination):
            unmetal.CNNBatchNormalizationStatisticsGradient(self.device).encode_batch(command_buffer, gradients, self.images,
                                                                                      self.state)
            unmetal.CNNBatchNormalizationGradient(self.device).encode_batch(command_buffer, gradients, self.images,
                                                                            self.state, destination)
        return (outgoing, numbers(self.state.gradient_for_gamma, outgoing), numbers(self.state.gradient_for_beta, outgoing))


def _check_statistics(function: str, mean: Any, variance: Any, are_used: bool) -> None:
    """Both or none; both where the function normalises with them."""
    for name, one, other, that in (("running_mean", mean, variance, "running_var"),
                                   ("running_var", variance, mean, "running_mean")):
        checked((one is None) == (other is None), function, name, None if one is None else "an array",
                f"both running statistics or none, {that} is {'None' if other is None else 'an array'}")
        checked(one is not None or not are_used, function, name, None, "statistics, unless those of the input are taken")


def _check_count(function: str, shape: Shape, layout: Layout, first: int) -> None:
    """More than one value for each mean, as in PyTorch: the axes from `first` on count, channels aside."""
    channels = 1 if layout == "NCHW" else len(shape) - 1
    count = math.prod(size for axis, size in enumerate(shape) if axis != channels and axis >= first)
    checked(count != 1, function, "input", f"of shape {shape}, with one value for each mean", "more than one")


def _update(running_mean: Any, running_var: Any, momentum: float, statistics: Tuple[Data, Data]) -> None:
    """By the share `momentum` they become mean and variance. Both are computed before one is changed."""
    new = []
    for old, now in zip((running_mean, running_var), statistics):
        given = old if isinstance(old, np.ndarray) else on_host(old) if hasattr(old, "cpu") else None
        new.append((1 - momentum) * given + momentum * on_host(now) if given is not None else
                   (1 - momentum) * old + momentum * now)
    overwrite(running_mean, new[0])
    overwrite(running_var, new[1])


@of_arrays
def _batch_norm(input: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, training: bool, eps: float, *,
                layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> Tuple[Data, ...]:
    """The result; in training also mean and unbiased variance."""
    layout = layout_of("batch_norm", layout)
    samples = Samples("batch_norm", layout, shape_of(input))
    source = samples.inside(input)
    if training:
        _check_count("batch_norm", samples.shape, layout, 0)
    batch = _Batch(source, running_mean, running_var, weight, bias, training, eps, device)
    return (samples.outside(batch.result), *(batch.statistics() if training else ()))


def batch_norm(input: ArrayType, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
               training: bool = False, momentum: float = 0.1, eps: float = 1e-5, *, layout: Optional[Layout] = None,
               device: Optional[mtl.Device] = None) -> ArrayType:
    """(x - mean) / sqrt(variance + eps) weight + bias for each channel of `input` [N][H][W][C], or of any other number of axes
    between the first and the channels; all others are [C]. `training`: mean and variance are those of the input, of more
    than one value for each channel, and arrays `running_mean` and `running_var`, both or none, are changed: by the share
    `momentum` they become mean and unbiased variance. Otherwise they are the running ones. What raises changes nothing."""
    _check_statistics("batch_norm", running_mean, running_var, not training)
    changes = training and running_mean is not None
    if changes:
        check_written("batch_norm", "running_mean", running_mean)
        check_written("batch_norm", "running_var", running_var)
    result, *statistics = _batch_norm(input, running_mean, running_var, weight, bias, training, eps, layout=layout,
                                      device=device)
    if changes:
        _update(running_mean, running_var, momentum, (statistics[0], statistics[1]))
    return result


@of_arrays
def batch_norm_backward(grad_output: ArrayType, input: Any, running_mean: Any, running_var: Any, weight: Any = None,
                        bias: Any = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5, *,
                        layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> Gradients[ArrayType]:
    """Gradients of input, weight and bias; the running statistics stay as they are."""
    layout = layout_of("batch_norm", layout)
    _check_statistics("batch_norm", running_mean, running_var, not training)
    samples = Samples("batch_norm", layout, shape_of(input))
    source, incoming = samples.inside(input), samples.inside(grad_output, "grad_output")
    if training:
        _check_count("batch_norm", samples.shape, layout, 0)
    outgoing, *of_parameters = _Batch(source, running_mean, running_var, weight, bias, training, eps, device).pull(incoming)
    return samples.outside(outgoing), of_parameters[0], of_parameters[1]


def _pulled(call: Call, gradient: Any, samples: Samples, grad_output: Any) -> Tuple[Data, Data, Data]:
    call.remember()
    dx = call.pull(gradient, samples.inside(grad_output, "grad_output"))

    def summed(name: str) -> Data:
        return sum(numbers(getattr(call.states[index], name), dx) for index in range(len(call.states)))

    return samples.outside(dx), summed("gradient_for_gamma"), summed("gradient_for_beta")


def _instance(input: Any, weight: Any, bias: Any, eps: float, layout: Optional[str],
              device: Any) -> Tuple[Samples, Call, Any]:
    samples = Samples("instance_norm", layout, shape_of(input))
    source = samples.inside(input)
    _check_count("instance_norm", samples.shape, samples.layout, 1)
    parameters = _InstanceParameters("instance_norm", source.shape[3], eps, gamma=weight, beta=bias)
    kernel = unmetal.CNNInstanceNormalization(device, parameters)
    return samples, Call(kernel, [source], source.shape), unmetal.CNNInstanceNormalizationGradient(kernel.device)


@of_arrays
def _instance_norm(input: Any, weight: Any, bias: Any, eps: float, has_statistics: bool, *,
                   layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> Tuple[Data, ...]:
    """The result; where they are asked for also the means over the images of mean and unbiased variance."""
    samples, call, _ = _instance(input, weight, bias, eps, layout, device)
    result = samples.outside(call.run())
    if not has_statistics:
        return (result,)
    source = samples.inside(input)
    images, height, width, channels = source.shape
    rows = source.reshape(images, height * width, channels)  # channels of all images, as those of one
    beside = rows.swapaxes(0, 1).reshape(1, height * width, 1, images * channels)
    found = _Batch(beside, None, None, None, None, True, eps, device).statistics()
    return (result, *(total(values.reshape(images, channels), 0) / images for values in found))


def instance_norm(input: ArrayType, running_mean: Any = None, running_var: Any = None, weight: Any = None,
                  bias: Any = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5, *,
                  layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> ArrayType:
    """(x - mean) / sqrt(variance + eps) weight + bias, with mean and variance of each channel of each image of `input`
    [N][H][W][C]; all others are [C]. Arrays `running_mean` and `running_var`, both or none, are changed as by batch_norm,
    with the means over the images. Not `use_input_stats`: they are what normalises, as in batch_norm."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps, layout=layout, device=device)
    _check_statistics("instance_norm", running_mean, running_var, False)
    changes = running_mean is not None
    if changes:
        check_written("instance_norm", "running_mean", running_mean)
        check_written("instance_norm", "running_var", running_var)
    result, *statistics = _instance_norm(input, weight, bias, eps, changes, layout=layout, device=device)
    if changes:
        for name, array, values in zip(("running_mean", "running_var"), (running_mean, running_var), statistics):
            checked(np.shape(array) == np.shape(values), "instance_norm", name, f"of shape {shape_of(array)}",
                    f"{list(np.shape(values))}, one for each channel")
        _update(running_mean, running_var, momentum, (statistics[0], statistics[1]))
    return result


@of_arrays
def instance_norm_backward(grad_output: ArrayType, input: Any, running_mean: Any = None, running_var: Any = None,
                           weight: Any = None, bias: Any = None, use_input_stats: bool = True, momentum: float = 0.1,
                           eps: float = 1e-5, *, layout: Optional[Layout] = None,
                           device: Optional[mtl.Device] = None) -> Gradients[ArrayType]:
    """Gradients of input, weight and bias; the running statistics stay as they are."""
    if not use_input_stats:
        return batch_norm_backward(grad_output, input, running_mean, running_var, weight, bias, False, momentum, eps,
                                   layout=layout, device=device)
    samples, call, gradient = _instance(input, weight, bias, eps, layout, device)
    return _pulled(call, gradient, samples, grad_output)


def _group(input: Any, num_groups: int, weight: Any, bias: Any, eps: float, layout: Optional[str],
           device: Any) -> Tuple[Samples, Call, Any]:
    samples = Samples("group_norm", layout, shape_of(input))
    source = samples.inside(input)
    parameters = _GroupParameters("group_norm", source.shape[3], eps, num_groups, gamma=weight, beta=bias)
    kernel = unmetal.CNNGroupNormalization(device, parameters)
    return samples, Call(kernel, [source], source.shape), unmetal.CNNGroupNormalizationGradient(kernel.device)


@of_arrays
def group_norm(input: ArrayType, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *,
               layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> ArrayType:
    """As instance_norm, with mean and variance of `num_groups` groups of adjacent channels; weight and bias [C]."""
    samples, call, _ = _group(input, num_groups, weight, bias, eps, layout, device)
    return samples.outside(call.run())


@of_arrays
def group_norm_backward(grad_output: ArrayType, input: Any, num_groups: int, weight: Any = None, bias: Any = None,
                        eps: float = 1e-5, *, layout: Optional[Layout] = None,
                        device: Optional[mtl.Device] = None) -> Gradients[ArrayType]:
    """Gradients of input, weight and bias."""
    samples, call, gradient = _group(input, num_groups, weight, bias, eps, layout, device)
    return _pulled(call, gradient, samples, grad_output)


class _Layer:
    """A normalisation of the last axes: each row of their elements is an image of one pixel with one group of channels."""

    def __init__(self, input: Any, normalized_shape: Union[int, Sequence[int]], weight: Any, bias: Any, eps: float,
                 device: Any):
        sizes = (normalized_shape,) if np.ndim(normalized_shape) == 0 else tuple(normalized_shape)  # type: ignore[arg-type]
        self.sizes = tuple(whole("layer_norm", "normalized_shape", size) for size in sizes)
        input = floats(input, "input")
        self.shape, self.count, self.device, self.eps = shape_of(input), math.prod(self.sizes), device, eps
        checked(self.sizes and self.shape[-len(self.sizes):] == self.sizes, "layer_norm", "normalized_shape", self.sizes,
                f"the last sizes of input, {self.shape}")
        self.source = self.inside(input)
        self.weight, self.bias = self._flat(weight, "weight"), self._flat(bias, "bias")

    def _flat(self, array: Any, name: str) -> Data:
        if array is None:
            return None
        array = floats(array, name)
        checked(shape_of(array) == self.sizes, "layer_norm", name, f"of shape {shape_of(array)}", self.sizes)
        return array.reshape(-1)

    def inside(self, array: Data) -> Data:
        return array.reshape(-1, 1, 1, self.count)

    def call(self, weight: Any, bias: Any) -> Call:
        parameters = _GroupParameters("layer_norm", self.count, self.eps, 1, gamma=weight, beta=bias)
        return Call(unmetal.CNNGroupNormalization(self.device, parameters), [self.source], self.source.shape)


@of_arrays
def layer_norm(input: ArrayType, normalized_shape: Union[int, Sequence[int]], weight: Any = None, bias: Any = None,
               eps: float = 1e-5, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """(x - mean) / sqrt(variance + eps) weight + bias, with mean and variance of the elements of the last axes of an array of
    any shape; `normalized_shape`: sizes of these axes, and the shape of `weight` and `bias`."""
    layer = _Layer(input, normalized_shape, weight, bias, eps, device)
    return layer.call(layer.weight, layer.bias).run().reshape(layer.shape)


@of_arrays
def layer_norm_backward(grad_output: ArrayType, input: Any, normalized_shape: Union[int, Sequence[int]],
                        weight: Any = None, bias: Any = None, eps: float = 1e-5, *,
                        device: Optional[mtl.Device] = None) -> Gradients[ArrayType]:
    """Gradients of input, weight and bias."""
    layer = _Layer(input, normalized_shape, weight, bias, eps, device)
    grad_output = floats(grad_output, "grad_output")
    checked(shape_of(grad_output) == layer.shape, "backward", "grad_output", shape_of(grad_output), layer.shape)
    incoming, call = layer.inside(grad_output), layer.call(layer.weight, None)
    call.remember()
    dx = call.pull(unmetal.CNNGroupNormalizationGradient(call.device), incoming)
    normalized = layer.call(None, None).run()
    of_weight = total(cast_to(incoming, "float32") * cast_to(normalized, "float32"), 0, 1, 2).reshape(layer.sizes)
    return dx.reshape(layer.shape), of_weight, total(incoming, 0, 1, 2).reshape(layer.sizes)


def _response(input: Any, size: int, alpha: float, beta: float, k: float, layout: Optional[str],
              device: Any) -> Tuple[Samples, Call, Any]:
    samples = Samples("local_response_norm", layout, shape_of(input))
    source = samples.inside(input)
    forward, gradient = (made(device, size) for made in
                         (unmetal.CNNCrossChannelNormalization, unmetal.CNNCrossChannelNormalizationGradient))
    forward.alpha, forward.beta, forward.delta = alpha, beta, k
    return samples, Call(forward, [source], source.shape), gradient


@of_arrays
def local_response_norm(input: ArrayType, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0, *,
                        layout: Optional[Layout] = None, device: Optional[mtl.Device] = None) -> ArrayType:
    """x (k + alpha / size sum of x^2 over `size` neighbouring channels)^-beta, of `input` [N][H][W][C]."""
    samples, call, _ = _response(input, size, alpha, beta, k, layout, device)
    return samples.outside(call.run())


@of_arrays
def local_response_norm_backward(grad_output: ArrayType, input: Any, size: int, alpha: float = 1e-4, beta: float = 0.75,
                                 k: float = 1.0, *, layout: Optional[Layout] = None,
                                 device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    samples, call, gradient = _response(input, size, alpha, beta, k, layout, device)
    call.remember()
    return samples.outside(call.pull(gradient, samples.inside(grad_output, "grad_output")))
