#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

enum class DropoutDirection : std::uint8_t { Forward, Gradient };

/// All numbers of one dropout call. Both directions compute the same function of their
/// input:
///
///     destination[n][y][x][c] = input[n][y][x][c] * M / keepProbability
///
/// with M = 1 (keep) or 0 (drop), rounded once, in the division. M times NaN or infinity is NaN for M = 0.
///
/// | operand | Forward | Gradient |
/// |---|---|---|
/// | source | the input | |
/// | gradient | | the input |
/// | destination | destination | destination |
/// | scalars[0] | encode counter | encode counter of the forward call |
/// | scalars[1] | index in the batch of the first image | the same |
///
/// The scalars are integers of at most 32 bits. No saved fields: M is drawn again, for any element, in any
/// order, the same on every device. With (x, y, c) = element + maskOrigin and the strides 0 or 1,
///
///     i      = (y maskStrideY Wm + x maskStrideX) Cm + c maskStrideChannel
///     Wm     = maskStrideX ? maskWidth : 1,  Cm = maskStrideChannel ? maskChannels : 1
///     word   = Philox4x32-10(counter = (i / 8, image index, encode counter, 0), key = seed)[i mod 8 / 2]
///     number = i is even ? word mod 2^16 : word / 2^16
///     M      = number 2^-16 < keepProbability
///
/// Eight elements share a block, not four (a word each, of which 24 bits count): drawing
/// is what the kernels spend their time on. The price is that the probability is rounded up to a multiple of 2^-16.
/// In this order the words of a block, as they lie in memory, are the numbers of its elements.
///
/// The destination may be the same memory as the input, if its format and strides are the input's too. A
/// gradient can accumulate into a float32 destination.
struct DropoutProblem {
  DropoutDirection direction = DropoutDirection::Forward;
  float keepProbability = 0.5F;  ///< above 0, at most 1 (the identity)
  std::uint64_t seed = 0;
  /// 1: own value for each position; 0: one value for all positions along the axis.
  std::int64_t maskStrideX = 1;
  std::int64_t maskStrideY = 1;
  std::int64_t maskStrideChannel = 1;
  /// Size of what the mask was drawn for, before the strides: the forward source, as far as it is read.
  std::int64_t maskWidth = 0;
  std::int64_t maskHeight = 0;
  std::int64_t maskChannels = 0;
  /// Where in it the first element of the tensors lies: a clip rectangle's origin, a gradient's
  /// secondaryOffset.
  std::int64_t maskOriginX = 0;
  std::int64_t maskOriginY = 0;
  std::int64_t maskOriginChannel = 0;
  TensorShape input;
  TensorShape destination;

  bool operator==(const DropoutProblem&) const = default;

  /// Elements of one image's mask.
  [[nodiscard]] std::int64_t maskElements() const {
    return (maskStrideX != 0 ? maskWidth : 1) * (maskStrideY != 0 ? maskHeight : 1) *
           (maskStrideChannel != 0 ? maskChannels : 1);
  }
  /// i above, for an element of the tensors.
  [[nodiscard]] std::int64_t maskIndex(std::int64_t x, std::int64_t y, std::int64_t channel) const {
    const std::int64_t row = (y + maskOriginY) * maskStrideY * (maskStrideX != 0 ? maskWidth : 1);
    const std::int64_t pixel = row + (x + maskOriginX) * maskStrideX;
    return pixel * (maskStrideChannel != 0 ? maskChannels : 1) +
           (channel + maskOriginChannel) * maskStrideChannel;
  }

  [[nodiscard]] std::size_t hash() const {
    return hashOf(direction, std::bit_cast<std::uint32_t>(keepProbability), seed, maskStrideX, maskStrideY,
                  maskStrideChannel, maskWidth, maskHeight, maskChannels, maskOriginX, maskOriginY,
                  maskOriginChannel, input.hash(), destination.hash());
  }
  /// "dropout, keep 0.8, seed 7, mask 56x56x64 strides 1,1,1 origin 0,0,0, 8x56x56x64 float32 -> ...".
  [[nodiscard]] std::string describe() const;
};

/// Elements whose numbers are the words of one block.
inline constexpr std::int64_t kDropoutBlock = 8;

/// The largest number with number 2^-16 < keepProbability; exact, as 2^16 times a float is. 0 to 2^16 - 1.
inline std::int32_t dropoutLastKept(float keepProbability) {
  return static_cast<std::int32_t>(std::ceil(keepProbability * 0x1p16F)) - 1;
}

/// In order of preference; the last one accepts every problem.
std::span<const Implementation<DropoutProblem>> dropoutImplementationsCpu();
std::span<const Implementation<DropoutProblem>> dropoutImplementationsCuda();
inline constexpr BackEnds<DropoutProblem> dropoutBackEnds{dropoutImplementationsCpu,
                                                          UNMETAL_CUDA_LIST(dropoutImplementationsCuda)};

/// What maskData() gives: a byte for each element of one image's mask, 1 kept, 0 dropped, in the order y, x,
/// channel.
/// @param mask problem.maskElements() bytes
void dropoutMask(const DropoutProblem& problem, std::uint32_t encodeCounter, std::uint32_t imageIndex,
                 std::span<std::byte> mask);

}  // namespace mps::detail
