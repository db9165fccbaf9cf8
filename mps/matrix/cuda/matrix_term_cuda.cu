#include <cstdint>
#include <memory>

#include "mps/core/cuda/elements_cuda.cuh"
#include "mps/core/cuda/rows_cuda.cuh"
#include "mps/core/neuron/neuron_cuda.cuh"
#include "mps/matrix/matrix_problem.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

using cuda::NeuronNumbers;

constexpr std::int64_t kPiecesPerThread = 4;

struct TermArguments {
  bool transpose;
  std::int64_t sourceHeight, sourceWidth, sourceStride, sumStride, destinationStride;
  ImageFeatureChannelFormat sourceFormat, sumFormat, format;
  NeuronNumbers neuron;
  const std::byte* source;
  const std::byte* sum;  ///< null: none, as those below
  const float* scale;
  const std::uint32_t* offsets;
  const std::byte* bias;
  std::byte* destination;
};

__global__ void addTerm(cuda::RowGrid grid, TermArguments a) {
  const std::int64_t firstY = a.offsets != nullptr ? a.offsets[0] : 0;
  const std::int64_t firstX = a.offsets != nullptr ? a.offsets[1] : 0;
  const float scale = a.scale != nullptr ? *a.scale : 1.0F;
  cuda::forEachRow(grid, [&](std::int64_t row) {
    cuda::forEachPiece(grid, [&](std::int64_t column) {
      const std::int64_t y = firstY + (a.transpose ? column : row);
      const std::int64_t x = firstX + (a.transpose ? row : column);
      float value = 0.0F;
      if (y < a.sourceHeight && x < a.sourceWidth)
        value = scale * cuda::loadAs(a.sourceFormat, a.source, y * a.sourceStride + x);
      if (a.sum != nullptr) value += cuda::loadAs(a.sumFormat, a.sum, row * a.sumStride + column);
      if (a.bias != nullptr) value += cuda::loadAs(a.format, a.bias, column);
      value = cuda::neuronValue(a.neuron.type, a.neuron, 0.0F, value);
      cuda::storeAs(value, a.format, a.destination, row * a.destinationStride + column);
    });
  });
}

class TermPlan final : public Plan {
 public:
  explicit TermPlan(const MatrixTermProblem& problem) : problem_(problem), neuron_(problem.neuron) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& source = problem_.source;
    const TensorShape& destination = problem_.destination;
    if (destination.elements() == 0) return;
    TermArguments a{};
    a.transpose = problem_.transpose;
    a.sourceHeight = source.height;
    a.sourceWidth = source.channels;
    a.sourceStride = source.rowStride;
    a.sumStride = problem_.sum.rowStride;
    a.destinationStride = destination.rowStride;
    a.sourceFormat = source.format;
    a.sumFormat = problem_.sum.format;
    a.format = destination.format;
    a.neuron = neuron_;
    a.source = operands.source;
    if (problem_.addsToSum) a.sum = operands.secondary;
    if (problem_.hasScale) a.scale = reinterpret_cast<const float*>(operands.parameters[0]);
    if (problem_.hasOffsets) a.offsets = reinterpret_cast<const std::uint32_t*>(operands.parameters[1]);
    if (problem_.hasBias) a.bias = operands.parameters[2];
    a.destination = operands.destination;
    const cuda::RowGrid grid(destination.height, destination.channels, kPiecesPerThread);
    mtl::cuda::launch(stream, addTerm, grid.grid, grid.block, 0, grid, a);
  }

 private:
  MatrixTermProblem problem_;
  NeuronNumbers neuron_;
};

Preparation prepareTerm(const MatrixTermProblem& problem) {
  if (!cuda::RowGrid::fits(problem.destination.height, problem.destination.channels))
    return Refusal{"2^31 rows or columns"};
  return std::make_shared<const TermPlan>(problem);
}

constexpr Implementation<MatrixTermProblem> implementations[] = {{"grid-stride loop", prepareTerm}};

}  // namespace

std::span<const Implementation<MatrixTermProblem>> matrixTermImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
