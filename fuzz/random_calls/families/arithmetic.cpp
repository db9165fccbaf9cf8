#include "mps/arithmetic/arithmetic.hpp"

#include <algorithm>
#include <memory>

#include "fuzz/random_calls/families.hpp"
#include "fuzz/random_calls/images.hpp"
#include "mps/arithmetic/compare.hpp"
#include "mps/core/image/state.hpp"

namespace unmetal::random_calls {
namespace {

enum class Operation { Add, Subtract, Multiply, Divide, Compare };

/// Scales of the two sources, which the gradient kernels take, too.
struct Scales {
  float primary = 1;
  float secondary = 1;
};

std::shared_ptr<mps::CNNArithmetic> makeArithmetic(Call& call, Operation operation) {
  switch (operation) {
    case Operation::Add:
      return mps::CNNAdd::create(call.device);
    case Operation::Subtract:
      return mps::CNNSubtract::create(call.device);
    case Operation::Multiply:
      return mps::CNNMultiply::create(call.device);
    case Operation::Divide:
      return mps::CNNDivide::create(call.device);
    case Operation::Compare:
      break;
  }
  const auto compare = mps::NNCompare::create(call.device);
  compare->setComparisonType(
      call.noted("comparison", static_cast<mps::NNComparisonType>(call.random.integer(0, 5))));
  compare->setThreshold(call.noted("threshold", call.random.real32(0, 0.3)));
  return compare;
}

Scales drawScales(Call& call, mps::CNNArithmetic& kernel) {
  RandomNumbers& random = call.random;
  Scales scales;
  if (random.chance(0.5)) {
    scales.primary = call.noted("primaryScale", random.real32(-2, 2));
    scales.secondary = call.noted("secondaryScale", random.real32(0.5, 2));
    kernel.setPrimaryScale(scales.primary);
    kernel.setSecondaryScale(scales.secondary);
    kernel.setBias(call.noted("bias", random.real32(-1, 1)));
  }
  if (random.chance(0.3)) {
    kernel.setMinimumValue(call.noted("minimum", random.real32(-1, 0)));
    kernel.setMaximumValue(call.noted("maximum", random.real32(0, 1)));
  }
  return scales;
}

/// Strides of 0 read one column, row or channel again and again; mostly of a source that has no more.
void repeat(Call& call, mps::CNNArithmetic& kernel, mps::ImageDescriptor& source, bool isPrimary) {
  RandomNumbers& random = call.random;
  if (!random.chance(isPrimary ? 0.15 : 0.5)) return;
  const bool columns = random.chance(0.6);
  const bool rows = random.chance(0.6);
  const bool channels = random.chance(0.3);
  call.description << (isPrimary ? " primaryRepeats=" : " secondaryRepeats=") << columns << rows << channels;
  if (columns) {
    if (random.chance(0.8)) source.setWidth(1);
    isPrimary ? kernel.setPrimaryStrideInPixelsX(0) : kernel.setSecondaryStrideInPixelsX(0);
  }
  if (rows) {
    if (random.chance(0.8)) source.setHeight(1);
    isPrimary ? kernel.setPrimaryStrideInPixelsY(0) : kernel.setSecondaryStrideInPixelsY(0);
  }
  if (channels) {
    if (random.chance(0.8)) source.setFeatureChannels(1);
    isPrimary ? kernel.setPrimaryStrideInFeatureChannels(0) : kernel.setSecondaryStrideInFeatureChannels(0);
  }
}

void drawPositions(Call& call, mps::CNNArithmetic& kernel) {
  RandomNumbers& random = call.random;
  const auto offset = [&](const char* name) {
    const mps::Offset drawn{random.integer(-2, 2), random.integer(-2, 2), 0};
    call.description << ' ' << name << '=' << drawn.x << ',' << drawn.y;
    return drawn;
  };
  if (random.chance(0.1)) kernel.setPrimaryOffset(offset("primaryOffset"));
  if (random.chance(0.1)) kernel.setSecondaryOffset(offset("secondaryOffset"));
  if (random.chance(0.1)) kernel.setPrimaryEdgeMode(mps::ImageEdgeMode::Clamp);
  if (random.chance(0.1)) kernel.setSecondaryEdgeMode(mps::ImageEdgeMode::Clamp);
  call.noted("primaryEdgeMode", kernel.primaryEdgeMode());
  call.noted("secondaryEdgeMode", kernel.secondaryEdgeMode());
  if (random.chance(0.15))
    kernel.setDestinationFeatureChannelOffset(call.noted("destinationChannelOffset", 4 * random.size(1, 2)));
  if (random.chance(0.15)) kernel.setClipRect(clipRectangle(call, 3, 0, 9));
}

std::shared_ptr<mps::CNNArithmeticGradient> makeGradient(Call& call, Operation operation,
                                                         const Scales& scales, bool ofSecondary) {
  std::shared_ptr<mps::CNNArithmeticGradient> gradient;
  const float own = ofSecondary ? scales.secondary : scales.primary;
  const float other = ofSecondary ? scales.primary : scales.secondary;
  switch (operation) {
    case Operation::Add:
      gradient = mps::CNNAddGradient::create(call.device, ofSecondary);
      gradient->setPrimaryScale(own);
      break;
    case Operation::Subtract:
      gradient = mps::CNNSubtractGradient::create(call.device, ofSecondary);
      gradient->setPrimaryScale(ofSecondary ? -own : own);
      break;
    case Operation::Multiply:
      gradient = mps::CNNMultiplyGradient::create(call.device, ofSecondary);
      gradient->setPrimaryScale(own);
      gradient->setSecondaryScale(other);
      break;
    default:
      gradient = mps::CNNDivideGradient::create(call.device, ofSecondary);
      gradient->setPrimaryScale(scales.primary);
      gradient->setSecondaryScale(scales.secondary);
  }
  return gradient;
}

/// The source that a gradient kernel reads: a sum's its own, a product's the other one, a quotient's the divisor.
bool readsSecondary(Operation operation, bool ofSecondary) {
  if (operation == Operation::Divide) return true;
  return operation == Operation::Multiply ? !ofSecondary : ofSecondary;
}

}  // namespace

void callArithmetic(Call& call) {
  RandomNumbers& random = call.random;
  const mps::ImageDescriptor size = call.imageSizes();
  const std::size_t count = call.imageCount();
  const auto operation = call.noted("operation", static_cast<Operation>(random.integer(0, 4)));
  const auto kernel = makeArithmetic(call, operation);
  kernel->setDestinationImageAllocator(mps::Image::defaultAllocator());
  const Scales scales = drawScales(call, *kernel);
  const mps::ImageFeatureChannelFormat primaryFormat = call.anyFormat();
  mps::ImageDescriptor primarySize = withFormat(size, primaryFormat);
  mps::ImageDescriptor secondarySize =
      withFormat(size, random.chance(0.6) ? primaryFormat : call.anyFormat());
  repeat(call, *kernel, primarySize, true);
  repeat(call, *kernel, secondarySize, false);
  drawPositions(call, *kernel);

  call.stage = "sources";
  const Images primary = makeSources(call, "primary", primarySize, count, call.anyNumbers());
  const Numbers secondaryNumbers = operation == Operation::Divide ? Numbers::AwayFromZero : call.anyNumbers();
  const Images secondary = makeSources(call, "secondary", secondarySize, count, secondaryNumbers);
  const bool withState = operation != Operation::Compare && random.chance(0.6);
  const CommandBufferPointer commandBuffer = call.begin();
  mps::StateBatch states;
  mps::ImageDescriptor resultSize = size;
  const Tolerance tolerance{.jumps = operation == Operation::Compare ? 0.001 : 0};
  if (random.chance(0.3)) {
    call.stage = "forward";
    const mps::ImageBatch result =
        withState ? kernel->encodeBatch(commandBuffer, primary.batch, secondary.batch, states, false)
                  : kernel->encodeBatch(commandBuffer, primary.batch, secondary.batch);
    observeImages(call, "result", result, tolerance);
    resultSize = result.descriptor();
  } else {
    const std::size_t channels = std::max(primarySize.featureChannels(), secondarySize.featureChannels());
    resultSize.setChannelFormat(call.resultFormat());
    resultSize.setFeatureChannels(channels + kernel->destinationFeatureChannelOffset() +
                                  (random.chance(0.1) ? 3 : 0));
    const Images result = makeDestinations(call, "destination", resultSize, count, tolerance);
    call.stage = "forward";
    if (withState) states = kernel->resultStateBatch(primary.batch, secondary.batch);
    if (withState)
      kernel->encodeBatch(commandBuffer, primary.batch, secondary.batch, states, result.batch);
    else
      kernel->encodeBatch(commandBuffer, primary.batch, secondary.batch, result.batch);
  }
  if (states.empty()) return call.finish(commandBuffer);

  const Images gradient = makeSources(call, "gradient", resultSize, count, Numbers::Uniform);
  for (const bool ofSecondary : {false, true}) {
    const auto kernelOfGradient = makeGradient(call, operation, scales, ofSecondary);
    const Images& read = readsSecondary(operation, ofSecondary) ? secondary : primary;
    const mps::ImageDescriptor own =
        withFormat(ofSecondary ? secondarySize : primarySize, call.floatFormat());
    // Sums over what was repeated; jumps where the result meets its minimum or maximum.
    const Images result = makeDestinations(call, ofSecondary ? "secondaryGradient" : "primaryGradient", own,
                                           count, {.factor = 5, .leastScale = 1, .jumps = 0.002});
    call.stage = ofSecondary ? "gradient of the secondary source" : "gradient of the primary source";
    kernelOfGradient->encodeBatch(commandBuffer, gradient.batch, read.batch, states, result.batch);
  }
  call.finish(commandBuffer);
}

}  // namespace unmetal::random_calls
