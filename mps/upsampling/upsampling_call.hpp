#pragma once

#include <cstddef>
#include <cstdint>

#include "mps/core/kernel/call.hpp"
#include "mps/upsampling/upsampling_problem.hpp"

/// What upsampling and resizing have in common: from calls to plans.
namespace mps::detail {

/// How the kernels sample.
struct UpsamplingManner {
  UpsamplingSampling sampling = UpsamplingSampling::Nearest;
  std::int64_t resultWidth = 1;  ///< of the whole source
  std::int64_t resultHeight = 1;
  /// UpsamplingAxis::start and step, of samplings that have them.
  struct Steps {
    double start = 0;
    double step = 0;
  };
  Steps x{};
  Steps y{};
};

/// Sizes are 1 to 2^24: positions of pixels times sizes stay within 64 bits. @throws Error for another one
void checkResultSize(const char* className, const char* property, std::size_t size);

PreparedCall prepareUpsampling(const Kernel& kernel, const UpsamplingManner& manner, const ForwardCall& call);

/// @throws Error for another edge mode than Zero and Clamp
PreparedCall prepareUpsamplingGradient(const Kernel& kernel, const UpsamplingManner& manner,
                                       const GradientCall& call);

}  // namespace mps::detail
