"""What kind of array unmetal.nn.functional gives back, where that is, and which arrays it refuses."""

import sys
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import unmetal  # noqa: E402
import unmetal.nn.functional as F  # noqa: E402


def normal(random, *shape):
    return torch.tensor(random.standard_normal(shape), dtype=torch.float32)


class Elsewhere:
    """An array of another library, on a GPU that no machine has."""

    __module__ = "elsewhere"
    shape, ndim, dtype = (1, 5, 6, 4), 4, np.dtype(np.float32)

    def __dlpack_device__(self):
        return 2, 99


@pytest.fixture
def library(monkeypatch):
    monkeypatch.setitem(sys.modules, "elsewhere", types.SimpleNamespace(from_dlpack=lambda tensor: tensor))


def test_results_are_what_the_first_array_is(random):
    x, w, b = normal(random, 2, 5, 6, 4), normal(random, 3, 2, 2, 4), normal(random, 3)
    y, expected = F.conv2d(x, w, b), F.conv2d(x.numpy(), w.numpy(), b.numpy())
    assert isinstance(y, torch.Tensor) and isinstance(expected, np.ndarray)
    for weight, bias in ((w.numpy(), b.numpy()), (w, b.numpy())):
        assert torch.equal(F.conv2d(x, weight, bias), y)
        assert np.array_equal(F.conv2d(x.numpy(), weight, bias), expected)
    gradients = F.conv2d_backward(torch.ones_like(y), x.numpy(), w.numpy(), b.numpy())
    assert all(isinstance(gradient, torch.Tensor) for gradient in gradients)
    joined = F.cat([x, x.numpy()])
    assert torch.equal(joined, torch.cat([x, x], 3)) and isinstance(F.cat((x.numpy(), x)), np.ndarray)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("memory", [torch.contiguous_format, torch.channels_last])
def test_tensors_of_either_memory(random, layout, memory):
    x = normal(random, 2, 4, 6, 8).contiguous(memory_format=memory)
    turned = x if layout == "NCHW" else x.permute(0, 2, 3, 1)
    y = F.max_pool2d(turned, 2, layout=layout)
    y = y if layout == "NCHW" else y.permute(0, 3, 1, 2)
    assert torch.equal(y, torch.nn.functional.max_pool2d(x, 2)) and y.is_contiguous(memory_format=torch.channels_last)


def test_views_of_tensors(random):
    x = normal(random, 2, 8, 9, 8)
    for view in (x[:, ::2, 1:, 2:6], x[:, :, :, ::2], x[:1].expand(3, 8, 9, 8), x.transpose(1, 2)):
        assert torch.equal(F.relu(view), torch.relu(view))


def test_running_statistics_of_tensors_change_in_place(random):
    x, mean, variance = normal(random, 3, 4, 5, 6), torch.zeros(6), torch.ones(6)
    theirs = torch.zeros(6), torch.ones(6)
    torch.nn.functional.batch_norm(x.permute(0, 3, 1, 2), *theirs, training=True)
    F.batch_norm(x, mean, variance, training=True)
    assert torch.allclose(mean, theirs[0], atol=1e-6) and torch.allclose(variance, theirs[1], atol=1e-6) and mean.any()


def test_numbers_are_of_any_kind(random):
    x, t = normal(random, 3, 4), normal(random, 3, 4)
    expected = F.mse_loss_backward(2.0, x.numpy(), t.numpy())
    for two in (2.0, np.float32(2), np.array(2, np.float32), torch.tensor(2.0)):
        for arrays in ((x, t), (x.numpy(), t.numpy())):
            found = F.mse_loss_backward(two, *arrays)
            assert all(type(each) is type(arrays[0]) for each in found)
            assert all(np.array_equal(each, exact) for each, exact in zip(found, expected))
    assert F.mse_loss(x, t).shape == () and isinstance(F.mse_loss(x, t), torch.Tensor)


def test_tensors_that_require_gradients():
    x, weight = torch.ones(1, 2, 2, 3), torch.ones(1, 1, 1, 3, requires_grad=True)
    sentence = "(weight|tensors) is a tensor that requires a gradient, expected tensor.detach"
    for call in (lambda: F.conv2d(x, weight), lambda: F.conv2d(x.numpy(), weight), lambda: F.cat([x[:, :1, :1], weight])):
        with pytest.raises(unmetal.ArgumentError, match=sentence):
            call()
    with torch.no_grad():
        assert (F.conv2d(x, weight) == 3).all() and not F.conv2d(x, weight).requires_grad
    assert (F.conv2d(x, weight.detach()) == 3).all()


def test_arrays_without_axes():
    two = torch.tensor(2.0)
    assert torch.equal(F.relu(two), two) and torch.equal(F.relu_backward(two, torch.tensor(0.0)), torch.tensor(0.0))
    assert torch.allclose(F.silu(two), torch.nn.functional.silu(two))
    assert isinstance(F.relu(np.float32(2)), np.ndarray) and F.relu(np.float32(2)) == 2


@pytest.mark.usefixtures("library")
def test_arrays_of_several_devices():
    x, w, there, cpu = torch.ones(1, 5, 6, 4), torch.ones(3, 2, 2, 4), Elsewhere(), unmetal.mtl.device_named("cpu")
    for call, sentence in (
            (lambda: F.conv2d(x, there), "conv2d: weight is on cuda:99, expected cpu, where input is"),
            (lambda: F.conv2d(x.numpy(), there), "conv2d: weight is on cuda:99, expected cpu, where input is"),
            (lambda: F.conv2d(there, w), "conv2d: weight is on cpu, expected cuda:99, where input is"),
            (lambda: F.conv2d(there, there, bias=w.numpy()), "conv2d: bias is on cpu, expected cuda:99, where input is"),
            (lambda: F.cat([x, there]), "cat: tensors is on cuda:99, expected cpu, where tensors is"),
            (lambda: F.relu_backward(x, there), "relu_backward: input is on cuda:99, expected cpu, where grad_output is"),
            (lambda: F.add(x, torch.ones(1, 5, 6, 4, device="meta")), "add: other is on meta, expected cpu, where input is"),
            (lambda: F.relu(there, device=cpu), "relu: device is cpu, expected cuda:99, where input is")):
        with pytest.raises(unmetal.ArgumentError, match=sentence):
            call()


def test_devices_that_are_not_there(library):
    with pytest.raises(unmetal.Error, match="(?i)cuda"):
        F.relu(Elsewhere())
    with pytest.raises(unmetal.Error, match='device "meta" is unknown'):
        F.relu(torch.ones(1, 5, 6, 4, device="meta"))


def test_arrays_of_a_gpu_whose_library_takes_none():
    with pytest.raises(TypeError, match="Elsewhere is of elsewhere, which has no from_dlpack"):
        F.relu(Elsewhere())


def test_images_are_arrays(device):
    image = unmetal.ImageBatch.from_array(device, -np.ones((1, 2, 2, 3), np.float32))
    assert np.array_equal(F.relu(image), np.zeros((1, 2, 2, 3))) and np.array_equal(F.add(F.relu(image), image), image)


def test_other_types_of_tensors():
    for dtype in (torch.float64, torch.bfloat16, torch.uint8):
        with pytest.raises(TypeError, match=f"input is an array of {str(dtype)[6:]}, expected float32 or float16"):
            F.relu(torch.ones(1, 2, 2, 3, dtype=dtype))
