#pragma once

#include <stdexcept>
#include <string>

namespace mtl {

/// Wrong use of a device, queue, command buffer or buffer. The text is one sentence.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace mtl
