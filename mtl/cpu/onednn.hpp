#pragma once

#include <cstddef>
#include <initializer_list>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <utility>

/// What plans that call oneDNN share: its engine, the number of threads, and a primitive that takes plain
/// addresses. Engine-internal; knows no operation.
namespace mtl::cpu {

/// oneDNN's CPU engine of this process.
const dnnl::engine& oneDnnEngine();

/// Sets the number of threads for OpenMP regions that this thread starts, and puts the old one back.
///
/// oneDNN divides the work of a primitive among that many threads when the primitive is made, so it must be
/// the same when the primitive is made and when it runs. Builds without OpenMP leave oneDNN its own number.
class OneDnnThreads {
 public:
  /// @param count number of threads; 0 keeps the current one.
  explicit OneDnnThreads(int count);
  ~OneDnnThreads();
  OneDnnThreads(const OneDnnThreads&) = delete;
  OneDnnThreads& operator=(const OneDnnThreads&) = delete;

 private:
  [[maybe_unused]] int previous_;  ///< not used in builds without OpenMP
};

/// Attributes of primitives whose scratch memory the caller brings.
dnnl::primitive_attr oneDnnAttributes();

/// A primitive and the shapes of its arguments. Immutable; run() may be called from several threads.
class OneDnnPrimitive {
 public:
  OneDnnPrimitive() = default;
  /// @param description made with oneDnnAttributes().
  explicit OneDnnPrimitive(const dnnl::primitive_desc_base& description);

  using Argument = std::pair<int, const void*>;
  /// Runs in the calling thread and its OpenMP team; returns when it is done.
  /// @param arguments DNNL_ARG_... and its address; one with a null address is left out
  /// @param scratchpad scratchpadBytes() bytes
  void run(std::initializer_list<Argument> arguments, std::byte* scratchpad) const;

  [[nodiscard]] dnnl::memory::desc argument(int which) const;
  [[nodiscard]] std::size_t scratchpadBytes() const;
  /// oneDNN's name of the algorithm, e.g. "brgconv:avx512_core".
  [[nodiscard]] std::string implementation() const { return description_.impl_info_str(); }
  /// True for oneDNN's reference code, which is slower than our own plain loops.
  [[nodiscard]] bool isReference() const { return implementation().starts_with("ref:"); }

 private:
  dnnl::primitive_desc_base description_;
  dnnl::primitive primitive_;
};

}  // namespace mtl::cpu
