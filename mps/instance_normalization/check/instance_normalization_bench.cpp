#include <string>

#include "mps/conform/timing/kernel_bench.hpp"
#include "mps/instance_normalization/check/instance_normalization_fixed_source.hpp"
#include "mps/instance_normalization/group_normalization.hpp"

namespace mps::detail {

/// Bytes as if each image were read once: where one is larger than the caches it is read twice.
void benchInstanceNormalization(Bench& bench) {
  const auto pairOf = [](std::size_t side, std::size_t channels, const std::string& words) {
    BenchPair pair;
    pair.shape = std::to_string(side) + "x" + std::to_string(side) + "x" + std::to_string(channels) + words;
    pair.source = {ImageFeatureChannelFormat::Float32, side, side, channels};
    pair.parameterBytes = static_cast<double>(2 * channels * sizeof(float));
    return pair;
  };
  for (const auto& [side, channels] :
       {std::pair<std::size_t, std::size_t>{56, 64}, {14, 256}, {256, 32}, {112, 3}}) {
    BenchPair pair = pairOf(side, channels, "");
    pair.forward =
        CNNInstanceNormalization::create(bench.device(), FixedInstanceNormalization::create(channels));
    pair.gradient = CNNInstanceNormalizationGradient::create(bench.device());
    benchPair(bench, pair);
  }
  for (const auto& [side, channels] : {std::pair<std::size_t, std::size_t>{56, 64}, {14, 256}}) {
    BenchPair pair = pairOf(side, channels, " 32 groups");
    pair.forward =
        CNNGroupNormalization::create(bench.device(), FixedGroupNormalization::create(channels, 32));
    pair.gradient = CNNGroupNormalizationGradient::create(bench.device());
    benchPair(bench, pair);
  }
}

}  // namespace mps::detail
