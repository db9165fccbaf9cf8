#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>

#include "mps/core/cpu/channel_layout.hpp"
#include "mps/core/cpu/highway_targets.hpp"
#include "mps/core/cpu/tile_io.hpp"
#include "mps/core/types/text_stream.hpp"
#include "mps/instance_normalization/cpu/instance_normalization_channels.hpp"
#include "mps/instance_normalization/instance_normalization_problem.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/instance_normalization/cpu/instance_normalization_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/cpu/channel_passes-inl.hpp"
#include "mps/instance_normalization/cpu/instance_normalization_channels-inl.hpp"

#ifndef UNMETAL_MPS_INSTANCE_NORMALIZATION_ROWS
#define UNMETAL_MPS_INSTANCE_NORMALIZATION_ROWS
namespace mps::detail {

/// Numbers of the channels of one image, repeated along a row. `mean` is the float32 number next to the mean; what
/// it lacks is in meanGradient.
struct ImageGradientNumbers {
  const float* mean = nullptr;
  const float* gamma = nullptr;
  const float* meanGradient = nullptr;      ///< 1/m sum e
  const float* factor = nullptr;            ///< r 1/m sum(e h)
  const float* inverseDeviation = nullptr;  ///< r
};

/// Incoming gradient and source of a tile; null: there are none.
struct TileInputs {
  ConstFloatRun dy;
  ConstFloatRun x;
};

}  // namespace mps::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// Numbers of a vector of channels.
template <class D>
struct ImageGradientVectors {
  hn::Vec<D> mean;
  hn::Vec<D> gamma;
  hn::Vec<D> meanGradient;
  hn::Vec<D> factor;
  hn::Vec<D> inverseDeviation;
};

void addImageGradientSums(const ChannelRows& rows, ConstFloatRun dy, ConstFloatRun x, const float* means,
                          double* sums, double* products) {
  const auto itself = [](auto /*d*/, auto /*lanes*/, auto /*x*/, auto gradient, std::size_t /*i*/) HWY_ATTR
      __attribute__((always_inline)) {
    return gradient;
  };
  const auto sum = [&](auto formats) HWY_ATTR __attribute__((always_inline)) {
    sumGradientProducts(rows, formats.of(dy), formats.of(x), means, itself, sums, products);
  };
  dy.isHalf&& x.isHalf ? sum(KnownFormats<true>()) : sum(AnyFormats());
}

template <bool fetches>
HWY_INLINE void gradientRows(const ChannelRows& rows, ConstFloatRun dy, ConstFloatRun x, TileInputs later,
                             const ImageGradientNumbers& numbers, FloatRun dx) {
  const hn::ScalableTag<float> d;
  withFormats(
      std::size_t{x.isHalf} + dy.isHalf + dx.isHalf,
      3, [&](auto formats) HWY_ATTR __attribute__((always_inline)) {
        const ConstFloatRun source = formats.of(x);
        const ConstFloatRun gradient = formats.of(dy);
        const FloatRun to = formats.of(dx);
        forNumberedVectors(
            d, rows, kMostRowsTogether,
            [&](std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
              return ImageGradientVectors<decltype(d)>{
                  lanes.load(d, numbers.mean + i), lanes.load(d, numbers.gamma + i),
                  lanes.load(d, numbers.meanGradient + i), lanes.load(d, numbers.factor + i),
                  lanes.load(d, numbers.inverseDeviation + i)};
            },
            [&](std::size_t at, auto lanes, const auto& own) HWY_ATTR __attribute__((always_inline)) {
              if constexpr (fetches) {
                fetchValues<hn::MaxLanes(hn::ScalableTag<float>())>(later.x + at);
                fetchValues<hn::MaxLanes(hn::ScalableTag<float>())>(later.dy + at);
              }
              const auto difference = hn::Sub(lanes.load(d, source + at), own.mean);
              const auto scaled = hn::Mul(lanes.load(d, gradient + at), own.gamma);
              const auto centred = hn::Sub(scaled, own.meanGradient);
              const auto sum = hn::NegMulAdd(difference, own.factor, centred);
              lanes.store(d, hn::Mul(sum, own.inverseDeviation), to + at);
            });
      });
}

