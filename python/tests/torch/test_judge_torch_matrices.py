"""PyTorch in float64 judges kernels of matrices and of arrays of numbers: 300 random geometries of each."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as T  # noqa: E402

import unmetal  # noqa: E402
from torch_judge import (UNDERFLOW, assert_close, differentiated, gamma, judge_all, normalized_errors,  # noqa: E402
                         of_sums)
from unmetal import CNNNeuronType, Matrix, NDArray, Vector  # noqa: E402


def normal(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


def matrix(device, array):
    return Matrix.from_array(device, array, copy=True)


def vector(device, array):
    return None if array is None else Vector.from_array(device, array, copy=True)


def unwritten(device, *shape):
    return (Matrix if len(shape) > 1 else Vector).from_array(device, np.full(shape, np.nan, np.float32), copy=True)


def turned(array, is_turned):
    return np.ascontiguousarray(np.swapaxes(array, -1, -2)) if is_turned else array


def sizes(fields, *names, most=20):
    return tuple(fields.whole(name, 1, most) for name in names)


def factors(fields):
    return fields.one_of("alpha", 1.0, 0.5, -0.75), fields.one_of("beta", 0.0, 1.0, -0.5)


def test_products(device, queue, random):
    def trial(fields, random):
        rows, columns, interior = sizes(fields, "rows", "columns", "interior")
        batch, (alpha, beta) = fields.whole("batch", 1, 3), factors(fields)
        left, right = fields.one_of("transpose_left", False, True), fields.one_of("transpose_right", False, True)
        a, b = normal(random, batch, rows, interior), normal(random, batch, interior, columns)
        c = normal(random, batch, rows, columns)
        kernel = unmetal.MatrixMultiplication(device, rows, columns, interior, transpose_left=left, transpose_right=right,
                                              alpha=alpha, beta=beta)

        def judged():
            result = matrix(device, c if beta else np.full_like(c, np.nan))
            with queue.command_buffer() as command_buffer:
                kernel.encode(command_buffer, matrix(device, turned(a, left)), matrix(device, turned(b, right)), result)
            one, other, before = (torch.tensor(array).double() for array in (a, b, c))
            expected = alpha * (one @ other) + beta * before
            size = abs(alpha) * (one.abs() @ other.abs()) + abs(beta) * before.abs()
            assert_close("result", np.asarray(result).reshape(c.shape), expected, gamma(interior + 3) * size.numpy())

        return judged

    judge_all(random, trial)


def test_products_with_vectors(device, queue, random):
    def trial(fields, random):
        (rows, columns), (alpha, beta) = sizes(fields, "rows", "columns"), factors(fields)
        is_turned = fields.one_of("transpose", False, True)
        a, x, y = normal(random, rows, columns), normal(random, columns), normal(random, rows)
        kernel = unmetal.MatrixVectorMultiplication(device, rows, columns, transpose=is_turned, alpha=alpha, beta=beta)

        def judged():
            result = vector(device, y if beta else np.full_like(y, np.nan))
            with queue.command_buffer() as command_buffer:
                kernel.encode(command_buffer, matrix(device, turned(a, is_turned)), vector(device, x), result)
            one, other, before = (torch.tensor(array).double() for array in (a, x, y))
            expected = alpha * (one @ other) + beta * before
            size = abs(alpha) * (one.abs() @ other.abs()) + abs(beta) * before.abs()
            assert_close("result", result, expected, gamma(columns + 3) * size.numpy())

        return judged

    judge_all(random, trial)


def test_fully_connected(device, queue, random):
    def trial(fields, random):
        vectors, inputs, outputs = sizes(fields, "vectors", "inputs", "outputs")
        alpha, has_bias = fields.one_of("alpha", 1.0, 0.5, -0.75), fields.one_of("bias", False, True)
        x, w, b = normal(random, vectors, inputs), normal(random, inputs, outputs), normal(random, outputs) if has_bias else None
        g = normal(random, vectors, outputs)
        layer, gradient = unmetal.MatrixFullyConnected(device), unmetal.MatrixFullyConnectedGradient(device)
        layer.alpha = gradient.alpha = alpha

        def theirs(x, w, b):
            return T.linear(x, alpha * w.T, b)

        def judged():
            y, dx, dw = (unwritten(device, *array.shape) for array in (g, x, w))
            db = unwritten(device, outputs) if has_bias else None
            source, weights, incoming = (matrix(device, array) for array in (x, w, g))
            with queue.command_buffer() as command_buffer:
                layer.encode(command_buffer, source, weights, vector(device, b), y)
                gradient.encode_gradient_for_data(command_buffer, incoming, weights, dx)
                gradient.encode_gradient_for_weights_and_bias(command_buffer, incoming, source, dw,
                                                              *([db] if has_bias else []))
            expected, _, gradients = differentiated(theirs, [x, w, b], g)

            def size_of(x, w, b):
                return T.linear(x, abs(alpha) * w.T, b)

            allowed = of_sums(size_of, [inputs + 3, outputs + 2, vectors + 2, vectors + 2])([x, w, b], g)
            for name, found, exact, bound in zip(("result", "dx", "dw", "db"), (y, dx, dw, db), (expected, *gradients), allowed):
                if found is not None:
                    assert_close(name, found, exact, bound)

        return judged

    judge_all(random, trial)


def test_sums(device, queue, random):
    def trial(fields, random):
        count, (rows, columns) = fields.whole("count", 1, 5), sizes(fields, "rows", "columns")
        is_turned, is_scaled = fields.one_of("transpose", False, True), fields.one_of("scales", False, True)
        terms = [normal(random, rows, columns) for _ in range(count)]
        scales = normal(random, count) if is_scaled else None
        bias = normal(random, rows if is_turned else columns) if fields.one_of("bias", False, True) else None
        kernel = unmetal.MatrixSum(device, count, rows, columns, transpose=is_turned)

        def judged():
            result = unwritten(device, *((columns, rows) if is_turned else (rows, columns)))
            with queue.command_buffer() as command_buffer:
                kernel.encode(command_buffer, [matrix(device, term) for term in terms], result,
                              scale_vector=vector(device, scales), bias_vector=vector(device, bias))

            def theirs(arrays, scales, bias):
                total = torch.einsum("nrc,n->rc", arrays, scales)
                return (total.T if is_turned else total) + bias

            wide = [torch.tensor(np.asarray(array)).double() for array in (
                terms, np.ones(count) if scales is None else scales, 0.0 if bias is None else bias)]
            bound = gamma(count + 2) * theirs(*(tensor.abs() for tensor in wide))
            assert_close("result", result, theirs(*wide), bound.numpy())

        return judged

    judge_all(random, trial)


@pytest.mark.parametrize("name", ["SoftMax", "LogSoftMax"])
def test_softmax(device, queue, random, name):
    forward = getattr(unmetal, f"Matrix{name}")(device)
    gradient = getattr(unmetal, f"Matrix{name}Gradient")(device)
    function = {"SoftMax": T.softmax, "LogSoftMax": T.log_softmax}[name]

    def trial(fields, random):
        rows, columns = sizes(fields, "rows", "columns", most=40)
        x, g = fields.one_of("scale", 1, 8, 64) * normal(random, rows, columns), normal(random, rows, columns)

        def judged():
            y, dx = (unwritten(device, rows, columns) for _ in range(2))
            with queue.command_buffer() as command_buffer:
                forward.encode(command_buffer, matrix(device, x), y)
                gradient.encode(command_buffer, matrix(device, g), y, dx)
            expected, _, (slope,) = differentiated(lambda x: function(x, 1), [x], g)
            # The exponents are off by a rounding of their size, and with them exponentials and sums of them.
            spread = gamma(columns + 16) * (1 + np.abs(x) + np.abs(x).max(axis=1, keepdims=True))
            s = np.exp(expected) if name == "LogSoftMax" else expected
            assert_close("result", y, expected, spread if name == "LogSoftMax" else spread.max(axis=1, keepdims=True) * s)
            most = spread.max(axis=1, keepdims=True)
            terms = (np.abs(g) * (s if name == "SoftMax" else 1)).sum(axis=1, keepdims=True)
            bound = 2 * most * (s * (terms + np.abs(g)) if name == "SoftMax" else s * terms + np.abs(g))
            # What is too small for float32 is 0, and then is multiplied.
            assert_close("gradient", dx, slope, bound + UNDERFLOW * (terms + np.abs(g)))

        return judged

    judge_all(random, trial)


# Of each the function and its parameters a and b. It and its derivative are at most 2 (1 + |x|).
NEURONS = {"ReLU": (lambda x: T.leaky_relu(x, 0.25), (0.25,)), "Sigmoid": (torch.sigmoid, ()),
           "TanH": (lambda x: 2 * torch.tanh(0.5 * x), (2, 0.5)), "SoftPlus": (lambda x: 2 * T.softplus(0.5 * x), (2, 0.5)),
           "ELU": (lambda x: T.elu(x, 1.5), (1.5,)), "GeLU": (T.gelu, ())}


@pytest.mark.parametrize("name", NEURONS)
def test_neurons(device, queue, random, name):
    function, parameters = NEURONS[name]

    def trial(fields, random):
        rows, columns = sizes(fields, "rows", "columns")
        alpha, has_bias = fields.one_of("alpha", 1.0, 0.5, -0.75), fields.one_of("bias", False, True)
        x, g, b = normal(random, rows, columns), normal(random, rows, columns), normal(random, columns) if has_bias else None
        forward, gradient = unmetal.MatrixNeuron(device), unmetal.MatrixNeuronGradient(device)
        for kernel in (forward, gradient):
            kernel.alpha = alpha
            kernel.set_neuron_type(getattr(CNNNeuronType, name), *parameters)

        def judged():
            y, dx = (unwritten(device, rows, columns) for _ in range(2))
            db = unwritten(device, columns) if has_bias else None
            with queue.command_buffer() as command_buffer:
                forward.encode(command_buffer, matrix(device, x), vector(device, b), y)
                gradient.encode(command_buffer, matrix(device, g), matrix(device, x), vector(device, b), dx,
                                *([db] if has_bias else []))
            expected, _, (slope, of_bias) = differentiated(lambda x, b: function(alpha * x + (0 if b is None else b)), [x, b], g)
            size = 1 + np.abs(x) + (0 if b is None else np.abs(b))
            assert_close("result", y, expected, gamma(32) * 2 * size)
            assert_close("dx", dx, slope, gamma(32) * 2 * size * np.abs(g))
            if has_bias:
                assert_close("db", db, of_bias, gamma(rows + 32) * 2 * (size * np.abs(g)).sum(axis=0))

        return judged

    judge_all(random, trial)


def test_batch_normalization(device, queue, random):
    def trial(fields, random):
        rows, columns = fields.whole("rows", 2, 40), fields.whole("columns", 1, 20)
        epsilon, is_scaled = fields.one_of("epsilon", 1e-5, 1e-3, 0.125), fields.one_of("parameters", True, False)
        x, g = normal(random, rows, columns), normal(random, rows, columns)
        w, b = (normal(random, columns), normal(random, columns)) if is_scaled else (None, None)
        forward, gradient = unmetal.MatrixBatchNormalization(device), unmetal.MatrixBatchNormalizationGradient(device)
        forward.epsilon = gradient.epsilon = epsilon
        forward.compute_statistics = True

        def judged():
            y, dx = (unwritten(device, rows, columns) for _ in range(2))
            mean, variance, dw, db = (unwritten(device, columns) for _ in range(4))
            statistics = mean, variance, vector(device, w), vector(device, b)
            with queue.command_buffer() as command_buffer:
                forward.encode(command_buffer, matrix(device, x), *statistics, y)
                gradient.encode(command_buffer, matrix(device, g), matrix(device, x), *statistics, dx,
                                *([dw, db] if is_scaled else []))
            expected, _, gradients = differentiated(
                lambda x, w, b: T.batch_norm(x, None, None, w, b, True, eps=float(np.float32(epsilon))), [x, w, b], g)
            wide = [None if array is None else array.astype(np.float64) for array in (x, w, b)]
            allowed = normalized_errors((0,), epsilon, 4 * rows + 64)(wide, g.astype(np.float64))
            for name, found, exact, bound in zip(("result", "dx", "dw", "db"), (y, dx, dw, db), (expected, *gradients), allowed):
                if exact is not None:
                    assert_close(name, found, exact, bound)

        return judged

    judge_all(random, trial)


def test_gathers(device, queue, random):
    def trial(fields, random):
        shape = sizes(fields, "first", "second", "third", most=6)
        axis, count = fields.one_of("axis", 0, 1, 2), fields.whole("count", 1, 9)
        chosen = random.integers(0, shape[axis], count).astype(np.int32)
        size = (*shape[:axis], count, *shape[axis + 1:])
        table, g = normal(random, *shape), normal(random, *size)
        gather, back = unmetal.NDArrayGather(device), unmetal.NDArrayGatherGradient(device)
        gather.axis = 2 - axis  # dimension 0 is the fastest one

        def judged():
            source, indices, incoming = (NDArray.from_array(device, array) for array in (table, chosen, g))
            result, dx = (NDArray.from_array(device, np.full(found, np.nan, np.float32)) for found in (size, shape))
            state = gather.result_state(source, indices)
            with queue.command_buffer() as command_buffer:
                gather.encode(command_buffer, source, indices, state, result)
                back.encode(command_buffer, source, indices, incoming, state, dx)
            places = torch.tensor(chosen).long()
            expected, _, (slope,) = differentiated(lambda x: torch.index_select(x, axis, places), [table], g)
            assert_close("result", np.asarray(result).reshape(size), expected, 0)
            sums = of_sums(lambda x: torch.index_select(x, axis, places), [0, count])([table], g)
            assert_close("gradient", np.asarray(dx).reshape(shape), slope, sums[1])

        return judged

    judge_all(random, trial)
