#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "mps/optimizer/gradient_norm.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

/// In lanes of their own, so that the compiler uses vectors.
double sumOfSquares(const float* values, std::int64_t count) {
  constexpr std::size_t lanes = 16;
  std::array<double, lanes> sums{};
  const auto size = static_cast<std::size_t>(count);
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes)
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      sums[lane] += value * value;
    }
  for (; i < size; ++i) sums[i % lanes] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  double sum = 0;
  for (const double lane : sums) sum += lane;
  return sum;
}

/// Some values of a part.
struct Block {
  const GradientNormPart* part;
  std::int64_t first;
};

double sumOf(const Block& block) {
  const GradientNormPart& part = *block.part;
  const double inverse = part.lossScale != nullptr ? static_cast<double>(part.lossScale->inverse) : 1;
  return inverse * inverse *
         sumOfSquares(part.values + block.first, std::min(gradientNormBlock, part.count - block.first));
}

}  // namespace

void measureGradientNormCpu(mtl::Stream& stream, std::span<const GradientNormPart> parts,
                            const GradientNormOperands& operands) {
  std::vector<Block> blocks;
  for (const GradientNormPart& part : parts)
    for (std::int64_t first = 0; first < part.count; first += gradientNormBlock)
      blocks.push_back({&part, first});
  constexpr std::int64_t blocksOfAThread = 4;
  mtl::cpu::asCpu(stream).parallelFor(
      static_cast<std::int64_t>(blocks.size()), blocksOfAThread, [&](std::int64_t begin, std::int64_t end) {
        for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
          operands.sums[i] = sumOf(blocks[i]);
      });
  double sum = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) sum += operands.sums[i];
  const double norm = std::sqrt(sum);
  *operands.factor = norm > operands.limit ? static_cast<float>(operands.limit / norm) : 1.0F;
}

}  // namespace mps::detail
