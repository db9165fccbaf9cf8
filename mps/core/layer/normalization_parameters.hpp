#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "mps/core/kernel/kernel.hpp"
#include "mps/core/layer/normalization_state.hpp"

/// How normalisations get their parameters: one float32 value per feature channel. The library's own.
namespace mps::detail {

/// @throws Error when an array has another length than the feature channels
void checkParameterCount(const std::string& kernel, const char* argument, std::size_t found,
                         std::size_t channels);

/// The epsilon that is added to a variance. @throws Error when it is negative, infinite or not a number
float checkedEpsilon(const std::string& kernel, float epsilon);
/// Refuses a decoded one that is none of those.
void codeEpsilon(Coder& coder, float& epsilon);

/// The values of a data source in a buffer. @param values empty: all are `byDefault`
std::shared_ptr<mtl::Buffer> parameterBuffer(const std::string& kernel,
                                             const std::shared_ptr<mtl::Device>& device, const char* argument,
                                             std::span<const float> values, std::size_t channels,
                                             float byDefault);

/// A copy of a buffer as it is when the recorded copy runs; of the present one where that is left out by a predicate
/// or dropped with its command buffer (recordReload).
std::shared_ptr<mtl::Buffer> recordReloadOf(const Kernel& kernel, mtl::CommandBuffer& commandBuffer,
                                            const std::shared_ptr<mtl::Buffer>& buffer,
                                            const std::shared_ptr<mtl::Buffer>& present);

/// Of a state that a kernel is reloaded from. @throws Error when it is null, unusable or of another length
template <class NormalizationState>
void checkReload(const Kernel& kernel, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                 const char* argument, const std::shared_ptr<NormalizationState>& state,
                 std::size_t channels);
extern template void checkReload(const Kernel&, const std::shared_ptr<mtl::CommandBuffer>&, const char*,
                                 const std::shared_ptr<CNNNormalizationGammaAndBetaState>&, std::size_t);
extern template void checkReload(const Kernel&, const std::shared_ptr<mtl::CommandBuffer>&, const char*,
                                 const std::shared_ptr<CNNNormalizationMeanAndVarianceState>&, std::size_t);

/// Codes two arrays that usually are those of a data source: written where they differ from it; when either was, both are the kernel's own.
void codeUnusualPair(Coder& coder, const std::shared_ptr<mtl::Device>& device, const char* firstKey,
                     std::shared_ptr<mtl::Buffer>& first, const std::shared_ptr<mtl::Buffer>& usualFirst,
                     const char* secondKey, std::shared_ptr<mtl::Buffer>& second,
                     const std::shared_ptr<mtl::Buffer>& usualSecond);

}  // namespace mps::detail
