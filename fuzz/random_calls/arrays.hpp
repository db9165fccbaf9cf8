#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "fuzz/random_calls/call.hpp"
#include "fuzz/random_calls/images.hpp"
#include "mps/core/array/matrix.hpp"
#include "mps/core/array/vector.hpp"

namespace unmetal::random_calls {

/// Matrices, or vectors, of one size in a buffer, at times with gaps.
struct Arrays {
  std::shared_ptr<mps::Matrix> matrix;  ///< null of vectors
  std::shared_ptr<mps::Vector> vector;  ///< null of matrices
  Observation* observation = nullptr;
};

/// What arrays are like.
struct ArraySizes {
  mps::DataType type = mps::DataType::Float32;
  std::size_t rows = 1;
  std::size_t columns = 1;
  std::size_t count = 1;
  bool isVector = false;

  static ArraySizes vectors(mps::DataType type, std::size_t length, std::size_t count) {
    return {type, 1, length, count, true};
  }
};

/// Arrays of random numbers, which the call must leave as they are.
Arrays makeSourceArrays(Call& call, const char* name, const ArraySizes& sizes, Numbers numbers);
/// @param value of an element, counted through rows and arrays
Arrays makeSourceArrays(Call& call, const char* name, const ArraySizes& sizes, const ElementValue& value);
/// Arrays that hold sentinels, as does all memory around them.
Arrays makeDestinationArrays(Call& call, const char* name, const ArraySizes& sizes,
                             const Tolerance& tolerance);
/// Arrays of random numbers that the call reads and writes.
Arrays makeUpdatedArrays(Call& call, const char* name, const ArraySizes& sizes, Numbers numbers,
                         const Tolerance& tolerance);

/// The first row and column of a matrix that a kernel uses, up to 3; most often 0.
mtl::Origin matrixOrigin(Call& call);

}  // namespace unmetal::random_calls
