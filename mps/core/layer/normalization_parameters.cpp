#include "mps/core/layer/normalization_parameters.hpp"

#include <cmath>
#include <vector>

#include "mps/core/coding/coded_floats.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {

void checkParameterCount(const std::string& kernel, const char* argument, std::size_t found,
                         std::size_t channels) {
  if (found != channels)
    throw Error(kernel, argument, std::to_string(found) + " values",
                std::to_string(channels) + ", the numberOfFeatureChannels");
}

namespace {

constexpr const char* epsilonRange = "a number of at least 0";

bool isEpsilon(float epsilon) {
  return epsilon >= 0 && std::isfinite(epsilon);
}

}  // namespace

float checkedEpsilon(const std::string& kernel, float epsilon) {
  if (!isEpsilon(epsilon)) throw Error(kernel, "epsilon", std::to_string(epsilon), epsilonRange);
  return epsilon;
}

void codeEpsilon(Coder& coder, float& epsilon) {
  coder.code("epsilon", epsilon);
  if (!isEpsilon(epsilon)) coder.refuse("epsilon", std::to_string(epsilon), epsilonRange);
}

std::shared_ptr<mtl::Buffer> parameterBuffer(const std::string& kernel,
                                             const std::shared_ptr<mtl::Device>& device, const char* argument,
                                             std::span<const float> values, std::size_t channels,
                                             float byDefault) {
  if (!values.empty()) {
    checkParameterCount(kernel, argument, values.size(), channels);
    return device->newBuffer(std::as_bytes(values));
  }
  const std::vector<float> same(channels, byDefault);
  return device->newBuffer(std::as_bytes(std::span(same)));
}

std::shared_ptr<mtl::Buffer> recordReloadOf(const Kernel& kernel, mtl::CommandBuffer& commandBuffer,
                                            const std::shared_ptr<mtl::Buffer>& buffer,
                                            const std::shared_ptr<mtl::Buffer>& present) {
  return std::make_shared<mtl::Buffer>(kernel.device(),
                                       recordReload(commandBuffer, kernel.describe(), {buffer->memory(), 0},
                                                    {present->memory(), 0}, buffer->length()),
                                       mtl::StorageMode::Managed);
}

template <class NormalizationState>
void checkReload(const Kernel& kernel, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                 const char* argument, const std::shared_ptr<NormalizationState>& state,
                 std::size_t channels) {
  checkCommandBuffer(kernel, commandBuffer);
  if (!state) throw Error(kernel.describe(), argument, "null", "a state");
  checkStates(kernel, argument, *commandBuffer, StateBatch{state}, 1);
  checkParameterCount(kernel.describe(), argument, state->numberOfFeatureChannels(), channels);
}
template void checkReload(const Kernel&, const std::shared_ptr<mtl::CommandBuffer>&, const char*,
                          const std::shared_ptr<CNNNormalizationGammaAndBetaState>&, std::size_t);
template void checkReload(const Kernel&, const std::shared_ptr<mtl::CommandBuffer>&, const char*,
                          const std::shared_ptr<CNNNormalizationMeanAndVarianceState>&, std::size_t);

void codeUnusualPair(Coder& coder, const std::shared_ptr<mtl::Device>& device, const char* firstKey,
                     std::shared_ptr<mtl::Buffer>& first, const std::shared_ptr<mtl::Buffer>& usualFirst,
                     const char* secondKey, std::shared_ptr<mtl::Buffer>& second,
                     const std::shared_ptr<mtl::Buffer>& usualSecond) {
  const auto codeOne = [&](const char* key, std::shared_ptr<mtl::Buffer>& buffer,
                           const std::shared_ptr<mtl::Buffer>& usual) {
    const std::size_t count = usual->length() / sizeof(float);
    const auto read = codeUnusualFloats(coder, key, *device, {buffer->memory(), 0, count},
                                        {usual->memory(), 0, count}, count);
    if (read) buffer = device->newBuffer(std::as_bytes(std::span(*read)));
    return read.has_value();
  };
  const bool hasFirst = codeOne(firstKey, first, usualFirst);
  const bool hasSecond = codeOne(secondKey, second, usualSecond);
  // The two leave the data source's buffers together: what is updated in place must not be half of a pair.
  const auto copyOf = [&](const std::shared_ptr<mtl::Buffer>& buffer) {
    const std::size_t count = buffer->length() / sizeof(float);
    const std::vector<float> values = floatsOf(*device, {buffer->memory(), 0, count});
    return device->newBuffer(std::as_bytes(std::span(values)));
  };
  if (hasFirst && !hasSecond) second = copyOf(second);
  if (hasSecond && !hasFirst) first = copyOf(first);
}

}  // namespace mps::detail
