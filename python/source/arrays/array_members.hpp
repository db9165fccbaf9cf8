#pragma once

#include "python/source/arrays/arrays.hpp"

namespace python {

/// What vectors, matrices and arrays of numbers have in common.
template <class Class, class ElementsOf>
void bindArrayMembers(Class& bound, ElementsOf elementsOf) {
  using Array = typename Class::Type;
  readOnly(bound, "device", &Array::device, "Where it was made.");
  readOnly(bound, "offset", &Array::offset, "Bytes of `data` before the first element.");
  readOnly(bound, "data", &Array::data,
           "The buffer; allocates it. Raises Error for a temporary one whose read_count is 0.");
  readOnly(bound, "resource_size", &Array::resourceSize,
           "Bytes of backing storage; 0 over a buffer of the caller.");
  readOnly(bound, "is_temporary", &Array::isTemporary, "Whether it lives on one command buffer.");
  bound.def("synchronize", &Array::synchronize, "command_buffer"_a, Released(),
            "Records the copy that makes device results visible in `data`. Raises Error after commit.");
  bindArrays(bound, elementsOf);
}

/// Of the temporary ones.
template <class Class>
void bindReadCount(Class& bound) {
  using Array = typename Class::Type;
  property(bound, "read_count", &Array::readCount, &Array::setReadCount,
           "Reads that are still to come; starts at 1. 0 frees the memory now. Raises Error when it was 0 "
           "already.");
}

/// The element type of an array. @throws mps::Error for one that vectors and matrices do not have
mps::DataType dataTypeOf(const char* className, nb::dlpack::dtype type);

/// Strides of elements that lie without gaps, the slowest axis first.
std::vector<std::int64_t> stridesWithoutGaps(std::span<const std::size_t> shape);

}  // namespace python
