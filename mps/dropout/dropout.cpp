#include "mps/dropout/dropout.hpp"

#include <any>

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/kernel/pointwise.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/as_signed.hpp"
#include "mps/core/types/error.hpp"
#include "mps/dropout/dropout_problem.hpp"
#include "mtl/device.hpp"

namespace mps {

using detail::DropoutDirection;
using detail::DropoutProblem;

namespace {

/// What draws the mask of one encode again.
struct DropoutRecord {
  float keepProbability = 1;
  std::uint64_t seed = 0;
  mtl::Size maskStride;
  std::uint32_t encodeCount = 0;
  std::size_t firstImage = 0;  ///< in the batch of all ranks
};

std::string sizeText(const mtl::Size& size) {
  return std::to_string(size.width) + "," + std::to_string(size.height) + "," + std::to_string(size.depth);
}

void checkArguments(const char* className, float keepProbability, const mtl::Size& maskStride) {
  if (!(keepProbability > 0 && keepProbability <= 1))
    throw Error(className, "keepProbability", std::to_string(keepProbability), "above 0 and at most 1");
  if (maskStride.width > 1 || maskStride.height > 1 || maskStride.depth > 1)
    throw Error(className, "maskStrideInPixels", sizeText(maskStride), "0 or 1 along each axis");
}

DropoutProblem problemOf(float keepProbability, std::uint64_t seed, const mtl::Size& maskStride) {
  DropoutProblem problem;
  problem.keepProbability = keepProbability;
  problem.seed = seed;
  problem.maskStrideX = static_cast<std::int64_t>(maskStride.width);
  problem.maskStrideY = static_cast<std::int64_t>(maskStride.height);
  problem.maskStrideChannel = static_cast<std::int64_t>(maskStride.depth);
  return problem;
}

void setMaskSize(DropoutProblem& problem, const detail::ForwardRecord& record) {
  problem.maskWidth = static_cast<std::int64_t>(record.clipRect.size.width);
  problem.maskHeight = static_cast<std::int64_t>(record.clipRect.size.height);
  problem.maskChannels = static_cast<std::int64_t>(record.sourceFeatureChannels);
}

/// @throws Error when an element would have no value of the mask.
void checkMaskPlace(const Kernel& kernel, const DropoutProblem& problem, const detail::TensorShape& shape) {
  const auto fits = [](std::int64_t stride, std::int64_t origin, std::int64_t size, std::int64_t limit) {
    return stride == 0 || (origin >= 0 && size <= limit - origin);
  };
  if (!fits(problem.maskStrideX, problem.maskOriginX, shape.width, problem.maskWidth) ||
      !fits(problem.maskStrideY, problem.maskOriginY, shape.height, problem.maskHeight))
    throw Error(kernel.describe(), "secondaryOffset",
                std::to_string(problem.maskOriginX) + ", " + std::to_string(problem.maskOriginY) + " for " +
                    std::to_string(shape.width) + "x" + std::to_string(shape.height) + " pixels",
                "a place in the mask of " + std::to_string(problem.maskWidth) + "x" +
                    std::to_string(problem.maskHeight));
}

}  // namespace

std::shared_ptr<CNNDropoutGradientState> CNNDropoutGradientState::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<CNNDropoutGradientState>(new CNNDropoutGradientState(device, StateResourceList{}));
}

std::vector<std::byte> CNNDropoutGradientState::maskData() const {
  const auto* drawn = record() ? std::any_cast<DropoutRecord>(&record()->family) : nullptr;
  if (drawn == nullptr)
    throw Error("CNNDropoutGradientState: maskData is asked for before the forward encode");
  DropoutProblem problem = problemOf(drawn->keepProbability, drawn->seed, drawn->maskStride);
  setMaskSize(problem, *record());
  std::vector<std::byte> mask(static_cast<std::size_t>(problem.maskElements()));
  detail::dropoutMask(problem, drawn->encodeCount,
                      static_cast<std::uint32_t>(drawn->firstImage + imageIndex()), mask);
  return mask;
}

