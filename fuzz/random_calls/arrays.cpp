#include "fuzz/random_calls/arrays.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "mtl/buffer.hpp"
#include "mtl/device.hpp"

namespace unmetal::random_calls {
namespace {

/// In elements.
struct Strides {
  std::size_t offset = 0;
  std::size_t row = 1;
  std::size_t array = 1;
};

Strides drawStrides(Call& call, const ArraySizes& sizes) {
  RandomNumbers& random = call.random;
  const bool hasGaps = random.chance(0.6);
  Strides strides;
  strides.row = std::max<std::size_t>(1, sizes.columns) + (hasGaps ? random.size(0, 5) : 0);
  strides.array = strides.row * (std::max<std::size_t>(1, sizes.rows) + (hasGaps ? random.size(0, 1) : 0));
  if (hasGaps || random.chance(0.3)) strides.offset = random.size(0, 7);
  return strides;
}

void fill(Bytes& bytes, const ArraySizes& sizes, const Strides& strides, const ElementValue& value) {
  const ElementFormat format = formatOf(sizes.type);
  const std::size_t step = bytesPerElement(format);
  std::size_t number = 0;
  for (std::size_t array = 0; array < sizes.count; ++array)
    for (std::size_t row = 0; row < sizes.rows; ++row)
      for (std::size_t column = 0; column < sizes.columns; ++column) {
        const std::size_t at = strides.offset + array * strides.array + row * strides.row + column;
        store(format, bytes.data() + at * step, value(number++));
      }
}

Arrays make(Call& call, const char* name, const ArraySizes& sizes, const ElementValue& value) {
  const ElementFormat format = formatOf(sizes.type);
  const std::size_t step = bytesPerElement(format);
  const Strides strides = drawStrides(call, sizes);
  call.description << ' ' << name << "=(" << mps::name(sizes.type) << ' ' << sizes.rows << 'x'
                   << sizes.columns << ", " << sizes.count << " arrays, row " << strides.row << ", array "
                   << strides.array << ", offset " << strides.offset << ')';
  Bytes bytes((strides.offset + strides.array * sizes.count + 4) * step);
  fillWithSentinel(format, bytes);
  if (value) fill(bytes, sizes, strides, value);
  const auto buffer = call.device->newBuffer(bytes);

  Arrays arrays;
  call.observeBuffer(name, buffer, {}, format);
  arrays.observation = &call.observations.back();
  arrays.observation->before = std::move(bytes);
  if (sizes.isVector) {
    const auto descriptor =
        mps::VectorDescriptor::vectorDescriptor(sizes.columns, sizes.count, strides.array * step, sizes.type);
    arrays.vector = mps::Vector::create(buffer, descriptor, strides.offset * step);
  } else {
    const auto descriptor = mps::MatrixDescriptor::matrixDescriptor(
        sizes.rows, sizes.columns, sizes.count, strides.row * step, strides.array * step, sizes.type);
    arrays.matrix = mps::Matrix::create(buffer, descriptor, strides.offset * step);
  }
  return arrays;
}

}  // namespace

Arrays makeSourceArrays(Call& call, const char* name, const ArraySizes& sizes, Numbers numbers) {
  return makeSourceArrays(call, name, sizes, [&](std::size_t) { return call.number(numbers); });
}

Arrays makeSourceArrays(Call& call, const char* name, const ArraySizes& sizes, const ElementValue& value) {
  Arrays arrays = make(call, name, sizes, value);
  arrays.observation->role = Role::Source;
  return arrays;
}

Arrays makeDestinationArrays(Call& call, const char* name, const ArraySizes& sizes,
                             const Tolerance& tolerance) {
  Arrays arrays = make(call, name, sizes, {});
  arrays.observation->tolerance = tolerance;
  return arrays;
}

Arrays makeUpdatedArrays(Call& call, const char* name, const ArraySizes& sizes, Numbers numbers,
                         const Tolerance& tolerance) {
  Arrays arrays = make(call, name, sizes, [&](std::size_t) { return call.number(numbers); });
  arrays.observation->role = Role::Updated;
  arrays.observation->tolerance = tolerance;
  return arrays;
}

mtl::Origin matrixOrigin(Call& call) {
  mtl::Origin origin;
  if (call.random.chance(0.25)) origin.x = call.random.size(1, 3);
  if (call.random.chance(0.25)) origin.y = call.random.size(1, 3);
  return origin;
}

}  // namespace unmetal::random_calls
