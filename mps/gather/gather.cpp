#include "mps/gather/gather.hpp"

#include <vector>

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/types/error.hpp"
#include "mps/gather/gather_problem.hpp"

namespace mps {

using detail::GatherDirection;
using detail::GatherIndices;
using detail::GatherProblem;
using detail::PreparedCall;
using detail::TensorShape;

namespace {

/// An array as a tensor whose rows stand along the axis.
TensorShape tensorOf(const NDArrayDescriptor& descriptor, std::size_t axis) {
  std::int64_t before = 1;
  std::int64_t behind = 1;
  for (std::size_t dimension = 0; dimension < descriptor.numberOfDimensions(); ++dimension) {
    const auto length = static_cast<std::int64_t>(descriptor.lengthOfDimension(dimension));
    if (dimension < axis) before *= length;
    if (dimension > axis) behind *= length;
  }
  return TensorShape::dense(behind, static_cast<std::int64_t>(descriptor.lengthOfDimension(axis)), 1, before,
                            descriptor.dataType() == DataType::Float16 ? ImageFeatureChannelFormat::Float16
                                                                       : ImageFeatureChannelFormat::Float32);
}

GatherIndices indicesOf(DataType dataType) {
  if (dataType == DataType::Int32) return GatherIndices::Int32;
  return dataType == DataType::UInt16 ? GatherIndices::UInt16 : GatherIndices::UInt32;
}

/// Lengths of a result for that many indices.
NDArrayDescriptor gathered(const NDArrayDescriptor& primary, std::size_t axis, std::size_t count) {
  std::vector<std::size_t> lengths;
  for (std::size_t dimension = 0; dimension < primary.numberOfDimensions(); ++dimension)
    lengths.push_back(dimension == axis ? count : primary.lengthOfDimension(dimension));
  return NDArrayDescriptor::descriptor(primary.dataType(), std::move(lengths));
}

PreparedCall prepared(const Kernel& kernel, GatherDirection direction, const NDArrayDescriptor& primary,
                      const NDArrayDescriptor& indices, std::size_t axis) {
  GatherProblem problem;
  problem.direction = direction;
  problem.indices = indicesOf(indices.dataType());
  problem.source = tensorOf(primary, axis);
  problem.result = tensorOf(gathered(primary, axis, indices.lengthOfDimension(0)), axis);
  PreparedCall call;
  call.plan = detail::planFor(*kernel.device(), detail::gatherBackEnds, problem);
  return call;
}

bool isGatherState(const State& state) {
  return dynamic_cast<const NDArrayGatherGradientState*>(&state) != nullptr;
}

}  // namespace

std::shared_ptr<NDArrayGatherGradientState> NDArrayGatherGradientState::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NDArrayGatherGradientState>(
      new NDArrayGatherGradientState(device, StateResourceList()));
}

std::shared_ptr<NDArrayGather> NDArrayGather::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NDArrayGather>(new NDArrayGather(device));
}

NDArrayDescriptor NDArrayGather::destinationFor(const NDArrayDescriptor& primary,
                                                const NDArrayDescriptor& secondary) const {
  if (primary.dataType() != DataType::Float32 && primary.dataType() != DataType::Float16)
    throw Error(describe(), "primarySourceArray", name(primary.dataType()), "Float32 or Float16");
  const DataType type = secondary.dataType();
  if (type != DataType::UInt32 && type != DataType::Int32 && type != DataType::UInt16)
    throw Error(describe(), "secondarySourceArray", name(type), "UInt32, Int32 or UInt16");
  if (secondary.numberOfDimensions() != 1)
    throw Error(describe(), "secondarySourceArray",
                std::to_string(secondary.numberOfDimensions()) + " dimensions", "1");
  if (axis_ >= primary.numberOfDimensions())
    throw Error(describe(), "axis", std::to_string(axis_),
                "less than " + std::to_string(primary.numberOfDimensions()) +
                    ", the number of dimensions of the primary array");
  return gathered(primary, axis_, secondary.lengthOfDimension(0));
}

PreparedCall NDArrayGather::prepare(const NDArrayDescriptor& primary,
                                    const NDArrayDescriptor& secondary) const {
  return prepared(*this, GatherDirection::Forward, primary, secondary, axis_);
}

std::shared_ptr<NDArrayGradientState> NDArrayGather::newState() const {
  return NDArrayGatherGradientState::create(device());
}

bool NDArrayGather::acceptsState(const State& state) const {
  return isGatherState(state);
}

void NDArrayGather::fillState(NDArrayGradientState& state) const {
  static_cast<NDArrayGatherGradientState&>(state).axis_ = axis_;
}

void NDArrayGather::codeProperties(Coder& coder) {
  Kernel::codeProperties(coder);
  coder.code("axis", axis_);
}

std::shared_ptr<NDArrayGatherGradient> NDArrayGatherGradient::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NDArrayGatherGradient>(new NDArrayGatherGradient(device));
}

PreparedCall NDArrayGatherGradient::prepare(const NDArrayGradientState& state) const {
  return prepared(*this, GatherDirection::Gradient, state.record()->primary, state.record()->secondary,
                  static_cast<const NDArrayGatherGradientState&>(state).axis());
}

bool NDArrayGatherGradient::acceptsState(const State& state) const {
  return isGatherState(state);
}

}  // namespace mps
