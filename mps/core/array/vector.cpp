#include "mps/core/array/vector.hpp"

#include "mps/core/array/array_storage.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/coding/core_decoders.hpp"
#include "mps/core/types/error.hpp"

namespace mps {
namespace {

constexpr const char* kVectorDescriptor = "VectorDescriptor";

void checkStride(std::size_t vectorBytes, std::size_t length, DataType dataType) {
  const std::size_t size = sizeInBytes(dataType);
  const std::size_t least = detail::checkedProduct(kVectorDescriptor, length, size);
  if (vectorBytes % size != 0 || vectorBytes < least)
    throw Error(kVectorDescriptor, "vectorBytes", std::to_string(vectorBytes),
                "a multiple of " + std::to_string(size) + " from " + std::to_string(least) + " on");
}

detail::ArrayExtent extentOf(const VectorDescriptor& descriptor) {
  detail::checkElementType(kVectorDescriptor, descriptor.dataType());
  // The setters may have changed what the stride was chosen for.
  if (descriptor.vectors() > 1)
    checkStride(descriptor.vectorBytes(), descriptor.length(), descriptor.dataType());
  return {descriptor.vectors(), descriptor.vectorBytes(),
          detail::checkedProduct(kVectorDescriptor, descriptor.length(), sizeInBytes(descriptor.dataType()))};
}

}  // namespace

VectorDescriptor VectorDescriptor::create(std::size_t length, DataType dataType) {
  detail::checkElementType(kVectorDescriptor, dataType);
  return {length, 1, detail::checkedProduct(kVectorDescriptor, length, sizeInBytes(dataType)), dataType};
}

VectorDescriptor VectorDescriptor::create(std::size_t length, std::size_t vectors, std::size_t vectorBytes,
                                          DataType dataType) {
  detail::checkElementType(kVectorDescriptor, dataType);
  checkStride(vectorBytes, length, dataType);
  return {length, vectors, vectorBytes, dataType};
}

std::size_t VectorDescriptor::vectorBytes(std::size_t length, DataType dataType) {
  detail::checkElementType(kVectorDescriptor, dataType);
  return detail::recommendedStride(kVectorDescriptor, length, dataType);
}

void VectorDescriptor::encode(Coder& coder) const {
  VectorDescriptor(*this).codeFields(coder);
}

VectorDescriptor VectorDescriptor::decode(Coder& coder) {
  detail::checkDecodes(coder, kVectorDescriptor);
  VectorDescriptor descriptor(0, 0, 0, DataType::Float32);
  descriptor.codeFields(coder);
  return descriptor;
}

void VectorDescriptor::codeFields(Coder& coder) {
  coder.codeClass(kVectorDescriptor);
  coder.code("length", length_);
  coder.code("vectors", vectors_);
  coder.code("vectorBytes", vectorBytes_);
  detail::codeElementType(coder, dataType_);
}

Vector::Vector(std::unique_ptr<detail::ArrayStorage> storage, const VectorDescriptor& descriptor)
    : Array(std::move(storage)), descriptor_(descriptor) {}

std::shared_ptr<Vector> Vector::create(std::shared_ptr<mtl::Buffer> buffer,
                                       const VectorDescriptor& descriptor, std::size_t offset) {
  return std::shared_ptr<Vector>(
      new Vector(std::make_unique<detail::ArrayStorage>("Vector", std::move(buffer), offset,
                                                        extentOf(descriptor), descriptor.dataType()),
                 descriptor));
}

std::shared_ptr<Vector> Vector::create(std::shared_ptr<mtl::Device> device,
                                       const VectorDescriptor& descriptor) {
  return std::shared_ptr<Vector>(new Vector(
      std::make_unique<detail::ArrayStorage>("Vector", std::move(device), extentOf(descriptor)), descriptor));
}

std::shared_ptr<TemporaryVector> TemporaryVector::create(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const VectorDescriptor& descriptor) {
  return std::shared_ptr<TemporaryVector>(new TemporaryVector(
      std::make_unique<detail::ArrayStorage>("TemporaryVector", commandBuffer, extentOf(descriptor)),
      descriptor));
}

void TemporaryVector::prefetchStorage(const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
                                      std::span<const VectorDescriptor> /*descriptors*/) {}

}  // namespace mps
