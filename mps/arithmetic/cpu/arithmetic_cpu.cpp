#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>

#include "mps/arithmetic/arithmetic_problem.hpp"
#include "mps/arithmetic/cpu/arithmetic_vectors.hpp"
#include "mps/core/cpu/tile_io.hpp"

namespace mps::detail {
namespace {

/// The operand over the whole result: axes of size 1 are repeated by strides of 0. Channels stay as they are.
TensorShape repeated(TensorShape shape, const TensorShape& result) {
  if (shape.width == 1) shape.pixelStride = 0;
  if (shape.height == 1) shape.rowStride = 0;
  shape.width = result.width;
  shape.height = result.height;
  return shape;
}

/// Offset of the tile's first element if its elements are adjacent in memory, else -1.
std::int64_t adjacentOffset(const TensorShape& shape, const Tile& tile) {
  const std::int64_t x = tile.firstPixel % shape.width;
  const std::int64_t row = tile.firstPixel / shape.width;
  if (!shape.isDense() &&
      (x + tile.pixels > shape.width || (tile.pixels > 1 && shape.pixelStride != tile.channels)))
    return -1;
  return shape.offset(row / shape.height, row % shape.height, x, tile.firstChannel);
}

/// Calls copy(element in the tensor, element in the tile) for each pixel of a tile.
template <class Copy>
void forEachPixel(const TensorShape& shape, const Tile& tile, Copy&& copy) {
  std::int64_t x = tile.firstPixel % shape.width;
  std::int64_t row = tile.firstPixel / shape.width;
  for (std::int64_t i = 0; i < tile.pixels; ++i) {
    copy(shape.offset(row / shape.height, row % shape.height, x, tile.firstChannel), i * tile.channels);
    if (++x < shape.width) continue;
    x = 0;
    ++row;
  }
}

/// Whether all pixels of a tile are the same one of an operand.
bool isOnePixel(const TensorShape& shape, const Tile& tile) {
  const std::int64_t perImage = shape.height * shape.width;
  return tile.pixels > 1 && shape.pixelStride == 0 && shape.rowStride == 0 &&
         tile.firstPixel / perImage == (tile.firstPixel + tile.pixels - 1) / perImage;
}

/// Repeats the first pixel of a tile, by copies that double.
template <class Element>
void repeatFirstPixel(Element* buffer, const Tile& tile) {
  for (std::int64_t done = tile.channels; done < tile.elements();) {
    const std::int64_t count = std::min(done, tile.elements() - done);
    std::memcpy(buffer + done, buffer, static_cast<std::size_t>(count) * sizeof(Element));
    done += count;
  }
}

/// The part of a tile of an operand after which it repeats itself: where all pixels are the same one, so many of them
/// that they fill whole vectors.
Tile onePeriod(const TensorShape& shape, Tile tile) {
  constexpr std::int64_t mostLanes = 16;
  if (isOnePixel(shape, tile))
    tile.pixels = std::min(tile.pixels, mostLanes / std::gcd(tile.channels, mostLanes));
  return tile;
}

/// A tile of an operand as float32, its only channel repeated where the result has several.
const float* loadOperand(const TensorShape& shape, const std::byte* memory, const Tile& tile,
                         std::int64_t channels, float* buffer) {
  if (isOnePixel(shape, tile)) {
    const Tile pixel{tile.firstPixel, 1, tile.firstChannel, tile.channels};
    const float* values = loadOperand(shape, memory, pixel, channels, buffer);
    if (values != buffer) std::copy_n(values, pixel.elements(), buffer);
    repeatFirstPixel(buffer, tile);
    return buffer;
  }
  if (shape.channels == channels) return loadTile(shape, memory, tile, buffer);
  alignas(64) float single[Tiling::capacity];
  const float* values = loadTile(shape, memory, {tile.firstPixel, tile.pixels, 0, 1}, single);
  repeatChannels(values, tile.pixels, tile.channels, buffer);
  return buffer;
}

/// The same as float16, of an operand that is stored like that: nothing is converted.
const Float16* loadOperand(const TensorShape& shape, const std::byte* memory, const Tile& tile,
                           std::int64_t channels, Float16* buffer) {
  if (isOnePixel(shape, tile)) {
    const Tile pixel{tile.firstPixel, 1, tile.firstChannel, tile.channels};
    const Float16* values = loadOperand(shape, memory, pixel, channels, buffer);
    if (values != buffer) std::copy_n(values, pixel.elements(), buffer);
    repeatFirstPixel(buffer, tile);
    return buffer;
  }
  const auto* elements = reinterpret_cast<const Float16*>(memory);
  if (shape.channels != channels) {
    TileBuffer<Float16> single;
    forEachPixel(shape, {tile.firstPixel, tile.pixels, 0, 1},
                 [&](std::int64_t from, std::int64_t to) { single.elements[to] = elements[from]; });
    repeatChannels(single.elements, tile.pixels, tile.channels, buffer);
    return buffer;
  }
  if (const std::int64_t offset = adjacentOffset(shape, tile); offset >= 0) return elements + offset;
  forEachPixel(shape, tile, [&](std::int64_t from, std::int64_t to) {
    std::memcpy(buffer + to, elements + from, static_cast<std::size_t>(tile.channels) * sizeof(Float16));
  });
  return buffer;
}

/// Where to compute a tile of a destination of that element type, and what must follow.
float* resultTarget(const TensorShape& shape, std::byte* memory, const Tile& tile, float* buffer,
                    bool accumulate) {
  return tileTarget(shape, memory, tile, buffer, accumulate);
}
Float16* resultTarget(const TensorShape& shape, std::byte* memory, const Tile& tile, Float16* buffer,
                      bool /*accumulate*/) {
  const std::int64_t offset = adjacentOffset(shape, tile);
  return offset >= 0 ? reinterpret_cast<Float16*>(memory) + offset : buffer;
}

void storeResult(const TensorShape& shape, std::byte* memory, const Tile& tile, const float* values,
                 bool accumulate) {
  storeTile(shape, memory, tile, values, accumulate);
}
void storeResult(const TensorShape& shape, std::byte* memory, const Tile& tile, const Float16* values,
                 bool /*accumulate*/) {
  if (adjacentOffset(shape, tile) >= 0) return;
  forEachPixel(shape, tile, [&](std::int64_t to, std::int64_t from) {
    std::memcpy(reinterpret_cast<Float16*>(memory) + to, values + from,
                static_cast<std::size_t>(tile.channels) * sizeof(Float16));
  });
}

/// Tile by tile: load, compute in float32, round once. Element is float, for operands of any format, or
/// Float16 where all are stored like that.
template <class Element>
class ForwardPlan final : public Plan {
 public:
  explicit ForwardPlan(const ArithmeticProblem& problem)
      : problem_(problem),
        primary_(repeated(problem.primary, problem.destination)),
        secondary_(repeated(problem.secondary, problem.destination)) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& destination = problem_.destination;
    forEachTile(stream, Tiling(destination.pixels(), destination.channels), [&](const Tile& tile) {
      TileBuffer<Element> xBuffer;
      TileBuffer<Element> yBuffer;
      alignas(64) float maskBuffer[Tiling::capacity];
      alignas(64) float keptBuffer[Tiling::capacity];
      std::byte* mask = operands.saved + problem_.maskOffset;
      std::byte* kept = operands.saved + problem_.keptOffset;
      ArithmeticRun<Element> run;
      run.count = tile.elements();
      run.primary = loadOperand(primary_, operands.source, tile, destination.channels, xBuffer.elements);
      const Tile period = onePeriod(secondary_, tile);
      run.secondary =
          loadOperand(secondary_, operands.secondary, period, destination.channels, yBuffer.elements);
      run.secondaryPeriod = period.elements();
      if (problem_.hasMask()) run.newMask = tileTarget(problem_.mask, mask, tile, maskBuffer);
      if (problem_.hasKept()) run.newKept = tileTarget(problem_.kept, kept, tile, keptBuffer);
      Element* result = resultTarget(destination, operands.destination, tile, xBuffer.elements, false);
      run.isNonTemporal = result != xBuffer.elements && isNonTemporal(destination);
      arithmeticValues(problem_, run, result);
      storeResult(destination, operands.destination, tile, result, false);
      if (problem_.hasMask()) storeTile(problem_.mask, mask, tile, run.newMask);
      if (problem_.hasKept()) storeTile(problem_.kept, kept, tile, run.newKept);
    });
  }

