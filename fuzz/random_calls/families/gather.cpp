#include "mps/gather/gather.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "fuzz/random_calls/call.hpp"
#include "fuzz/random_calls/families.hpp"
#include "mps/core/array/nd_array.hpp"

namespace unmetal::random_calls {
namespace {

std::vector<std::size_t> drawLengths(Call& call) {
  constexpr std::size_t mostElements = 50'000;
  std::vector<std::size_t> lengths(call.random.size(1, 4));
  std::size_t elements = 1;
  call.description << " lengths=";
  for (std::size_t& length : lengths) {
    length = call.side();
    while (length * elements > mostElements) length = (length + 1) / 2;
    elements *= length;
    call.description << length << ',';
  }
  return lengths;
}

std::size_t elementsOf(const mps::NDArrayDescriptor& descriptor) {
  std::size_t elements = 1;
  for (std::size_t i = 0; i < descriptor.numberOfDimensions(); ++i)
    elements *= descriptor.lengthOfDimension(i);
  return elements;
}

std::shared_ptr<mps::NDArray> makeNumbers(Call& call, const mps::NDArrayDescriptor& descriptor) {
  const ElementFormat format = formatOf(descriptor.dataType());
  const std::size_t step = bytesPerElement(format);
  Bytes bytes(elementsOf(descriptor) * step);
  for (std::size_t at = 0; at < bytes.size(); at += step)
    store(format, bytes.data() + at, call.number(Numbers::Uniform));
  auto array = mps::NDArray::create(call.device, descriptor);
  array->writeBytes(std::span<const std::byte>(bytes));
  return array;
}

/// Positions along an axis, some of them outside.
std::shared_ptr<mps::NDArray> makePositions(Call& call, std::size_t count, std::size_t length) {
  RandomNumbers& random = call.random;
  const auto type = call.noted(
      "positions", random.oneOf({mps::DataType::UInt32, mps::DataType::Int32, mps::DataType::UInt16}));
  const std::size_t step = mps::sizeInBytes(type);
  Bytes bytes(count * step);
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    const auto end = static_cast<std::int64_t>(length);
    const auto position = static_cast<std::int32_t>(random.chance(0.1) ? random.integer(-2, end + 3)
                                                                       : random.integer(0, end - 1));
    std::memcpy(bytes.data() + at, &position, step);  // the low bytes come first
  }
  auto array = mps::NDArray::create(call.device, mps::NDArrayDescriptor::descriptor(type, {count}));
  array->writeBytes(std::span<const std::byte>(bytes));
  return array;
}

}  // namespace

void callGather(Call& call) {
  RandomNumbers& random = call.random;
  constexpr std::size_t mostGathered = 400'000;
  const std::vector<std::size_t> lengths = drawLengths(call);
  // At times an axis that the array does not have.
  const std::size_t axis =
      call.noted("axis", random.chance(0.03) ? lengths.size() : random.size(0, lengths.size() - 1));
  const auto type = random.chance(0.5) ? mps::DataType::Float16 : mps::DataType::Float32;
  call.noted("type", mps::name(type));
  const std::size_t length = axis < lengths.size() ? lengths[axis] : 1;
  const auto sizes = mps::NDArrayDescriptor::descriptor(type, lengths);
  std::size_t count = random.chance(0.1) ? random.size(100, 3000) : random.size(1, 50);
  if (elementsOf(sizes) / length * count > mostGathered) count = 3;
  call.noted("count", count);
  const auto source = makeNumbers(call, sizes);
  const auto positions = makePositions(call, count, length);

  const auto kernel = mps::NDArrayGather::create(call.device);
  kernel->setAxis(axis);
  call.stage = "forward";
  const auto state = kernel->resultState(source, positions);
  const auto resultSizes = kernel->destinationArrayDescriptor(source, positions);
  const auto result = mps::NDArray::create(call.device, resultSizes);
  const CommandBufferPointer commandBuffer = call.begin();
  kernel->encode(commandBuffer, source, positions, state, result);
  call.observeBuffer("result", result->data(), {.isExact = true}, formatOf(type));

  const auto gradient = makeNumbers(call, resultSizes);
  const auto sourceGradient = mps::NDArray::create(call.device, sizes);
  call.stage = "gradient";
  mps::NDArrayGatherGradient::create(call.device)
      ->encode(commandBuffer, source, positions, gradient, state, sourceGradient);
  call.observeBuffer("sourceGradient", sourceGradient->data(), {}, formatOf(type));
  call.finish(commandBuffer);
}

}  // namespace unmetal::random_calls
