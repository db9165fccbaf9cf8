#pragma once

#include <memory>

#include "mps/core/array/matrix.hpp"
#include "mps/core/array/matrix_kernel.hpp"
#include "mps/core/array/vector.hpp"
#include "python/source/kernels/kernels.hpp"

/// What the kernels on matrices share.
namespace python {

using MatrixPointer = std::shared_ptr<mps::Matrix>;
using VectorPointer = std::shared_ptr<mps::Vector>;

inline constexpr const char* originDocumentation =
    "The first element that is touched: x is the row, y the column, z is 0. Origin(0, 0, 0).";
inline constexpr const char* encodeMatrixDocumentation =
    "Records the kernel; takes one read off each temporary argument that it reads. Raises Error before "
    "anything is recorded for types that are not Float32 or Float16 or differ, an origin outside its matrix, "
    "a result or vector that is too small, and a result that shares elements with what is read.";
inline constexpr const char* encodeMatrixInPlaceDocumentation =
    "Records the kernel; takes one read off each temporary argument that it reads. The result may be the "
    "very "
    "region of a source. Raises Error before anything is recorded for types that are not Float32 or Float16 "
    "or "
    "differ, an origin outside its matrix, a result or vector that is too small, and a result that shares "
    "other "
    "elements with what is read.";

/// MatrixSoftMax's limits and its gradient's.
template <class Class>
void bindSourceSize(Class& bound) {
  using KernelType = typename Class::Type;
  property(bound, "source_rows", &KernelType::sourceRows, &KernelType::setSourceRows,
           "Rows, at most those of the sources from their origins on. All.");
  property(bound, "source_columns", &KernelType::sourceColumns, &KernelType::setSourceColumns,
           "Elements of a row, at most those of the sources from their origins on. All.");
}

}  // namespace python