 private:
  ArithmeticProblem problem_;
  TensorShape primary_;
  TensorShape secondary_;
};

/// The inputs of a gradient. Element as above.
template <class Element>
class GradientPlan : public Plan {
 public:
  explicit GradientPlan(const ArithmeticProblem& problem)
      : problem_(problem), secondary_(repeated(problem.secondary, problem.gradient)) {}

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 protected:
  /// Room for a tile of every input.
  struct Buffers {
    TileBuffer<Element> gradient;
    TileBuffer<Element> secondary;
    alignas(64) float mask[Tiling::capacity];
    TileBuffer<Element> dividend;
  };

  /// @param isWhole a secondary operand that is the same pixel everywhere is repeated over the whole tile
  ArithmeticRun<Element> loadRun(const Operands& operands, const Tile& tile, Buffers& buffers,
                                 bool isWhole = false) const {
    const std::int64_t channels = problem_.gradient.channels;
    ArithmeticRun<Element> run;
    run.count = tile.elements();
    run.gradient =
        loadOperand(problem_.gradient, operands.gradient, tile, channels, buffers.gradient.elements);
    run.secondaryPeriod = run.count;
    if (problem_.needsSecondary()) {
      const Tile period = isWhole ? tile : onePeriod(secondary_, tile);
      run.secondary =
          loadOperand(secondary_, operands.secondary, period, channels, buffers.secondary.elements);
      run.secondaryPeriod = period.elements();
    }
    if (problem_.hasMask())
      run.mask = loadTile(problem_.mask, operands.saved + problem_.maskOffset, tile, buffers.mask);
    const std::byte* const kept = operands.saved + problem_.keptOffset;
    if (problem_.hasKept())
      run.dividend = loadOperand(problem_.kept, kept, tile, channels, buffers.dividend.elements);
    return run;
  }

