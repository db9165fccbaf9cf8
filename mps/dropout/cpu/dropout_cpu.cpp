#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>

#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/cpu/tile_io.hpp"
#include "mps/core/types/philox.hpp"
#include "mps/core/types/text_stream.hpp"
#include "mps/dropout/dropout_problem.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/dropout/cpu/dropout_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/cpu/philox_vectors-inl.hpp"
#include "mps/core/cpu/vector_runs-inl.hpp"

#ifndef UNMETAL_MPS_DROPOUT_KEEP_STREAM
#define UNMETAL_MPS_DROPOUT_KEEP_STREAM
namespace mps::detail {

/// The decisions of one image and one encode, in the order of the mask's elements.
struct KeepStream {
  PhiloxKey key{};
  std::uint32_t imageIndex = 0;
  std::uint32_t encodeCounter = 0;
  std::int32_t lastKept = 0;  ///< keep where the 16 bits are not larger
};

/// What keepFactors() may write beyond the elements that it was asked for.
constexpr std::size_t kKeepSlack = kDropoutBlock;

}  // namespace mps::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

using Floats = hn::ScalableTag<float>;

/// A group of words, as the 16 bits of each of their elements.
template <class Words>
HWY_INLINE void storeNumbers(const Words& words, std::uint16_t* numbers) {
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t i = 0; i < kPhiloxGroup; ++i) {
    numbers[2 * i] = static_cast<std::uint16_t>(words[i].raw & 0xFFFFU);
    numbers[2 * i + 1] = static_cast<std::uint16_t>(words[i].raw >> 16U);
  }
#else
  const hn::ScalableTag<std::uint16_t> d;  // little-endian: the lower half of a word comes first
  forPhiloxVectors(
      words, [&](std::size_t i, auto vector) HWY_ATTR
      __attribute__((always_inline)) { hn::Store(hn::BitCast(d, vector), d, numbers + i * hn::Lanes(d)); });
#endif
}

/// Calls use(i, factors, lanes) for each vector of the elements [first, first + count) of the mask, first a
/// multiple of kDropoutBlock: `kept` for those that are kept, else 0.
template <class Use>
HWY_INLINE void forFactors(const KeepStream& stream, std::int64_t first, std::size_t count,
                           hn::Vec<Floats> kept, Use&& use) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const hn::Rebind<std::uint16_t, Floats> dn;
  constexpr std::size_t size = 2 * kPhiloxGroup * hn::MaxLanes(Floats());
  const auto lastKept = hn::Set(di, stream.lastKept);
  const PhiloxCounter counter = {static_cast<std::uint32_t>(first / kDropoutBlock), stream.imageIndex,
                                 stream.encodeCounter, 0};
  const std::size_t blocks = (count + kDropoutBlock - 1) / kDropoutBlock;
  // always_inline: the compiler would call it, and then keep all constants in memory.
  forPhiloxGroups(
      counter, stream.key,
      blocks, [&](std::size_t word, const auto& words) HWY_ATTR __attribute__((always_inline)) {
        HWY_ALIGN std::uint16_t numbers[size];
        storeNumbers(words, numbers);
        const std::size_t begin = 2 * word;
        forVectors(
            d, std::min(count - begin, size),
            [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
              const auto number = hn::PromoteTo(di, hn::Load(dn, numbers + i));
              const auto isDropped = hn::RebindMask(d, hn::Gt(number, lastKept));
              use(begin + i, hn::IfThenZeroElse(isDropped, kept), lanes);
            });
      });
}

/// 1 or 0 for the elements [first, first + count) of the mask. They begin at the address that is returned,
/// inside of `buffer`, which has room for count + kKeepSlack values.
const float* keepFactors(const KeepStream& stream, std::int64_t first, std::int64_t count, float* buffer) {
  const Floats d;
  const std::int64_t skipped = first % kDropoutBlock;
  forFactors(stream, first - skipped, static_cast<std::size_t>(skipped + count), hn::Set(d, 1.0F),
             [&](std::size_t i, auto factors, auto lanes) HWY_ATTR { lanes.store(d, factors, buffer + i); });
  return buffer + skipped;
}

/// 1 / keepProbability, rounded like the quotient: by a factor where that is exact, which is cheaper.
class KeepScale {
 public:
  explicit KeepScale(float keepProbability) : divisor_(hn::Set(Floats(), keepProbability)) {
    int exponent = 0;
    // The reciprocal of a power of two is exact, unless it overflows.
    divides_ = std::frexp(keepProbability, &exponent) != 0.5F || exponent < -120;
    factor_ = hn::Set(Floats(), divides_ ? 1.0F : 1.0F / keepProbability);
  }

  /// Before the product with the mask.
  [[nodiscard]] HWY_INLINE hn::Vec<Floats> factor() const { return factor_; }
  /// After it.
  [[nodiscard]] HWY_INLINE hn::Vec<Floats> finish(hn::Vec<Floats> kept) const {
    return divides_ ? hn::Div(kept, divisor_) : kept;
  }

