#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace unmetal::train {

/// How well one class is told from the others.
struct ClassScores {
  std::size_t count = 0;  ///< pictures of the class
  double precision =
      0;  ///< of the pictures that were taken for it, the part that are of it; 0 where there are none
  double recall = 0;  ///< of its pictures, the part that were taken for it; 0 where there are none
  double f1 = 0;      ///< 2 precision recall / (precision + recall); 0 where both are 0
};

/// How well a network tells the classes of pictures apart.
struct Evaluation {
  std::size_t correct = 0;  ///< pictures whose class has the largest probability
  std::size_t count = 0;
  double loss = 0;  ///< mean cross-entropy
  std::size_t classCount = 0;
  /// How many pictures of the first class were taken for the second one. Pairs that do not occur are not there.
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> confusion = {};

  [[nodiscard]] double accuracy() const {
    return count == 0 ? 0 : static_cast<double>(correct) / static_cast<double>(count);
  }
  /// Of each class.
  [[nodiscard]] std::vector<ClassScores> classScores() const;
  /// Mean of the classes' F1; 0 without classes.
  [[nodiscard]] double macroF1() const;
};

}  // namespace unmetal::train
