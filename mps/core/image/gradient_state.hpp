#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "mps/core/image/state.hpp"

namespace mps {

/// States that know the size of the forward source (protocol MPSImageSizeEncodingState): they undo a lossy
/// down-sizing.
class ImageSizeEncodingState {
 public:
  virtual ~ImageSizeEncodingState() = default;
  [[nodiscard]] virtual std::size_t sourceWidth() const = 0;
  [[nodiscard]] virtual std::size_t sourceHeight() const = 0;
};

namespace detail {

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
  [[nodiscard]] std::size_t sourceWidth() const override;
  [[nodiscard]] std::size_t sourceHeight() const override;

  /// @name The library's own
  /// @{
  /// An encode of the forward or of the gradient kernel follows. What it changes in the state is undone
  /// should the command buffer be dropped, where the next encodes go by it.
  virtual void willEncode(mtl::CommandBuffer& /*commandBuffer*/) {}
  /// A gradient encode follows. Where the state has sums that later encodes add to, makes that
  /// right also if this one is left out by a predicate or dropped with its command buffer.
  virtual void willEncodeGradient(mtl::CommandBuffer& /*commandBuffer*/) {}
  /// @}

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
