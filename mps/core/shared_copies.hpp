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

/// What kernels have in common when they are copied to another device together. The library's own.
namespace mps::detail {

/// While alive, what several kernels share that this thread copies to another device is copied once: data sources, and
/// the loss scale of a loss and of its optimisers.
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

 private:
  struct Entry {
    std::shared_ptr<const void> original;  ///< so that its address stays its own
    std::shared_ptr<void> copy;
  };

  SharedCopies* outer_;
  std::map<std::pair<const void*, std::type_index>, Entry> entries_;
};

/// The data source of a kernel's copy on that device: what its copy() gives, or the source itself.
template <class DataSource>
std::shared_ptr<DataSource> dataSourceOn(const std::shared_ptr<mtl::Device>& device,
                                         const std::shared_ptr<DataSource>& source) {
  const auto copied = [&] {
    auto other = source->copy(device);
    return other ? other : source;
  };
  SharedCopies* const copies = SharedCopies::current();
  return copies != nullptr ? copies->of(source, copied) : copied();
}

/// The loss scale of a kernel's copy on that device, the same for all kernels that share it: loss and optimisers must
/// agree. @param scale may be null
std::shared_ptr<LossScale> lossScaleOn(const std::shared_ptr<mtl::Device>& device,
                                       const std::shared_ptr<LossScale>& scale);

}  // namespace mps::detail
