#pragma once

#include "mps/core/types/error.hpp"

namespace mps::detail {

/// No implementation of a device accepts a problem.
class NoImplementation : public Error {
 public:
  using Error::Error;
};

}  // namespace mps::detail
