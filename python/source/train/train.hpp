#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "train/data/shape.hpp"

namespace unmetal::train {
class Network;
}

namespace python {

using GivenArray = nanobind::ndarray<nanobind::ro, nanobind::c_contig, nanobind::device::cpu>;
using Floats = nanobind::ndarray<nanobind::numpy, float>;
/// {height, width, channels}.
using Extents = std::tuple<std::size_t, std::size_t, std::size_t>;

/// Networks, data sets and the trainer. @param module unmetal.train
void bindTrain(nanobind::module_& module);
/// Their parts in files of their own. @{
void bindDatasets(nanobind::module_& module);
void bindEvaluation(nanobind::module_& module);
void bindTrainer(nanobind::module_& module);
/// @}

Extents extentsOf(const unmetal::train::Shape& shape);
unmetal::train::Shape shapeOf(const Extents& extents);
/// Of an array [picture][row][column][channel], or without channels. @throws mps::Error for another one
unmetal::train::Shape shapeOf(const GivenArray& array, const char* owner);
/// As float32; of uint8 255 is 1.0. @throws mps::Error for an array of another type
std::vector<float> pixelsOf(const GivenArray& array, const char* owner);

/// A row for each picture.
Floats predict(const unmetal::train::Network& network, const GivenArray& pictures);

}  // namespace python
