#pragma once

#include <map>
#include <memory>
#include <typeindex>
#include <utility>

namespace mtl {
class Device;
}

namespace mps {
class LossScale;
}

/// What kernels have in common when they are copied together. The library's own.
namespace mps::detail {

/// While alive, what several kernels share that this thread copies is copied once: data sources, and the loss scale of a
/// loss and of its optimisers.
class SharedCopies {
 public:
  SharedCopies();
  ~SharedCopies();
  SharedCopies(const SharedCopies&) = delete;
  SharedCopies& operator=(const SharedCopies&) = delete;

  /// That of the innermost scope, or null.
  static SharedCopies* current();

  /// The copy of an object, which makeCopy() makes the first time.
  template <class Object, class MakeCopy>
  std::shared_ptr<Object> of(const std::shared_ptr<Object>& original, const MakeCopy& makeCopy) {
    // One object may have several bases that are copied each for itself.
    Entry& entry = entries_[{original.get(), typeid(Object)}];
    entry.original = original;
    if (!entry.copy) entry.copy = makeCopy();
    return std::static_pointer_cast<Object>(entry.copy);
  }
  /// The copy of an object, or null where none was made.
  template <class Object>
  std::shared_ptr<Object> made(const std::shared_ptr<Object>& original) const {
    const auto entry = entries_.find({original.get(), typeid(Object)});
    return entry == entries_.end() ? nullptr : std::static_pointer_cast<Object>(entry->second.copy);
  }

 private:
  struct Entry {
    std::shared_ptr<const void> original;  ///< so that its address stays its own
    std::shared_ptr<void> copy;
  };

  SharedCopies* outer_;
  std::map<std::pair<const void*, std::type_index>, Entry> entries_;
};

/// Makes the data source of a kernel that of its copy on that device: what its copy() gives, or the source itself.
/// @return whether it is another one
template <class DataSource>
bool replaceByCopy(std::shared_ptr<DataSource>& source, const std::shared_ptr<mtl::Device>& device) {
  const auto copied = [&] {
    auto other = source->copy(device);
    return other ? other : source;
  };
  SharedCopies* const copies = SharedCopies::current();
  const auto original = std::exchange(source, copies != nullptr ? copies->of(source, copied) : copied());
  return source != original;
}

/// The loss scale of an optimiser's copy on that device, the same for all kernels that share it: loss and optimisers must
/// agree. On its own device it stays, but in SharedCopies. @param scale may be null
std::shared_ptr<LossScale> lossScaleOfOptimizerOn(const std::shared_ptr<mtl::Device>& device,
                                                  const std::shared_ptr<LossScale>& scale);
/// Of a loss's copy, after those of the optimisers. On its own device it stays where theirs did, with data sources that
/// give no copy.
std::shared_ptr<LossScale> lossScaleOfLossOn(const std::shared_ptr<mtl::Device>& device,
                                             const std::shared_ptr<LossScale>& scale);

}  // namespace mps::detail
