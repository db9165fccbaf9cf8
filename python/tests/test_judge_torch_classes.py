"""PyTorch in float64 judges kernels that unmetal.nn.functional has no function of: 300 random geometries of each."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as T  # noqa: E402

import unmetal  # noqa: E402
from torch_judge import assert_close, differentiated, gamma, judge, judge_all, of_sums  # noqa: E402
from unmetal.nn._calls import Call  # noqa: E402


def normal(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


def image(fields):
    """Images, height, width, channels."""
    return tuple(fields.whole(name, 1, most) for name, most in (("images", 3), ("height", 9), ("width", 9), ("channels", 20)))


AXES = {"Row": 2, "Column": 1, "FeatureChannels": 3}
OPERATIONS = {"Sum": torch.sum, "Mean": torch.mean, "Max": torch.amax, "Min": torch.amin}


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_reductions(device, random, axis, operation):
    def trial(fields, random):
        shape = image(fields)
        theirs = lambda x: OPERATIONS[operation](x, AXES[axis], keepdim=True)  # noqa: E731
        reduced = tuple(1 if index == AXES[axis] else size for index, size in enumerate(shape))
        kernel = getattr(unmetal, f"NNReduce{axis}{operation}")(device)
        gradient = unmetal.NNReduceUnaryGradient(device, kernel.operation, kernel.axis)

        def pull(g, x):
            call = Call(kernel, [x], reduced)
            call.remember()
            return call.pull(gradient, g)

        def allowed(arrays, incoming):  # extremes are copied, and so are their gradients
            return [0, 0]

        if operation in ("Sum", "Mean"):
            allowed = of_sums(theirs, [shape[AXES[axis]] + 2, 2])
        return lambda: judge(lambda x: Call(kernel, [x], reduced).run(), pull, theirs, allowed, [normal(random, *shape)],
                             random)

    judge_all(random, trial)


def test_grid_sample(device, random):
    def trial(fields, random):
        shape, size = image(fields), (fields.whole("result_height", 1, 6), fields.whole("result_width", 1, 6))
        border = fields.one_of("border", False, True)
        x, grid = normal(random, *shape), normal(random, shape[0], *size, 2)
        kernel = unmetal.NNGridSample(device)
        kernel.primary_edge_mode = unmetal.ImageEdgeMode.Clamp if border else unmetal.ImageEdgeMode.Zero

        def judged():
            expected = T.grid_sample(torch.tensor(x.transpose(0, 3, 1, 2)).double(), torch.tensor(grid).double(),
                                     padding_mode="border" if border else "zeros", align_corners=True)
            found = Call(kernel, [x, grid], (*shape[:1], *size, shape[3])).run()
            # Three roundings make a position of this size, and of it the weights of four pixels.
            places = (1 + np.abs(grid).max(axis=3, keepdims=True)) * (shape[1] + shape[2])
            allowed = gamma(8) * (1 + places) * np.abs(x).max(axis=(1, 2), keepdims=True)
            assert_close("result", found, expected.numpy().transpose(0, 2, 3, 1), allowed)

        return judged

    judge_all(random, trial)


LOSSES = {
    "MeanSquaredError": lambda y, t: T.mse_loss(y, t, reduction="sum"),
    "MeanAbsoluteError": lambda y, t: T.l1_loss(y, t, reduction="sum"),
    "Huber": lambda y, t: T.huber_loss(y, t, reduction="sum"),
    "SigmoidCrossEntropy": lambda y, t: T.binary_cross_entropy_with_logits(y, t, reduction="sum"),
    "SoftMaxCrossEntropy": lambda y, t: -(t * T.log_softmax(y, -1)).sum(),
    "KullbackLeiblerDivergence": lambda y, t: T.kl_div(y, t, reduction="sum"),
}


@pytest.mark.parametrize("name", LOSSES)
def test_loss_and_gradient_in_one_pass(device, queue, random, name):
    def trial(fields, random):
        height, width, channels = (fields.whole(side, 1, most) for side, most in (("height", 9), ("width", 9), ("channels", 20)))
        weight = fields.one_of("weight", 1.0, 0.5, 2.0, 0.25)
        predictions = normal(random, height, width, channels)
        targets = random.random((height, width, channels)) + 0.125
        targets = (targets / targets.sum(axis=2, keepdims=True)).astype(np.float32)
        descriptor = unmetal.CNNLossDescriptor(getattr(unmetal.CNNLossType, name), unmetal.CNNReductionType.Sum)
        descriptor.weight, descriptor.exact_soft_max_gradient = weight, True
        loss = unmetal.CNNLoss(device, descriptor)
        loss.destination_image_allocator = unmetal.Image.default_allocator()

        def judged():
            labels = unmetal.CNNLossLabels(device, targets)
            with queue.command_buffer() as command_buffer:
                gradient = loss.encode(command_buffer, unmetal.Image.from_array(device, predictions), labels)
            wide = torch.tensor(targets).double()
            expected, _, (slope,) = differentiated(lambda y: weight * LOSSES[name](y, wide), [predictions], np.float32(1))
            # Terms of an element: logarithms and squares of numbers no larger than these.
            size = 1 + np.abs(predictions) + np.abs(predictions).max(axis=2, keepdims=True) + np.log(channels)
            terms = weight * (targets + (name != "SoftMaxCrossEntropy")) * (
                size ** 2 if name == "MeanSquaredError" else size - np.log(targets))
            assert_close("loss", np.asarray(labels.loss_image).item(), expected, gamma(predictions.size + 32) * terms.sum())
            assert_close("gradient", gradient, slope, gamma(channels + 16) * weight * 2 * size)

        return judged

    judge_all(random, trial)
