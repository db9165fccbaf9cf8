#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "mps/core/cpu/tile_io.hpp"
#include "mps/loss/yolo_loss_problem.hpp"

/// What one run of a YOLO loss on the CPU hands to its vector code.
namespace mps::detail {

/// How the cells are cut into tiles: adjacent cells, perhaps of several images. It depends on the shapes alone, hence so do
/// the bits of all sums.
struct YOLOLayout {
  explicit YOLOLayout(const YOLOLossProblem& problem)
      : images(problem.predictions.images),
        cellsOfImage(problem.predictions.height * problem.predictions.width),
        cells(images * cellsOfImage),
        channels(problem.predictions.channels),
        cellsOfTile(std::max<std::int64_t>(1, Tiling(cells, channels)[0].pixels)),
        tiles((cells + cellsOfTile - 1) / cellsOfTile) {}

  [[nodiscard]] Tile tile(std::int64_t number) const {
    const std::int64_t first = number * cellsOfTile;
    return {first, std::min(cellsOfTile, cells - first), 0, channels};
  }
  /// Where what a tile has of an image lies: from one such share to the next, tile or image grow.
  [[nodiscard]] static std::int64_t share(std::int64_t tile, std::int64_t image) { return tile + image; }
  [[nodiscard]] std::int64_t shares() const { return tiles + images; }

  std::int64_t images;
  std::int64_t cellsOfImage;
  std::int64_t cells;
  std::int64_t channels;
  std::int64_t cellsOfTile;
  std::int64_t tiles;
};

struct YOLORun {
  const YOLOLossProblem& problem;
  const YOLOLayout& layout;
  std::array<LossNumbers, kYOLOLossParts> numbers;

  const std::byte* predictions = nullptr;
  const std::byte* labels = nullptr;
  const std::byte* weights = nullptr;
  std::byte* gradient = nullptr;
  std::byte* loss = nullptr;

  double* sums = nullptr;    ///< of the losses, by share
  double* counts = nullptr;  ///< of weights that are not 0, likewise

  [[nodiscard]] bool perElement() const { return problem.reductionType == CNNReductionType::None; }
};

}  // namespace mps::detail
