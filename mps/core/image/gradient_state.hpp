#pragma once

#include <any>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "mps/core/image/image_storage.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/types/types.hpp"

namespace mps {

class ImageBatch;

/// States that know the size of the forward source (protocol MPSImageSizeEncodingState): they undo a lossy
/// down-sizing.
class ImageSizeEncodingState {
 public:
  virtual ~ImageSizeEncodingState() = default;
  [[nodiscard]] virtual std::size_t sourceWidth() const = 0;
  [[nodiscard]] virtual std::size_t sourceHeight() const = 0;
};

namespace detail {

/// What one forward encode leaves for its gradient: the kernel's properties at that moment (docs/decisions.md, D9)
/// and the fields that make the gradient cheaper (docs/decisions.md, D14). Shared by the states of a batch.
struct ForwardRecord {
  std::string kernelClass;
  Offset offset;
  mtl::Region clipRect;  ///< after intersection with the destination
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
  std::size_t kernelWidth = 1;
  std::size_t kernelHeight = 1;
  std::size_t strideInPixelsX = 1;
  std::size_t strideInPixelsY = 1;
  std::size_t dilationRateX = 1;
  std::size_t dilationRateY = 1;
  std::size_t sourceFeatureChannelOffset = 0;
  std::size_t sourceFeatureChannels = 0;  ///< channels read
  std::size_t destinationFeatureChannelOffset = 0;
  std::size_t destinationFeatureChannels = 0;  ///< channels produced
  ImageDescriptor source;
  ImageDescriptor destination;
  std::size_t imageCount = 0;

  /// Saved fields, dense over the images of the call; null when there are none.
  std::shared_ptr<mtl::Memory> saved;
  std::size_t savedBytesPerImage = 0;
  /// Where the images of the call begin: saved fields serve a gradient of exactly these images (docs/decisions.md,
  /// D11, D14).
  struct Place {
    std::weak_ptr<ImageStorage> storage;
    std::size_t byteOffset = 0;
    std::int64_t imageStride = 0;  ///< in elements
  };
  Place sourcePlace;
  Place resultPlace;

  /// What a family adds.
  std::any family;
};

/// Base of the states that carry a record.
class RecordHolder {
 public:
  virtual ~RecordHolder() = default;
  [[nodiscard]] const std::shared_ptr<const ForwardRecord>& record() const { return record_; }
  [[nodiscard]] std::size_t imageIndex() const { return imageIndex_; }
  void setRecord(std::shared_ptr<const ForwardRecord> record, std::size_t imageIndex) {
    record_ = std::move(record);
    imageIndex_ = imageIndex;
  }

 private:
  std::shared_ptr<const ForwardRecord> record_;
  std::size_t imageIndex_ = 0;
};

/// The record that all states of a batch share, and whether they are its images in order.
struct BatchRecord {
  std::shared_ptr<const ForwardRecord> record;
  std::size_t firstImage = 0;
  bool inOrder = false;
};
/// @throws Error when a state carries no record or the records disagree; `kernel` is named in the message.
BatchRecord recordOf(const std::string& kernel, const StateBatch& states);

}  // namespace detail

/// Record of one unary forward encode, read by the gradient kernel (MPSNNGradientState).
///
/// A state belongs to one forward pass. It has no resources and is therefore never temporary; it keeps what
/// the kernel's properties were when it encoded, so changing the kernel afterwards does not change the
/// gradient.
class NNGradientState : public State, public ImageSizeEncodingState, public detail::RecordHolder {
 public:
  static std::shared_ptr<NNGradientState> create(const std::shared_ptr<mtl::Device>& device);

  /// Size of the forward source; 0 before the forward kernel encoded.
  [[nodiscard]] std::size_t sourceWidth() const override { return record() ? record()->source.width() : 0; }
  [[nodiscard]] std::size_t sourceHeight() const override { return record() ? record()->source.height() : 0; }

  /// The library's own: an encode of the forward or of the gradient kernel follows. What it changes in the state is undone
  /// should the command buffer be dropped, where the next encodes go by it.
  virtual void willEncode(mtl::CommandBuffer& /*commandBuffer*/) {}
  /// The library's own: a gradient encode follows. Where the state has sums that later encodes add to, makes that
  /// right also if this one is left out by a predicate or dropped with its command buffer.
  virtual void willEncodeGradient(mtl::CommandBuffer& /*commandBuffer*/) {}

 protected:
  using State::State;
};
using NNGradientStateBatch = StateBatch;

/// Record of a binary forward encode (MPSNNBinaryGradientState). Not an NNGradientState.
class NNBinaryGradientState : public State, public detail::RecordHolder {
 public:
  static std::shared_ptr<NNBinaryGradientState> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using State::State;
};
using NNBinaryGradientStateBatch = StateBatch;

/// Record of a multiary forward encode (MPSNNMultiaryGradientState).
class NNMultiaryGradientState : public State, public detail::RecordHolder {
 public:
  static std::shared_ptr<NNMultiaryGradientState> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using State::State;
};
using NNMultiaryGradientStateBatch = StateBatch;

}  // namespace mps
