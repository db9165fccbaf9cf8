"""Kernels as functions of arrays, with PyTorch's arguments and defaults; each with a `..._backward`.

    y = unmetal.nn.functional.max_pool2d(x, 2)
    dx = unmetal.nn.functional.max_pool2d_backward(dy, x, 2)

Arrays are of NumPy or tensors of PyTorch, of float32 or float16. Results are of the kind of the first array, with the element
type of the images, of two the wider one; gradients of parameters are float32. Images are [N][H][W][C] and weights
[out][kH][kW][in / groups]; with `layout="NCHW"` they are PyTorch's: [N][C][H][W] and [out][in / groups][kH][kW]. Pairs are (y, x),
one number stands for both. A `..._backward` takes dL/d(result) and then the arguments of its function; it returns the gradients of
the array arguments, in their order, in their layouts; all of them are computed anew: nothing is kept between calls. Sizes that
disagree raise ArgumentError, other types of elements TypeError.

What is on a GPU runs there, and results stay there: tensors on cuda:N, and arrays of other libraries that DLPack exchanges
(`from_dlpack` of that library makes them results; PyTorch is needed meanwhile). The device is waited for before and after, so any
stream may have made the arrays, and any may use the results. Memory of images whose channels are adjacent is shared, views and
channels_last tensors included; others are copied on the GPU. Weights and other parameters are read through the host. Arrays of
several devices raise ArgumentError that names both, tensors that require a gradient do outside torch.no_grad(). `device`: an
mtl.Device on which arrays of the host are worked on; None: the CPU.
"""

from unmetal.nn._activations import (
    neuron, neuron_backward, relu, relu_backward, leaky_relu, leaky_relu_backward, relu6, relu6_backward, prelu,
    prelu_backward, elu, elu_backward, gelu, gelu_backward, sigmoid, sigmoid_backward, hardsigmoid,
    hardsigmoid_backward, tanh, tanh_backward, softplus, softplus_backward, softsign, softsign_backward, softmax,
    softmax_backward, log_softmax, log_softmax_backward, dropout, dropout_backward)
from unmetal.nn._arithmetic import (
    add, add_backward, sub, sub_backward, mul, mul_backward, div, div_backward, cat, cat_backward)
from unmetal.nn._convolutions import (
    conv2d, conv2d_backward, conv_transpose2d, conv_transpose2d_backward, linear, linear_backward)
from unmetal.nn._losses import (
    mse_loss, mse_loss_backward, l1_loss, l1_loss_backward, huber_loss, huber_loss_backward,
    binary_cross_entropy_with_logits, binary_cross_entropy_with_logits_backward, cross_entropy, cross_entropy_backward)
from unmetal.nn._normalizations import (
    batch_norm, batch_norm_backward, instance_norm, instance_norm_backward, group_norm, group_norm_backward,
    local_response_norm, local_response_norm_backward)
from unmetal.nn._windows import (
    max_pool2d, max_pool2d_backward, avg_pool2d, avg_pool2d_backward, l2_pool2d, l2_pool2d_backward, lp_pool2d,
    lp_pool2d_backward, interpolate, interpolate_backward, pad, pad_backward)

__all__ = [name for name in dir() if not name.startswith("_")]