  [[nodiscard]] const ArithmeticProblem& problem() const { return problem_; }

 private:
  ArithmeticProblem problem_;
  TensorShape secondary_;
};

/// Nothing is summed.
template <class Element>
class ElementGradientPlan final : public GradientPlan<Element> {
 public:
  using GradientPlan<Element>::GradientPlan;

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& destination = this->problem().destination;
    forEachTile(stream, Tiling(destination.pixels(), destination.channels), [&](const Tile& tile) {
      typename GradientPlan<Element>::Buffers buffers;
      ArithmeticRun<Element> run = this->loadRun(operands, tile, buffers);
      Element* target = resultTarget(destination, operands.destination, tile, buffers.gradient.elements,
                                     operands.accumulate);
      run.isNonTemporal = target != buffers.gradient.elements && isNonTemporal(destination);
      arithmeticGradients(this->problem(), run, target);
      storeResult(destination, operands.destination, tile, target, operands.accumulate);
    });
  }
};

/// Only the channels of each pixel are summed, and they fit into a tile.
template <class Element>
class ChannelSumPlan final : public GradientPlan<Element> {
 public:
  using GradientPlan<Element>::GradientPlan;

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& gradient = this->problem().gradient;
    const TensorShape& destination = this->problem().destination;
    forEachTile(stream, Tiling(gradient.pixels(), gradient.channels), [&](const Tile& tile) {
      alignas(64) float values[Tiling::capacity];
      typename GradientPlan<Element>::Buffers buffers;
      arithmeticGradients(this->problem(), this->loadRun(operands, tile, buffers), values);
      sumChannels(values, tile.pixels, tile.channels);
      const Tile sums{tile.firstPixel, tile.pixels, 0, 1};
      float* target = tileTarget(destination, operands.destination, sums, values, operands.accumulate);
      if (target != values) std::copy_n(values, sums.elements(), target);
      storeTile(destination, operands.destination, sums, target, operands.accumulate);
    });
  }

  [[nodiscard]] std::string describe() const override { return "channel sums"; }
};

