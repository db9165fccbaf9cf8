#include <cstdint>
#include <string>

#include "mps/core/tensor_copy.hpp"
#include "mps/matrix/matrix_problem.hpp"
#include "mps/matrix/matrix_transpose_cuda.cuh"

namespace mps::detail {
namespace {

using cuda::Divider;
using cuda::TransposeArguments;

/// @param tileLines, tileColumns of a tile
TransposeArguments argumentsOf(const ImageMatrixCopyProblem& problem, std::int64_t tileLines,
                               std::int64_t tileColumns) {
  const TensorShape& images = problem.images;
  const auto tilesOf = [](std::int64_t size, std::int64_t side) { return (size + side - 1) / side; };
  TransposeArguments a;
  a.pixels = images.height * images.width;
  a.lines = problem.toMatrix ? a.pixels : images.channels;
  a.columns = problem.toMatrix ? images.channels : a.pixels;
  const std::int64_t lineTiles = tilesOf(a.lines, tileLines);
  const std::int64_t columnTiles = tilesOf(a.columns, tileColumns);
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

TransposeArguments elementTiles(const ImageMatrixCopyProblem& problem) {
  return argumentsOf(problem, cuda::kTileSide, cuda::kTileSide);
}

class TransposePlan : public Plan {
 public:
  explicit TransposePlan(const ImageMatrixCopyProblem& problem)
      : arguments_(elementTiles(problem)),
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

/// Sixteen bytes at once, where the address of the images allows it, which shows when it runs.
template <class Bits>
class PackPlan final : public TransposePlan {
 public:
  explicit PackPlan(const ImageMatrixCopyProblem& problem)
      : TransposePlan(problem),
        arguments_(argumentsOf(problem, cuda::kPackLines, cuda::kPackColumns<Bits>)),
        whole_(argumentsOf(problem, arguments_.pixels, cuda::WholeTile<Bits>::channels)),
        toMatrix_(problem.toMatrix) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const auto addressOf = [](const std::byte* address) { return reinterpret_cast<std::uintptr_t>(address); };
    const std::uintptr_t images = addressOf(toMatrix_ ? operands.source : operands.destination);
    if (images % 16 != 0) return TransposePlan::run(stream, operands);
    // What all runs of pixels in the matrix, and its address, are a multiple of.
    const auto places = static_cast<std::uintptr_t>(arguments_.pixels | arguments_.matrixRowStride);
    const std::uintptr_t all =
        places * sizeof(Bits) | addressOf(toMatrix_ ? operands.destination : operands.source);
    int unit = 16;
    while (all % static_cast<std::uintptr_t>(unit) != 0) unit /= 2;
    if (takesWhole(unit)) {
      constexpr int ofUnit = cuda::WholeTile<Bits>::pixelsOfUnit;
      return mtl::cuda::launch(stream, cuda::transposeWhole<Bits>, dim3(static_cast<unsigned>(whole_.tiles)),
                               dim3(cuda::kPackThreads), cuda::WholeTile<Bits>::bytes(whole_.pixels), whole_,
                               Divider(whole_.pixels / ofUnit),
                               reinterpret_cast<const Bits*>(operands.source),
                               reinterpret_cast<Bits*>(operands.destination));
    }
    mtl::cuda::launch(
        stream, toMatrix_ ? cuda::transposePacks<Bits, true> : cuda::transposePacks<Bits, false>,
        dim3(static_cast<unsigned>(arguments_.tiles)), dim3(cuda::kPackThreads), 0, arguments_, unit,
        reinterpret_cast<const Bits*>(operands.source), reinterpret_cast<Bits*>(operands.destination));
  }

 private:
  /// Whether a block takes all pixels. @param unit bytes that all runs of pixels are a multiple of
  [[nodiscard]] bool takesWhole(int unit) const {
    using Tile = cuda::WholeTile<Bits>;
    return toMatrix_ && unit >= Tile::pixelsOfUnit * static_cast<int>(sizeof(Bits)) &&
           whole_.pixels <= Tile::kMostPixels && Tile::bytes(whole_.pixels) <= Tile::kMostBytes;
  }

  TransposeArguments arguments_;
  TransposeArguments whole_;  ///< for tiles of all pixels
  bool toMatrix_;
};

/// Why a copy is no transposition; empty if it is one.
std::string refusal(const ImageMatrixCopyProblem& problem) {
  const TensorShape& images = problem.images;
  if (!problem.channelsFirst || images.channels == 1 || images.height * images.width == 1)
    return "the channels of a pixel stay together";
  if (images.height * images.width > 0x7FFFFFFF || elementTiles(problem).tiles > 0x7FFFFFFF)
    return "2^31 pixels or tiles";
  return "";
}

Preparation preparePacks(const ImageMatrixCopyProblem& problem) {
  if (std::string reason = refusal(problem); !reason.empty()) return Refusal{std::move(reason)};
  const std::size_t bytes = bytesPerChannel(problem.images.format);
  if (bytes == 1) return Refusal{"elements of one byte"};
  if (!cuda::takesLanes(problem.images)) return Refusal{"channels or strides are no multiples of 16 bytes"};
  if (bytes == 2) return std::make_shared<const PackPlan<std::uint16_t>>(problem);
  return std::make_shared<const PackPlan<std::uint32_t>>(problem);
}

Preparation prepareTiles(const ImageMatrixCopyProblem& problem) {
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
  return tensorCopyImplementationsCuda().back().prepare(copy);
}

constexpr Implementation<ImageMatrixCopyProblem> kImplementations[] = {
    {"packs", preparePacks}, {"tiles", prepareTiles}, {"rows", prepareRows}};

}  // namespace

std::span<const Implementation<ImageMatrixCopyProblem>> imageMatrixCopyImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
