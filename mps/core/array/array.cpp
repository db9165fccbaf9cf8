#include "mps/core/array/array.hpp"

#include "mps/core/array/array_storage.hpp"

namespace mps::detail {

Array::Array(std::unique_ptr<ArrayStorage> storage) : storage_(std::move(storage)) {}

Array::~Array() = default;

const std::shared_ptr<mtl::Device>& Array::device() const {
  return storage_->device();
}

std::size_t Array::offset() const {
  return storage_->offset();
}

std::shared_ptr<mtl::Buffer> Array::data() {
  return storage_->buffer();
}

std::size_t Array::resourceSize() const {
  return storage_->resourceSize();
}

bool Array::isTemporary() const {
  return storage_->isTemporary();
}

void Array::synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  storage_->synchronize(commandBuffer);
}

std::size_t Array::readCount() const {
  return storage_->readCount();
}

void Array::setReadCount(std::size_t readCount) {
  storage_->setReadCount(readCount);
}

}  // namespace mps::detail
