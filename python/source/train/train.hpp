#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace unmetal::train {
class Network;
}

namespace python {

using GivenArray = nanobind::ndarray<nanobind::ro, nanobind::c_contig, nanobind::device::cpu>;
using Floats = nanobind::ndarray<nanobind::numpy, float>;

/// Networks, data sets and the trainer. @param module unmetal.train
void bindTrain(nanobind::module_& module);
/// Their parts in trainer.cpp. @{
void bindEvaluation(nanobind::module_& module);
void bindTrainer(nanobind::module_& module);
/// @}

/// A row for each picture.
Floats predict(const unmetal::train::Network& network, const GivenArray& pictures);

}  // namespace python
