#include "mps/core/layer/deferred_updates.hpp"

#include <utility>

namespace mps::detail {
namespace {

// Of the thread that encodes.
thread_local DeferredUpdates* currentUpdates = nullptr;                   // NOLINT
thread_local auto currentGradients = DeferredUpdates::Gradients::OfLoss;  // NOLINT

}  // namespace

DeferredUpdates::Scope::Scope(DeferredUpdates& updates, Gradients gradients)
    : previous_(std::exchange(currentUpdates, &updates)),
      previousGradients_(std::exchange(currentGradients, gradients)) {}

DeferredUpdates::Scope::~Scope() {
  currentUpdates = previous_;
  currentGradients = previousGradients_;
}

DeferredUpdates* DeferredUpdates::innermost() {
  return currentUpdates;
}

DeferredUpdates::Gradients DeferredUpdates::innermostGradients() {
  return currentGradients;
}

}  // namespace mps::detail
