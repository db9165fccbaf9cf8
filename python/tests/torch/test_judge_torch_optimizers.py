"""PyTorch in float64 judges the optimisers: 300 random runs of some steps of each."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import unmetal  # noqa: E402
from torch_judge import assert_close, gamma, judge_all  # noqa: E402
from unmetal import Vector  # noqa: E402


class Rule:
    """An optimiser of ours, with as many vectors of its own, and PyTorch's."""

    vectors = 0
    step_limit = 1  # what a step moves a value at most, in learning rates, for gradients of size 1
    decay = 0.0  # of the values

    def __init__(self, fields):
        self.rate = fields.one_of("learning_rate", 0.125, 0.5, 0.03125)
        self.rescale = fields.one_of("gradient_rescale", 1.0, 0.5, 0.25)

    def descriptor(self):
        kind = unmetal.NNRegularizationType.L2 if self.decay else unmetal.NNRegularizationType.None_
        return unmetal.NNOptimizerDescriptor(self.rate, self.rescale, kind, self.decay)

    def encode(self, ours, command_buffer, gradient, values, own):
        ours.encode(command_buffer, gradient, values, *own, values)

    def before_step(self, theirs, number):
        """Lets PyTorch's optimiser take the step of that number, from 1 on, with our meaning of its numbers."""


class Descent(Rule):
    momentum, nesterov = 0.0, False

    def __init__(self, fields):
        super().__init__(fields)
        self.decay = fields.one_of("weight_decay", 0.0, 0.125, 0.0625)

    def ours(self, device):
        return unmetal.NNOptimizerStochasticGradientDescent(device, self.momentum, self.nesterov, self.descriptor())

    def theirs(self, values):
        return torch.optim.SGD(values, self.rate, self.momentum, nesterov=self.nesterov, weight_decay=self.decay)

    def encode(self, ours, command_buffer, gradient, values, own):
        ours.encode(command_buffer, gradient, values, *(own or [None]), values)


class Momentum(Descent):
    vectors, step_limit = 1, 8

    def __init__(self, fields):
        super().__init__(fields)
        self.momentum = fields.one_of("momentum", 0.875, 0.5, 0.25)


class Nesterov(Momentum):
    nesterov = True


class RMSProp(Rule):
    vectors = 1
    epsilon = 0.0625  # Ours and PyTorch's are added to the same root.

    def __init__(self, fields):
        super().__init__(fields)
        self.mean = fields.one_of("decay", 0.875, 0.5, 0.75)
        self.step_limit = (1 - self.mean) ** -0.5

    def ours(self, device):
        return unmetal.NNOptimizerRMSProp(device, self.mean, self.epsilon, self.descriptor())

    def theirs(self, values):
        return torch.optim.RMSprop(values, self.rate, self.mean, self.epsilon)


class Adam(Rule):
    vectors, amsgrad = 2, False
    epsilon = 0.0625

    def __init__(self, fields):
        super().__init__(fields)
        self.betas = fields.one_of("beta1", 0.875, 0.5, 0.75), fields.one_of("beta2", 0.9375, 0.75, 0.875)
        self.step_limit = 4 * (1 - self.betas[1]) ** -0.5

    def ours(self, device):
        return unmetal.NNOptimizerAdam(device, *self.betas, self.epsilon, 0, self.descriptor())

    def theirs(self, values):
        return torch.optim.Adam(values, self.rate, self.betas, self.epsilon, amsgrad=self.amsgrad)

    def before_step(self, theirs, number):
        """PyTorch divides the root by its correction, and then adds epsilon."""
        theirs.param_groups[0]["eps"] = self.epsilon / (1 - self.betas[1] ** number) ** 0.5


class AdamW(Adam):
    def __init__(self, fields):
        super().__init__(fields)
        self.decay = fields.one_of("weight_decay", 0.125, 0.0625, 0.01)

    def descriptor(self):
        return unmetal.NNOptimizerDescriptor(self.rate, self.rescale, unmetal.NNRegularizationType.Decoupled, self.decay)

    def theirs(self, values):
        return torch.optim.AdamW(values, self.rate, self.betas, self.epsilon, weight_decay=self.decay)


class AMSGrad(Adam):
    vectors, amsgrad = 3, True

    def encode(self, ours, command_buffer, gradient, values, own):
        *averages, maximum = own
        ours.encode(command_buffer, gradient, values, *averages, values, maximum_velocity_vector=maximum)


@pytest.mark.parametrize("made", [Descent, Momentum, Nesterov, RMSProp, Adam, AdamW, AMSGrad], ids=lambda made: made.__name__)
def test_optimizers(device, queue, random, made):
    def trial(fields, random):
        length, steps, rule = fields.whole("length", 1, 40), fields.whole("steps", 1, 6), made(fields)
        start = random.standard_normal(length).astype(np.float32)
        gradients = random.uniform(-1, 1, (steps, length)).astype(np.float32)

        def judged():
            ours, values = rule.ours(device), Vector.from_array(device, start, copy=True)
            own = [Vector.from_array(device, np.zeros(length, np.float32)) for _ in range(rule.vectors)]
            wide = torch.tensor(start).double().requires_grad_()
            theirs = rule.theirs([wide])
            for number, gradient in enumerate(gradients, 1):
                with queue.command_buffer() as command_buffer:
                    rule.encode(ours, command_buffer, Vector.from_array(device, gradient, copy=True), values, own)
                wide.grad = rule.rescale * torch.tensor(gradient).double()
                rule.before_step(theirs, number)
                theirs.step()
            moved = rule.rate * rule.step_limit * steps
            allowed = gamma(24 * steps) * (1 + rule.decay) * (np.abs(start) + moved)
            assert_close("values", values, wide.detach().numpy(), allowed)

        return judged

    judge_all(random, trial)
