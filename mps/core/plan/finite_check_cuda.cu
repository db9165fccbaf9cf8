#include <cstdint>

#include "mps/core/cuda/elements_cuda.cuh"
#include "mps/core/cuda/rows_cuda.cuh"
#include "mps/core/plan/finite_check.hpp"

namespace mps::detail {
namespace {

using cuda::Divider;
using cuda::RowGrid;

/// A place, or kNone.
using Place = unsigned long long;
constexpr Place kNone = ~0ULL;

template <class Element>
__global__ void findNotFinite(TensorShape shape, RowGrid grid, Divider height, Divider channels,
                              const Element* elements, Place* first) {
  cuda::forEachRow(grid, [&](std::uint32_t row) {
    const std::uint32_t image = height.divide(row);
    const std::uint32_t y = row - image * height.divisor();
    cuda::forEachPiece(grid, [&](std::uint32_t piece) {
      const std::uint32_t x = channels.divide(piece);
      const std::uint32_t c = piece - x * channels.divisor();
      if (!isfinite(cuda::load(elements + shape.offset(image, y, x, c))))
        atomicMin(first, static_cast<Place>(row) * grid.pieces + piece);
    });
  });
}

class FiniteCheck final : public Plan {
 public:
  explicit FiniteCheck(const FiniteCheckProblem& problem) : shape_(problem.source) {}

  [[nodiscard]] std::size_t scratchBytes() const override { return sizeof(Place); }
  [[nodiscard]] bool readsResults() const override { return true; }

  /// Waits for the result: a command that fails must do so before those behind it.
  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (shape_.elements() == 0) return;
    mtl::cuda::check(
        cudaMemsetAsync(operands.scratch, 0xFF, sizeof(Place), mtl::cuda::asCuda(stream).handle()),
        "cudaMemsetAsync");
    if (shape_.format == ImageFeatureChannelFormat::Float16)
      find<Float16>(stream, operands);
    else
      find<float>(stream, operands);
    Place place = kNone;
    stream.read(operands.scratch, std::as_writable_bytes(std::span(&place, 1)));
    if (place != kNone) throwNotFinite(shape_, static_cast<std::int64_t>(place));
  }

 private:
  template <class Element>
  void find(mtl::Stream& stream, const Operands& operands) const {
    const RowGrid grid(shape_.images * shape_.height, shape_.width * shape_.channels);
    mtl::cuda::launch(stream, findNotFinite<Element>, grid.grid, grid.block, 0, shape_, grid,
                      Divider(shape_.height), Divider(shape_.channels),
                      reinterpret_cast<const Element*>(operands.source),
                      reinterpret_cast<Place*>(operands.scratch));
  }

  TensorShape shape_;
};

Preparation prepareFiniteCheck(const FiniteCheckProblem& problem) {
  const TensorShape& shape = problem.source;
  if (!RowGrid::fits(shape.images * shape.height, shape.width * shape.channels))
    return Refusal{"a row of 2^31 elements, or 2^31 rows"};
  return std::make_shared<const FiniteCheck>(problem);
}

constexpr Implementation<FiniteCheckProblem> implementations[] = {{"grid-stride loop", prepareFiniteCheck}};

}  // namespace

std::span<const Implementation<FiniteCheckProblem>> finiteCheckImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
