#include "mps/core/image/gradient_state.hpp"

#include <tuple>

#include "mps/core/image/forward_record.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/device.hpp"

namespace mps {

std::shared_ptr<NNGradientState> NNGradientState::create(const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NNGradientState>(new NNGradientState(device, StateResourceList{}));
}

std::size_t NNGradientState::sourceWidth() const {
  return record() ? record()->source.width() : 0;
}

std::size_t NNGradientState::sourceHeight() const {
  return record() ? record()->source.height() : 0;
}

std::shared_ptr<NNBinaryGradientState> NNBinaryGradientState::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NNBinaryGradientState>(new NNBinaryGradientState(device, StateResourceList{}));
}

std::shared_ptr<NNMultiaryGradientState> NNMultiaryGradientState::create(
    const std::shared_ptr<mtl::Device>& device) {
  return std::shared_ptr<NNMultiaryGradientState>(new NNMultiaryGradientState(device, StateResourceList{}));
}

namespace detail {
namespace {

/// Whether two records leave a gradient kernel nothing to tell them apart by but their images.
bool isSameCall(const ForwardRecord& a, const ForwardRecord& b) {
  const auto numbers = [](const ForwardRecord& r) {
    return std::tuple(r.kernelWidth, r.kernelHeight, r.strideInPixelsX, r.strideInPixelsY, r.dilationRateX,
                      r.dilationRateY, r.sourceFeatureChannelOffset, r.sourceFeatureChannels,
                      r.destinationFeatureChannelOffset, r.destinationFeatureChannels);
  };
  return &a == &b || (a.kernelClass == b.kernelClass && a.offset == b.offset && a.clipRect == b.clipRect &&
                      a.edgeMode == b.edgeMode && numbers(a) == numbers(b) && a.source == b.source &&
                      a.destination == b.destination);
}

}  // namespace

BatchRecord recordOf(const std::string& kernel, const StateBatch& states) {
  BatchRecord result;
  if ((result.record = states.commonRecord(result.firstImage))) {
    result.inOrder = true;
    return result;
  }
  const auto shared = states.sharedState();
  const std::size_t distinct = shared ? std::min<std::size_t>(1, states.count()) : states.count();
  for (std::size_t i = 0; i < distinct; ++i) {
    const auto state = states[i];
    const auto* holder = dynamic_cast<const RecordHolder*>(state.get());
    if (holder == nullptr)
      throw Error(kernel, "gradientStates", "a state of another kind", "a gradient state");
    if (!holder->record())
      throw Error(kernel, "gradientStates", "a state that no forward kernel has encoded with",
                  "the state of the forward pass");
    if (i == 0) {
      result = {holder->record(), holder->imageIndex(), true};
      continue;
    }
    if (holder->record() != result.record || holder->imageIndex() != result.firstImage + i)
      result.inOrder = false;
    if (!isSameCall(*holder->record(), *result.record))
      throw Error(kernel, "gradientStates", "states of different forward calls",
                  "states of one forward call");
  }
  if (shared && states.count() > 1) result.inOrder = result.record->imageCount == states.count();
  return result;
}

}  // namespace detail
}  // namespace mps