/// Sums over any axes. Each piece of an image, whole rows in a number that depends on the problem alone, is
/// summed to float64 in scratch memory; then the pieces are added in order.
template <class Element>
class SumPlan final : public GradientPlan<Element> {
 public:
  explicit SumPlan(const ArithmeticProblem& problem)
      : GradientPlan<Element>(problem),
        sumsX_(problem.destination.width < problem.gradient.width),
        sumsY_(problem.destination.height < problem.gradient.height),
        sumsChannels_(problem.destination.channels < problem.gradient.channels),
        sumsPerPiece_(problem.destination.width * problem.destination.channels) {
    constexpr std::int64_t elementsPerPiece = 32768;
    constexpr std::int64_t rowsPerPiece = 16;  // so that the sums are few beside what is summed
    const std::int64_t rowElements =
        std::max<std::int64_t>(1, problem.gradient.width * problem.gradient.channels);
    if (sumsY_) rowsPerPiece_ = std::max(rowsPerPiece, (elementsPerPiece + rowElements - 1) / rowElements);
    piecesPerImage_ = (problem.gradient.height + rowsPerPiece_ - 1) / rowsPerPiece_;
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    return static_cast<std::size_t>(this->problem().gradient.images * piecesPerImage_ * sumsPerPiece_) *
           sizeof(double);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    auto* sums = reinterpret_cast<double*>(operands.scratch);
    const TensorShape& gradient = this->problem().gradient;
    const std::int64_t pieceElements = rowsPerPiece_ * gradient.width * gradient.channels;
    const std::int64_t grain = std::max<std::int64_t>(1, Tiling::capacity * Tiling::grain / pieceElements);
    mtl::cpu::asCpu(stream).parallelFor(gradient.images * piecesPerImage_, grain,
                                        [&](std::int64_t begin, std::int64_t end) {
                                          for (std::int64_t i = begin; i < end; ++i)
                                            sumPiece(operands, i, sums + i * sumsPerPiece_);
                                        });
    const TensorShape& destination = this->problem().destination;
    forEachTile(stream, Tiling(destination.pixels(), destination.channels),
                [&](const Tile& tile) { storeSums(operands, tile, sums); });
  }

  [[nodiscard]] std::string describe() const override { return "sums in float64"; }

 private:
  void sumPiece(const Operands& operands, std::int64_t piece, double* sums) const {
    const TensorShape& gradient = this->problem().gradient;
    std::fill_n(sums, sumsPerPiece_, 0.0);
    const std::int64_t image = piece / piecesPerImage_;
    const std::int64_t firstRow = piece % piecesPerImage_ * rowsPerPiece_;
    const std::int64_t rows = std::min(rowsPerPiece_, gradient.height - firstRow);
    const std::int64_t firstPixel = (image * gradient.height + firstRow) * gradient.width;
    if (sumsX_) return sumRun(operands, firstPixel, rows * gradient.width, sums);
    for (std::int64_t row = 0; row < rows; ++row)
      sumRun(operands, firstPixel + row * gradient.width, gradient.width, sums);
  }

  /// Adds adjacent pixels: all of them to the same sums, or one row of pixels each to its own.
  void sumRun(const Operands& operands, std::int64_t firstPixel, std::int64_t pixels, double* sums) const {
    alignas(64) float values[Tiling::capacity];
    typename GradientPlan<Element>::Buffers buffers;
    const Tiling tiling(pixels, this->problem().gradient.channels);
    const std::int64_t channels = this->problem().destination.channels;
    for (std::int64_t i = 0; i < tiling.count(); ++i) {
      Tile tile = tiling[i];
      double* target =
          sums + (sumsX_ ? 0 : tile.firstPixel * channels) + (sumsChannels_ ? 0 : tile.firstChannel);
      tile.firstPixel += firstPixel;
      const ArithmeticRun<Element> run = this->loadRun(operands, tile, buffers, true);
      if (sumsX_ && !sumsChannels_) {
        sumArithmeticGradients(this->problem(), run, tile.channels, values);
        tile.pixels = 1;
      } else {
        arithmeticGradients(this->problem(), run, values);
        if (sumsChannels_) {
          sumChannels(values, tile.pixels, tile.channels);
          tile.channels = 1;
        }
        if (sumsX_) {
          sumPixels(values, tile.pixels, tile.channels);
          tile.pixels = 1;
        }
      }
      addToSums(values, tile.elements(), target);
    }
  }

