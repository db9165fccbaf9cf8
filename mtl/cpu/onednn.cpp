#include "mtl/cpu/onednn.hpp"

#include <algorithm>
#include <unordered_map>

// Of the OpenMP that oneDNN runs on; clang has no <omp.h> without an OpenMP of its own. NOLINTBEGIN: OpenMP's names
extern "C" {
int omp_get_max_threads() noexcept;
int omp_get_thread_limit() noexcept;
int omp_get_dynamic() noexcept;
void omp_set_dynamic(int dynamic) noexcept;
void omp_set_num_threads(int count) noexcept;
}
// NOLINTEND

namespace mtl::cpu {
namespace {

/// A description of an operation: oneDNN 2 has a type of its own for what it computes (Operation::desc), oneDNN 3 has not.
template <class Operation, class... What>
typename Operation::primitive_desc describe(const dnnl::primitive_attr& attributes, const What&... what) {
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

/// A gradient of it. @param preferred as of OneDnnConvolution::dataGradient
template <class Gradient, class... What>
OneDnnPrimitive gradientOf(const OneDnnConvolution& convolution, std::string_view preferred,
                           const What&... what) {
  // next_impl() refers to all that a description was made of: none of it may be a temporary.
  const dnnl::primitive_attr attributes = oneDnnAttributes();
  const dnnl::convolution_forward::primitive_desc hint = describeForward(convolution);
  using Description = typename Gradient::primitive_desc;
#if DNNL_VERSION_MAJOR >= 3
  const auto first = [&] { return Description(oneDnnEngine(), what..., hint, attributes); };
#else
  const typename Gradient::desc description(what...);
  const auto first = [&] { return Description(description, attributes, oneDnnEngine(), hint); };
#endif
  if (!preferred.empty()) {
    Description candidate = first();
    do {
      if (std::string_view(candidate.impl_info_str()).find(preferred) != std::string_view::npos)
        return OneDnnPrimitive(candidate);
    } while (candidate.next_impl());
  }
  return OneDnnPrimitive(first());
}

}  // namespace

const dnnl::engine& oneDnnEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

OneDnnThreads::OneDnnThreads(int count) : previous_(omp_get_max_threads()), wasDynamic_(omp_get_dynamic()) {
  omp_set_dynamic(0);
  omp_set_num_threads(std::min(count > 0 ? count : previous_, omp_get_thread_limit()));
}

OneDnnThreads::~OneDnnThreads() {
  omp_set_num_threads(previous_);
  omp_set_dynamic(wasDynamic_);
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

OneDnnPrimitive::OneDnnPrimitive(const dnnl::primitive_desc_base& description)
    : description_(description), primitive_(description.get()) {}

void OneDnnPrimitive::run(std::initializer_list<Argument> arguments, std::byte* scratchpad) const {
  const auto memory = [](const dnnl::memory::desc& shape, const void* address) {
    // oneDNN has one memory type for what it reads and what it writes.
    return dnnl::memory(shape, oneDnnEngine(), const_cast<void*>(address));
  };
  std::unordered_map<int, dnnl::memory> memories;
  for (const auto& [which, address] : arguments)
    if (address != nullptr) memories.emplace(which, memory(argument(which), address));
  memories.emplace(DNNL_ARG_SCRATCHPAD, memory(description_.scratchpad_desc(), scratchpad));
  thread_local dnnl::stream stream(oneDnnEngine());
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

OneDnnPrimitive OneDnnConvolution::forward() const {
  return OneDnnPrimitive(describeForward(*this));
}

OneDnnPrimitive OneDnnConvolution::dataGradient(std::string_view preferred) const {
  return gradientOf<dnnl::convolution_backward_data>(*this, preferred, dnnl::algorithm::convolution_direct,
                                                     source, weights, destination, strides, dilates, before,
                                                     after);
}

OneDnnPrimitive OneDnnConvolution::weightsGradient() const {
  return gradientOf<dnnl::convolution_backward_weights>(*this, {}, dnnl::algorithm::convolution_direct,
                                                        source, weights, bias, destination, strides, dilates,
                                                        before, after);
}

}  // namespace mtl::cpu