CNNDropout::CNNDropout(std::shared_ptr<mtl::Device> device, float keepProbability, std::uint64_t seed,
                       const mtl::Size& maskStrideInPixels)
    : KernelClass(std::move(device)),
      keepProbability_(keepProbability),
      seed_(seed),
      maskStride_(maskStrideInPixels) {
  checkArguments("CNNDropout", keepProbability, maskStrideInPixels);
}

std::shared_ptr<CNNDropout> CNNDropout::create(const std::shared_ptr<mtl::Device>& device,
                                               float keepProbability, std::uint64_t seed,
                                               const mtl::Size& maskStrideInPixels) {
  return std::shared_ptr<CNNDropout>(new CNNDropout(device, keepProbability, seed, maskStrideInPixels));
}

detail::KernelRoles CNNDropout::roles() {
  return {.sharedBatch = this, .random = this};
}

std::shared_ptr<State> CNNDropout::makeState(const std::shared_ptr<mtl::CommandBuffer>& /*commandBuffer*/,
                                             std::span<const std::shared_ptr<State>> /*sourceStates*/) const {
  return CNNDropoutGradientState::create(device());
}

void CNNDropout::describeForward(std::any& family) const {
  family = DropoutRecord{keepProbability_, seed_, maskStride_, encodeCount_, firstImage_};
}

detail::PreparedCall CNNDropout::prepareForward(const detail::ForwardCall& call) const {
  DropoutProblem problem = problemOf(keepProbability_, seed_, maskStride_);
  problem.direction = DropoutDirection::Forward;
  problem.maskWidth = call.destination.width;
  problem.maskHeight = call.destination.height;
  problem.maskChannels = call.source.channels;
  problem.input = call.source;
  problem.destination = call.destination;
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::dropoutBackEnds, problem);
  prepared.scalars[0] = encodeCount_;
  prepared.scalars[1] = static_cast<double>(firstImage_);
  return prepared;
}

CNNDropoutGradient::CNNDropoutGradient(std::shared_ptr<mtl::Device> device, float keepProbability,
                                       std::uint64_t seed, const mtl::Size& maskStrideInPixels)
    : KernelClass(std::move(device)),
      keepProbability_(keepProbability),
      seed_(seed),
      maskStride_(maskStrideInPixels) {
  checkArguments("CNNDropoutGradient", keepProbability, maskStrideInPixels);
}

std::shared_ptr<CNNDropoutGradient> CNNDropoutGradient::create(const std::shared_ptr<mtl::Device>& device,
                                                               float keepProbability, std::uint64_t seed,
                                                               const mtl::Size& maskStrideInPixels) {
  return std::shared_ptr<CNNDropoutGradient>(
      new CNNDropoutGradient(device, keepProbability, seed, maskStrideInPixels));
}

bool CNNDropoutGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "CNNDropout";
}

std::vector<detail::PreparedCall> CNNDropoutGradient::prepareGradient(
    const detail::GradientCall& call) const {
  const auto* drawn = call.record ? std::any_cast<DropoutRecord>(&call.record->family) : nullptr;
  if (drawn == nullptr)
    throw Error(describe(), "gradientState", "missing", "that of the forward encode, which knows the mask");
  if (drawn->keepProbability != keepProbability_ || drawn->seed != seed_ ||
      !(drawn->maskStride == maskStride_))
    throw Error(describe(), "keepProbability, seed or maskStrideInPixels", "not the forward kernel's",
                "equal ones");
  detail::checkPointwise(*this, call);
  detail::GradientCall moved = call;
  moved.secondaryOffset = call.record->offset;
  const detail::PointwiseGradient views = detail::pointwiseGradient(moved);
  DropoutProblem problem = problemOf(keepProbability_, seed_, maskStride_);
  problem.direction = DropoutDirection::Gradient;
  setMaskSize(problem, *call.record);
  problem.maskOriginX = detail::asSigned(views.sourceOrigin.x) - call.record->offset.x;
  problem.maskOriginY = detail::asSigned(views.sourceOrigin.y) - call.record->offset.y;
  if (secondary_.offset.isSet()) {
    problem.maskOriginX += call.secondaryOffset.x;
    problem.maskOriginY += call.secondaryOffset.y;
    checkMaskPlace(*this, problem, views.destination);
  }
  problem.input = views.gradient;
  problem.destination = views.destination;
  detail::PreparedCall prepared =
      detail::preparedPointwise(views, detail::planFor(*device(), detail::dropoutBackEnds, problem));
  prepared.scalars[0] = drawn->encodeCount;
  prepared.scalars[1] = static_cast<double>(drawn->firstImage + call.firstImage);
  prepared.readsSource = false;
  return {prepared};
}

