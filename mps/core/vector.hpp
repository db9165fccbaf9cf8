#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "mps/core/types.hpp"

namespace mtl {
class Buffer;
class CommandBuffer;
class Device;
}  // namespace mtl

namespace mps {

/// Lengths and type of vectors (MPSVectorDescriptor; spec/05 section 2.2). A value.
class VectorDescriptor {
 public:
  /// One vector without gaps. @throws Error for an invalid type.
  static VectorDescriptor vectorDescriptor(std::size_t length, DataType dataType);
  /// @param vectorBytes from one vector to the next, a multiple of the element size, at least one vector
  static VectorDescriptor vectorDescriptor(std::size_t length, std::size_t vectors, std::size_t vectorBytes,
                                           DataType dataType);
  /// The recommended distance: one element for length 1, else floating types to 16 bytes, integers to 4
  /// elements.
  static std::size_t vectorBytes(std::size_t length, DataType dataType);

  [[nodiscard]] std::size_t length() const { return length_; }
  void setLength(std::size_t length) { length_ = length; }
  [[nodiscard]] std::size_t vectors() const { return vectors_; }
  [[nodiscard]] DataType dataType() const { return dataType_; }
  void setDataType(DataType dataType) { dataType_ = dataType; }
  [[nodiscard]] std::size_t vectorBytes() const { return vectorBytes_; }

 private:
  VectorDescriptor(std::size_t length, std::size_t vectors, std::size_t vectorBytes, DataType dataType)
      : length_(length), vectors_(vectors), vectorBytes_(vectorBytes), dataType_(dataType) {}
  std::size_t length_;
  std::size_t vectors_;
  std::size_t vectorBytes_;
  DataType dataType_;
};

/// One or several vectors in a buffer (MPSVector; spec/05 section 2.4).
/// Element i of vector v lies at data()->contents() + offset() + v * vectorBytes() + i * size of the type.
class Vector {
 public:
  virtual ~Vector() = default;
  Vector(const Vector&) = delete;
  Vector& operator=(const Vector&) = delete;

  /// Shares the buffer. @param offset in bytes, a multiple of the element size. @throws Error when it does
  /// not fit.
  static std::shared_ptr<Vector> create(std::shared_ptr<mtl::Buffer> buffer,
                                        const VectorDescriptor& descriptor, std::size_t offset = 0);
  /// With a zero-filled buffer of its own, allocated at first use.
  static std::shared_ptr<Vector> create(std::shared_ptr<mtl::Device> device,
                                        const VectorDescriptor& descriptor);

  [[nodiscard]] const std::shared_ptr<mtl::Device>& device() const { return device_; }
  [[nodiscard]] std::size_t length() const { return descriptor_.length(); }
  [[nodiscard]] std::size_t vectors() const { return descriptor_.vectors(); }
  [[nodiscard]] std::size_t vectorBytes() const { return descriptor_.vectorBytes(); }
  [[nodiscard]] DataType dataType() const { return descriptor_.dataType(); }
  [[nodiscard]] std::size_t offset() const { return offset_; }
  /// The buffer; allocates it. @throws Error for a temporary vector whose readCount is 0.
  [[nodiscard]] virtual std::shared_ptr<mtl::Buffer> data();
  /// Bytes of backing storage; 0 over a buffer of the caller. Does not allocate.
  [[nodiscard]] std::size_t resourceSize() const;
  [[nodiscard]] virtual bool isTemporary() const { return false; }
  /// Records the copy that makes device results visible in data(). @throws Error after commit.
  void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);

 protected:
  Vector(std::shared_ptr<mtl::Device> device, std::shared_ptr<mtl::Buffer> buffer,
         const VectorDescriptor& descriptor, std::size_t offset);
  std::shared_ptr<mtl::Buffer> buffer_;

 private:
  std::shared_ptr<mtl::Device> device_;
  VectorDescriptor descriptor_;
  std::size_t offset_;
  bool ownsBuffer_;
};

/// Scratch vector of one command buffer (MPSTemporaryVector); readCount as for TemporaryImage.
class TemporaryVector : public Vector {
 public:
  static std::shared_ptr<TemporaryVector> create(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                 const VectorDescriptor& descriptor);
  /// A hint without effect.
  static void prefetchStorage(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                              std::span<const VectorDescriptor> descriptors);
  [[nodiscard]] std::shared_ptr<mtl::Buffer> data() override;
  [[nodiscard]] std::size_t readCount() const { return readCount_; }
  /// 0 frees the memory now. @throws Error when it was 0 already.
  void setReadCount(std::size_t readCount);
  [[nodiscard]] bool isTemporary() const override { return true; }

 private:
  TemporaryVector(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                  const VectorDescriptor& descriptor);
  std::shared_ptr<mtl::CommandBuffer> commandBuffer_;
  std::size_t readCount_ = 1;
};

}  // namespace mps
