#include "mps/normalization/normalization.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/pointwise.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/error.hpp"
#include "mps/normalization/normalization_problem.hpp"
#include "mtl/device.hpp"

namespace mps {

using detail::NormalizationDirection;
using detail::NormalizationKind;
using detail::NormalizationParameters;
using detail::NormalizationProblem;

namespace {

/// What the record of a forward call keeps for the gradient.
struct NormalizationRecord {
  NormalizationParameters parameters;
  std::size_t windowChannels = 1;
};

constexpr NormalizationParameters kContrastDefaults{.alpha = 0, .beta = 0.5F, .delta = 1.0F / 1024};

/// Windows and positions stay within 64 bits.
constexpr std::size_t kLargestWindow = std::size_t{1} << 24U;

void checkWindow(const std::string& className, const char* property, std::size_t size) {
  if (size < 1 || size > kLargestWindow)
    throw Error(className, property, std::to_string(size), "1 to " + std::to_string(kLargestWindow));
}

float finite(const Kernel& kernel, const char* property, float value) {
  if (!std::isfinite(value))
    throw Error(kernel.describe(), property, std::to_string(value), "a finite number");
  return value;
}
float notNegative(const Kernel& kernel, const char* property, float value) {
  if (!(value >= 0) || std::isinf(value))
    throw Error(kernel.describe(), property, std::to_string(value), "a finite number, at least 0");
  return value;
}

void checkParameters(const Kernel& kernel, const NormalizationParameters& parameters) {
  notNegative(kernel, "alpha", parameters.alpha);
  finite(kernel, "beta", parameters.beta);
  finite(kernel, "delta", parameters.delta);
  finite(kernel, "p0", parameters.p0);
  finite(kernel, "pm", parameters.pm);
  finite(kernel, "ps", parameters.ps);
}

std::int64_t asSigned(std::size_t value) {
  return static_cast<std::int64_t>(
      std::min(value, static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())));
}

void setParameters(NormalizationProblem& problem, const NormalizationParameters& parameters) {
  problem.alpha = parameters.alpha;
  problem.beta = parameters.beta;
  problem.delta = parameters.delta;
  if (problem.kind != NormalizationKind::LocalContrast) return;
  problem.p0 = parameters.p0;
  problem.pm = problem.direction == NormalizationDirection::Forward ? parameters.pm : 0;  // has no derivative
  problem.ps = parameters.ps;
}

}  // namespace

CNNNormalization::CNNNormalization(std::shared_ptr<mtl::Device> device, const std::string& className,
                                   std::size_t kernelWidth, std::size_t kernelHeight,
                                   const NormalizationParameters& parameters)
    : CNNKernel(std::move(device)),
      parameters_(parameters),
      kernelWidth_(kernelWidth),
      kernelHeight_(kernelHeight) {
  checkWindow(className, "kernelWidth", kernelWidth);
  checkWindow(className, "kernelHeight", kernelHeight);
}

void CNNNormalization::setAlpha(float alpha) {
  parameters_.alpha = notNegative(*this, "alpha", alpha);
}
void CNNNormalization::setBeta(float beta) {
  parameters_.beta = finite(*this, "beta", beta);
}
void CNNNormalization::setDelta(float delta) {
  parameters_.delta = finite(*this, "delta", delta);
}

bool CNNNormalization::hasWindow() const {
  return kind() != NormalizationKind::CrossChannel;
}

void CNNNormalization::adjustDestination(ImageDescriptor& destination, const ImageDescriptor& source) {
  const NNPaddingMethod method = padding()->paddingMethod();
  const auto offsetOf = [&](std::size_t from, std::size_t to, std::size_t kernel) {
    return detail::forwardOffset(method, true, asSigned(from), asSigned(to), asSigned(kernel), 1);
  };
  Offset centered = offset();
  centered.x = offsetOf(source.width(), destination.width(), kernelWidth());
  centered.y = offsetOf(source.height(), destination.height(), kernelHeight());
  setOffset(centered);
}

void CNNNormalization::describeForward(std::any& family) const {
  family = NormalizationRecord{parameters_, windowChannels()};
}

