#include "mps/reduction/reduction.hpp"

#include <algorithm>
#include <any>

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/as_signed.hpp"
#include "mps/core/types/checked_number.hpp"
#include "mps/core/types/error.hpp"
#include "mps/reduction/reduction_problem.hpp"
#include "mps/reduction/reduction_region.hpp"
#include "mtl/device.hpp"

namespace mps {

using detail::ReductionDirection;
using detail::ReductionProblem;

namespace {

/// What the record of a reduction keeps for its gradient.
struct ReductionRecord {
  mtl::Region region;
  float scale = 1;
};

const char* name(ReductionAxis axis) {
  switch (axis) {
    case ReductionAxis::Row:
      return "Row";
    case ReductionAxis::Column:
      return "Column";
    case ReductionAxis::FeatureChannels:
      return "FeatureChannels";
    case ReductionAxis::Spatial:
      break;
  }
  return "Spatial";
}

using detail::asSigned;

/// The region cut to one image of that size; empty when it lies outside.
mtl::Region within(mtl::Region region, std::size_t width, std::size_t height) {
  region = detail::regionWithin(region, width, height);
  region.origin.z = 0;
  region.size.depth = 1;
  return region;
}

/// Pixels of the result.
mtl::Size blockOf(const mtl::Region& region, ReductionAxis axis) {
  const bool overX = axis == ReductionAxis::Row || axis == ReductionAxis::Spatial;
  const bool overY = axis == ReductionAxis::Column || axis == ReductionAxis::Spatial;
  return {overX ? 1 : region.size.width, overY ? 1 : region.size.height, 1};
}

/// Sets the region's pixels of a shape.
void select(detail::TensorShape& shape, const mtl::Region& region) {
  shape.width = asSigned(region.size.width);
  shape.height = asSigned(region.size.height);
}

}  // namespace

std::string detail::reductionClassName(ReductionOperation operation, ReductionAxis axis) {
  return std::string("NNReduce") + name(axis) + std::string(traitsOf(operation).name);
}

std::string NNReduceUnary::className() const {
  return detail::reductionClassName(operation(), axis());
}

std::size_t NNReduceUnary::producedFeatureChannels(std::size_t sourceFeatureChannels) const {
  return axis() == ReductionAxis::FeatureChannels ? 1 : sourceFeatureChannels;
}

void NNReduceUnary::adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) {
  const mtl::Region region = within(clipRectSource_, source.width(), source.height());
  if (region.size.width == 0 || region.size.height == 0)
    throw Error(describe(), "clipRectSource", "outside the source", "a part of " + source.describe());
  const mtl::Size block = blockOf(region, axis());
  destination.setWidth(clipRect().origin.x + block.width);
  destination.setHeight(clipRect().origin.y + block.height);
}

void NNReduceUnary::limitClip(mtl::Region& clip, const detail::TensorShape& source) const {
  const mtl::Region region = within(clipRectSource_, static_cast<std::size_t>(source.width),
                                    static_cast<std::size_t>(source.height));
  if (region.size.width == 0 || region.size.height == 0) return;  // prepareForward says so
  const mtl::Size block = blockOf(region, axis());
  clip.size.width = std::min(clip.size.width, block.width);
  clip.size.height = std::min(clip.size.height, block.height);
}

void NNReduceUnary::describeForward(std::any& family) const {
  family = ReductionRecord{clipRectSource_, scale()};
}

detail::PreparedCall NNReduceUnary::prepareForward(const detail::ForwardCall& call) const {
  const mtl::Region region = within(clipRectSource_, static_cast<std::size_t>(call.source.width),
                                    static_cast<std::size_t>(call.source.height));
  ReductionProblem problem;
  problem.direction = ReductionDirection::Forward;
  problem.operation = operation();
  problem.axis = axis();
  problem.scale = scale();
  problem.source = call.source;
  select(problem.source, region);
  if (problem.source.elements() == 0)
    throw Error(describe(), "clipRectSource", "outside the source", "a part of it");
  const detail::TensorShape block = detail::reducedShape(problem.source, axis(), call.destination.format);
  problem.result = call.destination;
  if (block.width > call.destination.width || block.height > call.destination.height)
    throw Error(describe(), "destinationImage",
                std::to_string(call.destination.width) + "x" + std::to_string(call.destination.height) +
                    " pixels within clipRect",
                std::to_string(block.width) + "x" + std::to_string(block.height));
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::reductionBackEnds, problem);
  prepared.sourceOrigin = region.origin;
  return prepared;
}

