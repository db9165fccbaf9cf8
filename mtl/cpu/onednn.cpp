#include "mtl/cpu/onednn.hpp"

#if defined(UNMETAL_OPENMP)
#include <omp.h>
#endif

#include <unordered_map>

namespace mtl::cpu {

const dnnl::engine& oneDnnEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

#if defined(UNMETAL_OPENMP)

OneDnnThreads::OneDnnThreads(int count) : previous_(omp_get_max_threads()) {
  if (count > 0) omp_set_num_threads(count);
}

OneDnnThreads::~OneDnnThreads() {
  omp_set_num_threads(previous_);
}

#else

OneDnnThreads::OneDnnThreads(int count) : previous_(count) {}

OneDnnThreads::~OneDnnThreads() = default;

#endif

dnnl::primitive_attr oneDnnAttributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
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

}  // namespace mtl::cpu
