"""Activations x gate(x), of which there is no kernel: neurons make the gate, arithmetic kernels the product."""

# What arrays and kernels give is Any here.
# mypy: disable-error-code="no-any-return"
from __future__ import annotations

import math
from typing import Any, List, Optional, Sequence, Tuple

import unmetal
from unmetal import CNNNeuronType, NNNeuronDescriptor, mtl
from unmetal.nn._activations import gelu_by_error_function, lines_of, pull_gelu_by_error_function
from unmetal.nn._arrays import ArrayType, Data, array_of, cast_to, checked, of_arrays, settle, shape_of, type_of
from unmetal.nn._calls import Call

_SIGMOID = NNNeuronDescriptor(CNNNeuronType.Sigmoid)
_HARD_SIGMOID = NNNeuronDescriptor(CNNNeuronType.HardSigmoid, 1 / 6, 0.5)
_SOFT_PLUS = NNNeuronDescriptor(CNNNeuronType.SoftPlus, 1, 1)
_TANH = NNNeuronDescriptor(CNNNeuronType.TanH, 1, 1)
# 0.5 (1 + tanh(u)) is sigmoid(2 u); 2 u is x (slope + cubic x^2).
_SLOPE = 2 * math.sqrt(2 / math.pi)
_CUBIC = 0.044715 * _SLOPE


def _of_two(kernel: Any, one: Data, other: Data) -> Data:
    return Call(kernel, [one, other], one.shape).run()


def _product(device: mtl.Device, one: Data, other: Data) -> Data:
    return _of_two(unmetal.CNNMultiply(device), one, other)


def _neuron_of(device: mtl.Device, array: Data, descriptor: NNNeuronDescriptor) -> Data:
    return Call(unmetal.CNNNeuron(device, descriptor), [array], array.shape).run()


class _Gate:
    """Neurons one after another, which remember what their gradients need."""

    def __init__(self, device: mtl.Device, descriptors: Sequence[NNNeuronDescriptor]):
        self.device, self.descriptors = device, descriptors
        self.calls: List[Call] = []

    def open(self, array: Data) -> Data:
        for descriptor in self.descriptors:
            call = Call(unmetal.CNNNeuron(self.device, descriptor), [array], array.shape)
            self.calls.append(call)
            array = call.remember()
        return array

    def pull(self, incoming: Data) -> Data:
        for call, descriptor in zip(reversed(self.calls), reversed(self.descriptors)):
            incoming = call.pull(unmetal.CNNNeuronGradient(self.device, descriptor), incoming)
        return incoming


def _wide(array: Any, name: str = "input") -> Data:
    """Steps between kernels are float32."""
    return cast_to(lines_of(array, name=name)[0], "float32")


def _given_back(lines: Data, input: Any) -> Data:
    return cast_to(lines, type_of(array_of(input))).reshape(shape_of(input))


def _gated(input: Any, device: Any, *descriptors: NNNeuronDescriptor) -> Data:
    x = _wide(input)
    return _given_back(_product(device, x, _Gate(device, descriptors).open(x)), input)


def _gated_backward(grad_output: Any, input: Any, device: Any, *descriptors: NNNeuronDescriptor) -> Data:
    """dy gate(x) + gate'(x) (dy x)."""
    checked(shape_of(grad_output) == shape_of(input), "backward", "grad_output", shape_of(grad_output), shape_of(input))
    x, incoming, gate = _wide(input), _wide(grad_output, "grad_output"), _Gate(device, descriptors)
    direct = _product(device, incoming, gate.open(x))
    through = gate.pull(_product(device, incoming, x))
    return _given_back(_of_two(unmetal.CNNAdd(device), direct, through), input)


@of_arrays
def silu(input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """x sigmoid(x)."""
    return _gated(input, device, _SIGMOID)


@of_arrays
def silu_backward(grad_output: ArrayType, input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    return _gated_backward(grad_output, input, device, _SIGMOID)


@of_arrays
def hardswish(input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """x hardsigmoid(x)."""
    return _gated(input, device, _HARD_SIGMOID)


@of_arrays
def hardswish_backward(grad_output: ArrayType, input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input; at x = -3 it is 0 and at x = 3 it is 1, as beyond."""
    outgoing, x = _gated_backward(grad_output, input, device, _HARD_SIGMOID), array_of(input)
    return settle(settle(outgoing, x >= 3, array_of(grad_output)), x <= -3, 0)


@of_arrays
def mish(input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """x tanh(ln(1 + exp(x)))."""
    return _gated(input, device, _SOFT_PLUS, _TANH)


@of_arrays
def mish_backward(grad_output: ArrayType, input: ArrayType, *, device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    return _gated_backward(grad_output, input, device, _SOFT_PLUS, _TANH)


def _twice_u(device: mtl.Device, x: Data) -> Tuple[Data, Data]:
    """2 u and its derivative, u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    square = _product(device, x, x)
    factor = _neuron_of(device, square, NNNeuronDescriptor(CNNNeuronType.Linear, _CUBIC, _SLOPE))
    return _product(device, x, factor), _neuron_of(
        device, square, NNNeuronDescriptor(CNNNeuronType.Linear, 3 * _CUBIC, _SLOPE))


def _check_approximate(approximate: str) -> bool:
    checked(approximate in ("none", "tanh"), "gelu", "approximate", repr(approximate), "'none' or 'tanh'")
    return approximate == "tanh"


@of_arrays
def gelu(input: ArrayType, approximate: str = "none", *, device: Optional[mtl.Device] = None) -> ArrayType:
    """0.5 x (1 + erf(x / sqrt(2))); `approximate` 'tanh': 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    if not _check_approximate(approximate):
        return gelu_by_error_function(input, device)
    assert device is not None
    x = _wide(input)
    gate = _neuron_of(device, _twice_u(device, x)[0], _SIGMOID)
    return _given_back(_product(device, x, gate), input)


@of_arrays
def gelu_backward(grad_output: ArrayType, input: ArrayType, approximate: str = "none", *,
                  device: Optional[mtl.Device] = None) -> ArrayType:
    """Gradient of input."""
    if not _check_approximate(approximate):
        return pull_gelu_by_error_function(grad_output, input, device)
    assert device is not None
    checked(shape_of(grad_output) == shape_of(input), "backward", "grad_output", shape_of(grad_output), shape_of(input))
    x, incoming, gate = _wide(input), _wide(grad_output, "grad_output"), _Gate(device, [_SIGMOID])
    inner, slope = _twice_u(device, x)
    direct = _product(device, incoming, gate.open(inner))
    through = _product(device, gate.pull(_product(device, incoming, x)), slope)
    return _given_back(_of_two(unmetal.CNNAdd(device), direct, through), input)