detail::PreparedCall CNNNormalization::prepareForward(const detail::ForwardCall& call) const {
  NormalizationProblem problem;
  problem.kind = kind();
  problem.direction = NormalizationDirection::Forward;
  setParameters(problem, parameters_);
  problem.kernelSize = asSigned(windowChannels());
  if (hasWindow()) {
    problem.edgeMode = call.edgeMode;
    problem.x = call.x;
    problem.y = call.y;
  }
  problem.source = call.source;
  problem.destination = call.destination;
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::normalizationBackEnds, problem);
  return prepared;
}

CNNNormalizationGradient::CNNNormalizationGradient(std::shared_ptr<mtl::Device> device,
                                                   const std::string& className, std::size_t kernelWidth,
                                                   std::size_t kernelHeight,
                                                   const NormalizationParameters& parameters)
    : CNNGradientKernel(std::move(device)),
      p0_(parameters.p0),
      pm_(parameters.pm),
      ps_(parameters.ps),
      alpha_(parameters.alpha),
      beta_(parameters.beta),
      delta_(parameters.delta) {
  checkWindow(className, "kernelWidth", kernelWidth);
  checkWindow(className, "kernelHeight", kernelHeight);
  secondary_.kernelWidth.set(kernelWidth);
  secondary_.kernelHeight.set(kernelHeight);
}

void CNNNormalizationGradient::setAlpha(float alpha) {
  alpha_.set(notNegative(*this, "alpha", alpha));
}
void CNNNormalizationGradient::setBeta(float beta) {
  beta_.set(finite(*this, "beta", beta));
}
void CNNNormalizationGradient::setDelta(float delta) {
  delta_.set(finite(*this, "delta", delta));
}

void CNNNormalizationGradient::transferOwnProperties(const detail::ForwardRecord& record) {
  const auto* forward = std::any_cast<NormalizationRecord>(&record.family);
  if (forward == nullptr) return;  // nothing was encoded
  const auto check = [&](const char* property, std::size_t own, std::size_t expected) {
    if (own != expected)
      throw Error(describe(), property, std::to_string(own),
                  std::to_string(expected) + " as in the forward kernel of gradientState");
  };
  check("kernelWidth", secondaryKernelWidth(), record.kernelWidth);
  check("kernelHeight", secondaryKernelHeight(), record.kernelHeight);
  check("kernelSize", windowChannels(), forward->windowChannels);
  const auto transfer = [](detail::Settable<float>& property, float value) {
    if (!property.isSet()) property.transfer(value);
  };
  transfer(alpha_, forward->parameters.alpha);
  transfer(beta_, forward->parameters.beta);
  transfer(delta_, forward->parameters.delta);
  transfer(p0_, forward->parameters.p0);
  transfer(pm_, forward->parameters.pm);
  transfer(ps_, forward->parameters.ps);
}

std::vector<detail::PreparedCall> CNNNormalizationGradient::prepareGradient(
    const detail::GradientCall& call) const {
  NormalizationProblem problem;
  problem.kind = kind();
  problem.direction = NormalizationDirection::Gradient;
  setParameters(problem, {alpha(), beta(), delta(), p0_.get(), pm_.get(), ps_.get()});
  problem.kernelSize = asSigned(windowChannels());
  detail::checkSameChannels(*this, call);
  if (problem.kind == NormalizationKind::CrossChannel) return {prepareChannels(call, problem)};
  if (call.edgeMode != ImageEdgeMode::Zero && call.edgeMode != ImageEdgeMode::Clamp &&
      !has(options(), KernelOptions::SkipAPIValidation))
    throw Error(describe(), "secondaryEdgeMode", mps::name(call.edgeMode), "Zero or Clamp");
  return {prepareWindows(call, problem)};
}

detail::PreparedCall CNNNormalizationGradient::prepareChannels(const detail::GradientCall& call,
                                                               NormalizationProblem problem) const {
  detail::checkRepeatsNothing(*this, call);
  const detail::PointwiseGradient views = detail::pointwiseGradient(call);
  problem.source = views.source;
  problem.gradient = views.gradient;
  problem.destination = views.destination;
  return detail::preparedPointwise(views, detail::planFor(*device(), detail::normalizationBackEnds, problem));
}

