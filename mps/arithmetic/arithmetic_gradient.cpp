#include <algorithm>
#include <any>

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/arithmetic/arithmetic_problem.hpp"
#include "mps/arithmetic/arithmetic_record.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/plan/tensor_copy.hpp"
#include "mps/core/types/as_signed.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"

namespace mps {

using detail::ArithmeticOperand;
using detail::ArithmeticOperation;
using detail::ArithmeticProblem;
using detail::ArithmeticRecord;
using detail::BatchOperand;
using detail::ForwardRecord;
using detail::GradientCall;
using detail::TensorShape;

namespace detail {

/// Where a tensor has the pixel of position p of the result, on one axis: origin + stride * p.
struct ArithmeticAccess {
  std::int64_t origin = 0;
  std::int64_t stride = 1;
  std::int64_t size = 0;

  /// Narrows [begin, end) to the positions whose pixel exists.
  void narrow(std::int64_t& begin, std::int64_t& end) const {
    if (stride != 0) {
      begin = std::max(begin, -origin);
      end = std::min(end, size - origin);
    } else if (origin < 0 || origin >= size) {
      end = begin;
    }
    end = std::max(begin, end);
  }
  /// Whether the pixels of all `positions` positions exist.
  [[nodiscard]] bool covers(std::int64_t positions) const {
    std::int64_t begin = 0;
    std::int64_t end = positions;
    narrow(begin, end);
    return begin == 0 && end == positions;
  }
};

/// One axis of a gradient.
struct ArithmeticGradientAxis {
  std::int64_t positions = 0;  ///< of the result
  ArithmeticAccess gradient;
  ArithmeticAccess source;       ///< z
  ArithmeticAccess destination;  ///< inside its clip rectangle
  std::int64_t begin = 0;        ///< the positions that count
  std::int64_t end = 0;

  void intersect(bool withSource) {
    begin = 0;
    end = positions;
    gradient.narrow(begin, end);
    destination.narrow(begin, end);
    if (withSource) source.narrow(begin, end);
  }
  /// First pixel and number of pixels of a tensor.
  [[nodiscard]] std::size_t first(const ArithmeticAccess& access) const {
    return begin == end ? 0 : static_cast<std::size_t>(access.origin + access.stride * begin);
  }
  [[nodiscard]] std::int64_t count(const ArithmeticAccess& access) const {
    return access.stride == 0 ? std::min<std::int64_t>(1, end - begin) : end - begin;
  }
  [[nodiscard]] bool isEmpty() const { return begin == end; }
};

/// A gradient call as positions of the result and the pixels that belong to them.
struct ArithmeticGradientAxes {
  ArithmeticGradientAxis x;
  ArithmeticGradientAxis y;
  TensorShape gradient;
  TensorShape source;
  TensorShape destination;
  ImageEdgeMode sourceEdgeMode = ImageEdgeMode::Zero;
  const ArithmeticRecord* record = nullptr;  ///< null without a state

