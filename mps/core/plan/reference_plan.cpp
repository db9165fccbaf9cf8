#include "mps/core/plan/reference_plan.hpp"

#include "mps/core/types/storage.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

/// Calls visit(element's number, its offset in memory) for all elements of a tensor.
template <class Visit>
void forEachOffset(const TensorShape& shape, Visit visit) {
  std::size_t i = 0;
  for (std::int64_t n = 0; n < shape.images; ++n)
    for (std::int64_t y = 0; y < shape.height; ++y)
      for (std::int64_t x = 0; x < shape.width; ++x)
        for (std::int64_t c = 0; c < shape.channels; ++c) visit(i++, shape.offset(n, y, x, c));
}

}  // namespace

ReferenceTensor readReference(const TensorShape& shape, const std::byte* memory) {
  ReferenceTensor tensor(shape.images, shape.height, shape.width, shape.channels);
  if (shape.elements() == 0) return tensor;
  withElementType(shape.format, [&](auto element) {
    const auto* const from = reinterpret_cast<const decltype(element)*>(memory);
    forEachOffset(shape, [&](std::size_t i, std::int64_t offset) {
      tensor.values[i] = static_cast<double>(loadFloat(from + offset));
    });
  });
  return tensor;
}

void ReferencePlan::run(mtl::Stream& stream, const Operands& operands) const {
  if (destination_.elements() == 0) return;
  mtl::cpu::asCpu(stream).parallelFor(1, 1, [&](std::int64_t /*begin*/, std::int64_t /*end*/) {
    const ReferenceTensor result = compute_(operands);
    withElementType(destination_.format, [&](auto element) {
      auto* const to = reinterpret_cast<decltype(element)*>(operands.destination);
      forEachOffset(destination_, [&](std::size_t i, std::int64_t offset) {
        const double old = operands.accumulate ? static_cast<double>(loadFloat(to + offset)) : 0;
        storeFloat(static_cast<float>(old + result.values[i]), to + offset);
      });
    });
  });
}

}  // namespace mps::detail
