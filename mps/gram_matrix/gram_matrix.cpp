#include "mps/gram_matrix/gram_matrix.hpp"

#include <cstdint>
#include <utility>

#include "mps/core/coding/coder.hpp"
#include "mps/core/image/image.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/checked_number.hpp"
#include "mps/core/types/error.hpp"
#include "mps/gram_matrix/gram_matrix_problem.hpp"
#include "mtl/device.hpp"

namespace mps {

using detail::GramMatrixDirection;
using detail::GramMatrixProblem;

namespace {

/// What the record keeps for the gradient.
struct GramMatrixRecord {
  float alpha = 1;
};

std::string sizeOf(const detail::TensorShape& shape) {
  return std::to_string(shape.width) + "x" + std::to_string(shape.height) + "x" +
         std::to_string(shape.channels);
}

std::string matrixSize(std::int64_t channels) {
  return std::to_string(channels) + "x1x" + std::to_string(channels);
}

bool isMatrix(const detail::TensorShape& shape, std::int64_t channels) {
  return shape.width == channels && shape.height == 1 && shape.channels == channels;
}

void checkNoOffset(const Kernel& kernel, const char* property, const Offset& offset) {
  if (offset.x != 0 || offset.y != 0)
    throw Error(kernel.describe(), property, std::to_string(offset.x) + ", " + std::to_string(offset.y),
                "0, 0: all pixels are summed");
}

}  // namespace

NNGramMatrixCalculation::NNGramMatrixCalculation(std::shared_ptr<mtl::Device> device, float alpha)
    : KernelClass(std::move(device)),
      alpha_(detail::checkedFinite("NNGramMatrixCalculation", "alpha", alpha)) {}

void NNGramMatrixCalculation::setAlpha(float alpha) {
  alpha_ = detail::checkedFinite(describe(), "alpha", alpha);
}

std::shared_ptr<NNGramMatrixCalculation> NNGramMatrixCalculation::create(
    const std::shared_ptr<mtl::Device>& device, float alpha) {
  return std::shared_ptr<NNGramMatrixCalculation>(new NNGramMatrixCalculation(device, alpha));
}

void NNGramMatrixCalculation::adjustDestination(ImageDescriptor& destination,
                                                const ImageDescriptor& /*source*/) {
  destination.setWidth(destination.featureChannels() - destinationFeatureChannelOffset());
  destination.setHeight(1);
}

void NNGramMatrixCalculation::describeForward(std::any& family) const {
  family = GramMatrixRecord{alpha_};
}

void NNGramMatrixCalculation::encodeStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                         std::span<const ImageBatch> sources,
                                         const StateBatch& destinationStates,
                                         const ImageBatch& destinationImages) {
  if (propertyCallBack_ && !sources[0].empty())
    setAlpha(propertyCallBack_->alphaForSourceImage(sources[0][0], destinationImages[0]));
  encodeBatch(commandBuffer, sources[0], destinationStates, destinationImages);
}

detail::PreparedCall NNGramMatrixCalculation::prepareForward(const detail::ForwardCall& call) const {
  checkNoOffset(*this, "offset", call.offset);
  if (call.clipRect.origin.x != 0 || call.clipRect.origin.y != 0)
    throw Error(
        describe(), "clipRect",
        "at " + std::to_string(call.clipRect.origin.x) + ", " + std::to_string(call.clipRect.origin.y),
        "the whole result");
  if (!isMatrix(call.destination, call.source.channels))
    throw Error(describe(), "destinationImage", sizeOf(call.destination) + " within clipRect",
                matrixSize(call.source.channels));
  GramMatrixProblem problem;
  problem.direction = GramMatrixDirection::Forward;
  problem.source = call.source;
  problem.matrix = call.destination;
  problem.threadCount = device()->threadCount();
  problem.deviceName = device()->name();
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::gramMatrixBackEnds, problem);
  prepared.scalars[0] = static_cast<double>(alpha_);
  return prepared;
}

NNGramMatrixCalculationGradient::NNGramMatrixCalculationGradient(std::shared_ptr<mtl::Device> device,
                                                                 float alpha)
    : KernelClass(std::move(device)),
      alpha_(detail::checkedFinite("NNGramMatrixCalculationGradient", "alpha", alpha)) {}

void NNGramMatrixCalculationGradient::setAlpha(float alpha) {
  alpha_ = detail::checkedFinite(describe(), "alpha", alpha);
}

std::shared_ptr<NNGramMatrixCalculationGradient> NNGramMatrixCalculationGradient::create(
    const std::shared_ptr<mtl::Device>& device, float alpha) {
  return std::shared_ptr<NNGramMatrixCalculationGradient>(new NNGramMatrixCalculationGradient(device, alpha));
}

bool NNGramMatrixCalculationGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "NNGramMatrixCalculation";
}

void NNGramMatrixCalculationGradient::transferOwnProperties(const detail::ForwardRecord& record) {
  if (const auto* forward = std::any_cast<GramMatrixRecord>(&record.family)) alpha_ = forward->alpha;
}

std::vector<detail::PreparedCall> NNGramMatrixCalculationGradient::prepareGradient(
    const detail::GradientCall& call) const {
  checkNoOffset(*this, "primaryOffset", call.primaryOffset);
  checkNoOffset(*this, "secondaryOffset", call.secondaryOffset);
  if (call.clipRectIsSet)
    throw Error(describe(), "clipRect", "set", "no clip: the gradient is that of the whole source");
  if (!isMatrix(call.gradient, call.source.channels))
    throw Error(describe(), "sourceGradient", sizeOf(call.gradient), matrixSize(call.source.channels));
  if (call.destination.width != call.source.width || call.destination.height != call.source.height)
    throw Error(describe(), "destinationGradient", sizeOf(call.destination),
                sizeOf(call.source) + ", the size of sourceImage");
  GramMatrixProblem problem;
  problem.direction = GramMatrixDirection::Gradient;
  problem.source = call.source;
  problem.matrix = call.gradient;
  problem.destination = call.destination;
  problem.threadCount = device()->threadCount();
  problem.deviceName = device()->name();
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::gramMatrixBackEnds, problem);
  prepared.scalars[0] = static_cast<double>(alpha_);
  return {prepared};
}

void NNGramMatrixCalculation::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  coder.code("alpha", alpha_);
  detail::checkedFinite(describe(), "alpha", alpha_);
  coder.codeOptional("propertyCallBack", propertyCallBack_);
}

void NNGramMatrixCalculationGradient::codeProperties(Coder& coder) {
  CNNGradientKernel::codeProperties(coder);
  coder.code("alpha", alpha_);
  detail::checkedFinite(describe(), "alpha", alpha_);
}

}  // namespace mps
