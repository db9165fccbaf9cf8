#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "mps/core/types/types.hpp"
#include "mtl/log.hpp"

namespace mtl {
class Buffer;
class CommandBuffer;
class Device;
class Heap;
}  // namespace mtl

namespace mps {
class Coder;
class Kernel;
}  // namespace mps

namespace mps::detail {

/// Rows of elements in memory, `count` of them: a descriptor of vectors or matrices without its names.
struct ArrayExtent {
  std::size_t count = 0;      ///< vectors or matrices
  std::size_t stride = 0;     ///< bytes from one to the next
  std::size_t itemBytes = 0;  ///< of one, from its first to its last element
};

/// columns * size up to 16 bytes for floating types, to 4 elements for integers; one element stays alone.
/// @throws Error when that is more than memory can have, in the name of `owner`
[[nodiscard]] std::size_t recommendedStride(const char* owner, std::size_t elements, DataType dataType);
/// @throws Error for a type that has no whole bytes.
void checkElementType(const char* owner, DataType dataType);
/// Property "dataType". @throws Error for a type that does not exist or has no whole bytes
void codeElementType(Coder& coder, DataType& dataType);
/// a * b. @throws Error when that is more than memory can have.
[[nodiscard]] std::size_t checkedProduct(const char* owner, std::size_t a, std::size_t b);

/// The memory behind a vector or matrix; taken at first use. The library's own.
///
/// A temporary one keeps the read count and gives the memory back to the command buffer's heap at 0.
class ArrayStorage {
 public:
  /// Over a buffer of the caller. @throws Error when it is null, too short, or the offset is no multiple of
  /// the element size.
  ArrayStorage(const char* owner, std::shared_ptr<mtl::Buffer> buffer, std::size_t offset,
               const ArrayExtent& extent, DataType dataType);
  /// Permanent, filled with zeros.
  ArrayStorage(const char* owner, std::shared_ptr<mtl::Device> device, const ArrayExtent& extent);
  /// Temporary, of undefined content.
  ArrayStorage(const char* owner, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
               const ArrayExtent& extent);

  /// A temporary one with reads left is a line in the command buffer's logs (docs/decisions.md, D15): here, or
  /// earlier, when that has completed.
  ~ArrayStorage();
  ArrayStorage(const ArrayStorage&) = delete;
  ArrayStorage& operator=(const ArrayStorage&) = delete;

  [[nodiscard]] const std::shared_ptr<mtl::Device>& device() const { return device_; }
  [[nodiscard]] std::size_t offset() const { return offset_; }
  /// The buffer; takes the memory. @throws Error when the read count is 0.
  [[nodiscard]] std::shared_ptr<mtl::Buffer> buffer();
  /// Bytes of backing storage; 0 over a buffer of the caller. Does not allocate.
  [[nodiscard]] std::size_t resourceSize() const { return ownsBuffer_ ? bytes_ : 0; }
  /// Records the copy that makes device results visible on the host, where there is something to copy.
  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);

  [[nodiscard]] bool isTemporary() const { return isTemporary_; }
  [[nodiscard]] std::size_t readCount() const;
  /// 0 gives the memory back now. @throws Error when it was 0 already.
  void setReadCount(std::size_t readCount);
  /// Who wrote it, for messages.
  void setProducer(const std::string& kernel);
  /// @name For the log
  /// @{
  [[nodiscard]] std::size_t readsLeft() const { return readCount(); }
  [[nodiscard]] std::string describeUnread() const;
  /// @}

  /// Checks that a kernel may use this in a command buffer: device, command buffer and read count of a
  /// temporary one; of one that is read also that no failed command should have written it.
  void check(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
             bool isRead) const;

 private:
  const char* owner_;
  std::shared_ptr<mtl::Device> device_;
  std::shared_ptr<mtl::Heap> heap_;  ///< of a temporary one's command buffer, until released
  std::uint64_t scope_ = 0;
  mutable std::mutex mutex_;
  std::shared_ptr<mtl::Buffer> buffer_;
  std::size_t offset_ = 0;
  std::size_t bytes_ = 0;
  bool ownsBuffer_ = true;
  bool isTemporary_ = false;
  std::size_t readCount_ = 0;
  std::string producer_;
  mtl::Log::Watch watch_;  ///< by the command buffer's log
};

/// Takes one read off each distinct temporary array of an encode; null entries do not count.
void consumeRead(std::span<ArrayStorage* const> arrays);
inline void consumeRead(std::initializer_list<ArrayStorage*> arrays) {
  consumeRead(std::span(arrays.begin(), arrays.size()));
}

}  // namespace mps::detail
