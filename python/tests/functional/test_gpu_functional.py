"""unmetal.nn.functional of tensors of a GPU: in their memory, after what PyTorch's streams were given, on their device."""

import sys
import types

import pytest

torch = pytest.importorskip("torch")

import unmetal  # noqa: E402
import unmetal.nn.functional as F  # noqa: E402
from gpus import LONG, gpu, stream  # noqa: E402, F401
from unmetal import mtl  # noqa: E402


def peak(function):
    """What it returns, and the bytes that PyTorch took meanwhile, at most."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = function()
    return result, torch.cuda.max_memory_allocated() - before


def bytes_of(tensor):
    return tensor.numel() * tensor.element_size()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_functions_of_tensors_take_memory_for_results_alone(stream, dtype):
    """But for what PyTorch rounds up, less than 1 MiB."""
    x = torch.randn(16, 64, 64, 64, device="cuda").to(dtype).contiguous(memory_format=torch.channels_last)
    y, taken = peak(lambda: F.max_pool2d(x, 2, layout="NCHW"))
    assert torch.equal(y, torch.nn.functional.max_pool2d(x, 2)) and y.is_contiguous(memory_format=torch.channels_last)
    assert taken < bytes_of(y) + 2 ** 20
    pixels = x.permute(0, 2, 3, 1)
    y, taken = peak(lambda: F.relu(pixels))
    assert torch.equal(y, torch.relu(pixels)) and taken < bytes_of(y) + 2 ** 20
    part = pixels[:, 8:56, 8:56]
    y, taken = peak(lambda: F.max_pool2d(part, 1))
    assert torch.equal(y, part) and taken < bytes_of(y) + 2 ** 20
    in_planes = x.contiguous()
    y, taken = peak(lambda: F.max_pool2d(in_planes, 2, layout="NCHW"))  # through a copy, which is where the tensor is
    assert torch.equal(y, torch.nn.functional.max_pool2d(x, 2)) and taken >= bytes_of(x) + bytes_of(y)


def test_gradients_of_weights_stay_on_the_gpu(random):
    """dL/d(weight) and dL/d(bias) of conv2d and linear are tensors of the GPU, and PyTorch's."""
    x, w, g = (torch.tensor(random.integers(-3, 4, shape), dtype=torch.float32, device="cuda")
               for shape in ((2, 9, 8, 6), (5, 3, 3, 6), (2, 7, 6, 5)))
    b = torch.zeros(5, device="cuda")
    found = F.conv2d_backward(g, x, w, b)
    wide = [tensor.double().permute(0, 3, 1, 2).contiguous().requires_grad_() for tensor in (x, w)]
    bias = b.double().requires_grad_()
    torch.nn.functional.conv2d(*wide, bias).backward(g.double().permute(0, 3, 1, 2))
    expected = [wide[0].grad.permute(0, 2, 3, 1), wide[1].grad.permute(0, 2, 3, 1), bias.grad]
    for ours, theirs in zip(found, expected):
        assert ours.device == x.device and torch.equal(ours.double(), theirs)  # whole numbers: float32 is exact
    dx, dw, db = F.linear_backward(g, x[:, :7, :6], w[:, 0, 0], b)
    assert torch.equal(dw.double(), g.double().reshape(-1, 5).T @ x[:, :7, :6].double().reshape(-1, 6)) and dx.is_cuda
    assert torch.equal(db.double(), g.double().sum((0, 1, 2)))


def test_functions_come_after_what_pytorch_is_still_making(stream):
    """And PyTorch's next step after them, on whichever stream it works."""
    x = torch.zeros(2, 8, 64, 64, device="cuda")
    for value in (3, 4):
        for memory in (torch.channels_last, torch.contiguous_format):
            source = x.clone(memory_format=memory)
            torch.cuda._sleep(LONG)
            source.fill_(value)
            y = F.max_pool2d(source, 2, layout="NCHW")
            assert (y * 2 == 2 * value).all()
        torch.cuda._sleep(LONG)
        other = x + value
        dx = F.relu_backward(other, other)
        total = (dx + 1).sum()
        del dx, other
        torch.full_like(x, 9.0)
        assert total.item() == x.numel() * (value + 1)


def test_functions_refuse_tensors_of_several_devices():
    x, w = torch.ones(1, 5, 6, 4, device="cuda"), torch.ones(3, 2, 2, 4, device="cuda")
    for call, sentence in (
            (lambda: F.conv2d(x, w.cpu()), "conv2d: weight is on cpu, expected cuda:0, where input is"),
            (lambda: F.conv2d(x, w.cpu().numpy()), "conv2d: weight is on cpu, expected cuda:0, where input is"),
            (lambda: F.conv2d(x.cpu(), w), "conv2d: weight is on cuda:0, expected cpu, where input is"),
            (lambda: F.conv2d(x.cpu(), w, device=gpu), "conv2d: weight is on cuda:0, expected cpu, where input is"),
            (lambda: F.relu(x, device=mtl.device_named("cpu")), "relu: device is cpu, expected cuda:0, where input is"),
            (lambda: F.relu(x.clone().requires_grad_()), "relu: input is a tensor that requires a gradient")):
        with pytest.raises(unmetal.ArgumentError, match=sentence):
            call()
    y = F.conv2d(x.cpu(), w.cpu(), device=gpu)  # of the host, through the GPU
    assert str(y.device) == "cpu" and (y == 16).all()
    assert F.mse_loss_backward(torch.tensor(1.0), w, w)[0].is_cuda  # numbers are of no place


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU")
def test_functions_on_another_gpu(random):
    x, w = (torch.tensor(random.standard_normal(shape), dtype=torch.float32, device="cuda:1")
            for shape in ((2, 9, 8, 6), (5, 3, 3, 6)))
    y = F.conv2d(x, w)
    found = F.conv2d_backward(torch.ones_like(y), x, w)
    assert all(str(tensor.device) == "cuda:1" for tensor in (y, *found)) and torch.cuda.current_device() == 0
    expected = F.conv2d(x.to("cuda:0"), w.to("cuda:0"))
    assert torch.equal(y.cpu(), expected.cpu())
    with pytest.raises(unmetal.ArgumentError, match="weight is on cuda:0, expected cuda:1, where input is"):
        F.conv2d(x, w.to("cuda:0"))
    with pytest.raises(unmetal.ArgumentError, match="device is cuda:0, expected cuda:1, where input is"):
        F.conv2d(x, w, device=gpu)


def test_functions_of_other_libraries_arrays(monkeypatch, random):
    """Of a library that has nothing but DLPack and from_dlpack."""

    class Array:
        __module__ = "others"

        def __init__(self, tensor):
            self.tensor, self.shape, self.ndim = tensor, tuple(tensor.shape), tensor.ndim

        def __dlpack__(self, **arguments):
            return self.tensor.__dlpack__(**arguments)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    others = types.SimpleNamespace(from_dlpack=lambda tensor: Array(torch.from_dlpack(tensor)))
    monkeypatch.setitem(sys.modules, "others", others)
    x, w = (torch.tensor(random.standard_normal(shape), dtype=torch.float32, device="cuda")
            for shape in ((2, 9, 8, 6), (5, 3, 3, 6)))
    y = F.conv2d(Array(x), Array(w))
    assert type(y) is Array and torch.equal(y.tensor, F.conv2d(x, w))
    gradients = F.conv2d_backward(y, Array(x), Array(w))
    for found, expected in zip(gradients, F.conv2d_backward(y.tensor, x, w)):
        assert type(found) is Array and torch.equal(found.tensor, expected)
    assert isinstance(F.conv2d(x, Array(w)), torch.Tensor)
