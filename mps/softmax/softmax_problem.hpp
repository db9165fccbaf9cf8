#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

enum class SoftMaxKind : std::uint8_t { SoftMax, LogSoftMax };
enum class SoftMaxDirection : std::uint8_t { Forward, Gradient };

/// All numbers of one softmax call. At every pixel of every image, over the channels of
/// the tensors, which have the same sizes:
///
///     SoftMax     s_k = exp(x_k) / sum_j exp(x_j)      dx_k = s_k (dy_k - sum_j dy_j s_j)
///     LogSoftMax  l_k = x_k - ln sum_j exp(x_j)        dx_k = dy_k - exp(l_k) sum_j dy_j
///
/// The largest x is subtracted first, so nothing overflows. All x = -infinity, one +infinity or one NaN make
/// every channel of the pixel NaN.
///
/// | operand | Forward | Gradient |
/// |---|---|---|
/// | source | x | |
/// | secondary | | the forward RESULT, s or l |
/// | gradient | | dy |
/// | destination | s or l | dx |
///
/// The destination may be the same memory as one of the inputs, if its format and strides are that input's
/// too. No saved fields, no parameters, no scalars. A gradient can accumulate into a float32 destination.
struct SoftMaxProblem {
  SoftMaxKind kind = SoftMaxKind::SoftMax;
  SoftMaxDirection direction = SoftMaxDirection::Forward;
  TensorShape input;     ///< x; of the gradient the forward result
  TensorShape gradient;  ///< dy; of the gradient only
  TensorShape destination;

  bool operator==(const SoftMaxProblem&) const = default;

  [[nodiscard]] std::size_t hash() const {
    return hashOf(kind, direction, input.hash(), gradient.hash(), destination.hash());
  }
  /// "log softmax gradient, 64x1x1x10 float32, gradient 64x1x1x10 float32 -> 64x1x1x10 float32".
  [[nodiscard]] std::string describe() const;
};

/// In order of preference; the last one accepts every problem.
std::span<const Implementation<SoftMaxProblem>> softMaxImplementationsCpu();
std::span<const Implementation<SoftMaxProblem>> softMaxImplementationsCuda();
inline constexpr BackEnds<SoftMaxProblem> softMaxBackEnds{softMaxImplementationsCpu,
                                                          UNMETAL_CUDA_LIST(softMaxImplementationsCuda)};

}  // namespace mps::detail
