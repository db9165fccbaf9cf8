#include "tools/training/training_choice.hpp"

#include <algorithm>
#include <bit>

namespace unmetal {

TrainingChoice chooseTraining(bool isPictureFolder, std::size_t pictures) {
  if (!isPictureFolder) return {"mnist-cnn", 5, 64, "constant", std::nullopt, std::nullopt};
  // Few pictures are seen often, in small batches, so that there are steps enough to learn from them.
  constexpr std::size_t picturesSeen = 50'000;
  constexpr std::size_t leastEpochs = 8;
  constexpr std::size_t mostEpochs = 120;
  constexpr std::size_t largestBatch = 16;
  const std::size_t count = std::max<std::size_t>(1, pictures);
  return {"small-cnn",
          std::clamp(picturesSeen / count, leastEpochs, mostEpochs),
          std::min(largestBatch, std::bit_floor(std::max<std::size_t>(1, count / 4))),
          "one-cycle",
          0.01,
          0.0005};
}

}  // namespace unmetal