CNNDropoutNode::CNNDropoutNode(std::shared_ptr<NNImageNode> source, float keepProbability, std::uint64_t seed,
                               const mtl::Size& maskStrideInPixels)
    : NNFilterNode({std::move(source)}),
      keepProbability_(keepProbability),
      seed_(seed),
      maskStride_(maskStrideInPixels) {
  checkArguments("CNNDropoutNode", keepProbability, maskStrideInPixels);
  addResultState(std::make_unique<NNGradientStateNode>());
}

std::shared_ptr<CNNDropoutNode> CNNDropoutNode::create(std::shared_ptr<NNImageNode> source,
                                                       float keepProbability, std::uint64_t seed,
                                                       const mtl::Size& maskStrideInPixels) {
  return std::shared_ptr<CNNDropoutNode>(
      new CNNDropoutNode(std::move(source), keepProbability, seed, maskStrideInPixels));
}

std::shared_ptr<Kernel> CNNDropoutNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNDropout::create(device, keepProbability_, seed_, maskStride_);
  configure(*kernel);
  return kernel;
}

std::vector<std::shared_ptr<NNGradientFilterNode>> CNNDropoutNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  return {CNNDropoutGradientNode::create(gradientImage, sources()[0], resultState(), keepProbability_, seed_,
                                         maskStride_)};
}

CNNDropoutGradientNode::CNNDropoutGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                                               std::shared_ptr<NNImageNode> sourceImage,
                                               std::shared_ptr<NNStateNode> gradientState,
                                               float keepProbability, std::uint64_t seed,
                                               const mtl::Size& maskStrideInPixels)
    : NNGradientFilterNode(std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)),
      keepProbability_(keepProbability),
      seed_(seed),
      maskStride_(maskStrideInPixels) {}

std::shared_ptr<CNNDropoutGradientNode> CNNDropoutGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, float keepProbability, std::uint64_t seed,
    const mtl::Size& maskStrideInPixels) {
  return std::shared_ptr<CNNDropoutGradientNode>(
      new CNNDropoutGradientNode(std::move(sourceGradient), std::move(sourceImage), std::move(gradientState),
                                 keepProbability, seed, maskStrideInPixels));
}

std::shared_ptr<Kernel> CNNDropoutGradientNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = CNNDropoutGradient::create(device, keepProbability_, seed_, maskStride_);
  configure(*kernel);
  return kernel;
}

void CNNDropout::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  coder.code("keepProbability", keepProbability_);
  coder.code("seed", seed_);
  coder.code("maskStrideInPixels", maskStride_);
  coder.code("encodeCount", encodeCount_);
  checkArguments("CNNDropout", keepProbability_, maskStride_);
}

void CNNDropoutGradient::codeProperties(Coder& coder) {
  CNNGradientKernel::codeProperties(coder);
  coder.code("keepProbability", keepProbability_);
  coder.code("seed", seed_);
  coder.code("maskStrideInPixels", maskStride_);
  checkArguments("CNNDropoutGradient", keepProbability_, maskStride_);
}

}  // namespace mps
