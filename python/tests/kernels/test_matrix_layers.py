"""Matrix kernels with vectors: products, copies, sums, layers, neurons, batch normalisation, against NumPy in float64."""

import numpy as np
import pytest

import unmetal
from judging import close, normal, pulled
from test_matrix_kernels import coded, matrix_of  # noqa: F401  a fixture
from unmetal import CNNNeuronType, DataType, MatrixCopyDescriptor, MatrixCopyOffsets, Vector, VectorDescriptor
from unmetal.mtl import Origin


@pytest.fixture
def vector_of(device):
    """vector_of(array): a vector with a copy of an array."""
    types = {"float32": DataType.Float32, "float16": DataType.Float16, "uint32": DataType.UInt32}

    def make(array):
        vector = Vector(device, VectorDescriptor(len(array), types[array.dtype.name]))
        np.asarray(vector)[:] = array
        return vector

    return make


def single(array):
    return np.asarray(array, np.float32)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("beta", [0.0, 2.0])
def test_products_with_vectors(transpose, beta, device, queue, matrix_of, vector_of, random):
    rows, columns = (int(size) for size in random.integers(1, 9, 2))
    a, x, y = normal(random, rows, columns), normal(random, columns), normal(random, rows)
    result = vector_of(single(y if beta else np.full_like(y, np.nan)))
    product = unmetal.MatrixVectorMultiplication(device, rows, columns, transpose=transpose, alpha=0.5, beta=beta)
    with queue.command_buffer() as command_buffer:
        product.encode(command_buffer, matrix_of(a.T if transpose else a), vector_of(single(x)), result)
    bound = (columns + 4) * 2**-23 * (np.abs(a) @ np.abs(x) + 2 * np.abs(y))
    assert np.all(np.abs(np.asarray(result) - (0.5 * a @ x + beta * y)) <= bound)
    coded(product, device)


def test_copies(device, queue, matrix_of, vector_of, random):
    a, b = normal(random, 4, 5), normal(random, 4, 5)

    def copied(descriptor_of, *kernel, **arguments):
        results = [matrix_of(np.zeros((6, 6))) for _ in range(2)]
        with queue.command_buffer() as command_buffer:
            unmetal.MatrixCopy(device, *kernel).encode(command_buffer, descriptor_of(results), **arguments)
        return [np.asarray(result) for result in results]

    sources = [matrix_of(a), matrix_of(b)]
    expected = np.zeros((6, 6))
    expected[2:4, 1:4] = a[1:3, 2:5]
    offsets = MatrixCopyOffsets(1, 2, 2, 1)
    found = copied(lambda results: MatrixCopyDescriptor.descriptor(sources[0], results[0], offsets), 2, 3)
    assert np.array_equal(found[0], expected)
    transposed = np.zeros((6, 6))
    transposed[2:5, 1:3] = a[1:3, 2:5].T
    found = copied(lambda results: MatrixCopyDescriptor.descriptor(sources[0], results[0], offsets), 2, 3, False, True)
    assert np.array_equal(found[0], transposed)

    def both(results):
        descriptor = MatrixCopyDescriptor(2)
        for index in (0, 1):
            descriptor.set_copy_operation(index, sources[index], results[index])
        return descriptor

    found = copied(both, 4, 5, row_permute_indices=vector_of(np.array([9, 3, 2, 1, 0], np.uint32)), row_permute_offset=1)
    assert np.array_equal(found[0][:4, :5], a[::-1]) and np.array_equal(found[1][:4, :5], b[::-1])
    vector = vector_of(np.array([0, 0, 0, 0, 1, 2, 2, 1, 0, 0, 1, 1], np.uint32))
    found = copied(lambda results: MatrixCopyDescriptor(sources, results, vector, 16), 2, 3)
    assert np.array_equal(found[0], expected) and np.array_equal(found[1][1:3, 1:4], b[:2, :3])
    kernel = unmetal.MatrixCopy(device, 2, 3, sources_are_transposed=True)
    again = coded(kernel, device)
    assert (again.copy_rows, again.copy_columns) == (2, 3)
    assert (again.sources_are_transposed, again.destinations_are_transposed) == (True, False)
    archiver = unmetal.KeyedArchiver()
    MatrixCopyDescriptor(sources, [matrix_of(a) for _ in sources], vector, 16).encode(archiver)
    descriptor = MatrixCopyDescriptor.decode(unmetal.KeyedUnarchiver(archiver.encoded_data(), device))
    with queue.command_buffer() as command_buffer:
        unmetal.MatrixCopy(device, 2, 3).encode(command_buffer, descriptor)  # into matrices of its own
    assert (offsets.source_row_offset, offsets.source_column_offset) == (1, 2)
    assert (offsets.destination_row_offset, offsets.destination_column_offset) == (2, 1)
    with pytest.raises(unmetal.Error):
        MatrixCopyDescriptor(1).set_copy_operation(1, sources[0], sources[1])
    with pytest.raises(unmetal.Error):
        unmetal.MatrixCopy(device, 1, 1).encode(queue.command_buffer(), MatrixCopyDescriptor(1))


