#pragma once

#include <any>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/reduction/reduction_operation.hpp"

/// Reductions along an axis (MPSNNReduce.h).
namespace mps {

namespace detail {
/// "NNReduceRowMin".
std::string reductionClassName(ReductionOperation operation, ReductionAxis axis);
}  // namespace detail

/// Base of the reductions of one image (MPSNNReduceUnary). Of the region clipRectSource, w x h pixels with C channels:
///
/// | classes NNReduce...                                     | result    |                                        |
/// |---------------------------------------------------------|-----------|----------------------------------------|
/// | RowMin, RowMax, RowSum, RowMean                         | 1 x h x C | over x                                 |
/// | ColumnMin, ColumnMax, ColumnSum, ColumnMean             | w x 1 x C | over y                                 |
/// | SpatialMean                                             | 1 x 1 x C | over x and y                           |
/// | FeatureChannelsMin, -Max, -Sum, -Mean                   | w x h x 1 | over the channels; Sum times weight    |
/// | FeatureChannelsArgumentMin, FeatureChannelsArgumentMax  | w x h x 1 | the channel, counted from the first one|
/// |                                                         |           | that is read; the lowest of equals     |
///
/// NaN goes through minimum and maximum. The result is written from clipRect.origin on, as large as the table says; the
/// destination must hold it, and its other pixels stay as they are. offset is not used. Sources: every format;
/// destinations: float16, float32. float16 results hold channel numbers up to 2,048. Sums are float32.
class NNReduceUnary : public CNNKernel {
 public:
  /// Pixels that are reduced, cut to the source (z is not used). RectNoClip.
  [[nodiscard]] const mtl::Region& clipRectSource() const { return clipRectSource_; }
  void setClipRectSource(const mtl::Region& region) { clipRectSource_ = region; }
  [[nodiscard]] virtual ReductionOperation operation() const = 0;
  [[nodiscard]] virtual ReductionAxis axis() const = 0;
  [[nodiscard]] std::string className() const override;

 protected:
  using CNNKernel::CNNKernel;
  NNReduceUnary(const NNReduceUnary&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] virtual float scale() const { return 1; }
  [[nodiscard]] bool hasWindow() const override { return true; }
  [[nodiscard]] std::size_t producedFeatureChannels(std::size_t sourceFeatureChannels) const override;
  void adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) override;
  void limitClip(mtl::Region& clip, const detail::TensorShape& source) const override;
  void describeForward(std::any& family) const override;
  /// @throws Error when clipRectSource lies outside the source, or the destination is too small
  [[nodiscard]] detail::PreparedCall prepareForward(const detail::ForwardCall& call) const override;

 private:
  mtl::Region clipRectSource_ = RectNoClip;
};

/// The classes of NNReduceUnary's table.
template <ReductionOperation Operation, ReductionAxis Axis>
class NNReduce final : public NNReduceUnary {
 public:
  [[nodiscard]] ReductionOperation operation() const override { return Operation; }
  [[nodiscard]] ReductionAxis axis() const override { return Axis; }
  static std::shared_ptr<NNReduce> create(const std::shared_ptr<mtl::Device>& device) {
    return std::shared_ptr<NNReduce>(new NNReduce(device));
  }
  [[nodiscard]] std::shared_ptr<NNReduce> copy(const std::shared_ptr<mtl::Device>& device = nullptr) const {
    return detail::copyAs(*this, device);
  }
  static std::shared_ptr<NNReduce> decode(Coder& coder,
                                          const std::shared_ptr<mtl::Device>& device = nullptr) {
    return detail::decodeAs<NNReduce>(coder, device);
  }
  /// className() without an object.
  static std::string nameOfClass() { return detail::reductionClassName(Operation, Axis); }

 private:
  using NNReduceUnary::NNReduceUnary;
  NNReduce(const NNReduce&) = default;
  [[nodiscard]] std::shared_ptr<Kernel> clone() const override {
    return std::shared_ptr<NNReduce>(new NNReduce(*this));
  }
};

