#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mps/core/element_grid_cuda.cuh"
#include "mps/core/plan_for.hpp"
#include "mps/core/tensor_shape.hpp"

namespace mps::detail::cuda {

/// The inputs that a position of the destination is a weighted sum of, on one axis. Those at both ends count something.
struct AxisTaps {
  std::int64_t first = 0;
  std::vector<float> weights;

  /// @param weights of inputs from `first` on
  AxisTaps(std::int64_t first, std::vector<float> weights);
  [[nodiscard]] std::int64_t end() const { return first + static_cast<std::int64_t>(weights.size()); }
};

/// A kernel for weighted sums of a few rows and columns of pixels of many channels, and what it needs.
class TilePlan {
 public:
  /// Results of more rows or columns would be long tables.
  static constexpr std::int64_t kLongestAxis = 4096;

  virtual ~TilePlan() = default;
  TilePlan() = default;
  TilePlan(const TilePlan&) = delete;
  TilePlan& operator=(const TilePlan&) = delete;

  [[nodiscard]] virtual std::size_t scratchBytes() const = 0;
  /// @return whether addresses allow that; otherwise nothing was done
  virtual bool run(mtl::Stream& stream, const std::byte* input, const Operands& operands) const = 0;

  /// @param rows, columns of the destination @return null: there is no such kernel
  static std::unique_ptr<const TilePlan> make(const TensorShape& input, const TensorShape& destination,
                                              std::span<const AxisTaps> rows,
                                              std::span<const AxisTaps> columns);
};

/// What make() makes of an element of both tensors' type; null where they differ or are neither float32 nor float16.
template <class Make>
std::unique_ptr<const TilePlan> planForElements(const TensorShape& input, const TensorShape& destination,
                                                Make&& make) {
  const ImageFeatureChannelFormat format = commonFormat({&input, &destination});
  if (format == ImageFeatureChannelFormat::Float32) return make(float{});
  if (format == ImageFeatureChannelFormat::Float16) return make(Float16{});
  return nullptr;
}

}  // namespace mps::detail::cuda
