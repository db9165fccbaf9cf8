#include "mps/pooling/pooling.hpp"

#include <algorithm>
#include <any>
#include <limits>

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/error.hpp"
#include "mps/pooling/pooling_problem.hpp"

namespace mps {

using detail::poolingBackEnds;
using detail::PoolingDirection;
using detail::PoolingKind;
using detail::PoolingProblem;

namespace {

/// What the average leaves in the forward record.
struct ZeroPadSize {
  std::size_t x, y;
};
/// What a maximum leaves there whose gradient includes the derivative of the ReLU before it.
struct AfterReLU {};

/// Windows and positions stay within 64 bits.
constexpr std::size_t kLargest = std::numeric_limits<std::int32_t>::max();

void checkSize(const std::string& className, const char* property, std::size_t value) {
  if (value == 0) throw Error(className, property, "0", "at least 1");
  if (value > kLargest)
    throw Error(className, property, std::to_string(value), "at most " + std::to_string(kLargest));
}

std::int64_t checkedPadding(const Kernel& kernel, const char* property, std::size_t padding) {
  if (padding > kLargest)
    throw Error(kernel.describe(), property, std::to_string(padding), "at most " + std::to_string(kLargest));
  return static_cast<std::int64_t>(padding);
}

void checkWindow(const std::string& className, std::size_t kernelWidth, std::size_t kernelHeight,
                 std::size_t strideInPixelsX, std::size_t strideInPixelsY, std::size_t dilationRateX,
                 std::size_t dilationRateY) {
  checkSize(className, "kernelWidth", kernelWidth);
  checkSize(className, "kernelHeight", kernelHeight);
  checkSize(className, "strideInPixelsX", strideInPixelsX);
  checkSize(className, "strideInPixelsY", strideInPixelsY);
  checkSize(className, "dilationRateX", dilationRateX);
  checkSize(className, "dilationRateY", dilationRateY);
}

/// One axis of a gradient call: the windows that count and what the first destination pixel stands for.
struct GradientAxis {
  detail::WindowAxis windows;
  std::int64_t gradientOrigin = 0;
  std::int64_t destinationOrigin = 0;
};

GradientAxis gradientAxis(std::int64_t gradientSize, std::int64_t sourceSize, std::int64_t counted,
                          std::int64_t primaryOffset, std::int64_t kernelOffset, std::int64_t secondaryOffset,
                          std::int64_t kernel, std::int64_t stride, std::int64_t dilation,
                          std::int64_t clipOrigin, bool aligned) {
  GradientAxis axis;
  axis.gradientOrigin = std::clamp<std::int64_t>(primaryOffset, 0, gradientSize);
  // Windows before the gradient image's first pixel have no gradient: the first that counts lies further on.
  const std::int64_t skipped = std::max<std::int64_t>(0, -primaryOffset);
  const std::int64_t windows =
      std::clamp<std::int64_t>(counted - skipped, 0, gradientSize - axis.gradientOrigin);
  // A position moved by kernelOffset in the gradient with zeros between its pixels is a window moved the
  // other way.
  axis.windows = {sourceSize, windows, kernel, stride, dilation, secondaryOffset - kernelOffset};
  const std::int64_t first = std::max<std::int64_t>(0, axis.windows.firstTap(0));
  axis.destinationOrigin = aligned ? clipOrigin : first;
  axis.windows.offset += skipped * stride;
  return axis;
}

std::int64_t clampToSigned(std::size_t value) {
  return static_cast<std::int64_t>(
      std::min(value, static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())));
}

}  // namespace

CNNPooling::CNNPooling(std::shared_ptr<mtl::Device> device, const std::string& className,
                       std::size_t kernelWidth, std::size_t kernelHeight, std::size_t strideInPixelsX,
                       std::size_t strideInPixelsY)
    : CNNKernel(std::move(device)),
      kernelWidth_(kernelWidth),
      kernelHeight_(kernelHeight),
      strideInPixelsX_(strideInPixelsX),
      strideInPixelsY_(strideInPixelsY) {
  checkWindow(className, kernelWidth, kernelHeight, strideInPixelsX, strideInPixelsY, 1, 1);
}