detail::PreparedCall CNNNormalizationGradient::prepareWindows(const detail::GradientCall& call,
                                                              NormalizationProblem problem) const {
  // Windows before the gradient image's first pixel have no gradient: the first that counts lies further on.
  const auto axisOf = [](std::int64_t source, std::int64_t gradient, std::int64_t counted,
                         std::int64_t kernel, std::int64_t position, std::int64_t offset,
                         std::int64_t& origin) {
    origin = std::clamp<std::int64_t>(position, 0, gradient);
    const std::int64_t skipped = std::max<std::int64_t>(0, -position);
    const std::int64_t windows = std::clamp<std::int64_t>(counted - skipped, 0, gradient - origin);
    return detail::WindowAxis{source, windows, kernel, 1, 1, offset + skipped};
  };
  const mtl::Size counted = call.record ? call.record->clipRect.size : RectNoClip.size;
  std::int64_t originX = 0;
  std::int64_t originY = 0;
  problem.edgeMode = call.edgeMode;
  problem.x = axisOf(call.source.width, call.gradient.width, asSigned(counted.width), call.kernelWidth,
                     call.primaryOffset.x, call.secondaryOffset.x, originX);
  problem.y = axisOf(call.source.height, call.gradient.height, asSigned(counted.height), call.kernelHeight,
                     call.primaryOffset.y, call.secondaryOffset.y, originY);
  problem.source = call.source;
  problem.gradient = call.gradient;
  problem.gradient.width = problem.x.destinationSize;
  problem.gradient.height = problem.y.destinationSize;
  problem.destination = call.destination;
  problem.destinationOriginX = asSigned(call.clipRect.origin.x);
  problem.destinationOriginY = asSigned(call.clipRect.origin.y);
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::normalizationBackEnds, problem);
  prepared.gradientOrigin = {static_cast<std::size_t>(originX), static_cast<std::size_t>(originY), 0};
  return prepared;
}

std::shared_ptr<CNNSpatialNormalization> CNNSpatialNormalization::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t kernelWidth, std::size_t kernelHeight) {
  return std::shared_ptr<CNNSpatialNormalization>(
      new CNNSpatialNormalization(device, "CNNSpatialNormalization", kernelWidth, kernelHeight, {}));
}
NormalizationKind CNNSpatialNormalization::kind() const {
  return NormalizationKind::Spatial;
}

std::shared_ptr<CNNLocalContrastNormalization> CNNLocalContrastNormalization::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t kernelWidth, std::size_t kernelHeight) {
  return std::shared_ptr<CNNLocalContrastNormalization>(new CNNLocalContrastNormalization(
      device, "CNNLocalContrastNormalization", kernelWidth, kernelHeight, kContrastDefaults));
}
void CNNLocalContrastNormalization::setP0(float p0) {
  parameters_.p0 = finite(*this, "p0", p0);
}
void CNNLocalContrastNormalization::setPm(float pm) {
  parameters_.pm = finite(*this, "pm", pm);
}
void CNNLocalContrastNormalization::setPs(float ps) {
  parameters_.ps = finite(*this, "ps", ps);
}
NormalizationKind CNNLocalContrastNormalization::kind() const {
  return NormalizationKind::LocalContrast;
}

CNNCrossChannelNormalization::CNNCrossChannelNormalization(std::shared_ptr<mtl::Device> device,
                                                           std::size_t kernelSize)
    : KernelClass(std::move(device), "CNNCrossChannelNormalization", 1, 1, {}), kernelSize_(kernelSize) {
  checkWindow("CNNCrossChannelNormalization", "kernelSize", kernelSize);
}
std::shared_ptr<CNNCrossChannelNormalization> CNNCrossChannelNormalization::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t kernelSize) {
  return std::shared_ptr<CNNCrossChannelNormalization>(new CNNCrossChannelNormalization(device, kernelSize));
}
NormalizationKind CNNCrossChannelNormalization::kind() const {
  return NormalizationKind::CrossChannel;
}

std::shared_ptr<CNNSpatialNormalizationGradient> CNNSpatialNormalizationGradient::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t kernelWidth, std::size_t kernelHeight) {
  return std::shared_ptr<CNNSpatialNormalizationGradient>(new CNNSpatialNormalizationGradient(
      device, "CNNSpatialNormalizationGradient", kernelWidth, kernelHeight, {}));
}
bool CNNSpatialNormalizationGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "CNNSpatialNormalization";
}
NormalizationKind CNNSpatialNormalizationGradient::kind() const {
  return NormalizationKind::Spatial;
}

