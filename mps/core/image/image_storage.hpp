#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "mps/core/types/tensor_shape.hpp"
#include "mtl/content.hpp"
#include "mtl/log.hpp"

namespace mtl {
class CommandBuffer;
struct ContentMark;
class Device;
class Heap;
class Memory;
class Submission;
}  // namespace mtl

namespace mps::detail {

/// The memory behind one image, one stack or one batch; taken at first use.
///
/// Temporary storage keeps the read count of each of its images and gives the memory back to the command
/// buffer's heap when all of them are 0.
class ImageStorage : public std::enable_shared_from_this<ImageStorage> {
 public:
  /// Permanent, dense.
  ImageStorage(std::shared_ptr<mtl::Device> device, const TensorShape& shape);
  /// Temporary, dense, on the heap of a command buffer; `countedImages` images have a read count of their
  /// own.
  ImageStorage(mtl::CommandBuffer& commandBuffer, const TensorShape& shape, std::size_t countedImages);
  /// Over memory that exists already; the shape's strides may have gaps.
  ImageStorage(std::shared_ptr<mtl::Device> device, std::shared_ptr<mtl::Memory> memory,
               std::size_t byteOffset, const TensorShape& shape);
  /// Temporary storage with reads left is a line in the command buffer's logs (docs/decisions.md, D15): here, or
  /// earlier, when that has completed.
  ~ImageStorage();
  ImageStorage(const ImageStorage&) = delete;
  ImageStorage& operator=(const ImageStorage&) = delete;

  [[nodiscard]] const std::shared_ptr<mtl::Device>& device() const { return device_; }
  [[nodiscard]] const TensorShape& shape() const { return shape_; }
  [[nodiscard]] bool isTemporary() const { return heap_ != nullptr; }
  /// Whether temporary storage may be used with this command buffer.
  [[nodiscard]] bool belongsTo(const mtl::CommandBuffer& commandBuffer) const;
  [[nodiscard]] std::size_t byteOffset() const { return byteOffset_; }
  /// Bytes of backing storage; 0 over memory of others.
  [[nodiscard]] std::size_t resourceSize() const;
  /// The memory if there is some already, else null.
  [[nodiscard]] std::shared_ptr<mtl::Memory> allocatedMemory() const;
  /// Whether all read counts have reached 0.
  [[nodiscard]] bool isReleased() const;

  /// The memory, allocated when there is none yet. @throws Error when it was released.
  std::shared_ptr<mtl::Memory> memory();
  /// @name Memory with defined content, but for temporary storage: zeros where nothing was written yet
  ///
  /// A first write that covers everything needs no zeros. But a recorded write may not happen: a predicate may leave it
  /// out, its command buffer may be let go, or its encode may fail. So it is pending until the commit, and whoever else
  /// uses the memory meanwhile has the zeros.
  /// @{
  std::shared_ptr<mtl::Memory> memoryForReading();
  std::shared_ptr<mtl::Memory> memoryForReading(mtl::CommandBuffer& commandBuffer);
  /// A write covers (part of) the storage; the rest of a partial first write is zero.
  std::shared_ptr<mtl::Memory> memoryForWriting(bool whole);
  std::shared_ptr<mtl::Memory> memoryForWriting(mtl::CommandBuffer& commandBuffer, bool whole);
  /// @}

  [[nodiscard]] std::size_t readCount(std::size_t image) const;
  void setReadCount(std::size_t image, std::size_t count);
  /// Takes 1 off a read count that is not 0 yet.
  void releaseRead(std::size_t image) noexcept;
  /// Who wrote it and who read it last, for messages about released images.
  void setProducer(const std::string& kernel);
  [[nodiscard]] const std::string& producer() const { return producer_; }
  void setLastReader(const std::string& kernel) { lastReader_ = kernel; }
  [[nodiscard]] const std::string& lastReader() const { return lastReader_; }
  /// Of the image that was labelled last, for messages.
  void setLabel(const std::string& label);
  /// @name For the log
  /// @{
  [[nodiscard]] std::size_t readsLeft() const;
  [[nodiscard]] std::string describeUnread() const;
  /// @}

 private:
  class PendingWrite;

  std::shared_ptr<mtl::Memory> allocateLocked();
  /// What is there is zeros, unless it was written.
  void defineLocked();
  /// A read count reached 0; with the last one the memory goes. Under the lock.
  void releaseImage() noexcept;

  std::shared_ptr<mtl::Device> device_;
  TensorShape shape_;
  std::shared_ptr<mtl::Heap> heap_;
  std::uint64_t scope_ = 0;
  std::size_t byteOffset_ = 0;
  bool ownsMemory_ = true;
  mutable std::mutex mutex_;
  std::shared_ptr<mtl::Memory> memory_;
  bool written_ = false;
  const mtl::Submission* pendingIn_ = nullptr;  ///< uncommitted, with a first write of everything
  bool released_ = false;
  std::vector<std::size_t> readCounts_;
  std::size_t livingImages_ = 0;
  std::string label_;
  std::string producer_;
  std::string lastReader_;
  mtl::Log::Watch watch_;  ///< by the command buffer's log
};

/// A tensor in memory: what a command reads or writes.
struct TensorView {
  TensorShape shape;
  std::shared_ptr<mtl::Memory> memory;
  std::size_t byteOffset = 0;
  bool isPermanent = false;  ///< a command that uses it keeps the memory alive
  bool isImage = false;

  [[nodiscard]] std::byte* address() const;
  /// What a command that reads or writes it marks: the elements of an image, which may share its memory with others.
  [[nodiscard]] mtl::ContentMark mark() const;
};

/// The bytes of a tensor whose first element is at an offset.
[[nodiscard]] mtl::ByteRegion bytesOf(const TensorShape& shape, std::size_t byteOffset);

}  // namespace mps::detail
