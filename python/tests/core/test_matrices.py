"""Vectors, matrices, arrays of numbers, gathers and random numbers."""

import numpy as np
import pytest

import unmetal
from unmetal import DataType, Matrix, MatrixDescriptor, NDArray, NDArrayDescriptor, Vector

types = {np.float32: DataType.Float32, np.float16: DataType.Float16, np.int8: DataType.Int8, np.int16: DataType.Int16,
         np.int32: DataType.Int32, np.int64: DataType.Int64, np.uint8: DataType.UInt8, np.uint16: DataType.UInt16,
         np.uint32: DataType.UInt32, np.uint64: DataType.UInt64}


def counting(*shape, dtype=np.float32):
    return np.arange(np.prod(shape), dtype=dtype).reshape(shape)


@pytest.mark.parametrize("dtype", types)
def test_matrices_share_the_memory_of_arrays(device, dtype):
    array = counting(3, 5, dtype=dtype)
    matrix = Matrix.from_array(device, array, copy=False)
    assert (matrix.rows, matrix.columns, matrix.matrices, matrix.data_type) == (3, 5, 1, types[dtype])
    assert matrix.row_bytes == 5 * array.itemsize and np.shares_memory(np.asarray(matrix), array)
    np.asarray(matrix)[2, 4] = 99
    assert array[2, 4] == 99


def test_strided_matrices(device):
    whole = counting(2, 6, 8)
    part = Matrix.from_array(device, whole[:, 1:4, 2:7], copy=False)
    assert (part.row_bytes, part.matrix_bytes) == (32, 192)
    assert np.array_equal(np.asarray(part), whole[:, 1:4, 2:7])
    copied = Matrix.from_array(device, whole[:, :, ::2])
    assert np.array_equal(np.asarray(copied), whole[:, :, ::2]) and copied.row_bytes == 16
    with pytest.raises(unmetal.ArgumentError, match="columns that are not adjacent"):
        Matrix.from_array(device, whole[0].T, copy=False)
    with pytest.raises(unmetal.ArgumentError, match="1-dimensional, expected 2 dimensions"):
        Matrix.from_array(device, whole[0, 0])
    with pytest.raises(unmetal.ArgumentError, match="array is complex64"):
        Matrix.from_array(device, whole[0].astype(np.complex64))
    ragged = np.lib.stride_tricks.as_strided(counting(20), (2, 2, 3), (28, 12, 4))
    assert np.array_equal(np.asarray(Matrix.from_array(device, ragged)), ragged)
    with pytest.raises(unmetal.ArgumentError, match="no whole rows apart"):
        Matrix.from_array(device, ragged, copy=False)


def test_matrices_of_descriptors(device, queue):
    descriptor = MatrixDescriptor.matrix_descriptor(3, 5, 2, 32, 96, DataType.Float32)
    matrix = Matrix(device, descriptor)
    assert np.asarray(matrix).shape == (2, 3, 5) and not np.asarray(matrix).any()
    assert np.asarray(matrix).strides == (96, 32, 4) and matrix.resource_size == 192
    assert MatrixDescriptor.recommended_row_bytes(5, DataType.Float32) == 32
    descriptor.rows, descriptor.row_bytes = 2, 24
    assert (descriptor.rows, descriptor.columns, descriptor.row_bytes, matrix.rows) == (2, 5, 24, 3)
    archiver = unmetal.KeyedArchiver()
    descriptor.encode(archiver)
    assert MatrixDescriptor.decode(unmetal.KeyedUnarchiver(archiver.encoded_data())) == descriptor
    over = Matrix(matrix.data, MatrixDescriptor.matrix_descriptor(1, 5, 20, DataType.Float32), 32)
    np.asarray(over)[:] = 7
    assert np.all(np.asarray(matrix)[0, 1] == 7) and np.asarray(matrix).sum() == 35
    with pytest.raises(unmetal.ArgumentError):
        MatrixDescriptor.matrix_descriptor(3, 5, 19, DataType.Float32)
    command_buffer = queue.command_buffer()
    matrix.synchronize(command_buffer)
    temporary = unmetal.TemporaryMatrix(command_buffer, descriptor)
    assert temporary.is_temporary and temporary.read_count == 1
    with pytest.raises(unmetal.ArgumentError, match="Matrix: array is of temporary storage"):
        np.asarray(temporary)
    temporary.read_count = 0
    with pytest.raises(unmetal.Error):
        temporary.read_count = 1


@pytest.mark.parametrize("dtype", types)
def test_vectors_share_the_memory_of_arrays(device, dtype):
    array = counting(5, dtype=dtype)
    vector = Vector.from_array(device, array, copy=False)
    assert (vector.length, vector.vectors, vector.data_type) == (5, 1, types[dtype])
    np.asarray(vector)[4] = 99
    assert array[4] == 99 and np.shares_memory(np.asarray(vector), array)


def test_several_vectors(device, queue):
    whole = counting(4, 6)
    vectors = Vector.from_array(device, whole[1:, 2:5], copy=False)
    assert (vectors.length, vectors.vectors, vectors.vector_bytes) == (3, 3, 24)
    assert np.array_equal(np.asarray(vectors), whole[1:, 2:5])
    copied = Vector.from_array(device, whole[:, 0])
    assert np.array_equal(np.asarray(copied), whole[:, 0]) and not np.shares_memory(np.asarray(copied), whole)
    with pytest.raises(unmetal.ArgumentError, match="elements that are not adjacent"):
        Vector.from_array(device, whole[:, 0], copy=False)
    with pytest.raises(unmetal.ArgumentError, match="3-dimensional, expected 1 dimension, or 2"):
        Vector.from_array(device, counting(2, 2, 2))
    words = Vector.from_array(device, np.zeros(4, np.uint32))
    with queue.command_buffer() as command_buffer:
        unmetal.MatrixRandomPhilox(device).encode(command_buffer, words)
    assert np.asarray(words)[0] == 0x6627E8D5
    product = unmetal.TemporaryVector(queue.command_buffer(), unmetal.VectorDescriptor(4))
    with pytest.raises(unmetal.ArgumentError, match="Vector: array is of temporary storage"):
        np.asarray(product)


