"""One of our kernels inside PyTorch: local contrast normalisation, which PyTorch lacks, as a torch.autograd.Function."""

import torch

import unmetal

device = unmetal.mtl.create_system_default_device()
queue = device.new_command_queue()


def images_of(tensor):
    """A batch over an NCHW tensor of float32. In channels_last memory it shares it."""
    return unmetal.ImageBatch.from_array(device, tensor.permute(0, 2, 3, 1))


class LocalContrast(torch.autograd.Function):
    """(x - mean of its window) / sqrt(1 / 1024 + alpha * variance of its window), of each channel; zeros around it."""

    @staticmethod
    def kernels(size, alpha):
        for made in (unmetal.CNNLocalContrastNormalization, unmetal.CNNLocalContrastNormalizationGradient):
            kernel = made(device, size, size)
            kernel.alpha = alpha
            yield kernel

    @staticmethod
    def forward(context, x, size, alpha):
        x = x.detach().contiguous(memory_format=torch.channels_last)
        result, images = torch.empty_like(x), images_of(x)
        kernel, context.gradient = LocalContrast.kernels(size, alpha)
        context.states = kernel.result_state_batch(images)
        with queue.command_buffer() as command_buffer:
            kernel.encode_batch(command_buffer, images, context.states, images_of(result))
        context.save_for_backward(x)
        return result

    @staticmethod
    def backward(context, incoming):
        (x,) = context.saved_tensors
        incoming = incoming.contiguous(memory_format=torch.channels_last)
        result = torch.empty_like(x)
        with queue.command_buffer() as command_buffer:
            context.gradient.encode_batch(command_buffer, images_of(incoming), images_of(x), context.states,
                                          images_of(result))
        return result, None, None


def reference(x, size, alpha):
    """The same out of PyTorch's operators, in the precision of x."""
    def mean(values):
        return torch.nn.functional.avg_pool2d(values, size, 1, size // 2)

    middle = mean(x)
    variance = mean(x * x) - middle * middle
    return (x - middle) * (1 / 1024 + alpha * variance) ** -0.5


def main():
    torch.manual_seed(1)
    x = torch.randn(2, 3, 9, 8, requires_grad=True)
    weight = torch.randn(2, 3, 9, 8)
    (LocalContrast.apply(x, 3, 1.0) * weight).sum().backward()
    wide = x.detach().double().requires_grad_()
    expected = reference(wide, 3, 1.0)
    (expected * weight).sum().backward()
    for name, found, exact in (("result", LocalContrast.apply(x, 3, 1.0), expected), ("gradient", x.grad, wide.grad)):
        print(f"{name}: differs by {((found - exact).abs().max() / exact.abs().max()).item():.1e} from PyTorch's float64")


if __name__ == "__main__":
    main()
