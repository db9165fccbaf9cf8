#pragma once

#include <cstdint>

namespace mps::detail {

/// Where the updates of layers go that are put off to the end of an encode: CombinedUpdates (mps/optimizer) records them
/// together. The library's own.
class DeferredUpdates {
 public:
  DeferredUpdates() = default;
  DeferredUpdates(const DeferredUpdates&) = delete;
  DeferredUpdates& operator=(const DeferredUpdates&) = delete;

  /// What updates take for a gradient.
  enum class Gradients : std::uint8_t {
    OfLoss,
    None,  ///< statistics of a batch: no part of the norm, and not clipped
  };
  /// While alive, updates in place that this thread encodes are put off. Their memory stays alive; nobody may
  /// read or write it until they are recorded.
  class Scope {
   public:
    explicit Scope(DeferredUpdates& updates, Gradients gradients = Gradients::OfLoss);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    DeferredUpdates* previous_;
    Gradients previousGradients_;
  };

 protected:
  ~DeferredUpdates() = default;
  /// Those of the innermost scope, or null.
  static DeferredUpdates* innermost();
  static Gradients innermostGradients();
};

}  // namespace mps::detail
