#include "mps/convolution/cpu/convolution_slices.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace mps::detail {
namespace {

/// Bytes of float32 copies that stay in the caches. The same for any number of threads, as results are.
constexpr std::int64_t kLeastBytes = std::int64_t{4} << 20U;
/// Weights are brought into a library's layout for each slice, which must cost little beside its images.
constexpr std::int64_t kTimesWeights = 8;

bool needsCopy(const TensorShape& tensor) {
  return tensor.elements() > 0 && (tensor.format != ImageFeatureChannelFormat::Float32 || !tensor.isDense());
}

std::int64_t imagesPerSlice(const ConvolutionProblem& problem) {
  const std::int64_t images = problem.images();
  if (images == 0 || problem.operation == ConvolutionOperation::WeightsGradient) return images;
  std::int64_t bytesPerImage = 0;
  for (const TensorShape& tensor : {problem.source, problem.gradient, problem.destination})
    if (needsCopy(tensor))
      bytesPerImage +=
          tensor.height * tensor.width * tensor.channels * static_cast<std::int64_t>(sizeof(float));
  if (bytesPerImage == 0) return images;

  const std::int64_t weightBytes = problem.weightCount() * static_cast<std::int64_t>(sizeof(float));
  const std::int64_t wanted = std::max(kLeastBytes, kTimesWeights * weightBytes);
  const std::int64_t most = std::max<std::int64_t>(1, (wanted + bytesPerImage - 1) / bytesPerImage);
  // Slices of nearly the same size.
  const std::int64_t slices = (images + most - 1) / most;
  return (images + slices - 1) / slices;
}

ConvolutionProblem withImages(ConvolutionProblem problem, std::int64_t images) {
  for (TensorShape* tensor : {&problem.source, &problem.gradient, &problem.destination})
    if (tensor->images > 0) tensor->images = images;
  return problem;
}

std::int64_t bytesBetweenImages(const TensorShape& tensor) {
  return tensor.imageStride * static_cast<std::int64_t>(bytesPerChannel(tensor.format));
}

class SlicedPlan final : public Plan {
 public:
  /// @param last for what remains after the whole slices; null when nothing does.
  SlicedPlan(const ConvolutionProblem& problem, std::int64_t imagesPerSlice,
             std::shared_ptr<const Plan> slice, std::shared_ptr<const Plan> last)
      : sourceStep_(bytesBetweenImages(problem.source) * imagesPerSlice),
        gradientStep_(bytesBetweenImages(problem.gradient) * imagesPerSlice),
        destinationStep_(bytesBetweenImages(problem.destination) * imagesPerSlice),
        wholeSlices_(problem.images() / imagesPerSlice),
        slice_(std::move(slice)),
        last_(std::move(last)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    Operands slice = operands;
    for (std::int64_t i = 0; i < wholeSlices_; ++i) {
      slice_->run(stream, slice);
      if (slice.source != nullptr) slice.source += sourceStep_;
      if (slice.gradient != nullptr) slice.gradient += gradientStep_;
      slice.destination += destinationStep_;
    }
    if (last_) last_->run(stream, slice);
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    return std::max(slice_->scratchBytes(), last_ ? last_->scratchBytes() : 0);
  }
  [[nodiscard]] bool canAccumulate() const override { return slice_->canAccumulate(); }
  [[nodiscard]] std::string describe() const override {
    return slice_->describe() + " in " + std::to_string(wholeSlices_ + (last_ ? 1 : 0)) + " parts";
  }

 private:
  std::int64_t sourceStep_;
  std::int64_t gradientStep_;
  std::int64_t destinationStep_;
  std::int64_t wholeSlices_;
  std::shared_ptr<const Plan> slice_;
  std::shared_ptr<const Plan> last_;
};

}  // namespace

Preparation prepareInSlices(const ConvolutionProblem& problem,
                            Preparation (*prepare)(const ConvolutionProblem&)) {
  const std::int64_t images = imagesPerSlice(problem);
  if (images == problem.images()) return prepare(problem);

  Preparation slice = prepare(withImages(problem, images));
  if (std::holds_alternative<Refusal>(slice)) return slice;
  std::shared_ptr<const Plan> last;
  if (const std::int64_t rest = problem.images() % images; rest > 0) {
    Preparation preparation = prepare(withImages(problem, rest));
    if (std::holds_alternative<Refusal>(preparation)) return preparation;
    last = std::get<std::shared_ptr<const Plan>>(std::move(preparation));
  }
  return std::make_shared<const SlicedPlan>(
      problem, images, std::get<std::shared_ptr<const Plan>>(std::move(slice)), std::move(last));
}

}  // namespace mps::detail
