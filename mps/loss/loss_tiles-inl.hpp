// Tiles of adjacent float32 values between the tensors of a loss and its row kernels, once per instruction
// set. Include it after hwy/highway.h in a file that hwy/foreach_target.h compiles several times;
// mps/core/highway_targets.hpp comes before both.

#if defined(UNMETAL_MPS_LOSS_LOSS_TILES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef UNMETAL_MPS_LOSS_LOSS_TILES_INL_HPP
#undef UNMETAL_MPS_LOSS_LOSS_TILES_INL_HPP
#else
#define UNMETAL_MPS_LOSS_LOSS_TILES_INL_HPP
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "mps/core/storage.hpp"
#include "mps/core/vector_io-inl.hpp"
#include "mps/core/vector_runs-inl.hpp"
#include "mps/loss/loss_run.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Calls visit(tensor offset, tile offset, count) for each run of adjacent values of a part.
template <class Visit>
HWY_INLINE void forRuns(const TensorShape& shape, const LossPart& part, Visit visit) {
  std::int64_t tile = 0;
  for (std::int64_t done = 0; done < part.pixels;) {
    const std::int64_t pixel = part.firstPixel + done;
    const std::int64_t x = pixel % shape.width;
    const std::int64_t offset = shape.offset(part.image, pixel / shape.width, x, part.firstChannel);
    const std::int64_t pixelsOfRow = std::min(shape.width - x, part.pixels - done);
    const std::int64_t runs = shape.pixelStride == part.channels ? 1 : pixelsOfRow;
    const std::int64_t count = pixelsOfRow / runs * part.channels;
    for (std::int64_t i = 0; i < runs; ++i, tile += count) visit(offset + i * shape.pixelStride, tile, count);
    done += pixelsOfRow;
  }
}

HWY_INLINE void gatherPart(const TensorShape& shape, const std::byte* memory, const LossPart& part,
                           float* tile) {
  withElementType(shape.format, [&](auto type) HWY_ATTR {
    const auto* from = reinterpret_cast<const decltype(type)*>(memory);
    forRuns(shape, part, [&](std::int64_t offset, std::int64_t to, std::int64_t count) HWY_ATTR {
      convertToFloats(from + offset, tile + to, static_cast<std::size_t>(count));
    });
  });
}

HWY_INLINE void scatterPart(const TensorShape& shape, const float* tile, const LossPart& part,
                            std::byte* memory) {
  withElementType(shape.format, [&](auto type) HWY_ATTR {
    auto* to = reinterpret_cast<decltype(type)*>(memory);
    forRuns(shape, part, [&](std::int64_t offset, std::int64_t from, std::int64_t count) HWY_ATTR {
      convertFromFloats(tile + from, to + offset, static_cast<std::size_t>(count));
    });
  });
}

/// Adds to a float32 tensor.
HWY_INLINE void addPart(const TensorShape& shape, const float* tile, const LossPart& part,
                        std::byte* memory) {
  const hn::ScalableTag<float> d;
  auto* to = reinterpret_cast<float*>(memory);
  forRuns(shape, part, [&](std::int64_t offset, std::int64_t from, std::int64_t count) HWY_ATTR {
    float* sum = to + offset;
    const float* term = tile + from;
    forVectors(d, static_cast<std::size_t>(count), [&](std::size_t i, auto lanes) HWY_ATTR {
      lanes.store(d, hn::Add(lanes.load(d, sum + i), lanes.load(d, term + i)), sum + i);
    });
  });
}

/// Float32 copies of what the kernels cannot read or write in place; one object per thread.
class LossTiles {
 public:
  explicit LossTiles(const LossRun& run) : run_(run), problem_(run.problem), layout_(run.layout) {}

