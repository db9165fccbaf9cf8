#pragma once

#include <cstddef>
#include <memory>

namespace mtl {
class Buffer;
class CommandBuffer;
class Device;
}  // namespace mtl

namespace mps::detail {

class ArrayStorage;

/// What vectors and matrices have in common: elements in a buffer.
class Array {
 public:
  virtual ~Array();
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  [[nodiscard]] const std::shared_ptr<mtl::Device>& device() const;
  /// Of the first element in data(), in bytes.
  [[nodiscard]] std::size_t offset() const;
  /// The buffer; allocates it, in whichever thread asks first. @throws Error for a temporary one whose
  /// readCount is 0.
  [[nodiscard]] std::shared_ptr<mtl::Buffer> data();
  /// Bytes of backing storage; 0 over a buffer of the caller. Does not allocate.
  [[nodiscard]] std::size_t resourceSize() const;
  [[nodiscard]] bool isTemporary() const;
  /// Records the copy that makes device results visible in data(). Nothing to do for private, temporary or
  /// unallocated storage. @throws Error after commit, and for a command buffer of another device.
  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);

  /// @name The library's own
  /// @{
  [[nodiscard]] ArrayStorage& storage() const { return *storage_; }
  /// @}

 protected:
  explicit Array(std::unique_ptr<ArrayStorage> storage);

  /// @name Of temporary ones
  /// @{
  /// Reads that are still to come; starts at 1.
  [[nodiscard]] std::size_t readCount() const;
  /// 0 frees the memory now. @throws Error when it was 0 already.
  void setReadCount(std::size_t readCount);
  /// @}

 private:
  std::unique_ptr<ArrayStorage> storage_;
};

}  // namespace mps::detail
