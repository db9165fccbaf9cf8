#pragma once

#include <cstdint>
#include <vector>

#include "train/training/trainer.hpp"

namespace unmetal::train {

struct LearningRateRange {
  double lowest = 1e-6;
  double highest = 1;
  std::uint64_t steps = 100;  ///< at most; at least 2
};

struct LearningRateCurve {
  struct Point {
    double learningRate = 0;
    double loss = 0;  ///< of the step
    double smoothed = 0;
  };
  /// In the order of the steps, with growing rates. It ends with the highest rate, before a loss that is not finite, or where the
  /// smoothed loss is above four times the lowest one.
  std::vector<Point> points;
  /// A rate to train with: a tenth of that at which the smoothed loss is lowest, before it first rises by a quarter. 0 where it
  /// never falls.
  double suggestion = 0;
};

/// The learning rate range test (Smith, Cyclical Learning Rates for Training Neural Networks, 2017): trains a copy of the network for
/// some steps, each with a larger rate, and looks at the losses. Smoothed losses are exponential averages with 0.9, without bias.
/// The network itself does not change.
/// @param options what a Trainer would be given: batch size, optimiser, format, weight decay, clipNorm, class weights and seed count
/// @throws mps::Error as Trainer::fit() does, and for a range that is none
LearningRateCurve findLearningRate(const Network& network, const Dataset& training,
                                   const TrainerOptions& options = {}, const LearningRateRange& range = {});

}  // namespace unmetal::train
