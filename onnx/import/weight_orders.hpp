#pragma once

#include <vector>

#include "onnx/import/constant.hpp"
#include "train/network/layers.hpp"

/// Weights in the order of a network's layers.
namespace unmetal::onnx::detail {

/// Of a convolution: [out][in][row][column] becomes [out][row][column][in].
std::vector<float> channelsLast(const Constant& weights);
/// Of a transposed one: [in][out][row][column] becomes [out][row][column][in], its window turned by half a turn.
std::vector<float> turnedChannelsLast(const Constant& weights);
/// Of a matrix for pictures that lie channel by channel: [out][row][column][in], times a factor.
/// @param outputsFirst whether it is outputs x inputs
std::vector<float> denseWeights(const Constant& matrix, const train::Shape& source, bool outputsFirst,
                                float factor);
/// A number for each channel, of one number or of as many, times a factor.
std::vector<float> spreadOver(const Constant& constant, std::size_t channels, float factor = 1);

}  // namespace unmetal::onnx::detail
