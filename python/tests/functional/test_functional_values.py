"""unmetal.nn.functional of numbers that are no ordinary ones, and calls that raise and change nothing."""

import warnings

import numpy as np
import pytest

import unmetal
import unmetal.nn.functional as F

inf, nan = np.float32(np.inf), np.float32(np.nan)


def image(*numbers):
    return np.array(numbers, np.float32).reshape(1, 1, -1, 1)


def test_infinities_pass_through_arithmetic():
    x = image(inf, -inf, inf, -inf, 1, -1, 0, nan, 3e38)
    y = image(1, 1, -inf, 0, 0, 0, 0, 1, 3e38)
    with np.errstate(all="ignore"):
        for name, exact in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide)):
            assert np.array_equal(getattr(F, name)(x, y), exact(x, y), equal_nan=True), name


def test_gradients_of_infinite_results():
    one, zero, g = image(1), image(0), image(1)
    assert F.add_backward(g, image(inf), one)[0] == 1 and F.sub_backward(g, one, image(inf))[1] == -1
    dx, dy = F.div_backward(g, one, zero)
    assert dx == inf and dy == -inf


def test_infinities_pass_through_functions():
    x = np.array([[inf, -inf, 1, -1]], np.float32)
    for name, expected in (("relu", [inf, 0, 1, 0]), ("leaky_relu", [inf, -inf, 1, -0.01]), ("hardtanh", [1, -1, 1, -1]),
                           ("relu6", [6, 0, 1, 0]), ("elu", [inf, -1, 1, np.expm1(-1)])):
        assert np.allclose(getattr(F, name)(x), expected, atol=0, rtol=1e-6), name
    assert F.silu(x)[0, 0] == inf and F.hardswish(x)[0, 0] == inf and F.mish(x)[0, 0] == inf
    images = x.reshape(1, 2, 2, 1)
    assert F.max_pool2d(images, 2) == inf and np.isnan(F.avg_pool2d(images, 2)) and F.avg_pool2d(images[:, :1], 1)[0, 0, 0, 0] == inf
    assert np.array_equal(F.adaptive_avg_pool2d(np.array([inf, 1, 2], np.float32).reshape(1, 1, 3, 1), (1, 2)).ravel(), [inf, 1.5])
    assert np.array_equal(F.cat([images, images])[..., 0], images[..., 0])
    assert np.array_equal(F.nll_loss(np.array([[-inf, -1]], np.float32), np.array([1])), 1)


def statistics():
    return np.arange(3, dtype=np.float32), np.arange(3, dtype=np.float32) + 1


@pytest.mark.parametrize("function", ["batch_norm", "instance_norm"])
def test_normalizations_that_raise_change_nothing(function):
    x, one = np.ones((2, 2, 2, 3), np.float32), np.ones((1, 1, 1, 3), np.float32)
    w = np.ones(3, np.float32)
    train = {"training": True} if function == "batch_norm" else {}

    def raises(sentence, x, mean, variance, **arguments):
        before = [None if array is None else array.copy() for array in (mean, variance)]
        with pytest.raises(unmetal.ArgumentError, match=sentence):
            getattr(F, function)(x, mean, variance, **{**train, **arguments})
        for array, old in zip((mean, variance), before):
            assert old is None or np.array_equal(array, old)

    raises("one value for each mean, expected more than one", one, *statistics())
    raises("running_mean is an array, expected both running statistics or none", x, statistics()[0], None)
    raises("running_mean is None, expected both running statistics or none", x, None, statistics()[1])
    raises("gamma is of shape", x, *statistics(), weight=w[:2])
    raises("running_var is read-only|running_var is a list", x, statistics()[0], read_only(statistics()[1]))
    for wrong in (np.ones(2, np.float32), np.ones(4, np.float32)):
        raises("is of shape", x, wrong, statistics()[1])
        raises("is of shape", x, statistics()[0], wrong)


def read_only(array):
    array.setflags(write=False)
    return array


def test_one_of_the_statistics_is_refused_everywhere():
    x, (mean, variance) = np.ones((2, 2, 2, 3), np.float32), statistics()
    for training in (False, True):
        for given in ((mean, None), (None, variance)):
            with pytest.raises(unmetal.ArgumentError, match="both running statistics or none"):
                F.batch_norm(x, *given, training=training)
            with pytest.raises(unmetal.ArgumentError, match="both running statistics or none"):
                F.batch_norm_backward(x, x, *given, training=training)
    with pytest.raises(unmetal.ArgumentError, match="one value for each mean"):
        F.batch_norm_backward(x[:1, :1, :1], x[:1, :1, :1], None, None, training=True)
    with pytest.raises(unmetal.ArgumentError, match="running_mean is None, expected statistics"):
        F.instance_norm(x, use_input_stats=False)


