#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace unmetal {

/// How a training goes where its user has not said it.
struct TrainingChoice {
  std::string network;
  std::uint64_t epochs = 0;
  std::size_t batchSize = 0;
  std::string schedule;
};

/// | data | network | epochs | batch | learning rate |
/// |---|---|---|---|---|
/// | a folder of n pictures | small-cnn | 50,000 / n, from 8 to 60 | the power of two up to n / 4, at most 32 | falls as a cosine |
/// | others | mnist-cnn | 5 | 64 | constant |
TrainingChoice chooseTraining(bool isPictureFolder, std::size_t pictures);

}  // namespace unmetal
