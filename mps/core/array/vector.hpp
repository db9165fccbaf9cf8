#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "mps/core/array/array.hpp"
#include "mps/core/types/types.hpp"

namespace mtl {
class Buffer;
class CommandBuffer;
class Device;
}  // namespace mtl

namespace mps {

class Coder;

/// Lengths and type of vectors (MPSVectorDescriptor). A value; a vector that was made
/// from it does not see later changes.
class VectorDescriptor {
 public:
  /// One vector without gaps. @throws Error for an invalid type.
  static VectorDescriptor create(std::size_t length, DataType dataType);
  /// @param vectorBytes from one vector to the next, a multiple of the element size, at least one vector
  static VectorDescriptor create(std::size_t length, std::size_t vectors, std::size_t vectorBytes,
                                 DataType dataType);
  /// Apple's name of create. @{
  static VectorDescriptor vectorDescriptor(std::size_t length, DataType dataType) {
    return create(length, dataType);
  }
  static VectorDescriptor vectorDescriptor(std::size_t length, std::size_t vectors, std::size_t vectorBytes,
                                           DataType dataType) {
    return create(length, vectors, vectorBytes, dataType);
  }
  /// @}
  /// The recommended distance: one element for length 1, else floating types to 16 bytes, integers to 4
  /// elements. @throws Error for a type that has no whole bytes and when it is more than memory can have.
  static std::size_t vectorBytes(std::size_t length, DataType dataType);

  /// Elements of one vector.
  [[nodiscard]] std::size_t length() const { return length_; }
  void setLength(std::size_t length) { length_ = length; }
  [[nodiscard]] std::size_t vectors() const { return vectors_; }
  [[nodiscard]] DataType dataType() const { return dataType_; }
  void setDataType(DataType dataType) { dataType_ = dataType; }
  /// Fixed when the descriptor is made; only several vectors use it.
  [[nodiscard]] std::size_t vectorBytes() const { return vectorBytes_; }

  void encode(Coder& coder) const;
  /// Strides are checked when a vector is made. @throws Error for a type that does not exist
  static VectorDescriptor decode(Coder& coder);
  bool operator==(const VectorDescriptor&) const = default;

 private:
  void codeFields(Coder& coder);
  VectorDescriptor(std::size_t length, std::size_t vectors, std::size_t vectorBytes, DataType dataType)
      : length_(length), vectors_(vectors), vectorBytes_(vectorBytes), dataType_(dataType) {}
  std::size_t length_;
  std::size_t vectors_;
  std::size_t vectorBytes_;
  DataType dataType_;
};

/// One or several vectors in a buffer (MPSVector).
/// Element i of vector v lies at data()->contents() + offset() + v * vectorBytes() + i * size of the type.
/// What the descriptor says is taken over when the vector is made; it may have no elements.
class Vector : public detail::Array {
 public:
  /// Shares the buffer, which holds at least offset + (vectors - 1) * vectorBytes + length * size bytes.
  /// @param offset in bytes, a multiple of the element size. @throws Error when the vectors overlap or leave
  /// the buffer.
  static std::shared_ptr<Vector> create(std::shared_ptr<mtl::Buffer> buffer,
                                        const VectorDescriptor& descriptor, std::size_t offset = 0);
  /// With a zero-filled buffer of its own of vectors * vectorBytes bytes, allocated at first use.
  static std::shared_ptr<Vector> create(std::shared_ptr<mtl::Device> device,
                                        const VectorDescriptor& descriptor);

  [[nodiscard]] std::size_t length() const { return descriptor_.length(); }
  [[nodiscard]] std::size_t vectors() const { return descriptor_.vectors(); }
  [[nodiscard]] std::size_t vectorBytes() const { return descriptor_.vectorBytes(); }
  [[nodiscard]] DataType dataType() const { return descriptor_.dataType(); }

 protected:
  Vector(std::unique_ptr<detail::ArrayStorage> storage, const VectorDescriptor& descriptor);

 private:
  VectorDescriptor descriptor_;
};

/// Scratch vector of one command buffer (MPSTemporaryVector). Its memory is private (no
/// host address), undefined at first, and serves others once readCount is 0: each encode that reads it takes
/// 1 off.
class TemporaryVector : public Vector {
 public:
  /// @throws Error after commit.
  static std::shared_ptr<TemporaryVector> create(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                 const VectorDescriptor& descriptor);
  /// A hint without effect.
  static void prefetchStorage(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                              std::span<const VectorDescriptor> descriptors);
  using Vector::readCount;
  using Vector::setReadCount;

 private:
  using Vector::Vector;
};

}  // namespace mps
