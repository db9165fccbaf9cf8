#include "mps/core/layer/shared_copies.hpp"

#include "mps/core/layer/loss_scale.hpp"

namespace mps::detail {
namespace {

SharedCopies*& innermost() {
  thread_local SharedCopies* scope = nullptr;
  return scope;
}

}  // namespace

SharedCopies::SharedCopies() : outer_(std::exchange(innermost(), this)) {}

SharedCopies::~SharedCopies() {
  innermost() = outer_;
}

SharedCopies* SharedCopies::current() {
  return innermost();
}

std::shared_ptr<LossScale> lossScaleOfOptimizerOn(const std::shared_ptr<mtl::Device>& device,
                                                  const std::shared_ptr<LossScale>& scale) {
  if (!scale) return nullptr;
  if (SharedCopies* const copies = SharedCopies::current())
    return copies->of(scale, [&] { return scale->copy(device); });
  return scale->device() == device ? scale : scale->sharedCopy(device);
}

std::shared_ptr<LossScale> lossScaleOfLossOn(const std::shared_ptr<mtl::Device>& device,
                                             const std::shared_ptr<LossScale>& scale) {
  if (!scale || scale->device() != device) return lossScaleOfOptimizerOn(device, scale);
  const SharedCopies* const copies = SharedCopies::current();
  const auto made = copies != nullptr ? copies->made(scale) : nullptr;
  return made ? made : scale;
}

}  // namespace mps::detail
