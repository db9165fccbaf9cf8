#pragma once

#include <functional>
#include <string>

#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/reference_tensor.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

/// The elements of a tensor in the host's memory.
ReferenceTensor readReference(const TensorShape& shape, const std::byte* memory);

/// Computes a whole call in float64, on one thread: the last entry of a family's list for the CPU, for what no other one
/// takes.
class ReferencePlan final : public Plan {
 public:
  using Compute = std::function<ReferenceTensor(const Operands& operands)>;

  ReferencePlan(const TensorShape& destination, bool canAccumulate, Compute compute)
      : destination_(destination), canAccumulate_(canAccumulate), compute_(std::move(compute)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override;
  [[nodiscard]] bool canAccumulate() const override { return canAccumulate_; }
  [[nodiscard]] std::string describe() const override { return "in float64 on one thread"; }

 private:
  TensorShape destination_;
  bool canAccumulate_;
  Compute compute_;
};

}  // namespace mps::detail
