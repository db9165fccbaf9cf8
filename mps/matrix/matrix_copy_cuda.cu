#include <cstdint>
#include <memory>

#include "mps/matrix/matrix_problem.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

struct CopyArguments {
  std::int64_t rows, columns;  ///< of the destination
  std::int64_t sourceHeight, sourceWidth, sourceStride;
  std::int64_t height, width, stride;
  bool exchanges;
  const std::uint32_t* offsets;
  const std::uint32_t* rowIndices;  ///< null: none
  const std::uint32_t* columnIndices;
};

template <class Bits>
__global__ void copyElements(CopyArguments a, const Bits* source, Bits* destination) {
  const std::int64_t place = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (place >= a.rows * a.columns) return;
  const std::int64_t row = place / a.columns;
  const std::int64_t column = place - row * a.columns;
  const std::int64_t sourceY = a.offsets[0] + (a.exchanges ? column : row);
  const std::int64_t sourceX = a.offsets[1] + (a.exchanges ? row : column);
  const std::int64_t y = a.offsets[2] + (a.rowIndices != nullptr ? a.rowIndices[row] : row);
  const std::int64_t x = a.offsets[3] + (a.columnIndices != nullptr ? a.columnIndices[column] : column);
  if (sourceY >= a.sourceHeight || sourceX >= a.sourceWidth || y >= a.height || x >= a.width) return;
  destination[y * a.stride + x] = source[sourceY * a.sourceStride + sourceX];
}

class CopyPlan final : public Plan {
 public:
  explicit CopyPlan(const MatrixCopyProblem& problem) : problem_(problem) {
    const TensorShape& source = problem.source;
    const TensorShape& destination = problem.destination;
    arguments_.rows = problem.destinationIsTransposed ? problem.columns : problem.rows;
    arguments_.columns = problem.destinationIsTransposed ? problem.rows : problem.columns;
    arguments_.sourceHeight = source.height;
    arguments_.sourceWidth = source.channels;
    arguments_.sourceStride = source.rowStride;
    arguments_.height = destination.height;
    arguments_.width = destination.channels;
    arguments_.stride = destination.rowStride;
    arguments_.exchanges = problem.sourceIsTransposed != problem.destinationIsTransposed;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    switch (bytesPerChannel(problem_.destination.format)) {
      case 1:
        return copy<std::uint8_t>(stream, operands);
      case 2:
        return copy<std::uint16_t>(stream, operands);
      default:
        return copy<std::uint32_t>(stream, operands);
    }
  }

 private:
  template <class Bits>
  void copy(mtl::Stream& stream, const Operands& operands) const {
    const auto indices = [&](std::size_t parameter) {
      return reinterpret_cast<const std::uint32_t*>(operands.parameters[parameter]);
    };
    CopyArguments a = arguments_;
    if (a.rows * a.columns == 0) return;
    a.offsets = indices(0);
    if (problem_.hasRowIndices) a.rowIndices = indices(1);
    if (problem_.hasColumnIndices) a.columnIndices = indices(2);
    mtl::cuda::launch(stream, copyElements<Bits>, dim3(mtl::cuda::blocksFor(a.rows * a.columns)),
                      dim3(mtl::cuda::kBlockThreads), 0, a, reinterpret_cast<const Bits*>(operands.source),
                      reinterpret_cast<Bits*>(operands.destination));
  }

  MatrixCopyProblem problem_;
  CopyArguments arguments_{};
};

Preparation prepareElements(const MatrixCopyProblem& problem) {
  return std::make_shared<const CopyPlan>(problem);
}

constexpr Implementation<MatrixCopyProblem> implementations[] = {{"elements", prepareElements}};

}  // namespace

std::span<const Implementation<MatrixCopyProblem>> matrixCopyImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
