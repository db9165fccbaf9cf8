"""Products, softmax and image copies of matrices, against NumPy in float64."""

import numpy as np
import pytest

import unmetal
from judging import close, normal, pulled
from test_softmax import log_soft_max, soft_max
from unmetal import DataLayout, ImageBatch, Matrix
from unmetal.mtl import Origin


@pytest.fixture
def matrix_of(device):
    """matrix_of(array): a float32 matrix with a copy of an array."""
    return lambda array: Matrix.from_array(device, np.asarray(array, np.float32), copy=True)


def coded(kernel, device):
    kernel.label = "coded"
    archiver = unmetal.KeyedArchiver()
    kernel.encode(archiver)
    copy = type(kernel).decode(unmetal.KeyedUnarchiver(archiver.encoded_data(), device))
    assert type(copy) is type(kernel) and copy.label == "coded"
    return copy


@pytest.mark.parametrize("transpose_left", [False, True])
@pytest.mark.parametrize("transpose_right", [False, True])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_products(transpose_left, transpose_right, beta, device, queue, matrix_of, random):
    rows, columns, interior = (int(size) for size in random.integers(1, 9, 3))
    a, b, c = normal(random, rows, interior), normal(random, interior, columns), normal(random, rows, columns)
    result = matrix_of(c if beta else np.full_like(c, np.nan))
    product = unmetal.MatrixMultiplication(device, rows, columns, interior, transpose_left=transpose_left,
                                           transpose_right=transpose_right, alpha=0.25, beta=beta)
    with queue.command_buffer() as command_buffer:
        product.encode(command_buffer, matrix_of(a.T if transpose_left else a), matrix_of(b.T if transpose_right else b),
                       result)
    bound = (interior + 4) * 2**-23 * (np.abs(a) @ np.abs(b) + np.abs(c))
    assert np.all(np.abs(np.asarray(result) - (0.25 * a @ b + beta * c)) <= bound)


def test_origins_and_batches(device, queue, matrix_of, random):
    a, b = normal(random, 3, 4, 5), normal(random, 3, 6, 7)
    result = matrix_of(np.zeros((3, 5, 5)))
    product = unmetal.MatrixMultiplication(device, 2, 3, 4)
    product.left_matrix_origin, product.right_matrix_origin = Origin(1, 1, 0), Origin(2, 3, 0)
    product.result_matrix_origin, product.batch_start, product.batch_size = Origin(2, 1, 0), 1, 1
    with queue.command_buffer() as command_buffer:
        product.encode(command_buffer, matrix_of(a), matrix_of(b), result)
    expected = np.zeros((3, 5, 5))
    expected[1, 2:4, 1:4] = a[1, 1:3, 1:5] @ b[1, 2:6, 3:6]
    assert close(result, expected, 64)
    again = coded(product, device)
    assert (again.left_matrix_origin, again.right_matrix_origin) == (Origin(1, 1, 0), Origin(2, 3, 0))
    assert (again.result_matrix_origin, again.batch_start, again.batch_size) == (Origin(2, 1, 0), 1, 1)


classes = {"softmax": (soft_max, unmetal.MatrixSoftMax, unmetal.MatrixSoftMaxGradient),
           "logarithm": (log_soft_max, unmetal.MatrixLogSoftMax, unmetal.MatrixLogSoftMaxGradient)}


@pytest.mark.parametrize("kind", classes)
def test_softmax_of_rows(kind, device, queue, matrix_of, random):
    reference, forward, gradient = classes[kind]
    rows, columns = (int(size) for size in random.integers(1, 12, 2))
    x, dy = normal(random, rows, columns), normal(random, rows, columns)
    result, outgoing = (matrix_of(np.full((rows, columns), np.nan)) for _ in range(2))
    with queue.command_buffer() as command_buffer:
        forward(device).encode(command_buffer, matrix_of(x), result)
        gradient(device).encode(command_buffer, matrix_of(dy), result, outgoing)
    terms = 4 * columns + 16
    bound = terms * 2**-23 * (1 + np.abs(x).max(axis=-1, keepdims=True))
    assert np.all(np.abs(np.asarray(result) - reference(x)) <= bound)
    bound = terms * 2**-23 * np.abs(dy).sum(axis=-1, keepdims=True)
    assert np.all(np.abs(np.asarray(outgoing) - pulled(reference, x, dy)) <= bound)


def test_softmax_of_a_part(device, queue, matrix_of):
    kernel = unmetal.MatrixSoftMax(device)
    kernel.source_rows, kernel.source_columns = 1, 2
    kernel.source_matrix_origin, kernel.result_matrix_origin = Origin(1, 1, 0), Origin(0, 2, 0)
    result = matrix_of(np.full((2, 4), 9))
    with queue.command_buffer() as command_buffer:
        kernel.encode(command_buffer, matrix_of(np.ones((3, 4))), result)
    assert np.asarray(result).tolist() == [[9, 9, 0.5, 0.5], [9, 9, 9, 9]]
    again = coded(kernel, device)
    assert (again.source_rows, again.source_columns, again.source_matrix_origin) == (1, 2, Origin(1, 1, 0))
    gradient = unmetal.MatrixLogSoftMaxGradient(device)
    gradient.source_rows, gradient.source_columns = 3, 4
    gradient.primary_source_matrix_origin, gradient.secondary_source_matrix_origin = Origin(1, 2, 0), Origin(3, 4, 0)
    gradient.result_matrix_origin = Origin(5, 6, 0)
    again = coded(gradient, device)
    assert (again.source_rows, again.source_columns, again.result_matrix_origin) == (3, 4, Origin(5, 6, 0))
    assert again.primary_source_matrix_origin == Origin(1, 2, 0) == again.copy().primary_source_matrix_origin
    assert again.secondary_source_matrix_origin == Origin(3, 4, 0)


@pytest.mark.parametrize("layout", [DataLayout.FeatureChannelsxHeightxWidth, DataLayout.HeightxWidthxFeatureChannels])
def test_copies_of_images(layout, device, queue, matrix_of, random):
    x = random.standard_normal((2, 3, 4, 5)).astype(np.float32)
    rows = (x.transpose(0, 3, 1, 2) if layout == DataLayout.FeatureChannelsxHeightxWidth else x).reshape(2, 60)
    images = ImageBatch.from_array(device, x)
    to_matrix, to_image = unmetal.ImageCopyToMatrix(device, layout), unmetal.MatrixCopyToImage(device, layout)
    to_matrix.destination_matrix_origin = to_image.source_matrix_origin = Origin(1, 2, 0)
    to_matrix.destination_matrix_batch_index = to_image.source_matrix_batch_index = 1
    one, both = (matrix_of(np.zeros((2, 3, 62))) for _ in range(2))
    back, backs = unmetal.Image(device, images[0].descriptor), ImageBatch(device, images[0].descriptor, 2)
    with queue.command_buffer() as command_buffer:
        to_matrix.encode(command_buffer, images[1], one)
        to_matrix.encode_batch(command_buffer, images, both)
        to_image.encode(command_buffer, one, back)
        to_image.encode_batch(command_buffer, both, backs)
    expected = np.zeros((2, 3, 62))
    expected[1, 1:, 2:] = rows
    assert np.array_equal(np.asarray(both), expected)
    assert np.array_equal(np.asarray(one)[1, 1, 2:], rows[1])
    assert np.array_equal(np.asarray(back), x[1])
    assert np.array_equal(np.stack([np.asarray(image) for image in backs]), x)
    again = coded(to_matrix, device)
    assert (again.destination_matrix_origin, again.destination_matrix_batch_index) == (Origin(1, 2, 0), 1)
    again = coded(to_image, device)
    assert (again.source_matrix_origin, again.source_matrix_batch_index, again.data_layout) == (Origin(1, 2, 0), 1, layout)


def test_wrong_use_raises(device, queue, matrix_of, image_of):
    small, half = matrix_of(np.zeros((2, 2))), Matrix.from_array(device, np.zeros((2, 2), np.float16))
    command_buffer = queue.command_buffer()
    with pytest.raises(unmetal.Error, match="MatrixMultiplication"):
        unmetal.MatrixMultiplication(device, 3, 2, 2).encode(command_buffer, small, small, matrix_of(np.zeros((3, 2))))
    with pytest.raises(unmetal.Error):
        unmetal.MatrixMultiplication(device, 2, 2, 2).encode(command_buffer, small, half, small)
    for kernel in (unmetal.MatrixSoftMax(device), unmetal.MatrixLogSoftMax(device)):
        with pytest.raises(unmetal.Error):
            kernel.encode(command_buffer, small, half)
    with pytest.raises(unmetal.Error):
        unmetal.MatrixSoftMaxGradient(device).encode(command_buffer, small, small, matrix_of(np.zeros((1, 2))))
    with pytest.raises(unmetal.Error):
        unmetal.ImageCopyToMatrix(device).encode(command_buffer, image_of(np.zeros((2, 2, 1), np.float32)), small)
    with pytest.raises(TypeError):
        unmetal.MatrixSoftMax(device).encode(command_buffer, small, np.zeros((2, 2)))