detail::PreparedCall CNNPooling::prepareForward(const detail::ForwardCall& call) const {
  PoolingProblem problem;
  problem.kind = kind();
  problem.direction = PoolingDirection::Forward;
  problem.edgeMode = call.edgeMode;
  problem.x = call.x;
  problem.y = call.y;
  problem.source = call.source;
  problem.destination = call.destination;
  problem.saveIndices = call.wantsSavedFields && problem.traits().selects;
  problem.afterReLU = afterReLU_ && problem.saveIndices;
  describeProblem(problem);
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), poolingBackEnds, problem);
  if (problem.saveIndices) prepared.savedBytes = problem.savedBytes();
  return prepared;
}

detail::KernelRoles CNNPooling::roles() {
  if (kind() != PoolingKind::Max) return {};
  return {.reluGradientFusion = this};
}

void CNNPooling::describeForward(std::any& family) const {
  if (afterReLU_) family = AfterReLU{};
}

CNNPoolingGradient::CNNPoolingGradient(std::shared_ptr<mtl::Device> device, const std::string& className,
                                       std::size_t kernelWidth, std::size_t kernelHeight,
                                       std::size_t strideInPixelsX, std::size_t strideInPixelsY,
                                       std::size_t dilationRateX, std::size_t dilationRateY)
    : CNNGradientKernel(std::move(device)) {
  checkWindow(className, kernelWidth, kernelHeight, strideInPixelsX, strideInPixelsY, dilationRateX,
              dilationRateY);
  primary_.strideInPixelsX.set(strideInPixelsX);
  primary_.strideInPixelsY.set(strideInPixelsY);
  secondary_.kernelWidth.set(kernelWidth);
  secondary_.kernelHeight.set(kernelHeight);
  secondary_.strideInPixelsX.set(strideInPixelsX);
  secondary_.strideInPixelsY.set(strideInPixelsY);
  secondary_.dilationRateX.set(dilationRateX);
  secondary_.dilationRateY.set(dilationRateY);
}

void CNNPoolingGradient::transferOwnProperties(const detail::ForwardRecord& record) {
  if (!sourceSize_.isSet()) sourceSize_.transfer(record.clipRect.size);
  const auto check = [&](const char* property, std::size_t own, std::size_t forward) {
    if (own != forward)
      throw Error(describe(), property, std::to_string(own),
                  std::to_string(forward) + " as in the forward kernel of gradientState");
  };
  check("kernelWidth", secondaryKernelWidth(), record.kernelWidth);
  check("kernelHeight", secondaryKernelHeight(), record.kernelHeight);
  check("strideInPixelsX", secondaryStrideInPixelsX(), record.strideInPixelsX);
  check("strideInPixelsY", secondaryStrideInPixelsY(), record.strideInPixelsY);
  check("dilationRateX", secondaryDilationRateX(), record.dilationRateX);
  check("dilationRateY", secondaryDilationRateY(), record.dilationRateY);
}

bool CNNPoolingGradient::needsSourceMemory(bool forwardSavesFields) const {
  const detail::PoolingTraits traits = detail::traitsOf(kind());
  return !traits.isLinear && !(traits.selects && forwardSavesFields);
}

