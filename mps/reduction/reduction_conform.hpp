#pragma once

namespace mps::detail {

class Conform;

/// The rows of the reductions with weights; conformReduction calls it.
void conformReduceBinary(Conform& conform);

}  // namespace mps::detail
