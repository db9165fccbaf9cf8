#include "mps/conform/guarded/guarded_primitives_cpu.hpp"

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>
#include <utility>
#include <vector>

#include "mps/conform/guarded/guarded_memory.hpp"
#include "mtl/cpu/onednn.hpp"

namespace mps::detail {
namespace {

using mtl::cpu::OneDnnInterceptor;
using mtl::cpu::OneDnnPrimitive;

/// Which bytes of an argument are elements.
struct ArgumentLayout {
  std::size_t bytes = 0;
  std::size_t elementBytes = 0;
  std::vector<std::int64_t> sizes;    ///< empty: all bytes count
  std::vector<std::int64_t> strides;  ///< in elements

  /// Calls visit(offset, length) in bytes for all elements.
  template <class Visit>
  void forEachElement(const Visit& visit) const {
    if (sizes.empty()) return visit(std::size_t{0}, bytes);
    std::vector<std::int64_t> at(sizes.size(), 0);
    std::int64_t offset = 0;
    while (true) {
      visit(static_cast<std::size_t>(offset) * elementBytes, elementBytes);
      std::size_t axis = sizes.size();
      while (axis > 0) {
        --axis;
        offset += strides[axis];
        if (++at[axis] < sizes[axis]) break;
        offset -= at[axis] * strides[axis];
        at[axis] = 0;
        if (axis == 0) return;
      }
    }
  }
};

ArgumentLayout layoutOf(const dnnl::memory::desc& shape) {
  ArgumentLayout layout;
  layout.bytes = shape.get_size();
#if DNNL_VERSION_MAJOR >= 3
  layout.elementBytes = dnnl::memory::data_type_size(shape.get_data_type());
  if (shape.get_format_kind() != dnnl::memory::format_kind::blocked || shape.get_inner_nblks() > 0)
    return layout;
  layout.sizes = shape.get_dims();
  layout.strides = shape.get_strides();
#else
  layout.elementBytes = dnnl::memory::data_type_size(shape.data_type());
  const auto& blocking = shape.data.format_desc.blocking;
  if (shape.data.format_kind != dnnl_blocked || blocking.inner_nblks > 0) return layout;
  layout.sizes = shape.dims();
  layout.strides.assign(blocking.strides, blocking.strides + shape.data.ndims);
#endif
  std::size_t elements = 1;
  for (const std::int64_t size : layout.sizes) elements *= static_cast<std::size_t>(size);
  if (elements * layout.elementBytes == layout.bytes) layout.sizes.clear();  // dense
  return layout;
}

bool isWritten(int argument) {
  return argument == DNNL_ARG_DST || argument == DNNL_ARG_DIFF_SRC || argument == DNNL_ARG_DIFF_WEIGHTS ||
         argument == DNNL_ARG_DIFF_BIAS;
}

/// A copy of an argument beside a page that nobody may touch.
class GuardedArgument {
 public:
  GuardedArgument(PageSide side, const OneDnnPrimitive& primitive, const OneDnnPrimitive::Argument& argument)
      : which_(argument.first),
        given_(static_cast<const std::byte*>(argument.second)),
        layout_(layoutOf(primitive.argument(which_))),
        copy_(side, layout_.bytes, layout_.elementBytes) {
    fillWithGuard(copy_.bytes());
    layout_.forEachElement([&](std::size_t offset, std::size_t length) {
      std::memcpy(copy_.bytes().data() + offset, given_ + offset, length);
    });
    const auto bytes = copy_.bytes();
    before_.assign(bytes.begin(), bytes.end());
  }

  [[nodiscard]] OneDnnPrimitive::Argument argument() const { return {which_, copy_.address()}; }

  /// Gives results to the caller. @return whether nothing else was changed
  bool finish() {
    const auto found = copy_.bytes();
    if (isWritten(which_)) {
      auto* const result = const_cast<std::byte*>(given_);  // run() has one type for what it reads and writes
      layout_.forEachElement([&](std::size_t offset, std::size_t length) {
        std::memcpy(result + offset, found.data() + offset, length);
        std::memcpy(before_.data() + offset, found.data() + offset, length);
      });
    }
    return std::ranges::equal(found, before_) && copy_.guardsIntact();
  }

 private:
  int which_;
  const std::byte* given_;
  ArgumentLayout layout_;
  GuardedMemory copy_;
  std::vector<std::byte> before_;
};

}  // namespace

class GuardedPrimitives::Interceptor final : public OneDnnInterceptor {
 public:
  explicit Interceptor(PageSide side) : side_(side) {}

  void run(const OneDnnPrimitive& primitive, std::span<const OneDnnPrimitive::Argument> arguments,
           std::byte* /*scratchpad*/) override {
    std::list<GuardedArgument> copies;
    std::vector<OneDnnPrimitive::Argument> guarded;
    for (const auto& argument : arguments) {
      if (argument.second == nullptr) continue;
      // oneDNN gives no size of a block inside blocked weights.
      const bool isWhole = primitive.argument(argument.first).get_size() > 0;
      guarded.push_back(isWhole ? copies.emplace_back(side_, primitive, argument).argument() : argument);
    }
    const GuardedMemory scratchpad(side_, primitive.scratchpadBytes(), kScratchpadAlignment);
    primitive.runUnwatched(guarded, scratchpad.address());

    std::string wrong;
    for (auto& copy : copies)
      if (!copy.finish()) wrong += " argument " + std::to_string(copy.argument().first);
    if (!scratchpad.guardsIntact()) wrong += " memory around the scratch memory";
    const std::lock_guard lock(mutex_);
    ++runs_;
    if (!wrong.empty()) report_ += primitive.implementation() + " wrote" + wrong + "\n";
  }

  [[nodiscard]] int runs() const {
    const std::lock_guard lock(mutex_);
    return runs_;
  }
  [[nodiscard]] std::string report() const {
    const std::lock_guard lock(mutex_);
    return report_;
  }

 private:
  static constexpr std::size_t kScratchpadAlignment = 64;

  PageSide side_;
  mutable std::mutex mutex_;
  int runs_ = 0;
  std::string report_;
};

GuardedPrimitives::GuardedPrimitives(PageSide side) : interceptor_(std::make_unique<Interceptor>(side)) {
  OneDnnInterceptor::install(interceptor_.get());
}

GuardedPrimitives::~GuardedPrimitives() {
  OneDnnInterceptor::install(nullptr);
}

int GuardedPrimitives::runs() const {
  return interceptor_->runs();
}

std::string GuardedPrimitives::report() const {
  return interceptor_->report();
}

}  // namespace mps::detail
