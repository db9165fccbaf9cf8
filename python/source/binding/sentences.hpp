#pragma once

#include <string>
#include <string_view>

namespace python {

/// A sentence of the library's with Python's names: `kernelWidth` becomes `kernel_width`, `null` None. What stands in
/// quotes (labels, file names) stays, and so do names of files and of other libraries.
std::string inPythonsNames(std::string_view sentence);

}  // namespace python
