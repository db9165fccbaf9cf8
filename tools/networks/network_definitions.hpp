#pragma once

#include <cstddef>

#include "train/network/network.hpp"

/// The program's networks: from pictures to one number for each class. networks.hpp says what they are.
namespace unmetal {

/// Smaller pictures keep their size in the first layers of networks for large ones.
inline constexpr std::size_t kLeastSideToShrink = 64;

/// What a network is to be.
struct NetworkForm {
  std::size_t classes = 0;
  std::size_t firstChannels = 0;  ///< of networks that can be made narrow
};

train::Features lenet(const train::Features& pictures, const NetworkForm& form);
train::Features mnistCnn(const train::Features& pictures, const NetworkForm& form);
/// Of any size.
train::Features smallCnn(const train::Features& pictures, const NetworkForm& form);
train::Features resnet18(const train::Features& pictures, const NetworkForm& form);
train::Features resnet50(const train::Features& pictures, const NetworkForm& form);
train::Features alexnetLrn(const train::Features& pictures, const NetworkForm& form);
/// Their pictures can be halved twice.
/// @{
train::Features unetSmall(const train::Features& pictures, const NetworkForm& form);
train::Features style(const train::Features& pictures, const NetworkForm& form);
/// @}

}  // namespace unmetal