@pytest.mark.parametrize("transpose", [False, True])
def test_sums(transpose, device, queue, matrix_of, vector_of, random):
    a, b = normal(random, 5, 6), normal(random, 5, 6)
    bias = normal(random, 3 if transpose else 4)
    kernel = unmetal.MatrixSum(device, count=2, rows=3, columns=4, transpose=transpose)
    kernel.result_matrix_origin = Origin(1, 1, 0)
    kernel.set_neuron_type(CNNNeuronType.Sigmoid)
    shape = (4, 3) if transpose else (3, 4)
    result = matrix_of(np.zeros((6, 6)))
    with queue.command_buffer() as command_buffer:
        kernel.encode(command_buffer, [matrix_of(a), matrix_of(b)], result, scale_vector=vector_of(single([9, 0.5, -2])),
                      offset_vector=vector_of(np.array([0, 0, 1, 2, 2, 0], np.uint32)), bias_vector=vector_of(single(bias)),
                      start_index=1)
    total = 0.5 * a[1:4, 2:6] - 2 * b[2:5, :4]
    expected = np.zeros((6, 6))
    expected[1:1 + shape[0], 1:1 + shape[1]] = 1 / (1 + np.exp(-((total.T if transpose else total) + bias)))
    assert close(result, expected, 32)
    plain = unmetal.MatrixSum(device, 1, 5, 6)
    with queue.command_buffer() as command_buffer:
        result = matrix_of(np.full((5, 6), np.nan))
        plain.encode(command_buffer, [matrix_of(a)], result)
    assert np.array_equal(np.asarray(result), a)
    again = coded(kernel, device)
    assert (again.count, again.rows, again.columns, again.transpose) == (2, 3, 4, transpose)
    assert (again.result_matrix_origin, again.neuron_type) == (Origin(1, 1, 0), CNNNeuronType.Sigmoid)
    with pytest.raises(unmetal.Error):
        unmetal.MatrixSum(device, 0, 1, 1)
    with pytest.raises(unmetal.Error):
        plain.encode(queue.command_buffer(), [], result)
    offset = unmetal.MatrixOffset(1)
    offset.column_offset = 2
    assert (offset.row_offset, offset.column_offset) == (1, 2)


def test_fully_connected(device, queue, matrix_of, vector_of, random):
    x, w, bias, dy = normal(random, 3, 4), normal(random, 4, 5), normal(random, 5), normal(random, 3, 5)
    layer = unmetal.MatrixFullyConnected(device)
    layer.alpha = 0.5
    layer.set_neuron_type(CNNNeuronType.TanH, 1, 1)
    result, plain = (matrix_of(np.full((3, 5), np.nan)) for _ in range(2))
    with queue.command_buffer() as command_buffer:
        layer.encode(command_buffer, matrix_of(x), matrix_of(w), vector_of(single(bias)), result)
        layer.encode(command_buffer, matrix_of(x), matrix_of(w), None, plain)
    assert close(result, np.tanh(0.5 * x @ w + bias), 128) and close(plain, np.tanh(0.5 * x @ w), 128)
    gradient = unmetal.MatrixFullyConnectedGradient(device)
    gradient.alpha = 0.5
    dx, dw, other, db = (matrix_of(np.zeros((3, 4))), matrix_of(np.zeros((4, 5))), matrix_of(np.zeros((4, 5))),
                         vector_of(single(np.zeros(5))))
    with queue.command_buffer() as command_buffer:
        gradient.encode_gradient_for_data(command_buffer, matrix_of(dy), matrix_of(w), dx)
        gradient.encode_gradient_for_weights_and_bias(command_buffer, matrix_of(dy), matrix_of(x), dw, db)
        gradient.encode_gradient_for_weights_and_bias(command_buffer, matrix_of(dy), matrix_of(x), other)
    assert close(dx, 0.5 * dy @ w.T, 128) and close(dw, 0.5 * x.T @ dy, 128) and close(db, dy.sum(axis=0), 128)
    assert np.array_equal(np.asarray(other), np.asarray(dw))
    for kernel in (layer, gradient):
        kernel.source_number_of_feature_vectors, kernel.source_input_feature_channels = 2, 3
        kernel.source_output_feature_channels = 1
        again = coded(kernel, device)
        assert (again.source_number_of_feature_vectors, again.source_input_feature_channels) == (2, 3)
        assert (again.source_output_feature_channels, again.alpha) == (1, 0.5)
    with pytest.raises(unmetal.Error):
        layer.encode(queue.command_buffer(), matrix_of(x), matrix_of(w), vector_of(np.zeros(5, np.float16)), result)