using NNReduceRowMin = NNReduce<ReductionOperation::Min, ReductionAxis::Row>;
using NNReduceRowMax = NNReduce<ReductionOperation::Max, ReductionAxis::Row>;
using NNReduceRowSum = NNReduce<ReductionOperation::Sum, ReductionAxis::Row>;
using NNReduceRowMean = NNReduce<ReductionOperation::Mean, ReductionAxis::Row>;
using NNReduceColumnMin = NNReduce<ReductionOperation::Min, ReductionAxis::Column>;
using NNReduceColumnMax = NNReduce<ReductionOperation::Max, ReductionAxis::Column>;
using NNReduceColumnSum = NNReduce<ReductionOperation::Sum, ReductionAxis::Column>;
using NNReduceColumnMean = NNReduce<ReductionOperation::Mean, ReductionAxis::Column>;
using NNReduceFeatureChannelsMin = NNReduce<ReductionOperation::Min, ReductionAxis::FeatureChannels>;
using NNReduceFeatureChannelsMax = NNReduce<ReductionOperation::Max, ReductionAxis::FeatureChannels>;
using NNReduceFeatureChannelsMean = NNReduce<ReductionOperation::Mean, ReductionAxis::FeatureChannels>;
using NNReduceFeatureChannelsArgumentMin =
    NNReduce<ReductionOperation::ArgumentMin, ReductionAxis::FeatureChannels>;
using NNReduceFeatureChannelsArgumentMax =
    NNReduce<ReductionOperation::ArgumentMax, ReductionAxis::FeatureChannels>;
/// Global average pooling. Apple has its node alone.
using NNReduceSpatialMean = NNReduce<ReductionOperation::Mean, ReductionAxis::Spatial>;

/// weight * the sum over the channels.
class NNReduceFeatureChannelsSum final
    : public detail::KernelClass<NNReduceFeatureChannelsSum, NNReduceUnary, "NNReduceFeatureChannelsSum"> {
 public:
  static std::shared_ptr<NNReduceFeatureChannelsSum> create(const std::shared_ptr<mtl::Device>& device);
  [[nodiscard]] ReductionOperation operation() const override { return ReductionOperation::Sum; }
  [[nodiscard]] ReductionAxis axis() const override { return ReductionAxis::FeatureChannels; }
  /// 1. @throws Error unless it is finite
  [[nodiscard]] float weight() const { return weight_; }
  void setWeight(float weight);

 private:
  friend KernelClass;
  using KernelClass::KernelClass;
  NNReduceFeatureChannelsSum(const NNReduceFeatureChannelsSum&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] float scale() const override { return weight_; }

  float weight_ = 1;
};

/// The gradient of a reduction. An extension (docs/decisions.md, D6): Apple has the node of the spatial mean alone.
///
///     Sum        dSource = weight * g
///     Mean       dSource = g / number of elements
///     Min, Max   dSource = g at the element that was taken, the first one of equals; 0 elsewhere
///
/// 0 outside clipRectSource. Weight and region come from the state. sourceImage is the forward source; of sums and
/// means only its size counts.
///
/// @throws Error (create) for arguments of minimum and maximum, which have no gradient; (encodes) without a state and
/// when clipRect is set
///
///     auto mean = mps::NNReduceSpatialMean::create(device);
///     std::shared_ptr<mps::State> state;
///     auto y = mean->encode(commandBuffer, x, state, false);
///     auto gradient = mps::NNReduceUnaryGradient::create(device, mean->operation(), mean->axis());
///     auto dx = gradient->encode(commandBuffer, dy, x, state);
class NNReduceUnaryGradient
    : public detail::KernelClass<NNReduceUnaryGradient, CNNGradientKernel, "NNReduceUnaryGradient"> {
 public:
  static std::shared_ptr<NNReduceUnaryGradient> create(const std::shared_ptr<mtl::Device>& device,
                                                       ReductionOperation operation, ReductionAxis axis);

 protected:
  using KernelClass::KernelClass;
  NNReduceUnaryGradient(std::shared_ptr<mtl::Device> device, ReductionOperation operation,
                        ReductionAxis axis);
  NNReduceUnaryGradient(const NNReduceUnaryGradient&) = default;
  void codeProperties(Coder& coder) override;
  [[nodiscard]] std::vector<detail::PreparedCall> prepareGradient(
      const detail::GradientCall& call) const override;
  [[nodiscard]] bool acceptsForward(const std::string& forwardClassName) const override;
  [[nodiscard]] bool needsSourceMemory(bool forwardSavesFields) const override;
  [[nodiscard]] bool canAccumulate() const override { return true; }

 private:
  friend KernelClass;
  ReductionOperation operation_ = ReductionOperation::Sum;
  ReductionAxis axis_ = ReductionAxis::Row;
};

}  // namespace mps
