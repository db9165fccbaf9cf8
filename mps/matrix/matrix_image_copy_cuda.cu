#include <algorithm>
#include <cstdint>

#include "mps/core/rows_cuda.cuh"
#include "mps/core/tensor_copy.hpp"
#include "mps/matrix/matrix_problem.hpp"

namespace mps::detail {
namespace {

using cuda::Divider;

constexpr int kSide = 32;  ///< of a tile: pixels and channels
constexpr int kTileRows = 8;

/// Tiles of pixels x channels: of a pixel the channels are adjacent, of the matrix the pixels of a channel.
struct TransposeArguments {
  Divider pixelTiles;
  Divider channelTiles;
  Divider width;
  std::int64_t tiles = 0;
  std::int64_t pixels = 1;  ///< of an image
  std::int64_t channels = 1;
  std::int64_t imageStride = 0, rowStride = 0, pixelStride = 0;
  std::int64_t matrixRowStride = 0;
};

/// @tparam Bits as wide as an element
template <class Bits, bool toMatrix>
__global__ void transposeTiles(TransposeArguments a, const Bits* source, Bits* destination) {
  __shared__ Bits tile[kSide][kSide + 1];  // [pixel][channel]
  const std::uint32_t column = a.channelTiles.divide(blockIdx.x);
  const std::uint32_t image = a.pixelTiles.divide(column);
  const std::int64_t firstChannel =
      static_cast<std::int64_t>(blockIdx.x - column * a.channelTiles.divisor()) * kSide;
  const std::int64_t firstPixel = static_cast<std::int64_t>(column - image * a.pixelTiles.divisor()) * kSide;
  const auto x = static_cast<int>(threadIdx.x);
  const auto y = static_cast<int>(threadIdx.y);
  const auto inImage = [&](std::int64_t pixel, std::int64_t channel) {
    const std::uint32_t row = a.width.divide(static_cast<std::uint32_t>(pixel));
    return image * a.imageStride + row * a.rowStride + (pixel - row * a.width.divisor()) * a.pixelStride +
           channel;
  };
  const auto inMatrix = [&](std::int64_t pixel, std::int64_t channel) {
    return image * a.matrixRowStride + channel * a.pixels + pixel;
  };
#pragma unroll
  for (int k = 0; k < kSide; k += kTileRows) {
    const std::int64_t pixel = firstPixel + (toMatrix ? y + k : x);
    const std::int64_t channel = firstChannel + (toMatrix ? x : y + k);
    if (pixel >= a.pixels || channel >= a.channels) continue;
    if constexpr (toMatrix)
      tile[y + k][x] = source[inImage(pixel, channel)];
    else
      tile[x][y + k] = source[inMatrix(pixel, channel)];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kSide; k += kTileRows) {
    const std::int64_t pixel = firstPixel + (toMatrix ? x : y + k);
    const std::int64_t channel = firstChannel + (toMatrix ? y + k : x);
    if (pixel >= a.pixels || channel >= a.channels) continue;
    if constexpr (toMatrix)
      destination[inMatrix(pixel, channel)] = tile[x][y + k];
    else
      destination[inImage(pixel, channel)] = tile[y + k][x];
  }
}

TransposeArguments argumentsOf(const ImageMatrixCopyProblem& problem) {
  const TensorShape& images = problem.images;
  const auto tilesOf = [](std::int64_t size) { return (size + kSide - 1) / kSide; };
  TransposeArguments a;
  a.pixels = images.height * images.width;
  a.channels = images.channels;
  a.pixelTiles = Divider(tilesOf(a.pixels));
  a.channelTiles = Divider(tilesOf(a.channels));
  a.width = Divider(images.width);
  a.tiles = images.images * tilesOf(a.pixels) * tilesOf(a.channels);
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
    mtl::cuda::launch(stream, toMatrix_ ? transposeTiles<Bits, true> : transposeTiles<Bits, false>,
                      dim3(static_cast<unsigned>(arguments_.tiles)), dim3(kSide, kTileRows), 0, arguments_,
                      reinterpret_cast<const Bits*>(operands.source),
                      reinterpret_cast<Bits*>(operands.destination));
  }

  TransposeArguments arguments_;
  bool toMatrix_;
  std::size_t elementBytes_;
};

Preparation prepareTiles(const ImageMatrixCopyProblem& problem) {
  const TensorShape& images = problem.images;
  if (!problem.channelsFirst || images.channels == 1 || images.height * images.width == 1)
    return Refusal{"the channels of a pixel stay together"};
  if (images.height * images.width > 0x7FFFFFFF || argumentsOf(problem).tiles > 0x7FFFFFFF)
    return Refusal{"2^31 pixels or tiles"};
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
  return tensorCopyImplementationsCuda().back().prepare(copy);
}

constexpr Implementation<ImageMatrixCopyProblem> kImplementations[] = {{"tiles", prepareTiles},
                                                                       {"rows", prepareRows}};

}  // namespace

std::span<const Implementation<ImageMatrixCopyProblem>> imageMatrixCopyImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
