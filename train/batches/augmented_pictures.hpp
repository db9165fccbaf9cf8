#pragma once

#include <cstdint>
#include <vector>

#include "train/batches/augmentation.hpp"
#include "train/batches/batch_loader.hpp"
#include "train/data/dataset.hpp"

namespace unmetal::train::detail {

/// The pictures of a data set as an epoch sees them: a function of seed, epoch and number of the picture alone.
class AugmentedPictures {
 public:
  /// @param data     must outlive the object
  /// @param pictures shape of what comes out; with a crop those of the data may be larger
  /// @throws mps::Error as checkAugmentation()
  AugmentedPictures(const Dataset& data, const Shape& pictures, const Augmentation& augmentation,
                    std::uint64_t seed);

  /// For bytes, of a data set that has them, or float32. Called by several threads.
  /// @throws mps::Error for a class that is none, and numbers that are not finite
  template <class Value>
  PictureClass load(std::uint32_t number, std::uint64_t epoch, std::vector<Value>& pixels) const;

 private:
  class Draws;

  template <class Value>
  std::uint32_t loadOne(std::uint32_t number, std::uint64_t epoch, std::vector<Value>& pixels) const;
  template <class Value>
  std::uint32_t loadStored(std::uint32_t number, std::vector<Value>& pixels) const;
  template <class Value>
  std::vector<Value> partOf(std::vector<Value> pixels, const Draws& draws) const;
  void changeColours(std::vector<float>& values, const Draws& draws, float most) const;

  const Dataset& data_;
  Shape pictures_;
  Augmentation augmentation_;
  std::uint64_t seed_;
  Shape stored_;  ///< what a picture is cut out of
};

}  // namespace unmetal::train::detail
