#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace unmetal {

/// How a training goes where its user has not said it.
struct TrainingChoice {
  std::string network;
  std::uint64_t epochs = 0;
  std::size_t batchSize = 0;
  std::string schedule;
  /// Of the optimiser adam; unset: the optimiser's own. @{
  std::optional<double> learningRate = std::nullopt;
  std::optional<double> weightDecay = std::nullopt;
  /// @}
};

/// | data | network | epochs | batch | learning rate | weight decay |
/// |---|---|---|---|---|---|
/// | a folder of n pictures | small-cnn | 80,000 / n, from 8 to 120 | the power of two up to n / 4, at most 16 | one cycle of up to 0.01 | 0.0005 |
/// | others | mnist-cnn | 5 | 64 | constant, the optimiser's own | 0 |
TrainingChoice chooseTraining(bool isPictureFolder, std::size_t pictures);

}  // namespace unmetal
