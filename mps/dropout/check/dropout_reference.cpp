#include "mps/dropout/check/dropout_reference.hpp"

#include "mps/core/types/philox.hpp"

namespace mps::detail {

std::vector<double> dropoutMaskReference(const DropoutProblem& problem, std::uint32_t encodeCounter,
                                         std::uint32_t imageIndex) {
  const std::int64_t width = problem.maskStrideX == 1 ? problem.maskWidth : 1;
  const std::int64_t height = problem.maskStrideY == 1 ? problem.maskHeight : 1;
  const std::int64_t channels = problem.maskStrideChannel == 1 ? problem.maskChannels : 1;
  const PhiloxKey key = {static_cast<std::uint32_t>(problem.seed & 0xFFFFFFFF),
                         static_cast<std::uint32_t>(problem.seed >> 32U)};
  std::vector<double> mask;
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x)
      for (std::int64_t c = 0; c < channels; ++c) {
        const std::int64_t element = (y * width + x) * channels + c;
        const PhiloxCounter counter = {static_cast<std::uint32_t>(element / 8), imageIndex, encodeCounter, 0};
        const std::uint32_t word = philox(counter, key)[static_cast<std::size_t>(element % 8 / 2)];
        const std::uint32_t number = element % 2 == 0 ? word % 65536 : word / 65536;
        const double uniform = static_cast<double>(number) / 65536;
        mask.push_back(uniform < static_cast<double>(problem.keepProbability) ? 1 : 0);
      }
  return mask;
}

ReferenceTensor dropoutReference(const DropoutProblem& problem, const ReferenceTensor& input,
                                 std::uint32_t encodeCounter, std::uint32_t firstImage) {
  const std::int64_t maskWidth = problem.maskStrideX == 1 ? problem.maskWidth : 1;
  const std::int64_t maskChannels = problem.maskStrideChannel == 1 ? problem.maskChannels : 1;
  ReferenceTensor result(input.images, input.height, input.width, input.channels);
  result.roundings = 2;  // the division, and the scale of a store to a unorm format
  for (std::int64_t n = 0; n < input.images; ++n) {
    const std::vector<double> mask =
        dropoutMaskReference(problem, encodeCounter, firstImage + static_cast<std::uint32_t>(n));
    for (std::int64_t y = 0; y < input.height; ++y)
      for (std::int64_t x = 0; x < input.width; ++x)
        for (std::int64_t c = 0; c < input.channels; ++c) {
          const std::int64_t maskX = (problem.maskOriginX + x) * problem.maskStrideX;
          const std::int64_t maskY = (problem.maskOriginY + y) * problem.maskStrideY;
          const std::int64_t maskChannel = (problem.maskOriginChannel + c) * problem.maskStrideChannel;
          const auto element =
              static_cast<std::size_t>((maskY * maskWidth + maskX) * maskChannels + maskChannel);
          result.at(n, y, x, c) =
              input.at(n, y, x, c) * mask.at(element) / static_cast<double>(problem.keepProbability);
        }
  }
  return result;
}

}  // namespace mps::detail
