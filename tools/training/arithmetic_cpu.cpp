#include "tools/training/arithmetic.hpp"

#include "mps/core/cpu/highway_targets.hpp"

// Highway's headers need the one above.
#include <hwy/targets.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "mps/core/cpu/vector_targets.hpp"
#include "mtl/device.hpp"

namespace unmetal {
namespace {

std::string oneDnnInstructionSet() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "SSE41";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx2_vnni:
      return "AVX2_VNNI";
    case dnnl::cpu_isa::avx512_core:
      return "AVX512_CORE";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX512_CORE_VNNI";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX512_CORE_BF16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "AVX512_CORE_AMX";
    default:
      return "instruction-set-" + std::to_string(static_cast<int>(dnnl::get_effective_cpu_isa()));
  }
}

}  // namespace

std::string arithmeticOf(const mtl::Device& device) {
  if (device.kind() != mtl::DeviceKind::CPU) return device.description();
  return std::string(hwy::TargetName(mps::detail::vectorTargets().front())) + ", oneDNN " +
         oneDnnInstructionSet();
}

}  // namespace unmetal
