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

__device__ void addElement(const TermArguments& a, std::int64_t row, std::int64_t column) {
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

__global__ void addElements(cuda::RowGrid grid, TermArguments a) {
  cuda::forEachRow(grid, [&](std::int64_t row) {
    cuda::forEachPiece(grid, [&](std::int64_t column) { addElement(a, row, column); });
  });
}

template <class T>
__device__ bool isAligned(const T* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

/// addElements where nothing is transposed and all numbers are of type T: 16 bytes at once where they are whole.
template <class T>
__global__ void addVectors(cuda::RowGrid grid, TermArguments a) {
  constexpr int lanes = cuda::kLanes<T>;
  const std::int64_t firstY = a.offsets != nullptr ? a.offsets[0] : 0;
  const std::int64_t firstX = a.offsets != nullptr ? a.offsets[1] : 0;
  const float scale = a.scale != nullptr ? *a.scale : 1.0F;
  cuda::forEachRow(grid, [&](std::int64_t row) {
    cuda::forEachPiece(grid, [&](std::int64_t piece) {
      const std::int64_t column = piece * lanes;
      const T* const from =
          reinterpret_cast<const T*>(a.source) + (firstY + row) * a.sourceStride + firstX + column;
      const T* const sum = reinterpret_cast<const T*>(a.sum) + row * a.sumStride + column;
      const T* const bias = reinterpret_cast<const T*>(a.bias) + column;
      T* const to = reinterpret_cast<T*>(a.destination) + row * a.destinationStride + column;
      const bool isWhole = column + lanes <= a.columns && firstY + row < a.sourceHeight &&
                           firstX + column + lanes <= a.sourceWidth && isAligned(from) && isAligned(to) &&
                           (a.sum == nullptr || isAligned(sum)) && (a.bias == nullptr || isAligned(bias));
      if (!isWhole) {
        for (std::int64_t c = column; c < min(column + lanes, a.columns); ++c) addElement(a, row, c);
        return;
      }
      cuda::Lanes<T> values = cuda::loadLanes(from);
      for (float& value : values.values) value *= scale;
      const auto add = [&](const cuda::Lanes<T>& others) {
#pragma unroll
        for (int lane = 0; lane < lanes; ++lane) values.values[lane] += others.values[lane];
      };
      if (a.sum != nullptr) add(cuda::loadLanes(sum));
      if (a.bias != nullptr) add(cuda::loadLanes(bias));
      if (a.neuron.type != CNNNeuronType::None)
        for (float& value : values.values) value = cuda::neuronValue(a.neuron.type, a.neuron, 0.0F, value);
      cuda::storeLanes(values, to);
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
    switch (vectorFormat()) {
      case ImageFeatureChannelFormat::Float32:
        return start(stream, addVectors<float>, cuda::kLanes<float>, a);
      case ImageFeatureChannelFormat::Float16:
        return start(stream, addVectors<Float16>, cuda::kLanes<Float16>, a);
      default:
        return start(stream, addElements, 1, a);
    }
  }

  [[nodiscard]] std::string describe() const override {
    return vectorFormat() == ImageFeatureChannelFormat::None ? "one element per thread"
                                                             : "16 bytes per thread where they are aligned";
  }

 private:
  /// That of all numbers where they can be taken in vectors, or None.
  [[nodiscard]] ImageFeatureChannelFormat vectorFormat() const {
    const ImageFeatureChannelFormat format = problem_.destination.format;
    const bool isCommon =
        problem_.source.format == format && (!problem_.addsToSum || problem_.sum.format == format);
    return isCommon && !problem_.transpose ? format : ImageFeatureChannelFormat::None;
  }
  static void start(mtl::Stream& stream, void (*kernel)(cuda::RowGrid, TermArguments), std::int64_t lanes,
                    const TermArguments& a) {
    const cuda::RowGrid grid(a.rows, (a.columns + lanes - 1) / lanes);
    mtl::cuda::launch(stream, kernel, grid.grid, grid.block, 0, grid, a);
  }

  MatrixTermProblem problem_;
  NeuronNumbers neuron_;
};

Preparation prepareElements(const MatrixTermProblem& problem) {
  if (!cuda::RowGrid::fits(problem.destination.height, problem.destination.channels))
    return Refusal{"2^31 rows or columns"};
  return std::make_shared<const TermPlan>(problem);
}

constexpr Implementation<MatrixTermProblem> implementations[] = {{"element-wise", prepareElements}};

}  // namespace

std::span<const Implementation<MatrixTermProblem>> matrixTermImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