def test_running_statistics_of_any_memory():
    x = np.arange(24, dtype=np.float32).reshape(2, 2, 2, 3)
    expected = statistics()
    F.batch_norm(x, *expected, training=True)
    assert not np.array_equal(expected[0], statistics()[0])
    for made in (lambda a: np.repeat(a, 2)[::2], lambda a: a[::-1].copy()[::-1], lambda a: np.stack([a, a], 1)[:, 0]):
        given = tuple(map(made, statistics()))
        F.batch_norm(x, *given, training=True)
        assert all(np.array_equal(found, exact) for found, exact in zip(given, expected))
    with pytest.raises(unmetal.ArgumentError, match="running_mean is a list, expected an array"):
        F.batch_norm(x, [0.0, 0.0, 0.0], statistics()[1], training=True)


class TestTorch:
    torch = pytest.importorskip("torch")

    def negated(self, array):
        """A tensor of these elements, whose memory has their opposites."""
        numbers = self.torch.tensor(np.stack([array, -array], -1))
        tensor = self.torch.view_as_complex(numbers).conj().imag
        assert tensor.is_neg() and np.array_equal(tensor.tolist(), array.tolist())
        return tensor

    def test_tensors_that_negate(self, random):
        x, w = (random.standard_normal(shape).astype(np.float32) for shape in ((1, 4, 4, 2), (3, 2, 2, 2)))
        plain = [self.torch.tensor(array) for array in (x, w)]
        assert self.torch.equal(F.conv2d(self.negated(x), self.negated(w)), F.conv2d(*plain))
        assert np.array_equal(F.conv2d(x, self.negated(w)), F.conv2d(x, w))
        assert self.torch.equal(F.relu(self.negated(x)), self.torch.relu(plain[0]))
        assert self.torch.equal(F.cat([plain[0], self.negated(x)]), self.torch.cat([plain[0]] * 2, 3))
        assert self.torch.equal(F.mse_loss(self.negated(x), plain[0]), self.torch.tensor(0.0))
        real = self.torch.view_as_complex(self.torch.tensor(np.stack([x, x], -1))).conj().real
        assert self.torch.equal(F.relu(real), self.torch.relu(plain[0]))

    def test_running_statistics_that_negate(self):
        x, (mean, variance) = np.arange(24, dtype=np.float32).reshape(2, 2, 2, 3), statistics()
        given = self.negated(mean), self.negated(variance)
        F.batch_norm(x, mean, variance, training=True)
        F.batch_norm(x, *given, training=True)
        assert np.array_equal(given[0].tolist(), mean.tolist()) and np.array_equal(given[1].tolist(), variance.tolist())

    def test_arrays_beside_tensors(self):
        x = self.torch.arange(24.0).reshape(2, 2, 2, 3)
        mean, variance = statistics()
        F.batch_norm(x, mean, variance, training=True)
        assert not np.array_equal(mean, statistics()[0])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for array in (read_only(np.ones((2, 2, 2, 3), np.float32)), np.ones((2, 2, 2, 3), np.float32)[::-1]):
                assert self.torch.equal(F.add(x, array), x + 1)
        with pytest.raises(unmetal.ArgumentError, match="running_mean is read-only"):
            F.batch_norm(x, read_only(mean), variance, training=True)
        with pytest.raises(unmetal.ArgumentError, match="running_mean is a tensor whose elements share memory"):
            F.batch_norm(x, self.torch.zeros(1).expand(3), self.torch.ones(3), training=True)

    @pytest.mark.parametrize("use_input_stats", [True, False])
    def test_running_statistics_of_instance_norm(self, random, use_input_stats):
        x = random.standard_normal((4, 3, 5, 6)).astype(np.float32)
        ours = statistics()
        theirs = [self.torch.tensor(array) for array in statistics()]
        expected = self.torch.nn.functional.instance_norm(self.torch.tensor(x), *theirs, use_input_stats=use_input_stats,
                                                          momentum=0.25)
        found = F.instance_norm(x, *ours, use_input_stats=use_input_stats, momentum=0.25, layout="NCHW")
        assert np.allclose(found, expected, atol=1e-5)
        assert all(np.allclose(one, other, atol=1e-6) for one, other in zip(ours, theirs))