std::shared_ptr<CNNLocalContrastNormalizationGradient> CNNLocalContrastNormalizationGradient::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t kernelWidth, std::size_t kernelHeight) {
  return std::shared_ptr<CNNLocalContrastNormalizationGradient>(new CNNLocalContrastNormalizationGradient(
      device, "CNNLocalContrastNormalizationGradient", kernelWidth, kernelHeight, kContrastDefaults));
}
bool CNNLocalContrastNormalizationGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "CNNLocalContrastNormalization";
}
void CNNLocalContrastNormalizationGradient::setP0(float p0) {
  p0_.set(finite(*this, "p0", p0));
}
void CNNLocalContrastNormalizationGradient::setPm(float pm) {
  pm_.set(finite(*this, "pm", pm));
}
void CNNLocalContrastNormalizationGradient::setPs(float ps) {
  ps_.set(finite(*this, "ps", ps));
}
NormalizationKind CNNLocalContrastNormalizationGradient::kind() const {
  return NormalizationKind::LocalContrast;
}

CNNCrossChannelNormalizationGradient::CNNCrossChannelNormalizationGradient(
    std::shared_ptr<mtl::Device> device, std::size_t kernelSize)
    : KernelClass(std::move(device), "CNNCrossChannelNormalizationGradient", 1, 1, {}),
      kernelSize_(kernelSize) {
  checkWindow("CNNCrossChannelNormalizationGradient", "kernelSize", kernelSize);
}
std::shared_ptr<CNNCrossChannelNormalizationGradient> CNNCrossChannelNormalizationGradient::create(
    const std::shared_ptr<mtl::Device>& device, std::size_t kernelSize) {
  return std::shared_ptr<CNNCrossChannelNormalizationGradient>(
      new CNNCrossChannelNormalizationGradient(device, kernelSize));
}
bool CNNCrossChannelNormalizationGradient::acceptsForward(const std::string& forwardClassName) const {
  return forwardClassName == "CNNCrossChannelNormalization";
}
NormalizationKind CNNCrossChannelNormalizationGradient::kind() const {
  return NormalizationKind::CrossChannel;
}

void CNNNormalization::codeProperties(Coder& coder) {
  CNNKernel::codeProperties(coder);
  coder.codeSize("kernelWidth", kernelWidth_);
  coder.codeSize("kernelHeight", kernelHeight_);
  coder.code("alpha", parameters_.alpha);
  coder.code("beta", parameters_.beta);
  coder.code("delta", parameters_.delta);
  coder.code("p0", parameters_.p0);
  coder.code("pm", parameters_.pm);
  coder.code("ps", parameters_.ps);
  checkWindow(className(), "kernelWidth", kernelWidth_);
  checkWindow(className(), "kernelHeight", kernelHeight_);
  checkParameters(*this, parameters_);
}

void CNNCrossChannelNormalization::codeProperties(Coder& coder) {
  CNNNormalization::codeProperties(coder);
  coder.codeSize("kernelSize", kernelSize_);
  checkWindow(className(), "kernelSize", kernelSize_);
}

void CNNNormalizationGradient::codeProperties(Coder& coder) {
  CNNGradientKernel::codeProperties(coder);
  alpha_.code(coder, "alpha");
  beta_.code(coder, "beta");
  delta_.code(coder, "delta");
  p0_.code(coder, "p0");
  pm_.code(coder, "pm");
  ps_.code(coder, "ps");
  checkWindow(className(), "kernelWidth", secondaryKernelWidth());
  checkWindow(className(), "kernelHeight", secondaryKernelHeight());
  checkParameters(*this, {alpha(), beta(), delta(), p0_.get(), pm_.get(), ps_.get()});
}

void CNNCrossChannelNormalizationGradient::codeProperties(Coder& coder) {
  CNNNormalizationGradient::codeProperties(coder);
  coder.codeSize("kernelSize", kernelSize_);
  checkWindow(className(), "kernelSize", kernelSize_);
}

}  // namespace mps
