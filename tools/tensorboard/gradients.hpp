#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "train/data/dataset.hpp"
#include "train/network/network.hpp"
#include "train/training/trainer.hpp"

namespace unmetal {

/// Of the loss, for one tensor of a layer.
struct Gradient {
  std::string name;  ///< the tensor's
  std::vector<float> values;
};

/// Of the mean loss over the first pictures, for all that is trained; frozen layers have none. The network keeps its values.
/// @param network no work on it may be in flight
/// @param options its augmentation, seed and class weights count
std::vector<Gradient> gradientsOf(const train::Network& network, const train::Dataset& data,
                                  std::size_t count, const train::TrainerOptions& options);

}  // namespace unmetal
