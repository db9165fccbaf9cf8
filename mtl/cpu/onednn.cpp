#include "mtl/cpu/onednn.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>

#include "mtl/process_end.hpp"
#include "mtl/verbose.hpp"

#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP
// Of the OpenMP that oneDNN runs on; clang has no <omp.h> without an OpenMP of its own. NOLINTBEGIN: OpenMP's names
extern "C" {
int omp_get_max_threads() noexcept;
void omp_set_num_threads(int count) noexcept;
}
// NOLINTEND
#endif

namespace mtl::cpu {
namespace {

#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP
/// While alive, oneDNN uses the calling thread alone for what it makes and runs in it. OpenMP keeps that number for each
/// thread, so a host program's own loops do not see it.
class OneThread {
 public:
  OneThread() : previous_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(previous_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int previous_;
};
#else
/// A oneDNN without threads of its own, as in our wheels, needs to be told nothing.
struct [[maybe_unused]] OneThread {};
#endif

std::atomic<OneDnnInterceptor*> installedInterceptor = nullptr;

dnnl::memory::dims sidesOf(const dnnl::memory::desc& tensor) {
#if DNNL_VERSION_MAJOR >= 3
  return tensor.get_dims();
#else
  return tensor.dims();
#endif
}

bool isBfloat16(const dnnl::memory::desc& tensor) {
#if DNNL_VERSION_MAJOR >= 3
  return tensor.get_data_type() == dnnl::memory::data_type::bf16;
#else
  return tensor.data_type() == dnnl::memory::data_type::bf16;
#endif
}

/// oneDNN counts in 32 bits inside: a longer side ends the process there.
void checkSides(const dnnl::memory::desc& tensor) {
  const dnnl::memory::dims sides = sidesOf(tensor);
  if (std::ranges::any_of(sides,
                          [](std::int64_t side) { return side > std::numeric_limits<std::int32_t>::max(); }))
    throw dnnl::error(dnnl_unimplemented, "a side is longer than 2147483647");
}
template <class Other>
void checkSides(const Other& /*noTensor*/) {}

/// A description of an operation: oneDNN 2 has a type of its own for what it computes (Operation::desc), oneDNN 3 has not.
template <class Operation, class... What>
typename Operation::primitive_desc describe(const dnnl::primitive_attr& attributes, const What&... what) {
  (checkSides(what), ...);
  const OneThread one;
#if DNNL_VERSION_MAJOR >= 3
  return {oneDnnEngine(), what..., attributes};
#else
  return {typename Operation::desc(what...), attributes, oneDnnEngine()};
#endif
}

dnnl::convolution_forward::primitive_desc describeForward(const OneDnnConvolution& convolution) {
  return describe<dnnl::convolution_forward>(
      oneDnnAttributes(), dnnl::prop_kind::forward_training, dnnl::algorithm::convolution_direct,
      convolution.source, convolution.weights, convolution.bias, convolution.destination, convolution.strides,
      convolution.dilates, convolution.before, convolution.after);
}

/// The forward convolution that oneDNN wants to know of a gradient: of one type where the gradient multiplies bfloat16.
OneDnnConvolution forwardOf(OneDnnConvolution gradient) {
  if (!isBfloat16(gradient.source) && !isBfloat16(gradient.destination)) return gradient;
  using memory = dnnl::memory;
  for (memory::desc* images : {&gradient.source, &gradient.destination})
    *images = memory::desc(sidesOf(*images), memory::data_type::bf16, memory::format_tag::nhwc);
  gradient.weights =
      memory::desc(sidesOf(gradient.weights), memory::data_type::bf16, memory::format_tag::any);
  return gradient;
}

/// The first of oneDNN's gradients of it whose name is accepted; nothing where none is.
template <class Gradient, class Accepts, class... What>
std::optional<OneDnnPrimitive> gradientOf(const OneDnnConvolution& convolution, const Accepts& accepts,
                                          const What&... what) {
  const OneThread one;
  // next_impl() refers to all that a description was made of: none of it may be a temporary.
  const dnnl::primitive_attr attributes = oneDnnAttributes();
  const dnnl::convolution_forward::primitive_desc hint = describeForward(forwardOf(convolution));
  using Description = typename Gradient::primitive_desc;
#if DNNL_VERSION_MAJOR >= 3
  Description candidate(oneDnnEngine(), what..., hint, attributes);
#else
  const typename Gradient::desc description(what...);
  Description candidate(description, attributes, oneDnnEngine(), hint);
#endif
  do {
    if (accepts(std::string_view(candidate.impl_info_str()))) return OneDnnPrimitive(candidate);
  } while (candidate.next_impl());
  return std::nullopt;
}

/// Each of oneDNN's sets of instructions has a bit for each of those that it includes.
bool hasInstructions(dnnl::cpu_isa set) {
  const auto wanted = static_cast<unsigned>(set);
  return (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & wanted) == wanted;
}

/// What is wrong with the gradients that overrunsScratchpad().
constexpr const char* kOverrunsScratchpad =
    "its 1x1 weights gradient with strides overruns its scratch memory when the source channels do not fill "
    "a vector";

/// Of versions 2.4 to 3.14 on x86: they copy the pixels that a strided 1x1 kernel reads to scratch memory, channel by
/// channel, but step from pixel to pixel by a whole vector of channels. With fewer channels they write over what other
/// threads keep there, and beyond the end of it, on one thread too.
bool overrunsScratchpad(const OneDnnConvolution& convolution, std::string_view implementation) {
  if (!implementation.starts_with("jit_1x1:") && !implementation.starts_with("jit_bf16_1x1:")) return false;
  if (std::ranges::all_of(convolution.strides, [](std::int64_t stride) { return stride == 1; })) return false;
  const bool isAvx2 = implementation.find("avx2") != std::string_view::npos;
  return sidesOf(convolution.source).at(1) < (isAvx2 ? 8 : 16);
}

/// Has oneDNN make the machine code of its products, which static objects keep: the first product would do so while it runs,
/// behind all that work ends before.
void makeProducts() {
  [[maybe_unused]] static const bool areMade = [] {
    constexpr dnnl_dim_t side = 8;
    constexpr std::array<float, side * side> zeros{};
    std::array<float, side * side> result;
    const OneThread one;
    dnnl::sgemm('N', 'N', side, side, side, 1, zeros.data(), side, zeros.data(), side, 0, result.data(),
                side);
    ProcessEnd::watch();
    return true;
  }();
}

}  // namespace

const dnnl::engine& oneDnnEngine() {
  // Never destroyed: where another thread ends the process, a command still runs while static objects go.
  static const dnnl::engine& engine = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

bool hasBfloat16() {
  return hasInstructions(dnnl::cpu_isa::avx512_core_bf16);
}
bool hasFastBfloat16() {
  return hasInstructions(dnnl::cpu_isa::avx512_core_amx);
}

dnnl::primitive_attr oneDnnAttributes(float alpha, float beta) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::post_ops operations;
#if DNNL_VERSION_MAJOR >= 3
  if (alpha != 1) operations.append_eltwise(dnnl::algorithm::eltwise_linear, alpha, 0);
#else
  if (alpha != 1) attributes.set_output_scales(0, {alpha});
#endif
  if (beta != 0) operations.append_sum(beta);
  attributes.set_post_ops(operations);
  return attributes;
}

OneDnnPrimitive::OneDnnPrimitive(const dnnl::primitive_desc_base& description) : description_(description) {
  const OneThread one;
  primitive_ = dnnl::primitive(description.get());
  // oneDNN's own static objects exist from now on, such as its cache of primitives: work ends before they go.
  [[maybe_unused]] static const bool isWatched = [] {
    ProcessEnd::watch();
    return true;
  }();
  if (std::string_view(description_.impl_info_str()).find("gemm") != std::string_view::npos) makeProducts();
}

void OneDnnInterceptor::install(OneDnnInterceptor* interceptor) {
  installedInterceptor.store(interceptor);
}

void OneDnnPrimitive::run(std::initializer_list<Argument> arguments, std::byte* scratchpad) const {
  if (OneDnnInterceptor* const interceptor = installedInterceptor.load(std::memory_order_relaxed))
    return interceptor->run(*this, arguments, scratchpad);
  runUnwatched(arguments, scratchpad);
}

void OneDnnPrimitive::runUnwatched(std::span<const Argument> arguments, std::byte* scratchpad) const {
  const auto memory = [](const dnnl::memory::desc& shape, const void* address) {
    // oneDNN has one memory type for what it reads and what it writes.
    return dnnl::memory(shape, oneDnnEngine(), const_cast<void*>(address));
  };
  std::unordered_map<int, dnnl::memory> memories;
  for (const auto& [which, address] : arguments)
    if (address != nullptr) memories.emplace(which, memory(argument(which), address));
  memories.emplace(DNNL_ARG_SCRATCHPAD, memory(description_.scratchpad_desc(), scratchpad));
  thread_local dnnl::stream stream(oneDnnEngine());
  const OneThread one;
  primitive_.execute(stream, memories);
  stream.wait();
}

dnnl::memory::desc OneDnnPrimitive::argument(int which) const {
  return description_.query_md(dnnl::query::exec_arg_md, which);
}

std::size_t OneDnnPrimitive::scratchpadBytes() const {
  return description_.scratchpad_desc().get_size();
}

OneDnnPrimitive oneDnnProduct(const dnnl::memory::desc& left, const dnnl::memory::desc& right,
                              const dnnl::memory::desc& result, const dnnl::memory::desc& bias, float alpha,
                              float beta) {
#if DNNL_VERSION_MAJOR >= 3
  // Seen of 3.7: it reads such a column as if its elements lay one behind the other.
  const auto rows = left.get_dims().at(static_cast<std::size_t>(left.get_ndims()) - 2);
  if (rows == 1 && left.get_strides().back() != 1)
    throw dnnl::error(dnnl_unimplemented, "the left matrix is a transposed column with gaps");
#endif
  return OneDnnPrimitive(describe<dnnl::matmul>(oneDnnAttributes(alpha, beta), left, right, bias, result));
}

OneDnnPrimitive oneDnnReorder(const dnnl::memory::desc& values, const dnnl::memory::desc& result,
                              bool accumulate) {
  const OneThread one;
  return OneDnnPrimitive(dnnl::reorder::primitive_desc(oneDnnEngine(), values, oneDnnEngine(), result,
                                                       oneDnnAttributes(1, accumulate ? 1.0F : 0.0F)));
}

OneDnnPrimitive OneDnnConvolution::forward() const {
  return OneDnnPrimitive(describeForward(*this));
}

OneDnnPrimitive OneDnnConvolution::dataGradient(std::string_view preferred) const {
  const auto first = [&](std::string_view part) {
    return gradientOf<dnnl::convolution_backward_data>(
        *this, [&](std::string_view name) { return name.find(part) != std::string_view::npos; },
        dnnl::algorithm::convolution_direct, source, weights, destination, strides, dilates, before, after);
  };
  if (const auto gradient = first(preferred)) return *gradient;
  return first("").value();
}

OneDnnPrimitive OneDnnConvolution::weightsGradient() const {
  const auto isSafe = [&](std::string_view name) {
    const bool overruns = overrunsScratchpad(*this, name);
    if (overruns && verboseDispatch())
      printDispatch("oneDNN's " + std::string(name) + " is not taken: " + kOverrunsScratchpad);
    return !overruns;
  };
  const auto gradient = gradientOf<dnnl::convolution_backward_weights>(
      *this, isSafe, dnnl::algorithm::convolution_direct, source, weights, bias, destination, strides,
      dilates, before, after);
  if (!gradient) throw dnnl::error(dnnl_unimplemented, kOverrunsScratchpad);
  return *gradient;
}

}  // namespace mtl::cpu