 private:
  bool divides_;
  hn::Vec<Floats> factor_;
  hn::Vec<Floats> divisor_;
};

/// y = x M / keepProbability for the elements [first, first + count) of the mask, first a multiple of
/// kDropoutBlock: the same as keepFactors and applyFactors, in one pass.
void dropRun(const KeepStream& stream, std::int64_t first, std::int64_t count, ConstFloatRun x,
             float keepProbability, FloatRun y) {
  const Floats d;
  const KeepScale scale(keepProbability);
  forFactors(
      stream, first, static_cast<std::size_t>(count),
      scale.factor(), [&](std::size_t i, auto factors, auto lanes) HWY_ATTR __attribute__((always_inline)) {
        lanes.store(d, scale.finish(hn::Mul(lanes.load(d, x + i), factors)), y + i);
      });
}

/// y = x * factor / keepProbability; the factors repeat themselves after `period` elements.
void applyFactors(ConstFloatRun x, const float* factors, std::size_t period, float keepProbability,
                  std::size_t count, FloatRun y) {
  const hn::ScalableTag<float> d;
  const KeepScale scale(keepProbability);
  for (std::size_t first = 0; first < count; first += period)
    forVectors(d, std::min(period, count - first), [&](std::size_t k, auto lanes) {
      const auto factor = hn::Mul(lanes.load(d, factors + k), scale.factor());
      const std::size_t i = first + k;
      lanes.store(d, scale.finish(hn::Mul(lanes.load(d, x + i), factor)), y + i);
    });
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(keepFactors);
HWY_EXPORT(applyFactors);
HWY_EXPORT(dropRun);

namespace {

KeepStream keepStream(const DropoutProblem& problem, std::uint32_t encodeCounter, std::uint32_t imageIndex) {
  return {philoxKey(problem.seed), imageIndex, encodeCounter, dropoutLastKept(problem.keepProbability)};
}

const float* keepRun(const KeepStream& stream, std::int64_t first, std::int64_t count, float* buffer) {
  return HWY_DYNAMIC_DISPATCH(keepFactors)(stream, first, count, buffer);
}

/// Applies the mask to tiles.
class TileMask {
 public:
  TileMask(const DropoutProblem& problem, const Operands& operands)
      : problem_(problem),
        encodeCounter_(static_cast<std::uint32_t>(operands.scalars[0])),
        firstImage_(static_cast<std::int64_t>(operands.scalars[1])) {}

  /// y = x M / keepProbability for the elements of the tile. y may be x.
  void apply(const Tile& tile, ConstFloatRun x, FloatRun y) const {
    const std::int64_t imagePixels = problem_.input.height * problem_.input.width;
    for (std::int64_t done = 0; done < tile.pixels;) {
      const std::int64_t pixel = tile.firstPixel + done;
      const std::int64_t pixels = std::min(tile.pixels - done, imagePixels - pixel % imagePixels);
      const auto offset = static_cast<std::size_t>(done * tile.channels);
      applyInImage({pixel, pixels, tile.firstChannel, tile.channels}, x + offset, y + offset);
      done += pixels;
    }
  }

 private:
  /// The same for a tile of one image.
  void applyInImage(const Tile& tile, ConstFloatRun x, FloatRun y) const {
    const std::int64_t imagePixels = problem_.input.height * problem_.input.width;
    const std::int64_t inImage = tile.firstPixel % imagePixels;
    const std::int64_t first = problem_.maskIndex(0, 0, tile.firstChannel) + inImage * problem_.maskChannels;
    const float keepProbability = problem_.keepProbability;
    float buffer[Tiling::capacity + kKeepSlack];
    const float* factors = buffer;
    Tile drawn = tile;
    if (isContiguous()) {
      const KeepStream stream = streamOf(tile.firstPixel / imagePixels);
      if (first % kDropoutBlock == 0) {
        HWY_DYNAMIC_DISPATCH(dropRun)(stream, first, tile.elements(), x, keepProbability, y);
        return;
      }
      factors = keepRun(stream, first, tile.elements(), buffer);
    } else {
      // Of pixels with the same factors so many that they fill whole vectors, and not too few for a loop.
      constexpr std::int64_t repeated = 256;
      if (problem_.maskStrideX == 0 && problem_.maskStrideY == 0)
        drawn.pixels = std::min(tile.pixels, repeated / std::gcd(tile.channels, repeated));
      drawFactors(drawn, buffer);
    }
    HWY_DYNAMIC_DISPATCH(applyFactors)
    (x, factors, static_cast<std::size_t>(drawn.elements()), keepProbability,
     static_cast<std::size_t>(tile.elements()), y);
  }

  /// Whether the elements of an image are adjacent in the mask.
  [[nodiscard]] bool isContiguous() const {
    return problem_.maskStrideX != 0 && problem_.maskStrideY != 0 && problem_.maskStrideChannel != 0 &&
           problem_.maskWidth == problem_.input.width && problem_.maskChannels == problem_.input.channels;
  }

  [[nodiscard]] KeepStream streamOf(std::int64_t image) const {
    return keepStream(problem_, encodeCounter_, static_cast<std::uint32_t>(firstImage_ + image));
  }

  /// M of each element of the tile, row by row.
  void drawFactors(const Tile& tile, float* factors) const {
    const std::int64_t width = problem_.input.width;
    const std::int64_t height = problem_.input.height;
    for (std::int64_t done = 0; done < tile.pixels;) {
      const std::int64_t pixel = tile.firstPixel + done;
      const std::int64_t x = pixel % width;
      const std::int64_t pixels = std::min(tile.pixels - done, width - x);
      const std::int64_t first = problem_.maskIndex(x, pixel / width % height, tile.firstChannel);
      drawRow(streamOf(pixel / width / height), first, pixels, tile.channels, factors + done * tile.channels);
      done += pixels;
    }
  }

  /// The same for adjacent pixels of one row, whose first element is the mask's element `first`.
  void drawRow(const KeepStream& stream, std::int64_t first, std::int64_t pixels, std::int64_t channels,
               float* factors) const {
    float run[Tiling::capacity + kKeepSlack];
    const bool ownPixels = problem_.maskStrideX != 0;
    const bool ownChannels = problem_.maskStrideChannel != 0;
    if (ownPixels && ownChannels) {
      for (std::int64_t i = 0; i < pixels; ++i)
        std::copy_n(keepRun(stream, first + i * problem_.maskChannels, channels, run), channels,
                    factors + i * channels);
      return;
    }
    const float* drawn = keepRun(stream, first, ownPixels ? pixels : (ownChannels ? channels : 1), run);
    for (std::int64_t i = 0; i < pixels; ++i) {
      if (ownChannels)
        std::copy_n(drawn, channels, factors + i * channels);
      else
        std::fill_n(factors + i * channels, channels, drawn[ownPixels ? i : 0]);
    }
  }

  const DropoutProblem& problem_;
  std::uint32_t encodeCounter_;
  std::int64_t firstImage_;
};

class DropoutPlan final : public Plan {
 public:
  explicit DropoutPlan(const DropoutProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const bool isForward = problem_.direction == DropoutDirection::Forward;
    const std::byte* input = isForward ? operands.source : operands.gradient;
    const TileMask mask(problem_, operands);
    const Tiling tiling(problem_.destination.pixels(), problem_.destination.channels);
    forEachTile(stream, tiling, [&](const Tile& tile) {
      alignas(64) float buffer[Tiling::capacity];
      const ConstFloatRun x = loadRun(problem_.input, input, tile, buffer);
      const FloatRun result =
          runTarget(problem_.destination, operands.destination, tile, buffer, operands.accumulate);
      mask.apply(tile, x, result);
      storeTile(problem_.destination, operands.destination, tile, result, operands.accumulate);
    });
  }

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.direction == DropoutDirection::Gradient &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  DropoutProblem problem_;
};

Preparation prepareTiles(const DropoutProblem& problem) {
  return std::make_shared<const DropoutPlan>(problem);
}

constexpr std::array<Implementation<DropoutProblem>, 1> kImplementations{{{"tiles", prepareTiles}}};

}  // namespace

std::string DropoutProblem::describe() const {
  TextStream text;
  text << (direction == DropoutDirection::Forward ? "dropout" : "dropout gradient") << ", keep "
       << keepProbability << ", seed " << seed << ", mask " << maskHeight << "x" << maskWidth << "x"
       << maskChannels << " strides " << maskStrideX << "," << maskStrideY << "," << maskStrideChannel
       << " origin " << maskOriginX << "," << maskOriginY << "," << maskOriginChannel << ", "
       << input.describe() << " -> " << destination.describe();
  return text.str();
}

std::span<const Implementation<DropoutProblem>> dropoutImplementationsCpu() {
  return kImplementations;
}

void dropoutMask(const DropoutProblem& problem, std::uint32_t encodeCounter, std::uint32_t imageIndex,
                 std::span<std::byte> mask) {
  const KeepStream stream = keepStream(problem, encodeCounter, imageIndex);
  const std::int64_t elements = problem.maskElements();
  float buffer[Tiling::capacity + kKeepSlack];
  for (std::int64_t first = 0; first < elements; first += Tiling::capacity) {
    const std::int64_t count = std::min(Tiling::capacity, elements - first);
    const float* factors = keepRun(stream, first, count, buffer);
    for (std::int64_t i = 0; i < count; ++i)
      mask[static_cast<std::size_t>(first + i)] = std::byte{factors[i] != 0};
  }
}

}  // namespace mps::detail

#endif  // HWY_ONCE
