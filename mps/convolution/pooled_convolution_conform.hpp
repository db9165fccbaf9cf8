#pragma once

#include "mps/conform/conform.hpp"

namespace mps::detail {

/// Rows of pooled convolutions, whose implementations end in "pooled".
void conformPooledConvolution(Conform& conform);

}  // namespace mps::detail
