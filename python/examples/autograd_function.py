"""One of our kernels inside PyTorch: local contrast normalisation, which PyTorch lacks, as a torch.autograd.Function."""

from __future__ import annotations

from typing import Any

import torch

import unmetal

device = unmetal.mtl.create_system_default_device()
queue = device.new_command_queue()


def images_of(tensor: torch.Tensor) -> unmetal.ImageBatch:
    """A batch over an NCHW tensor of float32. In channels_last memory it shares it."""
    return unmetal.ImageBatch.from_array(device, tensor.permute(0, 2, 3, 1))


class LocalContrast(torch.autograd.Function):
    """(x - mean of its window) / sqrt(1 / 1024 + alpha * variance of its window), of each channel; zeros around it."""

    @staticmethod
    def kernels(
        size: int, alpha: float
    ) -> tuple[unmetal.CNNLocalContrastNormalization, unmetal.CNNLocalContrastNormalizationGradient]:
        forward = unmetal.CNNLocalContrastNormalization(device, size, size)
        gradient = unmetal.CNNLocalContrastNormalizationGradient(device, size, size)
        forward.alpha = gradient.alpha = alpha
        return forward, gradient

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, size: int, alpha: float) -> torch.Tensor:
        x = x.detach().contiguous(memory_format=torch.channels_last)
        result, images = torch.empty_like(x), images_of(x)
        kernel, ctx.gradient = LocalContrast.kernels(size, alpha)
        ctx.states = kernel.result_state_batch(images)
        with queue.command_buffer() as command_buffer:
            kernel.encode_batch(command_buffer, images, ctx.states, images_of(result))
        ctx.save_for_backward(x)
        return result

    @staticmethod
    def backward(ctx: Any, *grad_outputs: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (x,) = ctx.saved_tensors
        incoming = grad_outputs[0].contiguous(memory_format=torch.channels_last)
        result = torch.empty_like(x)
        with queue.command_buffer() as command_buffer:
            ctx.gradient.encode_batch(command_buffer, images_of(incoming), images_of(x), ctx.states,
                                          images_of(result))
        return result, None, None


def reference(x: torch.Tensor, size: int, alpha: float) -> torch.Tensor:
    """The same out of PyTorch's operators, in the precision of x."""
    def mean(values: torch.Tensor) -> torch.Tensor:
        means: torch.Tensor = torch.nn.functional.avg_pool2d(values, size, 1, size // 2)
        return means

    middle = mean(x)
    variance = mean(x * x) - middle * middle
    normalized: torch.Tensor = (x - middle) * torch.rsqrt(1 / 1024 + alpha * variance)
    return normalized


def main() -> None:
    torch.manual_seed(1)
    x = torch.randn(2, 3, 9, 8, requires_grad=True)
    weight = torch.randn(2, 3, 9, 8)
    (LocalContrast.apply(x, 3, 1.0) * weight).sum().backward()
    wide = x.detach().double().requires_grad_()
    expected = reference(wide, 3, 1.0)
    (expected * weight).sum().backward()
    assert x.grad is not None and wide.grad is not None
    for name, found, exact in (("result", LocalContrast.apply(x, 3, 1.0), expected), ("gradient", x.grad, wide.grad)):
        print(f"{name}: differs by {((found - exact).abs().max() / exact.abs().max()).item():.1e} from PyTorch's float64")


if __name__ == "__main__":
    main()
