#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "mtl/types.hpp"

namespace mtl {

class CommandBuffer;
class Device;
class Memory;

/// Linear memory that host and device share (Metal's MTLBuffer).
class Buffer {
 public:
  /// Use Device::newBuffer. @param memory block of exactly the buffer's length
  Buffer(std::shared_ptr<Device> device, std::shared_ptr<Memory> memory, StorageMode storageMode);

  [[nodiscard]] const std::shared_ptr<Device>& device() const { return device_; }
  [[nodiscard]] std::size_t length() const;
  [[nodiscard]] StorageMode storageMode() const { return storageMode_; }
  [[nodiscard]] const std::string& label() const { return label_; }
  void setLabel(std::string label) { label_ = std::move(label); }

  /// The host's bytes; nullptr for Private storage. Device results show after synchronize() and completion;
  /// on the CPU at once.
  [[nodiscard]] std::byte* contents() const;
  /// contents() as elements of type T; empty for Private storage.
  template <class T>
  [[nodiscard]] std::span<T> contentsAs() const {
    std::byte* bytes = contents();
    return bytes == nullptr ? std::span<T>{}
                            : std::span<T>(reinterpret_cast<T*>(bytes), length() / sizeof(T));
  }
  /// The host wrote contents()[offset, offset + length): later commands read the new bytes, which are valid again if a
  /// failed command should have written them.
  /// @throws Error when the range leaves the buffer.
  void didModifyRange(std::size_t offset, std::size_t length);
  /// Records the copy that makes device results visible in contents() (a blit encoder's synchronizeResource).
  /// @throws Error for a command buffer of another device, and after commit.
  void synchronize(CommandBuffer& commandBuffer);

  [[nodiscard]] const std::shared_ptr<Memory>& memory() const { return memory_; }

 private:
  std::shared_ptr<Device> device_;
  std::shared_ptr<Memory> memory_;
  StorageMode storageMode_;
  std::string label_;
};

}  // namespace mtl
