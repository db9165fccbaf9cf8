#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "mps/core/cpu/tile_io.hpp"
#include "mps/loss/cpu/loss_run.hpp"

namespace mps::detail {

/// Float32 copies of what the row kernels cannot read or write in the tensors' own memory; one object per
/// thread.
class LossTiles {
 public:
  explicit LossTiles(const LossRun& run) : run_(run), problem_(run.problem) {}

  /// The rows of a tile.
  LossRows load(const Tile& tile) {
    LossRows rows;
    rows.wantsLoss = problem_.loss.channels > 0;
    rows.isHalf = problem_.labelKind == LossLabels::Dense && isHalf(problem_.predictions) &&
                  isHalf(problem_.labels) && isHalf(problem_.gradient);
    rows.labels = loadLabels(tile);
    rows.weights = loadWeights(tile);
    rows.predictions = loadPredictions(tile);
    rows.gradient = target(problem_.gradient, run_.gradient, tile, gradient_, run_.accumulate);
    rows.labelGradient = target(problem_.labelGradient, run_.labelGradient, tile, labelGradient_, false);
    if (run_.perElement()) {
      rows.sourceGradient = input(problem_.sourceGradient, run_.sourceGradient, tile, sourceGradient_);
      rows.loss = target(problem_.loss, run_.loss, tile, loss_, false);
    }
    written_ = rows;
    return rows;
  }

  /// The weights of load() alone, with the pixels that are left out; null: all 1.
  ConstFloatRun loadWeightsToCount(const Tile& tile) {
    loadLabels(tile);
    return loadWeights(tile);
  }

  /// Moves the outputs of load() to where they belong.
  void store(const Tile& tile) const {
    if (written_.gradient)
      storeTile(problem_.gradient, run_.gradient, tile, written_.gradient, run_.accumulate);
    if (written_.labelGradient)
      storeTile(problem_.labelGradient, run_.labelGradient, tile, written_.labelGradient);
    if (written_.loss) storeTile(problem_.loss, run_.loss, tile, written_.loss);
  }

 private:
  using Buffer = std::array<float, kLossTile>;

  static bool isHalf(const TensorShape& shape) {
    return shape.channels > 0 && shape.format == ImageFeatureChannelFormat::Float16;
  }
  static ConstFloatRun input(const TensorShape& shape, const std::byte* memory, const Tile& tile,
                             Buffer& buffer) {
    return shape.channels == 0 ? ConstFloatRun() : loadRun(shape, memory, tile, buffer.data());
  }
  /// The same in the buffer, to be changed.
  static float* inputCopy(const TensorShape& shape, const std::byte* memory, const Tile& tile,
                          Buffer& buffer) {
    const float* values = loadTile(shape, memory, tile, buffer.data());
    if (values != buffer.data()) std::copy_n(values, tile.elements(), buffer.data());
    return buffer.data();
  }
  static FloatRun target(const TensorShape& shape, std::byte* memory, const Tile& tile, Buffer& buffer,
                         bool accumulate) {
    return shape.channels == 0 ? FloatRun() : runTarget(shape, memory, tile, buffer.data(), accumulate);
  }

  /// In the order image, y, x.
  static std::int64_t offsetOfPixel(const TensorShape& shape, std::int64_t pixel) {
    const std::int64_t row = pixel / shape.width;
    return shape.offset(row / shape.height, row % shape.height, pixel % shape.width, 0);
  }

  ConstFloatRun loadLabels(const Tile& tile) {
    leavesOut_ = false;
    switch (problem_.labelKind) {
      case LossLabels::Dense:
        return loadRun(problem_.labels, run_.labels, tile, labels_.data());
      case LossLabels::ClassIndices:
        return expandIndices(tile);
    }
    return {};
  }

  /// Labels 0 and 1 from class indices; remembers which pixels are left out.
  const float* expandIndices(const Tile& tile) {
    const auto* indices = reinterpret_cast<const std::uint32_t*>(run_.labels);
    const TensorShape& shape = problem_.labels;
    const bool isDense = shape.isDense();
    const std::int64_t classes = run_.layout.channels;
    float* label = labels_.data();
    bool leavesOut = false;
    std::fill_n(label, tile.elements(), 0.0F);
    for (std::int64_t i = 0; i < tile.pixels; ++i, label += tile.channels) {
      const std::int64_t pixel = tile.firstPixel + i;
      const std::int64_t index = indices[isDense ? pixel : offsetOfPixel(shape, pixel)];
      const std::int64_t channel = index - tile.firstChannel;
      const bool isLeftOut = index >= classes;
      leftOut_[static_cast<std::size_t>(i)] = isLeftOut;
      leavesOut |= isLeftOut;
      if (!isLeftOut && channel >= 0 && channel < tile.channels) label[channel] = 1.0F;
    }
    leavesOut_ = leavesOut;
    return labels_.data();
  }

  ConstFloatRun loadWeights(const Tile& tile) {
    const bool isPerPixel = problem_.weights.channels == 1 && run_.layout.channels > 1;
    if (!leavesOut_)
      return isPerPixel ? spreadWeights(tile) : input(problem_.weights, run_.weights, tile, weights_);
    if (isPerPixel)
      spreadWeights(tile);
    else if (problem_.weights.channels == 0)
      weights_.fill(1.0F);
    else
      inputCopy(problem_.weights, run_.weights, tile, weights_);
    fillLeftOut(weights_, tile, 0.0F);
    return weights_.data();
  }

  /// One weight per pixel, for all its channels.
  const float* spreadWeights(const Tile& tile) {
    const float* weights =
        loadTile(problem_.weights, run_.weights, {tile.firstPixel, tile.pixels, 0, 1}, pixelWeights_.data());
    for (std::int64_t i = 0; i < tile.pixels; ++i)
      std::fill_n(weights_.data() + i * tile.channels, tile.channels, weights[i]);
    return weights_.data();
  }

  /// A pixel that is left out gets predictions whose losses and derivatives are finite in all types.
  ConstFloatRun loadPredictions(const Tile& tile) {
    if (!leavesOut_) return input(problem_.predictions, run_.predictions, tile, predictions_);
    inputCopy(problem_.predictions, run_.predictions, tile, predictions_);
    fillLeftOut(predictions_, tile, 0.5F);
    return predictions_.data();
  }

  void fillLeftOut(Buffer& buffer, const Tile& tile, float value) const {
    for (std::int64_t i = 0; i < tile.pixels; ++i)
      if (leftOut_[static_cast<std::size_t>(i)])
        std::fill_n(buffer.data() + i * tile.channels, tile.channels, value);
  }

  const LossRun& run_;
  const LossProblem& problem_;
  LossRows written_;
  bool leavesOut_ = false;
  std::array<bool, kLossTile> leftOut_;
  alignas(64) Buffer predictions_;
  alignas(64) Buffer labels_;
  alignas(64) Buffer weights_;
  alignas(64) Buffer pixelWeights_;
  alignas(64) Buffer sourceGradient_;
  alignas(64) Buffer gradient_;
  alignas(64) Buffer labelGradient_;
  alignas(64) Buffer loss_;
};

}  // namespace mps::detail
