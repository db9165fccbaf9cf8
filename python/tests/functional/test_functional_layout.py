"""Orders of axes in unmetal.nn.functional: the default one, one image alone, samples of any number of axes."""

import threading

import numpy as np
import pytest

import unmetal
import unmetal.nn.functional as F


@pytest.fixture
def planes():
    unmetal.nn.set_default_layout("NCHW")
    yield
    unmetal.nn.set_default_layout("NHWC")


def normal(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


# name: (arguments after the image, number of results of the backward that have the layout of the image)
OF_IMAGES = {"max_pool2d": (2,), "avg_pool2d": (2,), "l2_pool2d": (2,), "lp_pool2d": (2, 2), "adaptive_avg_pool2d": ((3, 2),),
             "pad": ((1, 0, 2, 1),), "pixel_shuffle": (2,)}


def back(array):
    """From channels last to PyTorch's order."""
    return np.moveaxis(array, -1, -3)


@pytest.mark.parametrize("name", OF_IMAGES)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_one_image_alone(random, name, layout):
    x = normal(random, 1, 4, 6, 8) if layout == "NHWC" else back(normal(random, 1, 4, 6, 8))
    function, backward = getattr(F, name), getattr(F, name + "_backward")
    y = function(x, *OF_IMAGES[name], layout=layout)
    alone = function(x[0], *OF_IMAGES[name], layout=layout)
    assert alone.ndim == 3 and np.array_equal(alone, y[0])
    g = normal(random, *y.shape)
    assert np.array_equal(backward(g[0], x[0], *OF_IMAGES[name], layout=layout), backward(g, x, *OF_IMAGES[name], layout=layout)[0])
    with pytest.raises(unmetal.ArgumentError, match="dimensions"):
        backward(g, x[0], *OF_IMAGES[name], layout=layout)
    with pytest.raises(unmetal.ArgumentError, match=f"({name}|l2_pool2d): input is of 2 dimensions, expected 4 dimensions, {layout}, or one image"):
        function(x[0, 0], *OF_IMAGES[name], layout=layout)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_one_image_alone_through_convolutions_and_arithmetic(random, layout):
    turned = (lambda array: array) if layout == "NHWC" else back
    x, w, b = turned(normal(random, 1, 5, 6, 4)), turned(normal(random, 4, 3, 3, 4)), normal(random, 4)
    for name in ("conv2d", "conv_transpose2d"):
        function, backward = getattr(F, name), getattr(F, name + "_backward")
        y = function(x, w, b, layout=layout)
        assert np.array_equal(function(x[0], w, b, layout=layout), y[0])
        found, expected = (backward(g, x_, w, b, layout=layout) for g, x_ in ((y[0], x[0]), (y, x)))
        assert np.array_equal(found[0], expected[0][0]) and np.array_equal(found[1], expected[1])
    for name in ("add", "sub", "mul", "div"):
        function, backward = getattr(F, name), getattr(F, name + "_backward")
        y = function(x, x, layout=layout)
        assert np.array_equal(function(x[0], x[0], layout=layout), y[0])
        assert np.array_equal(function(x, x[0], layout=layout), y)
        found = backward(y, x, x[0], layout=layout)
        assert [each.shape for each in found] == [x.shape, x[0].shape]
        assert np.array_equal(found[1], backward(y, x, x, layout=layout)[1][0])
    assert np.array_equal(F.cat([x[0], x[0]], layout=layout), F.cat([x, x], layout=layout)[0])


def test_interpolate_takes_no_image_alone(random):
    with pytest.raises(unmetal.ArgumentError, match="interpolate: input is of 3 dimensions"):
        F.interpolate(normal(random, 4, 4, 3), 8)


@pytest.mark.parametrize("dim", [0, 1, 2, -1, None])
def test_cat_along_any_axis(random, dim):
    axis = 2 if dim is None else dim
    parts = [np.moveaxis(normal(random, 2, 3, count), -1, axis) for count in (1, 4, 2)]
    y = F.cat(parts, dim)
    assert np.array_equal(y, np.concatenate(parts, axis))
    assert all(np.array_equal(found, part) for found, part in zip(F.cat_backward(y, parts, dim), parts))
    with pytest.raises(unmetal.ArgumentError, match="cat: dim is 3"):
        F.cat(parts, 3)


def test_the_default_layout(random, planes):
    assert unmetal.nn.get_default_layout() == "NCHW"
    x, w = normal(random, 2, 3, 6, 4), normal(random, 5, 3, 2, 2)
    assert np.array_equal(F.max_pool2d(x, 2), F.max_pool2d(x, 2, layout="NCHW"))
    assert np.array_equal(F.conv2d(x, w), F.conv2d(x, w, layout="NCHW"))
    assert np.array_equal(F.softmax(x), F.softmax(x, 1))
    assert np.array_equal(F.batch_norm(x, None, None, training=True), F.batch_norm(x, None, None, training=True, layout="NCHW"))
    last = np.moveaxis(x, 1, -1)
    assert np.array_equal(F.max_pool2d(last, 2, layout="NHWC"), np.moveaxis(F.max_pool2d(x, 2), 1, -1))
    seen = []
    thread = threading.Thread(target=lambda: seen.append(F.max_pool2d(x, 2)))
    thread.start()
    thread.join()
    assert np.array_equal(seen[0], F.max_pool2d(x, 2))


def test_default_layouts_that_there_are_not():
    for wrong in ("HWC", None, 3):
        with pytest.raises(unmetal.ArgumentError, match="set_default_layout: layout is"):
            unmetal.nn.set_default_layout(wrong)
    assert unmetal.nn.get_default_layout() == "NHWC"
    with pytest.raises(unmetal.ArgumentError, match="max_pool2d: layout is 'HWC', expected 'NHWC' or 'NCHW'"):
        F.max_pool2d(np.zeros((1, 2, 2, 1), np.float32), 2, layout="HWC")


class TestTorch:
    torch = pytest.importorskip("torch")

    @pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 4)])
    @pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
    def test_normalizations_of_any_number_of_axes(self, random, shape, layout):
        T = self.torch.nn.functional
        x, w, b, g = normal(random, *shape), normal(random, 3), normal(random, 3), normal(random, *shape)
        turned = (lambda array: np.moveaxis(array, 1, -1)) if layout == "NHWC" else (lambda array: array)
        calls = {"batch_norm": (lambda x, w, b: T.batch_norm(x, None, None, w, b, True), (None, None, w, b, True)),
                 "group_norm": (lambda x, w, b: T.group_norm(x, 1, w, b), (1, w, b))}
        if len(shape) > 2:
            calls["instance_norm"] = lambda x, w, b: T.instance_norm(x, None, None, w, b), (None, None, w, b)
        for name, (theirs, arguments) in calls.items():
            tensors = [self.torch.tensor(array, dtype=self.torch.float64, requires_grad=True) for array in (x, w, b)]
            expected = theirs(*tensors)
            expected.backward(self.torch.tensor(g, dtype=self.torch.float64))
            found = getattr(F, name)(turned(x), *arguments, layout=layout)
            assert np.allclose(found, turned(expected.detach().numpy()), atol=1e-5)
            dx, dw, db = getattr(F, name + "_backward")(turned(g), turned(x), *arguments, layout=layout)
            assert np.allclose(dx, turned(tensors[0].grad.numpy()), atol=1e-4)
            assert np.allclose(dw, tensors[1].grad, atol=1e-4) and np.allclose(db, tensors[2].grad, atol=1e-4)
        expected = T.local_response_norm(self.torch.tensor(x, dtype=self.torch.float64), 3) if len(shape) > 2 else None
        if expected is not None:
            assert np.allclose(F.local_response_norm(turned(x), 3, layout=layout), turned(expected.numpy()), atol=1e-5)