  /// The rows of `images` images from part.image on.
  LossRows load(const LossPart& part, std::int64_t images) {
    LossRows rows;
    rows.wantsLoss = problem_.loss.channels > 0;
    rows.labels = loadLabels(part, images);
    rows.weights = loadWeights(part, images);
    rows.predictions = loadPredictions(part, images);
    rows.gradient = output(problem_.gradient, run_.gradient, run_.accumulate, part, gradient_);
    rows.labelGradient = output(problem_.labelGradient, run_.labelGradient, false, part, labelGradient_);
    if (run_.perElement()) {
      rows.sourceGradient =
          input(problem_.sourceGradient, run_.sourceGradient, part, images, sourceGradient_);
      rows.loss = output(problem_.loss, run_.loss, false, part, loss_);
    }
    return rows;
  }

  /// The weights of load() alone, with the pixels that are left out.
  const float* loadWeightsToCount(const LossPart& part, std::int64_t images) {
    loadLabels(part, images);
    return loadWeights(part, images);
  }

  /// Moves the outputs of load() to where they belong.
  void store(const LossPart& part, std::int64_t images) {
    storeOutput(problem_.gradient, run_.gradient, run_.accumulate, part, images, gradient_);
    storeOutput(problem_.labelGradient, run_.labelGradient, false, part, images, labelGradient_);
    if (run_.perElement()) storeOutput(problem_.loss, run_.loss, false, part, images, loss_);
  }

  /// Room for the exponentials of one pixel, in whole vectors.
  float* exponentials() { return exponentials_.data(); }

 private:
  using Tile = std::array<float, kLossTile>;

  static LossPart ofImage(LossPart part, std::int64_t image) {
    part.image += image;
    return part;
  }

  static const float* copy(const TensorShape& shape, const std::byte* memory, const LossPart& part,
                           std::int64_t images, Tile& tile) {
    for (std::int64_t n = 0; n < images; ++n)
      gatherPart(shape, memory, ofImage(part, n), tile.data() + n * part.elements());
    return tile.data();
  }

  const float* input(const TensorShape& shape, const std::byte* memory, const LossPart& part,
                     std::int64_t images, Tile& tile) const {
    if (shape.channels == 0) return nullptr;
    if (layout_.isDirect(shape)) return reinterpret_cast<const float*>(memory) + layout_.denseOffset(part);
    return copy(shape, memory, part, images, tile);
  }

  float* output(const TensorShape& shape, std::byte* memory, bool accumulate, const LossPart& part,
                Tile& tile) const {
    if (shape.channels == 0) return nullptr;
    if (layout_.isDirect(shape) && !accumulate)
      return reinterpret_cast<float*>(memory) + layout_.denseOffset(part);
    return tile.data();
  }

  void storeOutput(const TensorShape& shape, std::byte* memory, bool accumulate, const LossPart& part,
                   std::int64_t images, const Tile& tile) const {
    if (shape.channels == 0 || (layout_.isDirect(shape) && !accumulate)) return;
    for (std::int64_t n = 0; n < images; ++n) {
      const float* from = tile.data() + n * part.elements();
      if (accumulate) {
        addPart(shape, from, ofImage(part, n), memory);
      } else {
        scatterPart(shape, from, ofImage(part, n), memory);
        if (part.firstChannel == 0 && shape.channels > layout_.channels)
          zeroOthers(shape, memory, ofImage(part, n));
      }
    }
  }

  /// The channels of a part's pixels that do not count.
  void zeroOthers(const TensorShape& shape, std::byte* memory, const LossPart& part) const {
    const Tile zeros{};
    for (std::int64_t i = 0; i < part.pixels; ++i)
      for (std::int64_t c = layout_.channels; c < shape.channels; c += kLossTile)
        scatterPart(shape, zeros.data(),
                    {part.image, part.firstPixel + i, 1, c, std::min(kLossTile, shape.channels - c)}, memory);
  }

