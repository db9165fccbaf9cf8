#pragma once

#include <nanobind/nanobind.h>

namespace python {

/// Networks, data sets and the trainer. @param module unmetal.train
void bindTrain(nanobind::module_& module);

}  // namespace python