std::vector<detail::PreparedCall> CNNPoolingGradient::prepareGradient(
    const detail::GradientCall& call) const {
  if (call.edgeMode != ImageEdgeMode::Zero && call.edgeMode != ImageEdgeMode::Clamp &&
      !has(options(), KernelOptions::SkipAPIValidation))
    throw Error(describe(), "secondaryEdgeMode", mps::name(call.edgeMode), "Zero or Clamp");
  detail::checkSameChannels(*this, call);
  const mtl::Size counted = sourceSize();
  // With a state, destination and source coordinates agree; without one, the first window's first pixel comes
  // first.
  const bool aligned = call.record != nullptr;
  const auto clipX = static_cast<std::int64_t>(call.clipRect.origin.x);
  const auto clipY = static_cast<std::int64_t>(call.clipRect.origin.y);
  const GradientAxis x =
      gradientAxis(call.gradient.width, call.source.width, clampToSigned(counted.width), call.primaryOffset.x,
                   call.kernelOffsetX, call.secondaryOffset.x, call.kernelWidth, call.strideInPixelsX,
                   call.dilationRateX, clipX, aligned);
  const GradientAxis y =
      gradientAxis(call.gradient.height, call.source.height, clampToSigned(counted.height),
                   call.primaryOffset.y, call.kernelOffsetY, call.secondaryOffset.y, call.kernelHeight,
                   call.strideInPixelsY, call.dilationRateY, clipY, aligned);
  PoolingProblem problem;
  problem.kind = kind();
  problem.direction = PoolingDirection::Gradient;
  problem.edgeMode = call.edgeMode;
  problem.x = x.windows;
  problem.y = y.windows;
  problem.source = call.source;
  problem.destination = call.destination;
  problem.gradient = call.gradient;
  problem.gradient.width = x.windows.destinationSize;
  problem.gradient.height = y.windows.destinationSize;
  problem.destinationOriginX = x.destinationOrigin;
  problem.destinationOriginY = y.destinationOrigin;
  const bool selects = problem.traits().selects;
  problem.afterReLU = call.record && selects && std::any_cast<AfterReLU>(&call.record->family) != nullptr;
  if (call.record && call.savedFieldsFit && selects) {
    const detail::ForwardRecord& forward = *call.record;
    problem.useIndices = forward.savedBytesPerImage > 0 &&
                         problem.x.destinationSize == clampToSigned(forward.clipRect.size.width) &&
                         problem.y.destinationSize == clampToSigned(forward.clipRect.size.height) &&
                         problem.x.offset == forward.offset.x && problem.y.offset == forward.offset.y &&
                         problem.edgeMode == forward.edgeMode;
  }
  describeProblem(problem);
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), poolingBackEnds, problem);
  prepared.gradientOrigin = {static_cast<std::size_t>(x.gradientOrigin),
                             static_cast<std::size_t>(y.gradientOrigin), 0};
  prepared.readsSource = problem.readsSource();
  prepared.readsSavedFields = problem.useIndices;
  return {prepared};
}

void CNNPoolingAverage::describeProblem(PoolingProblem& problem) const {
  problem.zeroPadSizeX = checkedPadding(*this, "zeroPadSizeX", zeroPadSizeX_);
  problem.zeroPadSizeY = checkedPadding(*this, "zeroPadSizeY", zeroPadSizeY_);
}
void CNNPoolingAverage::describeForward(std::any& family) const {
  family = ZeroPadSize{zeroPadSizeX_, zeroPadSizeY_};
}

CNNDilatedPoolingMax::CNNDilatedPoolingMax(std::shared_ptr<mtl::Device> device, std::size_t kernelWidth,
                                           std::size_t kernelHeight, std::size_t dilationRateX,
                                           std::size_t dilationRateY, std::size_t strideInPixelsX,
                                           std::size_t strideInPixelsY)
    : KernelClass(std::move(device), "CNNDilatedPoolingMax", kernelWidth, kernelHeight, strideInPixelsX,
                  strideInPixelsY),
      dilationRateX_(dilationRateX),
      dilationRateY_(dilationRateY) {
  checkSize("CNNDilatedPoolingMax", "dilationRateX", dilationRateX);
  checkSize("CNNDilatedPoolingMax", "dilationRateY", dilationRateY);
}
std::shared_ptr<CNNDilatedPoolingMax> CNNDilatedPoolingMax::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t kernelWidth, std::size_t kernelHeight,
    std::size_t dilationRateX, std::size_t dilationRateY, std::size_t strideInPixelsX,
    std::size_t strideInPixelsY) {
  return std::shared_ptr<CNNDilatedPoolingMax>(new CNNDilatedPoolingMax(
      device, kernelWidth, kernelHeight, dilationRateX, dilationRateY, strideInPixelsX, strideInPixelsY));
}
PoolingKind CNNDilatedPoolingMax::kind() const {
  return PoolingKind::Max;
}