  const float* loadLabels(const LossPart& part, std::int64_t images) {
    if (problem_.labelKind == LossLabels::Dense)
      return input(problem_.labels, run_.labels, part, images, labels_);
    leavesOut_ = false;
    for (std::int64_t n = 0; n < images; ++n) {
      if (problem_.labelKind == LossLabels::UInt8Indices) {
        expandIndices<std::uint8_t>(ofImage(part, n), n);
      } else {
        expandIndices<std::uint32_t>(ofImage(part, n), n);
      }
    }
    return labels_.data();
  }

  /// Labels 0 and 1 from class indices; remembers which pixels are left out.
  template <class Index>
  void expandIndices(const LossPart& part, std::int64_t image) {
    const auto* indices = reinterpret_cast<const Index*>(run_.labels);
    const TensorShape& shape = problem_.labels;
    float* tile = labels_.data() + image * part.elements();
    bool* leftOut = leftOut_.data() + image * part.pixels;
    std::fill_n(tile, part.elements(), 0.0F);
    for (std::int64_t i = 0; i < part.pixels; ++i) {
      const std::int64_t pixel = part.firstPixel + i;
      const std::int64_t index =
          indices[shape.offset(part.image, pixel / shape.width, pixel % shape.width, 0)];
      leftOut[i] = index >= layout_.channels;
      leavesOut_ = leavesOut_ || leftOut[i];
      const std::int64_t channel = index - part.firstChannel;
      if (!leftOut[i] && channel >= 0 && channel < part.channels) tile[i * part.channels + channel] = 1.0F;
    }
  }

  const float* loadWeights(const LossPart& part, std::int64_t images) {
    const TensorShape& shape = problem_.weights;
    if (shape.channels == 1 && layout_.channels > 1) {
      spreadWeights(part, images);
    } else if (!leavesOut_) {
      return input(shape, run_.weights, part, images, weights_);
    } else if (shape.channels == 0) {
      weights_.fill(1.0F);
    } else {
      copy(shape, run_.weights, part, images, weights_);
    }
    if (leavesOut_) fillLeftOut(weights_, part, images, 0.0F);
    return weights_.data();
  }

  /// One weight per pixel, for all its channels.
  void spreadWeights(const LossPart& part, std::int64_t images) {
    LossPart single = part;
    single.firstChannel = 0;
    single.channels = 1;
    copy(problem_.weights, run_.weights, single, images, pixelWeights_);
    for (std::int64_t i = 0; i < images * part.pixels; ++i)
      std::fill_n(weights_.data() + i * part.channels, part.channels,
                  pixelWeights_[static_cast<std::size_t>(i)]);
  }

  /// A pixel that is left out gets predictions whose losses and derivatives are finite in all types.
  const float* loadPredictions(const LossPart& part, std::int64_t images) {
    if (!leavesOut_) return input(problem_.predictions, run_.predictions, part, images, predictions_);
    copy(problem_.predictions, run_.predictions, part, images, predictions_);
    fillLeftOut(predictions_, part, images, 0.5F);
    return predictions_.data();
  }

  void fillLeftOut(Tile& tile, const LossPart& part, std::int64_t images, float value) const {
    for (std::int64_t i = 0; i < images * part.pixels; ++i)
      if (leftOut_[static_cast<std::size_t>(i)])
        std::fill_n(tile.data() + i * part.channels, part.channels, value);
  }

  const LossRun& run_;
  const LossProblem& problem_;
  const LossLayout& layout_;
  bool leavesOut_ = false;
  std::array<bool, kLossTile> leftOut_;
  alignas(64) Tile predictions_;
  alignas(64) Tile labels_;
  alignas(64) Tile weights_;
  alignas(64) Tile pixelWeights_;
  alignas(64) Tile sourceGradient_;
  alignas(64) Tile gradient_;
  alignas(64) Tile labelGradient_;
  alignas(64) Tile loss_;
  alignas(64) std::array<float, kLossTile + hn::MaxLanes(hn::ScalableTag<float>())> exponentials_;
};

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