def test_neurons(device, queue, matrix_of, vector_of, random):
    x, bias, dy = normal(random, 3, 4), normal(random, 4), normal(random, 3, 4)
    forward, gradient = unmetal.MatrixNeuron(device), unmetal.MatrixNeuronGradient(device)
    for kernel in (forward, gradient):
        kernel.alpha = 0.5
        kernel.set_neuron_type(CNNNeuronType.TanH, 2, 0.5, 0)
    y, dx, db = matrix_of(np.zeros((3, 4))), matrix_of(np.zeros((3, 4))), vector_of(single(np.zeros(4)))

    def reference(values, shift=bias):
        return 2 * np.tanh(0.5 * (0.5 * values + shift))

    with queue.command_buffer() as command_buffer:
        forward.encode(command_buffer, matrix_of(x), vector_of(single(bias)), y)
        gradient.encode(command_buffer, matrix_of(dy), matrix_of(x), vector_of(single(bias)), dx, db)
    assert close(y, reference(x), 32) and close(dx, pulled(reference, x, dy), 64)
    assert close(db, pulled(lambda shift: reference(x, shift), bias, dy), 256)
    slopes = [0.5, 0.25, -1, 2]
    for kernel in (forward, gradient):
        again = coded(kernel, device)
        assert (again.alpha, again.neuron_type) == (0.5, CNNNeuronType.TanH)
        assert (again.neuron_parameter_a, again.neuron_parameter_b, again.neuron_parameter_c) == (2, 0.5, 0)
        kernel.alpha = 1
        kernel.set_neuron_to_prelu(slopes)
        assert coded(kernel, device).neuron_parameters_a == slopes
        with pytest.raises(unmetal.Error):
            kernel.set_neuron_to_prelu([])
        with pytest.raises(unmetal.Error):
            kernel.set_neuron_type(CNNNeuronType.PReLU)
    with queue.command_buffer() as command_buffer:
        forward.encode(command_buffer, matrix_of(x), None, y)
        gradient.encode(command_buffer, matrix_of(dy), matrix_of(x), None, dx)
    assert close(y, np.where(x < 0, x * slopes, x), 4) and close(dx, dy * np.where(x < 0, slopes, 1), 4)
    for kernel in (forward, gradient):
        kernel.source_number_of_feature_vectors, kernel.source_input_feature_channels = 2, 3
        assert coded(kernel, device).source_number_of_feature_vectors == 2
        assert coded(kernel, device).source_input_feature_channels == 3


@pytest.mark.parametrize("computes", [False, True])
def test_batch_normalization(computes, device, queue, matrix_of, vector_of, random):
    x, gamma, beta, dy = normal(random, 6, 4), normal(random, 4), normal(random, 4), normal(random, 6, 4)
    forward, gradient = unmetal.MatrixBatchNormalization(device), unmetal.MatrixBatchNormalizationGradient(device)
    assert not forward.compute_statistics and forward.epsilon == gradient.epsilon == 2**-126
    for kernel in (forward, gradient):
        kernel.epsilon = 0.125
        kernel.set_neuron_type(CNNNeuronType.Sigmoid)
    forward.compute_statistics = computes
    statistics = [x.mean(axis=0), x.var(axis=0)]
    mean, variance = (vector_of(single(np.zeros(4) if computes else one)) for one in statistics)
    scale, shift = vector_of(single(gamma)), vector_of(single(beta))
    y, dx, plain = (matrix_of(np.zeros((6, 4))) for _ in range(3))
    dgamma, dbeta = (vector_of(single(np.zeros(4))) for _ in range(2))
    with queue.command_buffer() as command_buffer:
        forward.encode(command_buffer, matrix_of(x), mean, variance, scale, shift, y)
        gradient.encode(command_buffer, matrix_of(dy), matrix_of(x), mean, variance, scale, shift, dx, dgamma, dbeta)
        forward.encode(command_buffer, matrix_of(x), mean, variance, None, None, plain)

    def reference(values, factor=gamma, offset=beta):
        centred = values - values.mean(axis=0)
        normed = centred / np.sqrt((centred**2).mean(axis=0) + 0.125)
        return 1 / (1 + np.exp(-(normed * factor + offset)))

    assert close(mean, statistics[0], 64) and close(variance, statistics[1], 64)
    assert close(y, reference(x), 128) and close(plain, reference(x, 1, 0), 128)
    assert close(dx, pulled(reference, x, dy), 1024)
    assert close(dgamma, pulled(lambda factor: reference(x, factor), gamma, dy), 1024)
    assert close(dbeta, pulled(lambda offset: reference(x, gamma, offset), beta, dy), 1024)
    for kernel in (forward, gradient):
        kernel.source_number_of_feature_vectors, kernel.source_input_feature_channels = 2, 3
        again = coded(kernel, device)
        assert (again.epsilon, again.neuron_type) == (0.125, CNNNeuronType.Sigmoid)
        assert (again.source_number_of_feature_vectors, again.source_input_feature_channels) == (2, 3)
    assert coded(forward, device).compute_statistics == computes
    with pytest.raises(TypeError):
        forward.encode(queue.command_buffer(), matrix_of(x), None, variance, scale, shift, y)