void CNNPoolingAverageGradient::describeProblem(PoolingProblem& problem) const {
  problem.zeroPadSizeX = checkedPadding(*this, "zeroPadSizeX", zeroPadSizeX());
  problem.zeroPadSizeY = checkedPadding(*this, "zeroPadSizeY", zeroPadSizeY());
}
void CNNPoolingAverageGradient::transferOwnProperties(const detail::ForwardRecord& record) {
  CNNPoolingGradient::transferOwnProperties(record);
  const auto* sizes = std::any_cast<ZeroPadSize>(&record.family);
  if (sizes == nullptr) return;
  if (!zeroPadSizeX_.isSet()) zeroPadSizeX_.transfer(sizes->x);
  if (!zeroPadSizeY_.isSet()) zeroPadSizeY_.transfer(sizes->y);
}

std::shared_ptr<CNNDilatedPoolingMaxGradient> CNNDilatedPoolingMaxGradient::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t kernelWidth, std::size_t kernelHeight,
    std::size_t dilationRateX, std::size_t dilationRateY, std::size_t strideInPixelsX,
    std::size_t strideInPixelsY) {
  return std::shared_ptr<CNNDilatedPoolingMaxGradient>(
      new CNNDilatedPoolingMaxGradient(device, "CNNDilatedPoolingMaxGradient", kernelWidth, kernelHeight,
                                       strideInPixelsX, strideInPixelsY, dilationRateX, dilationRateY));
}
PoolingKind CNNDilatedPoolingMaxGradient::kind() const {
  return PoolingKind::Max;
}
bool CNNDilatedPoolingMaxGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "CNNDilatedPoolingMax";
}

void CNNPooling::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  coder.codeSize("kernelWidth", kernelWidth_);
  coder.codeSize("kernelHeight", kernelHeight_);
  coder.codeSize("strideInPixelsX", strideInPixelsX_);
  coder.codeSize("strideInPixelsY", strideInPixelsY_);
  coder.code("afterReLU", afterReLU_);
  checkWindow(className(), kernelWidth_, kernelHeight_, strideInPixelsX_, strideInPixelsY_, 1, 1);
}

void CNNPoolingAverage::codeProperties(Coder& coder) {
  CNNPooling::codeProperties(coder);
  coder.codeSize("zeroPadSizeX", zeroPadSizeX_);
  coder.codeSize("zeroPadSizeY", zeroPadSizeY_);
}

void CNNDilatedPoolingMax::codeProperties(Coder& coder) {
  CNNPooling::codeProperties(coder);
  coder.codeSize("dilationRateX", dilationRateX_);
  coder.codeSize("dilationRateY", dilationRateY_);
  checkWindow(className(), 1, 1, 1, 1, dilationRateX_, dilationRateY_);
}

void CNNPoolingGradient::codeProperties(Coder& coder) {
  CNNGradientKernel::codeProperties(coder);
  sourceSize_.code(coder, "sourceSize");
  checkWindow(className(), secondaryKernelWidth(), secondaryKernelHeight(), secondaryStrideInPixelsX(),
              secondaryStrideInPixelsY(), secondaryDilationRateX(), secondaryDilationRateY());
}

void CNNPoolingAverageGradient::codeProperties(Coder& coder) {
  CNNPoolingGradient::codeProperties(coder);
  zeroPadSizeX_.code(coder, "zeroPadSizeX");
  zeroPadSizeY_.code(coder, "zeroPadSizeY");
}

}  // namespace mps