  /// Whether no position of the result counts.
  [[nodiscard]] bool isEmpty() const { return x.isEmpty() || y.isEmpty(); }
};

}  // namespace detail

using detail::ArithmeticAccess;
using detail::ArithmeticGradientAxes;
using detail::ArithmeticGradientAxis;

namespace {

using detail::asSigned;

/// Zeros in the whole destination.
detail::PreparedCall prepareZeros(const mtl::Device& device, const TensorShape& destination) {
  detail::TensorCopyProblem zeros;
  zeros.fills = true;
  zeros.destination = destination;
  detail::PreparedCall prepared;
  prepared.readsSource = false;
  prepared.readsGradient = false;
  prepared.plan = detail::planFor(device, detail::tensorCopyBackEnds, zeros);
  return prepared;
}

const ArithmeticRecord& familyOf(const ForwardRecord& record) {
  return *std::any_cast<ArithmeticRecord>(&record.family);
}

}  // namespace

CNNArithmeticGradient::CNNArithmeticGradient(std::shared_ptr<mtl::Device> device,
                                             bool isSecondarySourceFilter)
    : CNNGradientKernel(std::move(device)), isSecondarySourceFilter_(isSecondarySourceFilter) {}

bool CNNArithmeticGradient::acceptsForward(const std::string& forwardClassName) const {
  return className() == forwardClassName + "Gradient";
}

detail::DerivativeTraits CNNArithmeticGradient::derivativeTraits() const {
  detail::DerivativeTraits traits = CNNGradientKernel::derivativeTraits();
  traits.isSourceGradient = primaryScale_ == 1 && (operation() == ArithmeticOperation::Add ||
                                                   operation() == ArithmeticOperation::Subtract);
  return traits;
}

bool CNNArithmeticGradient::needsSourceMemory(bool /*forwardSavesFields*/) const {
  return operation() == ArithmeticOperation::Multiply || operation() == ArithmeticOperation::Divide;
}

/// As ArithmeticRecord::sourceImage.
std::optional<std::size_t> CNNArithmeticGradient::sourceImageIndex() const {
  if (operation() == ArithmeticOperation::Divide) return 1;
  const bool isOther = operation() == ArithmeticOperation::Multiply;
  return isSecondarySourceFilter_ != isOther ? 1 : 0;
}

std::shared_ptr<const ForwardRecord> CNNArithmeticGradient::ownRecord(
    std::shared_ptr<const ForwardRecord> record) const {
  const auto* family = std::any_cast<ArithmeticRecord>(&record->family);
  return family != nullptr && isSecondarySourceFilter_ && family->ofSecondary ? family->ofSecondary : record;
}

const ImageDescriptor& CNNArithmeticGradient::expectedSourceImage(const ForwardRecord& record) const {
  return familyOf(record).sourceImage(operation(), isSecondarySourceFilter_).image;
}

void CNNArithmeticGradient::checkRole(const ForwardRecord& record, const BatchOperand& source) const {
  CNNGradientKernel::checkRole(record, source);
  if (operation() != ArithmeticOperation::Multiply || !source.storage()) return;
  const auto is = [&](const ArithmeticOperand& operand) {
    return operand.place.storage.lock() == source.storage() &&
           operand.place.byteOffset == source.byteOffset();
  };
  const ArithmeticRecord& family = familyOf(record);
  if (is(family.own(isSecondarySourceFilter_)) && !is(family.own(!isSecondarySourceFilter_)))
    throw Error(describe(), "sourceImage", "the operand whose gradient is asked for", "the other operand");
}

void CNNArithmeticGradient::transferOwnProperties(const ForwardRecord& record) {
  const auto transfer = [](auto& property, auto value) {
    if (!property.isSet()) property.transfer(value);
  };
  const ArithmeticOperand& source = familyOf(record).sourceImage(operation(), isSecondarySourceFilter_);
  transfer(secondary_.offset, source.offset);
  transfer(secondary_.edgeMode, source.edgeMode);
  transfer(secondary_.strideInPixelsX, source.strideInPixelsX);
  transfer(secondary_.strideInPixelsY, source.strideInPixelsY);
  transfer(secondary_.featureChannelOffset, source.featureChannelOffset);
  transfer(secondary_.featureChannelMaxCount, source.featureChannels);
  transfer(secondaryStrideInFeatureChannels_, source.strideInFeatureChannels);
}

detail::PreparedCall CNNArithmeticGradient::prepareAxes(ArithmeticGradientAxes& axes) const {
  const bool needsSource = needsSourceMemory(false);
  if (needsSource) {
    for (ArithmeticGradientAxis* axis : {&axes.x, &axes.y}) {
      if (axis->source.stride > 1)
        throw Error(describe(), "secondaryStrideInPixels", std::to_string(axis->source.stride), "0 or 1");
      const bool leaves = !axis->source.covers(axis->positions);
      if (leaves &&
          (axes.sourceEdgeMode == ImageEdgeMode::Clamp || operation() == ArithmeticOperation::Divide))
        throw Error(describe() +
                    ": no gradient where sourceImage is read beyond its edges with edge mode Clamp, or "
                    "as a divisor");
    }
    if (secondaryStrideInFeatureChannels() == 0) axes.source.channels = 1;
  }
  axes.x.intersect(needsSource);
  axes.y.intersect(needsSource);
  const auto narrow = [&](TensorShape shape, ArithmeticAccess ArithmeticGradientAxis::*access) {
    shape.width = axes.x.count(axes.x.*access);
    shape.height = axes.y.count(axes.y.*access);
    return shape;
  };
  const auto origin = [&](ArithmeticAccess ArithmeticGradientAxis::*access) {
    return mtl::Origin{axes.x.first(axes.x.*access), axes.y.first(axes.y.*access), 0};
  };
  ArithmeticProblem problem;
  problem.operation = operation();
  problem.direction = isSecondarySourceFilter_ ? detail::ArithmeticDirection::SecondaryGradient
                                               : detail::ArithmeticDirection::PrimaryGradient;
  problem.primaryScale = primaryScale_;
  problem.secondaryScale = secondaryScale_;
  problem.gradient = narrow(axes.gradient, &ArithmeticGradientAxis::gradient);
  problem.destination = narrow(axes.destination, &ArithmeticGradientAxis::destination);
  if (needsSource) problem.secondary = narrow(axes.source, &ArithmeticGradientAxis::source);
  const auto checkChannels = [&](const char* argument, std::int64_t channels) {
    if (channels != 1 && channels != axes.gradient.channels)
      throw Error(describe(), argument, std::to_string(channels) + " feature channels",
                  "1 or " + std::to_string(axes.gradient.channels) + ", as of sourceGradient");
  };
  checkChannels("destinationGradient", problem.destination.channels);
  if (needsSource) checkChannels("sourceImage", problem.secondary.channels);

  const bool needsKept = operation() == ArithmeticOperation::Divide && isSecondarySourceFilter_;
  if (needsKept && axes.record == nullptr)
    throw Error(describe(), "gradientState", "none", "the state of the forward pass, which holds x");
  if (axes.isEmpty()) return prepareZeros(*device(), axes.destination);
  detail::PreparedCall prepared;
  if (axes.record != nullptr && (axes.record->hasMask || needsKept)) {
    TensorShape result = axes.gradient;
    result.width = axes.x.positions;
    result.height = axes.y.positions;
    detail::describeSavedFields(problem, result, axes.record->hasMask, axes.record->kept);
    const auto keptBytes = static_cast<std::int64_t>(bytesPerChannel(axes.record->kept));
    if (!needsKept) problem.kept = {};
    const std::int64_t skipped = axes.y.begin * axes.x.positions + axes.x.begin;  // pixels
    for (TensorShape* saved : {&problem.mask, &problem.kept}) {
      saved->width = problem.gradient.width;
      saved->height = problem.gradient.height;
    }
    problem.maskOffset += skipped * axes.gradient.channels;
    problem.keptOffset += skipped * axes.gradient.channels * keptBytes;
    prepared.readsSavedFields = true;
  }
  prepared.plan = detail::planFor(*device(), detail::arithmeticBackEnds, problem);
  prepared.readsSource = needsSource;
  prepared.sourceIsSecondary = needsSource;
  prepared.gradientOrigin = origin(&ArithmeticGradientAxis::gradient);
  prepared.sourceOrigin = origin(&ArithmeticGradientAxis::source);
  prepared.destinationOrigin = origin(&ArithmeticGradientAxis::destination);
  prepared.zeroDestinationFirst = problem.destination.width < axes.destination.width ||
                                  problem.destination.height < axes.destination.height;
  return prepared;
}

std::vector<detail::PreparedCall> CNNArithmeticGradient::prepareGradient(const GradientCall& call) const {
  const ArithmeticRecord& family = familyOf(*call.record);
  const ArithmeticOperand& own = family.own(isSecondarySourceFilter_);
  const auto checkEdges = [&](std::int64_t offset, std::size_t stride, std::size_t size,
                              std::int64_t positions) {
    if (own.edgeMode != ImageEdgeMode::Clamp) return;
    if (!ArithmeticAccess{offset, asSigned(stride), asSigned(size)}.covers(positions))
      throw Error(describe() +
                  ": no gradient with respect to a source that was read beyond its edges with edge mode "
                  "Clamp");
  };
  const mtl::Size& positions = call.record->clipRect.size;
  checkEdges(own.offset.x, own.strideInPixelsX, own.image.width(), asSigned(positions.width));
  checkEdges(own.offset.y, own.strideInPixelsY, own.image.height(), asSigned(positions.height));
  ArithmeticGradientAxes axes;
  axes.x = {asSigned(positions.width),
            {call.primaryOffset.x, 1, call.gradient.width},
            {call.secondaryOffset.x, call.strideInPixelsX, call.source.width},
            {own.offset.x - asSigned(call.clipRect.origin.x), asSigned(own.strideInPixelsX),
             call.destination.width}};
  axes.y = {asSigned(positions.height),
            {call.primaryOffset.y, 1, call.gradient.height},
            {call.secondaryOffset.y, call.strideInPixelsY, call.source.height},
            {own.offset.y - asSigned(call.clipRect.origin.y), asSigned(own.strideInPixelsY),
             call.destination.height}};
  axes.gradient = call.gradient;
  axes.source = call.source;
  axes.destination = call.destination;
  axes.sourceEdgeMode = call.edgeMode;
  axes.record = &family;
  detail::PreparedCall prepared = prepareAxes(axes);
  if (call.accumulate && axes.isEmpty()) return {};  // zeros change no sum
  return {std::move(prepared)};
}

std::optional<detail::PreparedCall> CNNArithmeticGradient::prepareWithoutState(
    BatchOperand& gradient, BatchOperand& source, BatchOperand& destination) const {
  const auto select = [&](BatchOperand& operand, const char* argument, std::size_t first, std::size_t most) {
    const auto channels = static_cast<std::size_t>(operand.shape().channels);
    if (first >= channels)
      throw Error(describe(), argument, std::to_string(channels) + " feature channels",
                  "more than the channel offset " + std::to_string(first));
    operand.selectChannels(asSigned(first), asSigned(std::min(most, channels - first)));
  };
  select(gradient, "sourceGradient", primarySourceFeatureChannelOffset(),
         primarySourceFeatureChannelMaxCount());
  select(source, "sourceImage", secondarySourceFeatureChannelOffset(),
         secondarySourceFeatureChannelMaxCount());
  select(destination, "destinationGradient", destinationFeatureChannelOffset(),
         static_cast<std::size_t>(gradient.shape().channels));
  const TensorShape whole = destination.shape();
  mtl::Region clip = detail::clipTo(whole, clipRect());
  const detail::SourceImages images[] = {{&gradient, primaryOffset().z, "primaryOffset.z"},
                                         {&source, secondaryOffset().z, "secondaryOffset.z"}};
  detail::selectImages(*this, images, destination, clip);
  destination.selectRegion(asSigned(clip.origin.x), asSigned(clip.origin.y), asSigned(clip.size.width),
                           asSigned(clip.size.height));
  if (destination.shape().elements() == 0) return std::nullopt;

  ArithmeticGradientAxes axes;
  axes.gradient = gradient.shape();
  axes.source = source.shape();
  axes.destination = destination.shape();
  axes.sourceEdgeMode = secondaryEdgeMode();
  // An image one pixel wide is a sum, a clip rectangle of that width is not.
  const auto axis = [](std::int64_t gradientOrigin, std::int64_t gradientSize, ArithmeticAccess read,
                       std::int64_t wholeSize, std::int64_t destinationSize) {
    const std::int64_t readable = gradientSize - gradientOrigin;
    const bool sums = wholeSize == 1 && readable > 1;
    ArithmeticGradientAxis made;
    made.positions = std::max<std::int64_t>(0, sums ? readable : std::min(readable, destinationSize));
    made.gradient = {gradientOrigin, 1, gradientSize};
    made.source = read;
    made.destination = {0, sums ? 0 : 1, destinationSize};
    return made;
  };
  axes.x = axis(primaryOffset().x, axes.gradient.width,
                {secondaryOffset().x, asSigned(secondaryStrideInPixelsX()), axes.source.width}, whole.width,
                axes.destination.width);
  axes.y = axis(primaryOffset().y, axes.gradient.height,
                {secondaryOffset().y, asSigned(secondaryStrideInPixelsY()), axes.source.height}, whole.height,
                axes.destination.height);
  return prepareAxes(axes);
}

void CNNArithmeticGradient::encodeCall(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                       const ImageBatch& primary, const ImageBatch& secondary,
                                       const StateBatch& /*destinationStates*/,
                                       const ImageBatch& destinations) {
  BatchOperand gradient(primary);
  BatchOperand source(secondary);
  BatchOperand destination(destinations, true);
  if (const auto prepared = prepareWithoutState(gradient, source, destination))
    detail::recordCall(*commandBuffer, *this, *prepared,
                       {&source, nullptr, &gradient, &destination, nullptr, 0});
}

std::size_t CNNArithmeticGradient::scratchBytes(const ImageBatch& primary, const ImageBatch& secondary,
                                                const StateBatch& states, const ImageBatch& destinations) {
  if (!states.empty()) return CNNGradientKernel::scratchBytes(primary, secondary, states, destinations);
  BatchOperand gradient(primary);
  BatchOperand source(secondary);
  BatchOperand destination(destinations, true);
  const auto prepared = prepareWithoutState(gradient, source, destination);
  return prepared ? prepared->plan.plan->scratchBytes() : 0;
}

ArithmeticOperation CNNAddGradient::operation() const {
  return ArithmeticOperation::Add;
}
std::shared_ptr<CNNAddGradient> CNNAddGradient::create(const std::shared_ptr<mtl::Device>& device,
                                                       bool isSecondarySourceFilter) {
  return std::shared_ptr<CNNAddGradient>(new CNNAddGradient(device, isSecondarySourceFilter));
}

ArithmeticOperation CNNSubtractGradient::operation() const {
  return ArithmeticOperation::Subtract;
}
std::shared_ptr<CNNSubtractGradient> CNNSubtractGradient::create(const std::shared_ptr<mtl::Device>& device,
                                                                 bool isSecondarySourceFilter) {
  return std::shared_ptr<CNNSubtractGradient>(new CNNSubtractGradient(device, isSecondarySourceFilter));
}

ArithmeticOperation CNNMultiplyGradient::operation() const {
  return ArithmeticOperation::Multiply;
}
std::shared_ptr<CNNMultiplyGradient> CNNMultiplyGradient::create(const std::shared_ptr<mtl::Device>& device,
                                                                 bool isSecondarySourceFilter) {
  return std::shared_ptr<CNNMultiplyGradient>(new CNNMultiplyGradient(device, isSecondarySourceFilter));
}

ArithmeticOperation CNNDivideGradient::operation() const {
  return ArithmeticOperation::Divide;
}
std::shared_ptr<CNNDivideGradient> CNNDivideGradient::create(const std::shared_ptr<mtl::Device>& device,
                                                             bool isSecondarySourceFilter) {
  return std::shared_ptr<CNNDivideGradient>(new CNNDivideGradient(device, isSecondarySourceFilter));
}

void CNNArithmeticGradient::codeProperties(Coder& coder) {
  CNNGradientKernel::codeProperties(coder);
  coder.code("isSecondarySourceFilter", isSecondarySourceFilter_);
  coder.code("primaryScale", primaryScale_);
  coder.code("secondaryScale", secondaryScale_);
  coder.code("bias", bias_);
  coder.code("minimumValue", minimumValue_);
  coder.code("maximumValue", maximumValue_);
  secondaryStrideInFeatureChannels_.code(coder, "secondaryStrideInFeatureChannels");
}

}  // namespace mps
