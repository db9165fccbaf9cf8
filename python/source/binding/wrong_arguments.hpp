#pragma once

#include <nanobind/nanobind.h>

namespace python {

/// Lets the TypeError of a call whose arguments no overload takes begin with a sentence that names the argument, as the
/// library's own errors do (unmetal/_wrong_arguments.py); nanobind's list of overloads follows.
/// Called when all classes are bound.
void explainWrongArguments(nanobind::handle module, nanobind::handle mtl);

}  // namespace python
