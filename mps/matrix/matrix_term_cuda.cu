#include <cstdint>
#include <memory>

#include "mps/core/elements_cuda.cuh"
#include "mps/core/neuron_cuda.cuh"
#include "mps/matrix/matrix_problem.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

using cuda::NeuronNumbers;

struct TermArguments {
  bool transpose;
  std::int64_t rows, columns;
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

__global__ void addTerm(TermArguments a) {
  const std::int64_t place = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (place >= a.rows * a.columns) return;
  const std::int64_t row = place / a.columns;
  const std::int64_t column = place - row * a.columns;
  const std::int64_t y = (a.offsets != nullptr ? a.offsets[0] : 0) + (a.transpose ? column : row);
  const std::int64_t x = (a.offsets != nullptr ? a.offsets[1] : 0) + (a.transpose ? row : column);
  float value = 0.0F;
  if (y < a.sourceHeight && x < a.sourceWidth)
    value = (a.scale != nullptr ? *a.scale : 1.0F) *
            cuda::loadAs(a.sourceFormat, a.source, y * a.sourceStride + x);
  if (a.sum != nullptr) value += cuda::loadAs(a.sumFormat, a.sum, row * a.sumStride + column);
  if (a.bias != nullptr) value += cuda::loadAs(a.format, a.bias, column);
  value = cuda::neuronValue(a.neuron.type, a.neuron, 0.0F, value);
  cuda::storeAs(value, a.format, a.destination, row * a.destinationStride + column);
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
    a.rows = destination.height;
    a.columns = destination.channels;
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
    mtl::cuda::launch(stream, addTerm, dim3(mtl::cuda::blocksFor(destination.elements())),
                      dim3(mtl::cuda::kBlockThreads), 0, a);
  }

 private:
  MatrixTermProblem problem_;
  NeuronNumbers neuron_;
};

Preparation prepareElements(const MatrixTermProblem& problem) {
  return std::make_shared<const TermPlan>(problem);
}

constexpr Implementation<MatrixTermProblem> implementations[] = {{"elements", prepareElements}};

}  // namespace

std::span<const Implementation<MatrixTermProblem>> matrixTermImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
