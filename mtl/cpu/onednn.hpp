#pragma once

#include <cstddef>
#include <initializer_list>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

/// What plans that call oneDNN share: its engine, a primitive that takes plain addresses, and descriptions of products,
/// convolutions and reorders, which oneDNN 2 and 3 want in different ways. Engine-internal.
///
/// Every primitive is made for one thread and runs in the thread that calls it. Plans divide their work themselves, among
/// the threads of mtl::cpu::Stream. So no team of OpenMP is started, whose idle threads keep processors from others, and
/// results do not depend on the number of threads.
namespace mtl::cpu {

/// oneDNN's CPU engine of this process.
const dnnl::engine& oneDnnEngine();

/// Attributes of primitives whose scratch memory the caller brings, and that compute alpha result + beta (what is there).
dnnl::primitive_attr oneDnnAttributes(float alpha = 1, float beta = 0);

/// Whether oneDNN multiplies bfloat16 numbers on this processor, and whether much faster than float32 numbers: in matrix
/// units (AMX). Processors without them have instructions for it that are no faster.
bool hasBfloat16();
bool hasFastBfloat16();

/// A primitive and the shapes of its arguments. Immutable; run() may be called from several threads.
class OneDnnPrimitive {
 public:
  OneDnnPrimitive() = default;
  /// @param description made with oneDnnAttributes().
  explicit OneDnnPrimitive(const dnnl::primitive_desc_base& description);

  using Argument = std::pair<int, const void*>;
  /// Runs in the calling thread; returns when it is done.
  /// @param arguments DNNL_ARG_... and its address; one with a null address is left out
  /// @param scratchpad scratchpadBytes() bytes
  void run(std::initializer_list<Argument> arguments, std::byte* scratchpad) const;

  [[nodiscard]] dnnl::memory::desc argument(int which) const;
  [[nodiscard]] std::size_t scratchpadBytes() const;
  /// What run() does while there is no OneDnnInterceptor.
  void runUnwatched(std::span<const Argument> arguments, std::byte* scratchpad) const;
  /// oneDNN's name of the algorithm, e.g. "brgconv:avx512_core".
  [[nodiscard]] std::string implementation() const { return description_.impl_info_str(); }
  /// True for oneDNN's reference code, which is slower than our own plain loops.
  [[nodiscard]] bool isReference() const { return implementation().starts_with("ref:"); }

 private:
  dnnl::primitive_desc_base description_;
  dnnl::primitive primitive_;
};

/// Gets what OneDnnPrimitive::run() is told, in whatever thread, and runs it: tests put the memory of each primitive
/// between guards.
class OneDnnInterceptor {
 public:
  virtual ~OneDnnInterceptor() = default;
  virtual void run(const OneDnnPrimitive& primitive, std::span<const OneDnnPrimitive::Argument> arguments,
                   std::byte* scratchpad) = 0;
  /// Of all primitives that run from now on; null: none.
  static void install(OneDnnInterceptor* interceptor);
};

/// alpha (left right + bias) + beta result, of matrices or batches of them; a primitive without a bias where its
/// description is empty. Throws dnnl::error where oneDNN cannot compute it.
OneDnnPrimitive oneDnnProduct(const dnnl::memory::desc& left, const dnnl::memory::desc& right,
                              const dnnl::memory::desc& result, const dnnl::memory::desc& bias = {},
                              float alpha = 1, float beta = 0);

/// result = values, or result += values, from one layout to another.
OneDnnPrimitive oneDnnReorder(const dnnl::memory::desc& values, const dnnl::memory::desc& result,
                              bool accumulate);

/// A convolution and its gradients. What is multiplied may be bfloat16, what is computed is float32. Computed directly, not by Winograd's algorithm, whose errors are not bounded element by
/// element.
struct OneDnnConvolution {
  [[nodiscard]] OneDnnPrimitive forward() const;
  /// @param preferred a part of the implementation's name; the first such one is taken, where there is one
  [[nodiscard]] OneDnnPrimitive dataGradient(std::string_view preferred = {}) const;
  /// Passes over oneDNN's implementations that are known to write beyond their scratch memory; throws dnnl::error where
  /// it has no other.
  [[nodiscard]] OneDnnPrimitive weightsGradient() const;

  dnnl::memory::desc source;
  dnnl::memory::desc destination;
  dnnl::memory::desc weights;
  dnnl::memory::desc bias;  ///< empty: there is none
  dnnl::memory::dims strides;
  dnnl::memory::dims dilates;  ///< 0: neighbours
  dnnl::memory::dims before;   ///< imagined zeros
  dnnl::memory::dims after;    ///< imagined zeros; may be less than 0
};

}  // namespace mtl::cpu
