#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/array/array.hpp"
#include "mps/core/types/element_range.hpp"
#include "mps/core/types/types.hpp"

namespace mtl {
class CommandBuffer;
class Device;
}  // namespace mtl

namespace mps {

class Coder;

/// Type and lengths of an array of up to 16 dimensions (MPSNDArrayDescriptor). A value.
///
/// Dimension 0 is the fastest one, as with Apple: its elements are neighbours in memory. A matrix of 3 rows of 5 columns has the
/// lengths {5, 3}.
class NDArrayDescriptor {
 public:
  static constexpr std::size_t kMostDimensions = 16;

  /// @param dimensionSizes length of each dimension, the fastest first
  /// @throws Error for a type of no whole bytes, no dimension or more than 16, a length of 0, and what memory cannot hold
  static NDArrayDescriptor create(DataType dataType, std::vector<std::size_t> dimensionSizes);
  /// Apple's name of create.
  static NDArrayDescriptor descriptor(DataType dataType, std::vector<std::size_t> dimensionSizes) {
    return create(dataType, std::move(dimensionSizes));
  }

  [[nodiscard]] DataType dataType() const { return dataType_; }
  [[nodiscard]] std::size_t numberOfDimensions() const { return dimensionSizes_.size(); }
  /// 1 for dimensions that the array does not have.
  [[nodiscard]] std::size_t lengthOfDimension(std::size_t dimension) const {
    return dimension < dimensionSizes_.size() ? dimensionSizes_[dimension] : 1;
  }
  /// "Float32 5x3", the fastest dimension first.
  [[nodiscard]] std::string describe() const;

  void encode(Coder& coder) const;
  /// @throws Error for what descriptor() refuses
  static NDArrayDescriptor decode(Coder& coder);
  bool operator==(const NDArrayDescriptor&) const = default;

 private:
  NDArrayDescriptor(DataType dataType, std::vector<std::size_t> dimensionSizes)
      : dataType_(dataType), dimensionSizes_(std::move(dimensionSizes)) {}
  void codeFields(Coder& coder);
  DataType dataType_;
  std::vector<std::size_t> dimensionSizes_;
};

/// An array of numbers of any shape (MPSNDArray). Its elements lie without gaps in data(), dimension 0 the fastest: with the
/// lengths L0, L1, ... element (i0, i1, i2, ...) is number i0 + L0 (i1 + L1 (i2 + ...)).
class NDArray : public detail::Array {
 public:
  /// Filled with zeros; the memory is taken at first use. @throws Error for null
  static std::shared_ptr<NDArray> create(std::shared_ptr<mtl::Device> device,
                                         const NDArrayDescriptor& descriptor);

  [[nodiscard]] const NDArrayDescriptor& descriptor() const { return descriptor_; }
  [[nodiscard]] DataType dataType() const { return descriptor_.dataType(); }
  [[nodiscard]] std::size_t numberOfDimensions() const { return descriptor_.numberOfDimensions(); }
  [[nodiscard]] std::size_t lengthOfDimension(std::size_t dimension) const {
    return descriptor_.lengthOfDimension(dimension);
  }

  /// Copies all elements to the host, as they lie in memory. What a device has written shows after synchronize() and the
  /// completion of its command buffer.
  /// @throws Error for another number of bytes, a temporary array, and content that a failed command should have written
  void readBytes(std::span<std::byte> destination) const;
  /// Elements: a vector, an array or a span of floats, say.
  template <detail::WritableElementRange Elements>
  void readBytes(Elements&& destination) const {
    readBytes(std::as_writable_bytes(std::span(destination)));
  }
  /// Sets all elements from the host; no encoded work may still read the old ones.
  /// @throws Error for another number of bytes and a temporary array
  void writeBytes(std::span<const std::byte> source);
  template <detail::ElementRange Elements>
  void writeBytes(const Elements& source) {
    writeBytes(std::as_bytes(std::span(source)));
  }

 protected:
  NDArray(std::unique_ptr<detail::ArrayStorage> storage, NDArrayDescriptor descriptor);

 private:
  void checkHostAccess(const char* method, std::size_t bytes) const;
  NDArrayDescriptor descriptor_;
};

/// Scratch array of one command buffer (MPSTemporaryNDArray). Its memory is private (no host address), undefined at first, and
/// serves others once readCount is 0: each encode that reads it takes 1 off.
class TemporaryNDArray : public NDArray {
 public:
  /// @throws Error after commit.
  static std::shared_ptr<TemporaryNDArray> create(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                  const NDArrayDescriptor& descriptor);
  using NDArray::readCount;
  using NDArray::setReadCount;

 private:
  using NDArray::NDArray;
};

namespace detail {
/// Of all elements.
[[nodiscard]] std::size_t bytesOf(const NDArrayDescriptor& descriptor);
}  // namespace detail

}  // namespace mps
