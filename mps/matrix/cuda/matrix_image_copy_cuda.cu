#include <cstdint>
#include <string>

#include "mps/core/plan/tensor_copy.hpp"
#include "mps/matrix/cuda/matrix_transpose_cuda.cuh"
#include "mps/matrix/matrix_problem.hpp"

namespace mps::detail {
namespace {

using cuda::Divider;
using cuda::TransposeArguments;

TransposeArguments argumentsOf(const ImageMatrixCopyProblem& problem) {
  const TensorShape& images = problem.images;
  const auto tilesOf = [](std::int64_t size) { return (size + cuda::kTileSide - 1) / cuda::kTileSide; };
  TransposeArguments a;
  a.pixels = images.height * images.width;
  a.lines = problem.toMatrix ? a.pixels : images.channels;
  a.columns = problem.toMatrix ? images.channels : a.pixels;
  const std::int64_t lineTiles = tilesOf(a.lines);
  const std::int64_t columnTiles = tilesOf(a.columns);
  a.lineTiles = Divider(lineTiles);
  a.columnTiles = Divider(columnTiles);
  a.width = Divider(images.width);
  a.tiles = images.images * lineTiles * columnTiles;
  a.imageStride = images.imageStride;
  a.rowStride = images.rowStride;
  a.pixelStride = images.pixelStride;
  a.matrixRowStride = problem.matrix.rowStride;
  return a;
}

class TransposePlan final : public Plan {
 public:
  explicit TransposePlan(const ImageMatrixCopyProblem& problem)
      : arguments_(argumentsOf(problem)),
        toMatrix_(problem.toMatrix),
        elementBytes_(bytesPerChannel(problem.images.format)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    switch (elementBytes_) {
      case 1:
        return transpose<std::uint8_t>(stream, operands);
      case 2:
        return transpose<std::uint16_t>(stream, operands);
      default:
        return transpose<std::uint32_t>(stream, operands);
    }
  }

 private:
  template <class Bits>
  void transpose(mtl::Stream& stream, const Operands& operands) const {
    mtl::cuda::launch(
        stream, toMatrix_ ? cuda::transposeElements<Bits, true> : cuda::transposeElements<Bits, false>,
        dim3(static_cast<unsigned>(arguments_.tiles)), dim3(cuda::kTileSide, cuda::kTileRows), 0, arguments_,
        reinterpret_cast<const Bits*>(operands.source), reinterpret_cast<Bits*>(operands.destination));
  }

  TransposeArguments arguments_;
  bool toMatrix_;
  std::size_t elementBytes_;
};

/// Why a copy is no transposition; empty if it is one.
std::string refusal(const ImageMatrixCopyProblem& problem) {
  const TensorShape& images = problem.images;
  if (!problem.channelsFirst || images.channels == 1 || images.height * images.width == 1)
    return "the channels of a pixel stay together";
  if (images.height * images.width > 0x7FFFFFFF || argumentsOf(problem).tiles > 0x7FFFFFFF)
    return "2^31 pixels or tiles";
  return "";
}

Preparation prepareTranspose(const ImageMatrixCopyProblem& problem) {
  if (std::string reason = refusal(problem); !reason.empty()) return Refusal{std::move(reason)};
  return std::make_shared<const TransposePlan>(problem);
}

/// The rows of the matrix are images without gaps.
Preparation prepareRows(const ImageMatrixCopyProblem& problem) {
  const TensorShape& images = problem.images;
  if (problem.channelsFirst && images.channels != 1 && images.height * images.width != 1)
    return Refusal{"the channels of a pixel do not stay together"};
  TensorShape rows =
      TensorShape::dense(images.images, images.height, images.width, images.channels, images.format);
  rows.imageStride = problem.matrix.rowStride;
  TensorCopyProblem copy;
  copy.source = problem.toMatrix ? images : rows;
  copy.destination = problem.toMatrix ? rows : images;
  return preparePlan(tensorCopyImplementationsCuda(), copy).plan;
}

constexpr Implementation<ImageMatrixCopyProblem> kImplementations[] = {{"transpose", prepareTranspose},
                                                                       {"copy", prepareRows}};

}  // namespace

std::span<const Implementation<ImageMatrixCopyProblem>> imageMatrixCopyImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