def test_arrays_of_numbers(device):
    array = counting(2, 3, 5)
    numbers = NDArray.from_array(device, array)
    assert numbers.number_of_dimensions == 3
    assert [numbers.length_of_dimension(i) for i in range(4)] == [5, 3, 2, 1]
    assert np.array_equal(np.asarray(numbers), array) and not np.shares_memory(np.asarray(numbers), array)
    np.asarray(numbers)[1, 2, 4] = 7
    read = np.empty_like(array)
    numbers.read_bytes(read)
    assert read[1, 2, 4] == 7
    numbers.write_bytes(array)
    assert np.array_equal(np.asarray(numbers), array)
    descriptor = NDArrayDescriptor.descriptor(DataType.Float32, [5, 3, 2])
    assert numbers.descriptor == descriptor and descriptor.describe() == "Float32 5x3x2"
    assert not np.asarray(NDArray(device, descriptor)).any()
    with pytest.raises(unmetal.ArgumentError, match="source is float64, expected float32"):
        numbers.write_bytes(array.astype(np.float64))
    with pytest.raises(unmetal.Error):
        numbers.read_bytes(np.empty(3, np.float32))
    with pytest.raises(unmetal.Error):
        NDArrayDescriptor.descriptor(DataType.Float32, [])


def test_gather_and_its_gradient(device, queue, random):
    table = random.standard_normal((7, 3)).astype(np.float32)
    chosen = np.array([6, 0, 6, -1, 2], np.int32)
    incoming = random.standard_normal((5, 3)).astype(np.float32)
    source, indices, gradient = (NDArray.from_array(device, one) for one in (table, chosen, incoming))
    gather, back = unmetal.NDArrayGather(device), unmetal.NDArrayGatherGradient(device)
    gather.axis = 1
    result = NDArray(device, gather.destination_array_descriptor(source, indices))
    into = NDArray(device, source.descriptor)
    state = gather.result_state(source, indices)
    with queue.command_buffer() as command_buffer:
        gather.encode(command_buffer, source, indices, state, result)
        back.encode(command_buffer, source, indices, gradient, state, into)
        returned = gather.encode(command_buffer, source, indices)
        also, other = gather.encode(command_buffer, source, indices, output_state_is_temporary=False)
        returned.read_count = also.read_count = 0
        back.encode(command_buffer, source, indices, gradient, other).read_count = 0
        gather.encode(command_buffer, source, indices, result)
    expected = np.where(chosen[:, None] >= 0, table[chosen], 0)
    assert np.array_equal(np.asarray(result), expected)
    sums = np.zeros_like(table)
    for i, k in enumerate(chosen):
        if k >= 0:
            sums[k] += incoming[i]
    assert np.array_equal(np.asarray(into), sums)
    assert other.axis == 1 and gather.copy().axis == 1


@pytest.mark.parametrize("generator", [unmetal.MatrixRandomPhilox, unmetal.MatrixRandomMTGP32])
def test_random_numbers(generator, device, queue):
    uniform = unmetal.MatrixRandomDistributionDescriptor.uniform_distribution_descriptor(-1, 3)
    assert (uniform.minimum, uniform.maximum, uniform.mean) == (-1, 3, 1)
    first, again = (generator(device, DataType.Float32, 5, uniform) for _ in range(2))
    matrices = [Matrix.from_array(device, np.full((2, 100, 50), np.nan, np.float32)) for _ in range(3)]
    with queue.command_buffer() as command_buffer:
        first.encode(command_buffer, matrices[0])
        first.batch_size = 1
        first.encode(command_buffer, matrices[1])
        again.encode(command_buffer, matrices[2])
    numbers = np.asarray(matrices[0])
    assert -1 <= numbers.min() < -0.9 and 2.9 < numbers.max() < 3 and 0.9 < numbers.mean() < 1.1
    assert np.array_equal(numbers, np.asarray(matrices[2]))
    assert np.isnan(np.asarray(matrices[1])[1]).all() and not np.isnan(np.asarray(matrices[1])[0]).any()
    assert not np.array_equal(np.asarray(matrices[1])[0], numbers[0])
    normal = unmetal.MatrixRandomDistributionDescriptor.normal_distribution_descriptor(2, 0.5, maximum=2)
    assert normal.distribution_type == unmetal.MatrixRandomDistribution.Normal
    with queue.command_buffer() as command_buffer:
        generator(device, DataType.Float32, 1, normal).encode(command_buffer, matrices[0])
    assert np.asarray(matrices[0]).max() <= 2
    words = Matrix.from_array(device, np.zeros((1, 8), np.uint32))
    with queue.command_buffer() as command_buffer:
        generator(device, seed=1).encode(command_buffer, words)
        with pytest.raises(unmetal.Error):
            generator(device, seed=1).encode(command_buffer, matrices[0])
    assert len(set(np.asarray(words).ravel().tolist())) == 8
    with pytest.raises(unmetal.Error):
        generator(device, DataType.Int8)


def test_philox_is_philox(device, queue):
    """The first block of Random123's known answers: key and counter 0."""
    words = Matrix.from_array(device, np.zeros((1, 4), np.uint32))
    with queue.command_buffer() as command_buffer:
        unmetal.MatrixRandomPhilox(device).encode(command_buffer, words)
    assert np.asarray(words).ravel().tolist() == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
