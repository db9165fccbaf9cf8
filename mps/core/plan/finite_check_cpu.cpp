#include <atomic>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "mps/core/plan/finite_check.hpp"
#include "mps/core/types/storage.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

class FiniteCheck final : public Plan {
 public:
  explicit FiniteCheck(const FiniteCheckProblem& problem) : shape_(problem.source) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    std::atomic<std::int64_t> first{std::numeric_limits<std::int64_t>::max()};
    withElementType(shape_.format, [&](auto element) {
      using Element = decltype(element);
      const auto* data = reinterpret_cast<const Element*>(operands.source);
      mtl::cpu::asCpu(stream).parallelFor(shape_.pixels(), 1024, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t pixel = begin; pixel < end; ++pixel) {
          const std::int64_t x = pixel % shape_.width;
          const std::int64_t y = pixel / shape_.width % shape_.height;
          const std::int64_t n = pixel / (shape_.width * shape_.height);
          for (std::int64_t c = 0; c < shape_.channels; ++c) {
            if (std::isfinite(loadFloat(data + shape_.offset(n, y, x, c)))) continue;
            std::int64_t place = pixel * shape_.channels + c;
            for (std::int64_t known = first; place < known && !first.compare_exchange_weak(known, place);) {
            }
            return;
          }
        }
      });
    });
    const std::int64_t place = first;
    if (place != std::numeric_limits<std::int64_t>::max()) throwNotFinite(shape_, place);
  }

 private:
  TensorShape shape_;
};

Preparation prepareFiniteCheck(const FiniteCheckProblem& problem) {
  return std::make_shared<const FiniteCheck>(problem);
}

}  // namespace

void throwNotFinite(const TensorShape& shape, std::int64_t place) {
  const std::int64_t pixel = place / shape.channels;
  throw std::runtime_error("the result holds a value that is not finite (image " +
                           std::to_string(pixel / (shape.width * shape.height)) + ", x " +
                           std::to_string(pixel % shape.width) + ", y " +
                           std::to_string(pixel / shape.width % shape.height) + ", channel " +
                           std::to_string(place % shape.channels) + ")");
}

std::span<const Implementation<FiniteCheckProblem>> finiteCheckImplementationsCpu() {
  static constexpr Implementation<FiniteCheckProblem> implementations[] = {
      {"parallel loop", prepareFiniteCheck}};
  return implementations;
}

}  // namespace mps::detail
