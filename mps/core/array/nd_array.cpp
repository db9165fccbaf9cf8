#include "mps/core/array/nd_array.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "mps/core/array/array_storage.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/coding/core_decoders.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/memory.hpp"

namespace mps {
namespace {

constexpr const char* kArrayDescriptor = "NDArrayDescriptor";

detail::ArrayExtent extentOf(const NDArrayDescriptor& descriptor) {
  const std::size_t bytes = detail::bytesOf(descriptor);
  return {1, bytes, bytes};
}

}  // namespace

namespace detail {

std::size_t bytesOf(const NDArrayDescriptor& descriptor) {
  std::size_t bytes = sizeInBytes(descriptor.dataType());
  for (std::size_t dimension = 0; dimension < descriptor.numberOfDimensions(); ++dimension)
    bytes = checkedProduct(kArrayDescriptor, bytes, descriptor.lengthOfDimension(dimension));
  return bytes;
}

}  // namespace detail

NDArrayDescriptor NDArrayDescriptor::create(DataType dataType, std::vector<std::size_t> dimensionSizes) {
  detail::checkElementType(kArrayDescriptor, dataType);
  if (dimensionSizes.empty() || dimensionSizes.size() > kMostDimensions)
    throw Error(kArrayDescriptor, "dimensionSizes", std::to_string(dimensionSizes.size()) + " lengths",
                "1 to " + std::to_string(kMostDimensions));
  if (std::find(dimensionSizes.begin(), dimensionSizes.end(), 0U) != dimensionSizes.end())
    throw Error(kArrayDescriptor, "dimensionSizes", "0", "at least 1 in each dimension");
  NDArrayDescriptor descriptor(dataType, std::move(dimensionSizes));
  (void)detail::bytesOf(descriptor);
  return descriptor;
}

std::string NDArrayDescriptor::describe() const {
  std::string text = name(dataType_);
  for (std::size_t dimension = 0; dimension < dimensionSizes_.size(); ++dimension)
    text += (dimension == 0 ? " " : "x") + std::to_string(dimensionSizes_[dimension]);
  return text;
}

void NDArrayDescriptor::encode(Coder& coder) const {
  NDArrayDescriptor(*this).codeFields(coder);
}

NDArrayDescriptor NDArrayDescriptor::decode(Coder& coder) {
  detail::checkDecodes(coder, kArrayDescriptor);
  NDArrayDescriptor decoded(DataType::Float32, {});
  decoded.codeFields(coder);
  return descriptor(decoded.dataType_, std::move(decoded.dimensionSizes_));
}

void NDArrayDescriptor::codeFields(Coder& coder) {
  coder.codeClass(kArrayDescriptor);
  detail::codeElementType(coder, dataType_);
  coder.codeList("dimensionSizes", dimensionSizes_,
                 [&](std::size_t& length) { coder.code("length", length); });
}

NDArray::NDArray(std::unique_ptr<detail::ArrayStorage> storage, NDArrayDescriptor descriptor)
    : Array(std::move(storage)), descriptor_(std::move(descriptor)) {}

std::shared_ptr<NDArray> NDArray::create(std::shared_ptr<mtl::Device> device,
                                         const NDArrayDescriptor& descriptor) {
  return std::shared_ptr<NDArray>(
      new NDArray(std::make_unique<detail::ArrayStorage>("NDArray", std::move(device), extentOf(descriptor)),
                  descriptor));
}

void NDArray::checkHostAccess(const char* method, std::size_t bytes) const {
  if (isTemporary())
    throw Error(std::string("TemporaryNDArray: ") + method + " needs an array that is not temporary");
  if (const std::size_t expected = detail::bytesOf(descriptor_); bytes != expected)
    throw Error(std::string("NDArray ") + method, "size", std::to_string(bytes) + " bytes",
                std::to_string(expected) + ", of " + descriptor_.describe());
}

void NDArray::readBytes(std::span<std::byte> destination) const {
  checkHostAccess("readBytes", destination.size());
  const auto& memory = storage().buffer()->memory();
  if (const std::string failure = memory->failure(); !failure.empty())
    throw Error("NDArray is invalid: " + failure);
  std::memcpy(destination.data(), memory->contents(), destination.size());
}

void NDArray::writeBytes(std::span<const std::byte> source) {
  checkHostAccess("writeBytes", source.size());
  const auto& memory = storage().buffer()->memory();
  memory->write(0, source);
  memory->clearFailure();
}

std::shared_ptr<TemporaryNDArray> TemporaryNDArray::create(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const NDArrayDescriptor& descriptor) {
  return std::shared_ptr<TemporaryNDArray>(new TemporaryNDArray(
      std::make_unique<detail::ArrayStorage>("TemporaryNDArray", commandBuffer, extentOf(descriptor)),
      descriptor));
}

}  // namespace mps
