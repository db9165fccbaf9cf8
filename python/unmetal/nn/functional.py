"""Kernels as functions of arrays, with PyTorch's arguments and defaults; each with a `..._backward` but for grid_sample.

    y = unmetal.nn.functional.max_pool2d(x, 2)
    dx = unmetal.nn.functional.max_pool2d_backward(dy, x, 2)

Arrays are of NumPy or tensors of PyTorch, of float32 or float16. Results are of the kind of the first array, with the element
type of the images, of two the wider one; gradients of parameters are float32. Images are [N][H][W][C] and weights
[out][kH][kW][in / groups]; with `layout="NCHW"` they are PyTorch's: [N][C][H][W] and [out][in / groups][kH][kW].
`unmetal.nn.set_default_layout` says what they are where `layout` is None. Where PyTorch takes one image alone,
[H][W][C] or [C][H][W], so do functions here. Pairs are (y, x), one number stands for both. A `..._backward` takes
dL/d(result) and then the arguments of its function; it returns the gradients of the array arguments, in their order, in their
layouts; all of them are computed anew: nothing is kept between calls. Sizes that disagree raise ArgumentError, other types of
elements TypeError.

Arguments have PyTorch's places; those that have no meaning here (`inplace`, `return_indices`, ...) are last there, and missing.
Where a function has a kink, its gradient is that of PyTorch 2.11: of relu, leaky_relu, prelu and elu at 0 that of the negative
side, of relu6, hardtanh and hardsigmoid at both bounds 0, of hardswish at both bounds that of the side beyond, of l1_loss at 0
none. `neuron_backward` is the kernel alone: at 0 it has the positive side's.

What is on a GPU runs there, and results stay there: tensors on cuda:N, and arrays of other libraries that DLPack exchanges
(`from_dlpack` of that library makes them results; PyTorch is needed meanwhile). The device is waited for before and after, so any
stream may have made the arrays, and any may use the results. Memory of images whose channels are adjacent is shared, views and
channels_last tensors included; others are copied on the GPU. Tensors that negate or conjugate their elements are read as PyTorch
reads them. Weights and other parameters are read through the host. Arrays of several devices raise ArgumentError that names both,
tensors that require a gradient do outside torch.no_grad(). `device`: an mtl.Device on which arrays of the host are worked on;
None: the CPU.
"""

from unmetal.nn._activations import (
    neuron, neuron_backward, relu, relu_backward, leaky_relu, leaky_relu_backward, relu6, relu6_backward, hardtanh,
    hardtanh_backward, prelu, prelu_backward, elu, elu_backward, sigmoid, sigmoid_backward, hardsigmoid,
    hardsigmoid_backward, tanh, tanh_backward, softplus, softplus_backward, softsign, softsign_backward, softmax,
    softmax_backward, log_softmax, log_softmax_backward)
from unmetal.nn._arithmetic import (
    add, add_backward, sub, sub_backward, mul, mul_backward, div, div_backward, cat, cat_backward)
from unmetal.nn._convolutions import (
    conv2d, conv2d_backward, conv_transpose2d, conv_transpose2d_backward, linear, linear_backward)
from unmetal.nn._dropout import dropout, dropout_backward
from unmetal.nn._gated import (
    gelu, gelu_backward, hardswish, hardswish_backward, mish, mish_backward, silu, silu_backward)
from unmetal.nn._losses import (
    mse_loss, mse_loss_backward, l1_loss, l1_loss_backward, huber_loss, huber_loss_backward, smooth_l1_loss,
    smooth_l1_loss_backward, binary_cross_entropy, binary_cross_entropy_backward, binary_cross_entropy_with_logits,
    binary_cross_entropy_with_logits_backward, cross_entropy, cross_entropy_backward, nll_loss, nll_loss_backward)
from unmetal.nn._normalizations import (
    batch_norm, batch_norm_backward, instance_norm, instance_norm_backward, group_norm, group_norm_backward, layer_norm,
    layer_norm_backward, local_response_norm, local_response_norm_backward)
from unmetal.nn._resampling import (
    grid_sample, interpolate, interpolate_backward, pad, pad_backward, pixel_shuffle, pixel_shuffle_backward)
from unmetal.nn._windows import (
    adaptive_avg_pool2d, adaptive_avg_pool2d_backward, avg_pool2d, avg_pool2d_backward, l2_pool2d, l2_pool2d_backward,
    lp_pool2d, lp_pool2d_backward, max_pool2d, max_pool2d_backward)

__all__ = [
    "adaptive_avg_pool2d", "adaptive_avg_pool2d_backward", "add", "add_backward", "avg_pool2d", "avg_pool2d_backward",
    "batch_norm", "batch_norm_backward", "binary_cross_entropy", "binary_cross_entropy_backward",
    "binary_cross_entropy_with_logits", "binary_cross_entropy_with_logits_backward", "cat", "cat_backward", "conv2d",
    "conv2d_backward", "conv_transpose2d", "conv_transpose2d_backward", "cross_entropy", "cross_entropy_backward", "div",
    "div_backward", "dropout", "dropout_backward", "elu", "elu_backward", "gelu", "gelu_backward", "grid_sample",
    "group_norm", "group_norm_backward", "hardsigmoid", "hardsigmoid_backward", "hardswish", "hardswish_backward",
    "hardtanh", "hardtanh_backward", "huber_loss", "huber_loss_backward", "instance_norm", "instance_norm_backward",
    "interpolate", "interpolate_backward", "l1_loss", "l1_loss_backward", "l2_pool2d", "l2_pool2d_backward", "layer_norm",
    "layer_norm_backward", "leaky_relu", "leaky_relu_backward", "linear", "linear_backward", "local_response_norm",
    "local_response_norm_backward", "log_softmax", "log_softmax_backward", "lp_pool2d", "lp_pool2d_backward", "max_pool2d",
    "max_pool2d_backward", "mish", "mish_backward", "mse_loss", "mse_loss_backward", "mul", "mul_backward", "neuron",
    "neuron_backward", "nll_loss", "nll_loss_backward", "pad", "pad_backward", "pixel_shuffle", "pixel_shuffle_backward",
    "prelu", "prelu_backward", "relu", "relu6", "relu6_backward", "relu_backward", "sigmoid", "sigmoid_backward", "silu",
    "silu_backward", "smooth_l1_loss", "smooth_l1_loss_backward", "softmax", "softmax_backward", "softplus",
    "softplus_backward", "softsign", "softsign_backward", "sub", "sub_backward", "tanh", "tanh_backward"]
