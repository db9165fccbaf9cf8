#include "mps/core/shared_copies.hpp"

#include "mps/core/loss_scale.hpp"

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

std::shared_ptr<LossScale> lossScaleOn(const std::shared_ptr<mtl::Device>& device,
                                       const std::shared_ptr<LossScale>& scale) {
  SharedCopies* const copies = SharedCopies::current();
  if (!scale) return nullptr;
  return copies != nullptr ? copies->of(scale, [&] { return scale->copy(device); })
                           : scale->sharedCopy(device);
}

}  // namespace mps::detail