  void storeSums(const Operands& operands, const Tile& tile, const double* sums) const {
    const TensorShape& destination = this->problem().destination;
    const std::int64_t piecesPerRow = sumsY_ ? piecesPerImage_ : 1;
    alignas(64) float buffer[Tiling::capacity];
    float* values = tileTarget(destination, operands.destination, tile, buffer, operands.accumulate);
    for (std::int64_t i = 0; i < tile.pixels; ++i) {
      const std::int64_t row = (tile.firstPixel + i) / destination.width;  // of all images
      const std::int64_t x = (tile.firstPixel + i) % destination.width;
      const double* pixel =
          sums + row * piecesPerRow * sumsPerPiece_ + x * destination.channels + tile.firstChannel;
      for (std::int64_t c = 0; c < tile.channels; ++c) {
        double sum = pixel[c];
        for (std::int64_t piece = 1; piece < piecesPerRow; ++piece) sum += pixel[piece * sumsPerPiece_ + c];
        values[i * tile.channels + c] = static_cast<float>(sum);
      }
    }
    storeTile(destination, operands.destination, tile, values, operands.accumulate);
  }

  bool sumsX_;
  bool sumsY_;
  bool sumsChannels_;
  std::int64_t sumsPerPiece_;
  std::int64_t rowsPerPiece_ = 1;
  std::int64_t piecesPerImage_ = 1;
};

template <class Element>
std::shared_ptr<const Plan> makePlan(const ArithmeticProblem& problem) {
  if (problem.isForward()) return std::make_shared<const ForwardPlan<Element>>(problem);
  const bool sumsPixels = problem.destination.width < problem.gradient.width ||
                          problem.destination.height < problem.gradient.height;
  const bool sumsChannels = problem.destination.channels < problem.gradient.channels;
  if (sumsPixels || (sumsChannels && problem.gradient.channels > Tiling::capacity))
    return std::make_shared<const SumPlan<Element>>(problem);
  if (sumsChannels) return std::make_shared<const ChannelSumPlan<Element>>(problem);
  return std::make_shared<const ElementGradientPlan<Element>>(problem);
}

Preparation prepareTiles(const ArithmeticProblem& problem) {
  return makePlan<float>(problem);
}

/// Float16 without a detour over float32 in memory. Earns the sums of residual networks in float16.
Preparation prepareFloat16Tiles(const ArithmeticProblem& problem) {
  const auto isFloat16 = [](const TensorShape& shape) {
    return shape.format == ImageFeatureChannelFormat::Float16;
  };
  const bool inputs = problem.isForward() ? isFloat16(problem.primary) && isFloat16(problem.secondary)
                                          : isFloat16(problem.gradient) &&
                                                (!problem.needsSecondary() || isFloat16(problem.secondary));
  if (!inputs || !isFloat16(problem.destination)) return Refusal{"a tensor is not stored as float16"};
  return makePlan<Float16>(problem);
}

constexpr std::array<Implementation<ArithmeticProblem>, 2> kImplementations{
    {{"float16 tiles", prepareFloat16Tiles}, {"tiles", prepareTiles}}};

}  // namespace

const char* name(ArithmeticOperation operation) {
  switch (operation) {
    case ArithmeticOperation::Add:
      return "add";
    case ArithmeticOperation::Subtract:
      return "subtract";
    case ArithmeticOperation::Multiply:
      return "multiply";
    case ArithmeticOperation::Divide:
      return "divide";
    case ArithmeticOperation::Equal:
      return "equal";
    case ArithmeticOperation::NotEqual:
      return "notEqual";
    case ArithmeticOperation::Less:
      return "less";
    case ArithmeticOperation::LessOrEqual:
      return "lessOrEqual";
    case ArithmeticOperation::Greater:
      return "greater";
    case ArithmeticOperation::GreaterOrEqual:
      return "greaterOrEqual";
  }
  return "unknown";
}

std::string ArithmeticProblem::describe() const {
  std::string text = name(operation);
  if (isForward()) {
    text.append(" ").append(primary.describe()).append(", ").append(secondary.describe());
  } else {
    text += direction == ArithmeticDirection::PrimaryGradient ? " gradient of x, " : " gradient of y, ";
    text += gradient.describe();
    if (needsSecondary()) text += ", " + secondary.describe();
  }
  if (hasReLU) text += ", ReLU";
  if (hasMask()) text += ", mask";
  if (hasKept()) text += ", dividend";
  return text + " -> " + destination.describe();
}

std::span<const Implementation<ArithmeticProblem>> arithmeticImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail
