#include "mps/core/array/matrix.hpp"

#include <cstddef>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "python/source/arrays/array_members.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {

using mps::Matrix;
using mps::MatrixDescriptor;

namespace {

/// [row][column], with the matrices in front when there are several.
Elements elementsOfMatrix(Matrix& matrix) {
  const std::size_t size = mps::sizeInBytes(matrix.dataType());
  std::vector<std::size_t> shape{matrix.rows(), matrix.columns()};
  std::vector<std::int64_t> strides{static_cast<std::int64_t>(matrix.rowBytes() / size), 1};
  if (matrix.matrices() > 1) {
    shape.insert(shape.begin(), matrix.matrices());
    strides.insert(strides.begin(), static_cast<std::int64_t>(matrix.matrixBytes() / size));
  }
  return elementsOf("Matrix", matrix, std::move(shape), std::move(strides), matrix.dataType());
}

void bindDescriptor(nb::module_& module) {
  nb::class_<MatrixDescriptor> descriptor(
      module, "MatrixDescriptor",
      "Sizes and type of matrices. A value; a matrix that was made from it does not see later changes.");
  descriptor
      .def_static(
          "matrix_descriptor",
          [](std::size_t rows, std::size_t columns, std::size_t rowBytes, mps::DataType type) {
            return MatrixDescriptor::matrixDescriptor(rows, columns, rowBytes, type);
          },
          "rows"_a, "columns"_a, "row_bytes"_a, "data_type"_a,
          "One matrix. `row_bytes`: from one row to the next, a multiple of the element size, at least one "
          "row; 0 only for 0 "
          "columns. Raises Error for other strides and for a type of no whole bytes.")
      .def_static(
          "matrix_descriptor",
          [](std::size_t rows, std::size_t columns, std::size_t matrices, std::size_t rowBytes,
             std::size_t matrixBytes, mps::DataType type) {
            return MatrixDescriptor::matrixDescriptor(rows, columns, matrices, rowBytes, matrixBytes, type);
          },
          "rows"_a, "columns"_a, "matrices"_a, "row_bytes"_a, "matrix_bytes"_a, "data_type"_a,
          "Several. `matrix_bytes`: from one matrix to the next, a multiple of row_bytes, at least rows * "
          "row_bytes.")
      .def_static(
          "recommended_row_bytes",
          [](std::size_t columns, mps::DataType type) { return MatrixDescriptor::rowBytes(columns, type); },
          "columns"_a, "data_type"_a,
          "The recommended stride (C++: rowBytes(columns, dataType)): one element for 1 column, else "
          "floating types to 16 "
          "bytes, integers to 4 elements. Any legal stride is as good.");
  property(descriptor, "rows", &MatrixDescriptor::rows, &MatrixDescriptor::setRows, "Of one matrix.");
  property(descriptor, "columns", &MatrixDescriptor::columns, &MatrixDescriptor::setColumns,
           "Of one matrix.");
  readOnly(descriptor, "matrices", &MatrixDescriptor::matrices, "How many there are.");
  property(descriptor, "data_type", &MatrixDescriptor::dataType, &MatrixDescriptor::setDataType,
           "Of an element.");
  property(
      descriptor, "row_bytes", [](const MatrixDescriptor& self) { return self.rowBytes(); },
      &MatrixDescriptor::setRowBytes, "From one row to the next.");
  readOnly(descriptor, "matrix_bytes", &MatrixDescriptor::matrixBytes,
           "From one matrix to the next; only several matrices use it.");
  descriptor.def("encode", &MatrixDescriptor::encode, "coder"_a, "Writes the fields.")
      .def_static("decode", &MatrixDescriptor::decode, "coder"_a,
                  "What encode wrote. Raises Error for a type that does not exist.");
}

std::shared_ptr<Matrix> fromArray(const std::shared_ptr<mtl::Device>& device, nb::handle array,
                                  std::optional<bool> copy) {
  const GivenArray given = lookAt("Matrix", array);
  const std::size_t dimensions = given.array.ndim();
  if (dimensions != 2 && dimensions != 3)
    throw mps::Error("Matrix", "array", std::to_string(dimensions) + "-dimensional",
                     "2 dimensions, or 3 for several matrices");
  const mps::DataType type = dataTypeOf("Matrix", given.array.dtype());
  std::vector<std::size_t> shape(given.array.shape_ptr(), given.array.shape_ptr() + dimensions);
  std::vector<std::int64_t> strides(given.array.stride_ptr(), given.array.stride_ptr() + dimensions);
  const std::vector<std::int64_t> tight = stridesWithoutGaps(shape);
  for (std::size_t axis = 0; axis < dimensions; ++axis)
    if (shape[axis] == 1) strides[axis] = tight[axis];
  const bool isRagged = dimensions == 3 && strides[1] > 0 && strides[0] % strides[1] != 0;
  const Sharing sharing = sharingOf("Matrix", device, given, shape, strides, "columns", copy,
                                    isRagged ? "of matrices that are no whole rows apart" : "");
  if (!sharing.isShared) strides = tight;
  const auto bytes = [&](std::size_t axis) {
    return static_cast<std::size_t>(strides[axis]) * mps::sizeInBytes(type);
  };
  const std::size_t rows = shape[dimensions - 2];
  const std::size_t columns = shape[dimensions - 1];
  const auto descriptor =
      dimensions == 2 ? MatrixDescriptor::matrixDescriptor(rows, columns, bytes(0), type)
                      : MatrixDescriptor::matrixDescriptor(rows, columns, shape[0], bytes(1), bytes(0), type);
  if (sharing.isShared) {
    std::size_t elements = 1;
    for (std::size_t axis = 0; axis < dimensions; ++axis)
      elements += (shape[axis] - 1) * static_cast<std::size_t>(strides[axis]);
    return Matrix::create(bufferOver(device, given, elements), descriptor);
  }
  const HostArray elements = packed(given);
  if (!sharing.why.empty())
    return Matrix::create(readOnlyCopy("Matrix", device, elements, sharing.why), descriptor);
  auto matrix = Matrix::create(device, descriptor);
  fill(*matrix->data(), elements);
  return matrix;
}

}  // namespace

void bindMatrix(nb::module_& module) {
  bindDescriptor(module);
  nb::class_<Matrix> matrix(
      module, "Matrix",
      "One or several matrices in a buffer, stored by rows: element (i, j) of matrix k lies at byte offset + "
      "k * matrix_bytes + "
      "i * row_bytes + j * size of the type. Kernels neither read nor write the gaps between rows.\n\n"
      "np.asarray(matrix) is an array [row][column] (of several matrices [matrix][row][column]) that shares "
      "its memory; "
      "Matrix.from_array is the way back.");
  matrix
      .def(nb::new_([](std::shared_ptr<mtl::Buffer> buffer, const MatrixDescriptor& descriptor,
                       std::size_t offset) { return Matrix::create(std::move(buffer), descriptor, offset); }),
           "buffer"_a, "descriptor"_a, "offset"_a = 0,
           "Shares the buffer. `offset`: bytes, a multiple of the element size. Raises Error when rows or "
           "matrices overlap or "
           "leave the buffer.")
      .def(nb::new_([](std::shared_ptr<mtl::Device> device, const MatrixDescriptor& descriptor) {
             return Matrix::create(std::move(device), descriptor);
           }),
           "device"_a, "descriptor"_a, "With a zero-filled buffer of its own, allocated at first use.")
      .def_static("from_array", &fromArray, "device"_a.none(), "array"_a, nb::kw_only(),
                  "copy"_a.none() = nb::none(), sharingDocumentation);
  readOnly(matrix, "rows", &Matrix::rows, "Of one matrix.");
  readOnly(matrix, "columns", &Matrix::columns, "Of one matrix.");
  readOnly(matrix, "matrices", &Matrix::matrices, "How many there are.");
  readOnly(matrix, "row_bytes", &Matrix::rowBytes, "From one row to the next.");
  readOnly(matrix, "matrix_bytes", &Matrix::matrixBytes, "From one matrix to the next.");
  readOnly(matrix, "data_type", &Matrix::dataType, "Of an element.");
  bindArrayMembers(matrix, &elementsOfMatrix);

  nb::class_<mps::TemporaryMatrix, Matrix> temporary(
      module, "TemporaryMatrix",
      "Scratch matrix of one command buffer: private memory, undefined at first, that serves others once "
      "read_count is 0. "
      "Each encode that reads it takes 1 off.");
  temporary
      .def(nb::new_(&mps::TemporaryMatrix::create), "command_buffer"_a, "descriptor"_a,
           "Raises Error after commit.")
      .def_static(
          "prefetch_storage",
          [](const CommandBufferPointer& commandBuffer, const std::vector<MatrixDescriptor>& descriptors) {
            mps::TemporaryMatrix::prefetchStorage(commandBuffer, descriptors);
          },
          "command_buffer"_a, "descriptors"_a, "A hint without effect.");
  bindReadCount(temporary);
}

}  // namespace python