std::shared_ptr<NNReduceFeatureChannelsSum> NNReduceFeatureChannelsSum::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NNReduceFeatureChannelsSum>(new NNReduceFeatureChannelsSum(device));
}

NNReduceUnaryGradient::NNReduceUnaryGradient(std::shared_ptr<mtl::Device> device,
                                             ReductionOperation operation, ReductionAxis axis)
    : KernelClass(std::move(device)), operation_(operation), axis_(axis) {
  if (detail::traitsOf(operation).isArgument)
    throw Error("NNReduceUnaryGradient: the argument of a minimum or maximum has no gradient");
}

std::shared_ptr<NNReduceUnaryGradient> NNReduceUnaryGradient::create(
    const std::shared_ptr<mtl::Device>& device, ReductionOperation operation, ReductionAxis axis) {
  return std::shared_ptr<NNReduceUnaryGradient>(new NNReduceUnaryGradient(device, operation, axis));
}

bool NNReduceUnaryGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == detail::reductionClassName(operation_, axis_);
}

bool NNReduceUnaryGradient::needsSourceMemory(bool /*forwardSavesFields*/) const {
  return detail::traitsOf(operation_).selects();
}

std::vector<detail::PreparedCall> NNReduceUnaryGradient::prepareGradient(
    const detail::GradientCall& call) const {
  const auto* forward = call.record ? std::any_cast<ReductionRecord>(&call.record->family) : nullptr;
  if (forward == nullptr)
    throw Error(describe(), "gradientState", "missing",
                "that of the forward encode, which knows what was reduced");
  if (call.clipRectIsSet)
    throw Error(describe(), "clipRect", "set", "no clip: the gradient is that of the whole source");
  const mtl::Region region =
      within(forward->region, call.record->source.width(), call.record->source.height());
  ReductionProblem problem;
  problem.direction = ReductionDirection::Gradient;
  problem.operation = operation_;
  problem.axis = axis_;
  problem.scale = forward->scale;
  problem.source = call.source;
  select(problem.source, region);
  problem.destination = call.destination;
  select(problem.destination, region);
  const detail::TensorShape block = detail::reducedShape(problem.destination, axis_, call.gradient.format);
  problem.result = call.gradient;
  problem.result.width = block.width;
  problem.result.height = block.height;
  problem.result.channels = block.channels;
  if (call.primaryOffset.x < 0 || call.primaryOffset.x + block.width > call.gradient.width ||
      call.primaryOffset.y < 0 || call.primaryOffset.y + block.height > call.gradient.height)
    throw Error(describe(), "sourceGradient",
                std::to_string(call.gradient.width) + "x" + std::to_string(call.gradient.height) + " pixels",
                "one that holds the " + std::to_string(block.width) + "x" + std::to_string(block.height) +
                    " of the forward result from primaryOffset on");
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::reductionBackEnds, problem);
  prepared.readsSource = problem.selects();
  prepared.sourceOrigin = region.origin;
  prepared.destinationOrigin = region.origin;
  prepared.gradientOrigin = {static_cast<std::size_t>(call.primaryOffset.x),
                             static_cast<std::size_t>(call.primaryOffset.y), 0};
  prepared.zeroDestinationFirst = problem.destination.width != call.destination.width ||
                                  problem.destination.height != call.destination.height;
  return {prepared};
}

void NNReduceUnary::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  coder.codeSizeOrAll("clipRectSource", clipRectSource_);
}

void NNReduceFeatureChannelsSum::setWeight(float weight) {
  weight_ = detail::checkedFinite(describe(), "weight", weight);
}

void NNReduceFeatureChannelsSum::codeProperties(Coder& coder) {
  NNReduceUnary::codeProperties(coder);
  coder.code("weight", weight_);
  setWeight(weight_);
}

void NNReduceUnaryGradient::codeProperties(Coder& coder) {
  CNNGradientKernel::codeProperties(coder);
  // Arguments of minimum and maximum, which have no gradient, come last.
  coder.codeEnumeration("operation", operation_, ReductionOperation::Mean);
  coder.codeEnumeration("axis", axis_, ReductionAxis::Spatial);
}

}  // namespace mps
