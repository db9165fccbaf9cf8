#pragma once

#include <span>
#include <vector>

#include "train/data/shape.hpp"

namespace unmetal::train {

class Dataset;

/// What is subtracted from the values of each channel, and by what they are divided then: (value - mean) / deviation. A network
/// that has one (Network::setNormalization()) applies it to all pictures that it learns from and predicts, and stores it in
/// its files.
struct Normalization {
  std::vector<float> mean;       ///< of each channel
  std::vector<float> deviation;  ///< of each channel, above 0

  /// Of ImageNet's pictures, in red, green and blue: what networks of torchvision have learned with.
  static Normalization imagenet();
  /// Mean and standard deviation of all pixels of a data set; a channel without differences is divided by 1.
  static Normalization of(const Dataset& data);

  bool operator==(const Normalization&) const = default;
};

/// @param pixels of pictures, one after the other
void normalize(std::span<float> pixels, const Normalization& normalization);

/// @throws mps::Error unless there is a finite number for each channel, and deviations are above 0
void checkNormalization(const Normalization& normalization, const Shape& pictures);

}  // namespace unmetal::train