/// dx = r (gamma dy - 1/m sum e - (x - mean) factor). dx may be dy or x. Where m is 1 that is 0.
void imageGradientRows(const ChannelRows& rows, ConstFloatRun dy, ConstFloatRun x,
                       const ImageGradientNumbers& numbers, FloatRun dx) {
  gradientRows<false>(rows, dy, x, {}, numbers, dx);
}
/// @param later what will be summed next, in float32: it is read while dx is written
void imageGradientRowsAhead(const ChannelRows& rows, ConstFloatRun dy, ConstFloatRun x,
                            const TileInputs& later, const ImageGradientNumbers& numbers, FloatRun dx) {
  gradientRows<true>(rows, dy, x, later, numbers, dx);
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(sumMoments);
HWY_EXPORT(momentsFromSums);
HWY_EXPORT(subtractMeans);
HWY_EXPORT(addImageSums);
HWY_EXPORT(inverseDeviations);
HWY_EXPORT(nearMeans);
HWY_EXPORT(imageLines);
HWY_EXPORT(weighGradientSums);
HWY_EXPORT(imageGradientLines);
HWY_EXPORT(normalizeRows);
HWY_EXPORT(addImageGradientSums);
HWY_EXPORT(imageGradientRows);
HWY_EXPORT(imageGradientRowsAhead);

namespace {

using Operation = InstanceNormalizationOperation;

/// Cuts scratch memory into arrays.
class Arrays {
 public:
  /// @param memory null: only counts
  explicit Arrays(std::byte* memory) : memory_(memory) {}
  template <class T>
  T* take(std::int64_t count) {
    T* array = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + bytes_);
    bytes_ += (static_cast<std::size_t>(count) * sizeof(T) + 63) / 64 * 64;
    return array;
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  std::size_t bytes_ = 0;
};

/// Sums of a chunk of pixels: two numbers of each channel, along a row.
struct ChunkSums {
  double* first;
  double* second;
};

/// What is computed of one image at a time.
struct ImageNumbers : ImageChannels {
  static constexpr std::size_t rowCount = 5;
  std::array<float*, rowCount> rows{};  ///< along rows

  ImageNumbers(Arrays& arrays, const ChannelLayout& layout) {
    channels = static_cast<std::size_t>(layout.channels);
    pixels = static_cast<double>(layout.pixels);
    for (double** array : {&first, &second, &mean, &r, &weighted, &weightedBy})
      *array = arrays.take<double>(layout.roomyRow());
    shifts = arrays.take<float>(layout.roomyRow());
    for (float*& row : rows) row = arrays.take<float>(layout.roomyRow());
  }
};

/// Forward: reads each image twice, gradient: source and incoming gradient twice; the second time they come from the
/// cache where one image fits into it.
///
/// Several images at once, each by one thread, where there are enough of them and they are small, else one after the
/// other by all threads. The sums are those of the same chunks, joined in the same order.
class ImagesPlan final : public Plan {
 public:
  explicit ImagesPlan(const InstanceNormalizationProblem& problem)
      : problem_(problem),
        layout_(problem.source.height * problem.source.width, problem.source.channels),
        workers_(std::min(problem.source.images, kMostWorkers)) {}

  [[nodiscard]] bool canAccumulate() const override {
    return problem_.operation == Operation::Gradient &&
           problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }
  [[nodiscard]] std::size_t scratchBytes() const override {
    const std::size_t together = static_cast<std::size_t>(workers_) * workspaceBytes(1);
    return sumsBytes() + std::max(together, workspaceBytes(layout_.chunks));
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    if (takesImagesTogether(cpu.threadCount()))
      runTogether(cpu, operands);
    else
      for (std::int64_t image = 0; image < problem_.source.images; ++image)
        runImage(&cpu, operands, image, operands.scratch + sumsBytes());
    if (problem_.operation == Operation::Gradient && problem_.sumsImages) sumImages(operands);
  }

 private:
  /// Workspaces; results do not depend on them.
  static constexpr std::int64_t kMostWorkers = 256;

  /// Whether each thread takes whole images, or all of them the parts of one image after the other.
  [[nodiscard]] bool takesImagesTogether(int threads) const {
    constexpr std::int64_t kLargeImage = std::int64_t{1} << 21U;  // bytes: no longer in a cache of one core
    constexpr double kBytesOfThread = 3e9;                        // in a second, of all passes over an image
    constexpr double kSecondsOfLoops = 15e-6;                     // that threads of one image begin and end
    if (layout_.chunks <= 1 || threads == 1) return true;
    const std::int64_t images = problem_.source.images;
    const std::int64_t bytes = problem_.source.bytes() / std::max<std::int64_t>(1, images);
    if (bytes > kLargeImage) return false;
    const double seconds = static_cast<double>(bytes) / kBytesOfThread;
    const std::int64_t rounds = (images + threads - 1) / threads;
    const auto threadsOfImage = static_cast<double>(std::min<std::int64_t>(threads, layout_.chunks));
    return static_cast<double>(rounds) * seconds <=
           static_cast<double>(images) * (seconds / threadsOfImage + kSecondsOfLoops);
  }

  void runTogether(const mtl::cpu::Stream& cpu, const Operands& operands) const {
    const std::int64_t images = problem_.source.images;
    const std::int64_t elements = problem_.source.elements() / std::max<std::int64_t>(1, workers_);
    const std::int64_t grain = Tiling::grain * Tiling::capacity / std::max<std::int64_t>(1, elements);
    cpu.parallelFor(workers_, std::max<std::int64_t>(1, grain), [&](std::int64_t begin, std::int64_t end) {
      // What one thread takes are neighbours: one workspace, which stays in its cache.
      std::byte* const workspace =
          operands.scratch + sumsBytes() + static_cast<std::size_t>(begin) * workspaceBytes(1);
      const std::int64_t last = end * images / workers_ - 1;
      for (std::int64_t image = begin * images / workers_; image <= last; ++image)
        runImage(nullptr, operands, image, workspace, image < last);
      finishNonTemporalStores();
    });
  }

  /// @param stream null: this thread alone
  /// @param goesOn whether the thread's next image is the one behind it
  void runImage(const mtl::cpu::Stream* stream, const Operands& operands, std::int64_t image,
                std::byte* workspace, bool goesOn = false) const {
    Arrays arrays(workspace);
    const ImageNumbers numbers(arrays, layout_);
    const bool isForward = problem_.operation == Operation::Forward;
    auto* const saved = problem_.hasSavedStatistics
                            ? reinterpret_cast<double*>(operands.saved + static_cast<std::size_t>(image) *
                                                                             problem_.savedBytesPerImage())
                            : nullptr;
    if (isForward || saved == nullptr) {
      computeMoments(stream, operands, image, arrays, numbers);
      finishStatistics(numbers);
    } else {
      loadStatistics(saved, numbers);
    }
    if (isForward && saved != nullptr) saveStatistics(numbers, saved);
    HWY_DYNAMIC_DISPATCH(nearMeans)(numbers, numbers.rows[0]);
    if (isForward) return normalize(stream, operands, image, numbers);
    sumGradients(stream, operands, image, arrays, numbers);
    finishSums(operands, image, numbers);
    if (problem_.computesData) differentiate(stream, operands, image, numbers, goesOn);
  }

  /// The sums of all chunks, joined in their order: sum(chunk, sums) adds those of one.
  /// @param arrays by value: the chunks' sums are gone afterwards
  template <class Sum>
  void sumChunks(const mtl::cpu::Stream* stream, Arrays arrays, const ImageNumbers& numbers,
                 Sum&& sum) const {
    const auto length = static_cast<std::size_t>(layout_.rowLength());
    clear({numbers.first, numbers.second});
    const auto join = [&](const ChunkSums& sums) {
      HWY_DYNAMIC_DISPATCH(addImageSums)(length, sums.first, numbers.first);
      HWY_DYNAMIC_DISPATCH(addImageSums)(length, sums.second, numbers.second);
    };
    if (stream == nullptr) {
      const ChunkSums sums = chunkSums(arrays);
      for (std::int64_t chunk = 0; chunk < layout_.chunks; ++chunk) {
        clear(sums);
        sum(chunk, sums);
        join(sums);
      }
      return;
    }
    // As many as ChannelLayout makes at most, or a few more where tiles are large.
    const std::size_t each = bytesOfChunkSums();
    std::byte* first = reinterpret_cast<std::byte*>(arrays.take<double>(0));
    const auto sumsOf = [&](std::int64_t chunk) {
      Arrays own(first + static_cast<std::size_t>(chunk) * each);
      return chunkSums(own);
    };
    stream->parallelFor(layout_.chunks, layout_.grain(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t chunk = begin; chunk < end; ++chunk) {
        const ChunkSums sums = sumsOf(chunk);
        clear(sums);
        sum(chunk, sums);
      }
    });
    for (std::int64_t chunk = 0; chunk < layout_.chunks; ++chunk) join(sumsOf(chunk));
  }

  /// Mean and M2 of each channel. The first pixel is subtracted from all, so that a large mean destroys nothing.
  void computeMoments(const mtl::cpu::Stream* stream, const Operands& operands, std::int64_t image,
                      const Arrays& arrays, const ImageNumbers& numbers) const {
    const bool shiftsLater = shiftsSums(problem_.source);
    loadShifts(layout_, problem_.source, operands.source, 0, numbers.shifts, origin(image));
    sumChunks(stream, arrays, numbers, [&](std::int64_t chunk, const ChunkSums& sums) {
      layout_.forTiles(
          chunk,
          [&](const Tile& tile) {
            alignas(64) float buffer[Tiling::capacity];
            HWY_DYNAMIC_DISPATCH(sumMoments)
            (layout_.rowsOf(tile), loadRun(problem_.source, operands.source, tile, buffer),
             shiftsLater ? nullptr : numbers.shifts + tile.firstChannel, sums.first + tile.firstChannel,
             sums.second + tile.firstChannel);
          },
          origin(image));
    });
    HWY_DYNAMIC_DISPATCH(momentsFromSums)
    (layout_, numbers.shifts, numbers.pixels, shiftsLater, {numbers.first, numbers.second});
  }

  /// From moments of the channels to mean and r of their groups.
  void finishStatistics(const ImageNumbers& numbers) const {
    const std::int64_t each = problem_.groupChannels();
    if (each == 1) {
      std::copy_n(numbers.first, layout_.channels, numbers.mean);
      HWY_DYNAMIC_DISPATCH(inverseDeviations)(numbers, problem_.epsilon);
      return;
    }
    for (std::int64_t first = 0; first < layout_.channels; first += each) {
      const double* means = numbers.first + first;
      const double* squares = numbers.second + first;
      double sum = 0;
      for (std::int64_t i = 0; i < each; ++i) sum += means[i] - means[0];
      const double mean = means[0] + sum / static_cast<double>(each);
      sum = 0;
      for (std::int64_t i = 0; i < each; ++i)
        sum += squares[i] + numbers.pixels * (means[i] - mean) * (means[i] - mean);
      const double variance = sum / (numbers.pixels * static_cast<double>(each));
      const double r = 1 / std::sqrt((variance < 0 ? 0 : variance) + static_cast<double>(problem_.epsilon));
      std::fill_n(numbers.mean + first, each, mean);
      std::fill_n(numbers.r + first, each, r);
    }
  }
  void saveStatistics(const ImageNumbers& numbers, double* saved) const {
    const std::int64_t each = problem_.groupChannels();
    for (std::int64_t group = 0; group < problem_.groups; ++group) {
      saved[group] = numbers.mean[group * each];
      saved[problem_.groups + group] = numbers.r[group * each];
    }
  }
  void loadStatistics(const double* saved, const ImageNumbers& numbers) const {
    const std::int64_t each = problem_.groupChannels();
    for (std::int64_t group = 0; group < problem_.groups; ++group) {
      std::fill_n(numbers.mean + group * each, each, saved[group]);
      std::fill_n(numbers.r + group * each, each, saved[problem_.groups + group]);
    }
  }

  void normalize(const mtl::cpu::Stream* stream, const Operands& operands, std::int64_t image,
                 const ImageNumbers& numbers) const {
    HWY_DYNAMIC_DISPATCH(imageLines)
    (numbers, reinterpret_cast<const float*>(operands.parameters[0]),
     reinterpret_cast<const float*>(operands.parameters[1]), numbers.rows[0], numbers.rows[1],
     numbers.rows[2]);
    repeatRows(numbers, 3);
    forEachTile(stream, image, [&](const Tile& tile) {
      alignas(64) float buffer[Tiling::capacity];
      alignas(64) float targetBuffer[Tiling::capacity];
      const std::int64_t c = tile.firstChannel;
      const FloatRun target = runTarget(problem_.destination, operands.destination, tile, targetBuffer);
      HWY_DYNAMIC_DISPATCH(normalizeRows)
      (layout_.rowsOf(tile), loadRun(problem_.source, operands.source, tile, buffer),
       {numbers.rows[0] + c, numbers.rows[1] + c, numbers.rows[2] + c}, true, target);
      storeTile(problem_.destination, operands.destination, tile, target);
    });
  }

  /// B, and the sums of dy times the distance from the float32 number next to the mean.
  void sumGradients(const mtl::cpu::Stream* stream, const Operands& operands, std::int64_t image,
                    const Arrays& arrays, const ImageNumbers& numbers) const {
    const bool shiftsLater = shiftsSums(problem_.source);
    repeatRows(numbers, 1);
    sumChunks(stream, arrays, numbers, [&](std::int64_t chunk, const ChunkSums& sums) {
      layout_.forTiles(
          chunk,
          [&](const Tile& tile) {
            alignas(64) float sourceBuffer[Tiling::capacity];
            alignas(64) float gradientBuffer[Tiling::capacity];
            const std::int64_t c = tile.firstChannel;
            HWY_DYNAMIC_DISPATCH(addImageGradientSums)
            (layout_.rowsOf(tile), loadRun(problem_.gradient, operands.gradient, tile, gradientBuffer),
             loadRun(problem_.source, operands.source, tile, sourceBuffer),
             shiftsLater ? nullptr : numbers.rows[0] + c, sums.first + c, sums.second + c);
          },
          origin(image));
    });
    layout_.fold(numbers.first);
    layout_.fold(numbers.second);
    if (shiftsLater) HWY_DYNAMIC_DISPATCH(subtractMeans)
    (numbers.channels, numbers.rows[0], numbers.first, numbers.second);
  }

  /// G, and what leaves the plan.
  void finishSums(const Operands& operands, std::int64_t image, const ImageNumbers& numbers) const {
    HWY_DYNAMIC_DISPATCH(weighGradientSums)
    (numbers, reinterpret_cast<const float*>(operands.parameters[0]), numbers.rows[0]);
    if (problem_.sumsImages) {
      double* kept = imageSums(operands, image);
      std::copy_n(numbers.second, layout_.channels, kept);
      std::copy_n(numbers.first, layout_.channels, kept + layout_.channels);
      return;
    }
    for (std::int64_t c = 0; c < layout_.channels; ++c) {
      written(operands, 2)[image * layout_.channels + c] = static_cast<float>(numbers.second[c]);
      written(operands, 3)[image * layout_.channels + c] = static_cast<float>(numbers.first[c]);
    }
  }

  void differentiate(const mtl::cpu::Stream* stream, const Operands& operands, std::int64_t image,
                     const ImageNumbers& numbers, bool goesOn) const {
    const std::int64_t each = problem_.groupChannels();
    if (each > 1)
      for (std::int64_t first = 0; first < layout_.channels; first += each)
        for (double* weighted : {numbers.weighted + first, numbers.weightedBy + first})
          std::fill_n(weighted, each, std::accumulate(weighted, weighted + each, 0.0));
    std::copy_n(reinterpret_cast<const float*>(operands.parameters[0]), layout_.channels, numbers.rows[1]);
    HWY_DYNAMIC_DISPATCH(imageGradientLines)
    (numbers, numbers.pixels * static_cast<double>(each), numbers.rows[0], numbers.rows[2], numbers.rows[3],
     numbers.rows[4]);
    repeatRows(numbers, 5);
    const bool asksAhead = goesOn && asksForNextImage();
    forEachTile(stream, image, [&](const Tile& tile) {
      alignas(64) float sourceBuffer[Tiling::capacity];
      alignas(64) float gradientBuffer[Tiling::capacity];
      alignas(64) float targetBuffer[Tiling::capacity];
      const std::int64_t c = tile.firstChannel;
      const FloatRun target =
          runTarget(problem_.destination, operands.destination, tile, targetBuffer, operands.accumulate);
      const ConstFloatRun dy = loadRun(problem_.gradient, operands.gradient, tile, gradientBuffer);
      const ConstFloatRun x = loadRun(problem_.source, operands.source, tile, sourceBuffer);
      const ImageGradientNumbers own{numbers.rows[0] + c, numbers.rows[1] + c, numbers.rows[2] + c,
                                     numbers.rows[3] + c, numbers.rows[4] + c};
      const ChannelRows rows = layout_.rowsOf(tile);
      if (asksAhead) {
        const TileInputs later = ofNextImage(operands, tile);
        HWY_DYNAMIC_DISPATCH(imageGradientRowsAhead)(rows, dy, x, later, own, target);
      } else {
        HWY_DYNAMIC_DISPATCH(imageGradientRows)(rows, dy, x, own, target);
      }
      storeTile(problem_.destination, operands.destination, tile, target, operands.accumulate);
    });
  }

  /// Whether it pays to ask for the next image: of short pixels, whose sums come sooner than the processor reads ahead, if
  /// a core's cache holds two images, and all lies in memory as it is computed with.
  [[nodiscard]] bool asksForNextImage() const {
    constexpr std::int64_t smallImage = std::int64_t{160} << 10U;  // bytes of one tensor
    const auto isRead = [](const TensorShape& shape) {
      return shape.isDense() && shape.format == ImageFeatureChannelFormat::Float32;
    };
    const std::int64_t bytes = layout_.pixels * layout_.channels * std::int64_t{sizeof(float)};
    return layout_.pixelsPerRow > 1 && bytes <= smallImage && isRead(problem_.gradient) &&
           isRead(problem_.source);
  }
  /// The same tile one image further. @pre asksForNextImage()
  [[nodiscard]] TileInputs ofNextImage(const Operands& operands, Tile tile) const {
    tile.firstPixel += layout_.pixels;
    return {loadRun(problem_.gradient, operands.gradient, tile, nullptr),
            loadRun(problem_.source, operands.source, tile, nullptr)};
  }

  /// Of sumsImages: image after image.
  void sumImages(const Operands& operands) const {
    for (std::int64_t c = 0; c < layout_.channels; ++c) {
      double gamma = 0;
      double beta = 0;
      for (std::int64_t image = 0; image < problem_.source.images; ++image) {
        gamma += imageSums(operands, image)[c];
        beta += imageSums(operands, image)[layout_.channels + c];
      }
      written(operands, 2)[c] = static_cast<float>(gamma);
      written(operands, 3)[c] = static_cast<float>(beta);
    }
  }

  /// From the last chunk of each thread to its first: what the sums have read last is still in a cache.
  template <class Body>
  void forEachTile(const mtl::cpu::Stream* stream, std::int64_t image, Body&& body) const {
    if (stream == nullptr) {
      for (std::int64_t chunk = layout_.chunks; chunk-- > 0;) layout_.forTiles(chunk, body, origin(image));
      return;
    }
    stream->parallelFor(layout_.chunks, layout_.grain(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t chunk = end; chunk-- > begin;) layout_.forTiles(chunk, body, origin(image));
      finishNonTemporalStores();
    });
  }

  void repeatRows(const ImageNumbers& numbers, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) layout_.repeat(numbers.rows[i]);
  }

  ChunkSums chunkSums(Arrays& arrays) const {
    return {arrays.take<double>(layout_.roomyRow()), arrays.take<double>(layout_.roomyRow())};
  }
  void clear(const ChunkSums& sums) const {
    std::fill_n(sums.first, layout_.roomyRow(), 0.0);
    std::fill_n(sums.second, layout_.roomyRow(), 0.0);
  }
  [[nodiscard]] std::size_t bytesOfChunkSums() const {
    Arrays counted(nullptr);
    chunkSums(counted);
    return counted.bytes();
  }
  [[nodiscard]] std::size_t workspaceBytes(std::int64_t chunks) const {
    Arrays counted(nullptr);
    const ImageNumbers numbers(counted, layout_);
    return counted.bytes() + static_cast<std::size_t>(chunks) * bytesOfChunkSums();
  }
  /// In front of the workspaces: G and B of every image, where they are summed.
  [[nodiscard]] std::size_t sumsBytes() const {
    if (!problem_.sumsImages) return 0;
    Arrays counted(nullptr);
    counted.take<double>(2 * problem_.source.images * layout_.channels);
    return counted.bytes();
  }
  [[nodiscard]] double* imageSums(const Operands& operands, std::int64_t image) const {
    return reinterpret_cast<double*>(operands.scratch) + 2 * image * layout_.channels;
  }
  static float* written(const Operands& operands, std::size_t parameter) {
    return reinterpret_cast<float*>(operands.parameters[parameter]);
  }
  [[nodiscard]] std::int64_t origin(std::int64_t image) const { return image * layout_.pixels; }

  InstanceNormalizationProblem problem_;
  ChannelLayout layout_;  ///< of one image
  std::int64_t workers_;
};

Preparation prepareChunks(const InstanceNormalizationProblem& problem) {
  return std::make_shared<const ImagesPlan>(problem);
}

constexpr std::array<Implementation<InstanceNormalizationProblem>, 1> kImplementations{
    {{"chunks of pixels", prepareChunks}}};

}  // namespace

std::string InstanceNormalizationProblem::describe() const {
  const bool isForward = operation == Operation::Forward;
  TextStream text;
  if (groups == source.channels)
    text << "instance normalization " << (isForward ? "forward" : "gradient");
  else
    text << "group normalization " << (isForward ? "forward" : "gradient") << ", " << groups << " groups";
  text << ", epsilon " << epsilon;
  if (hasSavedStatistics) text << (isForward ? ", saves statistics" : ", saved statistics");
  if (sumsImages) text << ", sums over images";
  text << ", " << source.describe();
  if (!isForward) text << ", gradient " << gradient.describe();
  if (computesData) text << " -> " << destination.describe();
  return text.str();
}

std::span<const Implementation<InstanceNormalizationProblem>> instanceNormalizationImplementationsCpu() {
  return kImplementations;
}

}  // namespace mps::detail

#endif  // HWY_ONCE
