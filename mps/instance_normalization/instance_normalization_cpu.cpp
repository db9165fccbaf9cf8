#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <sstream>
#include <string>
#include <type_traits>

#include "mps/core/channel_layout.hpp"
#include "mps/core/highway_targets.hpp"
#include "mps/core/tile_io.hpp"
#include "mps/instance_normalization/instance_normalization_problem.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/instance_normalization/instance_normalization_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mps/core/channel_rows-inl.hpp"
#include "mps/core/half_runs-inl.hpp"

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

}  // namespace mps::detail
#endif

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {

/// y = (x - mean) scale + shift. y may be x.
void normalizeImageRows(const ChannelRows& rows, ConstFloatRun x, const ChannelLine& line, FloatRun y) {
  const hn::ScalableTag<float> d;
  const auto normalize = [&](auto areHalf) HWY_ATTR __attribute__((always_inline)) {
    const ConstFloatRun from = known<areHalf>(x);
    const FloatRun to = known<areHalf>(y);
    const ChannelLine own = line;  // stores could change `line`
    forRowVectors(
        d, rows, [&](std::size_t at, std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          lanes.store(d, onLine(d, lanes, lanes.load(d, from + at), own, i), to + at);
        });
  };
  x.isHalf&& y.isHalf ? normalize(std::true_type()) : normalize(std::false_type());
}

void addImageGradientSums(const ChannelRows& rows, ConstFloatRun dy, ConstFloatRun x, const float* means,
                          double* sums, double* products) {
  const auto itself = [](auto /*d*/, auto /*lanes*/, auto /*x*/, auto gradient, std::size_t /*i*/) HWY_ATTR
      __attribute__((always_inline)) {
    return gradient;
  };
  addGradientProducts(rows, dy, x, means, itself, sums, products);
}

/// dx = r (gamma dy - 1/m sum e - (x - mean) factor). dx may be dy or x. Where m is 1 that is 0.
void imageGradientRows(const ChannelRows& rows, ConstFloatRun dy, ConstFloatRun x,
                       const ImageGradientNumbers& numbers, FloatRun dx) {
  const hn::ScalableTag<float> d;
  const auto differentiate = [&](auto areHalf) HWY_ATTR __attribute__((always_inline)) {
    const ConstFloatRun source = known<areHalf>(x);
    const ConstFloatRun gradient = known<areHalf>(dy);
    const FloatRun to = known<areHalf>(dx);
    const ImageGradientNumbers own = numbers;  // stores could change `numbers`
    forRowVectors(
        d, rows, [&](std::size_t at, std::size_t i, auto lanes) HWY_ATTR __attribute__((always_inline)) {
          const auto difference = hn::Sub(lanes.load(d, source + at), lanes.load(d, own.mean + i));
          const auto scaled = hn::Mul(lanes.load(d, gradient + at), lanes.load(d, own.gamma + i));
          const auto centred = hn::Sub(scaled, lanes.load(d, own.meanGradient + i));
          const auto sum = hn::NegMulAdd(difference, lanes.load(d, own.factor + i), centred);
          lanes.store(d, hn::Mul(sum, lanes.load(d, own.inverseDeviation + i)), to + at);
        });
  };
  const bool areHalf = x.isHalf && dy.isHalf && dx.isHalf;
  areHalf ? differentiate(std::true_type()) : differentiate(std::false_type());
}

}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {

HWY_EXPORT(addMoments);
HWY_EXPORT(normalizeImageRows);
HWY_EXPORT(addImageGradientSums);
HWY_EXPORT(imageGradientRows);

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
  float* shifts;
};

/// What is computed of one image at a time.
struct ImageNumbers {
  static constexpr std::size_t rowCount = 5;
  double* first;                        ///< of each channel: mean, then B
  double* second;                       ///< M2, then G
  double* statistics;                   ///< means of the groups, then their r
  std::array<float*, rowCount> rows{};  ///< along rows

  ImageNumbers(Arrays& arrays, const ChannelLayout& layout, std::int64_t groups)
      : first(arrays.take<double>(layout.channels)),
        second(arrays.take<double>(layout.channels)),
        statistics(arrays.take<double>(2 * groups)) {
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

  [[nodiscard]] bool takesImagesTogether(int threads) const {
    constexpr std::int64_t fewImagesPerThread = 4;               // with fewer, threads wait for the last one
    constexpr std::int64_t largeImage = std::int64_t{1} << 21U;  // bytes: no longer in a cache of one core
    if (layout_.chunks <= 1 || threads == 1) return true;
    const std::int64_t bytes = problem_.source.bytes() / std::max<std::int64_t>(1, problem_.source.images);
    return problem_.source.images >= fewImagesPerThread * threads && bytes <= largeImage;
  }

  void runTogether(const mtl::cpu::Stream& cpu, const Operands& operands) const {
    const std::int64_t images = problem_.source.images;
    const std::int64_t elements = problem_.source.elements() / std::max<std::int64_t>(1, workers_);
    const std::int64_t grain = Tiling::grain * Tiling::capacity / std::max<std::int64_t>(1, elements);
    cpu.parallelFor(workers_, std::max<std::int64_t>(1, grain), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t worker = begin; worker < end; ++worker) {
        std::byte* workspace =
            operands.scratch + sumsBytes() + static_cast<std::size_t>(worker) * workspaceBytes(1);
        for (std::int64_t image = worker * images / workers_; image < (worker + 1) * images / workers_;
             ++image)
          runImage(nullptr, operands, image, workspace);
      }
      finishStreaming();
    });
  }

  /// @param stream null: this thread alone
  void runImage(const mtl::cpu::Stream* stream, const Operands& operands, std::int64_t image,
                std::byte* workspace) const {
    Arrays arrays(workspace);
    ImageNumbers numbers(arrays, layout_, problem_.groups);
    const bool hasSaved = problem_.hasSavedStatistics;
    if (hasSaved)
      numbers.statistics = reinterpret_cast<double*>(operands.saved + static_cast<std::size_t>(image) *
                                                                          problem_.savedBytesPerImage());
    if (problem_.operation == Operation::Forward || !hasSaved) {
      computeMoments(stream, operands, image, arrays, numbers);
      finishStatistics(numbers);
    }
    if (problem_.operation == Operation::Forward) return normalize(stream, operands, image, numbers);
    sumGradients(stream, operands, image, arrays, numbers);
    finishSums(operands, image, numbers);
    if (problem_.computesData) differentiate(stream, operands, image, numbers);
  }

  /// Calls sum(chunk, sums) for all chunks and join(chunk, sums) in their order.
  /// @param arrays by value: the sums are gone afterwards
  template <class Sum, class Join>
  void sumChunks(const mtl::cpu::Stream* stream, Arrays arrays, Sum&& sum, Join&& join) const {
    if (stream == nullptr) {
      const ChunkSums sums = chunkSums(arrays);
      for (std::int64_t chunk = 0; chunk < layout_.chunks; ++chunk) {
        clear(sums);
        sum(chunk, sums);
        join(chunk, sums);
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
    for (std::int64_t chunk = 0; chunk < layout_.chunks; ++chunk) join(chunk, sumsOf(chunk));
  }

  void computeMoments(const mtl::cpu::Stream* stream, const Operands& operands, std::int64_t image,
                      const Arrays& arrays, const ImageNumbers& numbers) const {
    double count = 0;
    sumChunks(
        stream, arrays,
        [&](std::int64_t chunk, const ChunkSums& sums) {
          const bool shiftsLater = shiftsSums(problem_.source);
          loadShifts(layout_, problem_.source, operands.source, chunk, sums.shifts, origin(image));
          layout_.forTiles(
              chunk,
              [&](const Tile& tile) {
                alignas(64) float buffer[Tiling::capacity];
                HWY_DYNAMIC_DISPATCH(addMoments)
                (layout_.rowsOf(tile), loadRun(problem_.source, operands.source, tile, buffer),
                 shiftsLater ? nullptr : sums.shifts + tile.firstChannel, sums.first + tile.firstChannel,
                 sums.second + tile.firstChannel);
              },
              origin(image));
          momentsFromSums(layout_, sums.shifts, pixelsOf(chunk), shiftsLater, {sums.first, sums.second});
        },
        [&](std::int64_t chunk, const ChunkSums& sums) {
          joinMoments(layout_.channels, count, {numbers.first, numbers.second}, pixelsOf(chunk),
                      {sums.first, sums.second});
          count += pixelsOf(chunk);
        });
  }

  /// From moments of the channels to mean and r of the groups.
  void finishStatistics(const ImageNumbers& numbers) const {
    const std::int64_t each = problem_.groupChannels();
    const auto pixels = static_cast<double>(layout_.pixels);
    for (std::int64_t group = 0; group < problem_.groups; ++group) {
      const double* means = numbers.first + group * each;
      const double* squares = numbers.second + group * each;
      double mean = means[0];
      if (each > 1) {
        double sum = 0;
        for (std::int64_t i = 0; i < each; ++i) sum += means[i] - mean;
        mean += sum / static_cast<double>(each);
      }
      double sum = 0;
      for (std::int64_t i = 0; i < each; ++i)
        sum += squares[i] + pixels * (means[i] - mean) * (means[i] - mean);
      const double variance = sum / (pixels * static_cast<double>(each));
      numbers.statistics[group] = mean;
      numbers.statistics[problem_.groups + group] =
          1 / std::sqrt((variance < 0 ? 0 : variance) + static_cast<double>(problem_.epsilon));
    }
  }

  void normalize(const mtl::cpu::Stream* stream, const Operands& operands, std::int64_t image,
                 const ImageNumbers& numbers) const {
    const auto* gamma = reinterpret_cast<const float*>(operands.parameters[0]);
    const auto* beta = reinterpret_cast<const float*>(operands.parameters[1]);
    for (std::int64_t c = 0; c < layout_.channels; ++c) {
      const GroupStatistics group = statisticsOf(numbers, c);
      numbers.rows[0][c] = group.nearMean;
      numbers.rows[1][c] = static_cast<float>(static_cast<double>(gamma[c]) * group.r);
      numbers.rows[2][c] = static_cast<float>(static_cast<double>(beta[c]) -
                                              group.restOfMean * static_cast<double>(numbers.rows[1][c]));
    }
    repeatRows(numbers, 3);
    forEachTile(stream, image, [&](const Tile& tile) {
      alignas(64) float buffer[Tiling::capacity];
      alignas(64) float targetBuffer[Tiling::capacity];
      const std::int64_t c = tile.firstChannel;
      const FloatRun target = runTarget(problem_.destination, operands.destination, tile, targetBuffer);
      HWY_DYNAMIC_DISPATCH(normalizeImageRows)
      (layout_.rowsOf(tile), loadRun(problem_.source, operands.source, tile, buffer),
       {numbers.rows[0] + c, numbers.rows[1] + c, numbers.rows[2] + c}, target);
      storeTile(problem_.destination, operands.destination, tile, target);
    });
  }

  /// B, and the sums of dy times the distance from the mean.
  void sumGradients(const mtl::cpu::Stream* stream, const Operands& operands, std::int64_t image,
                    const Arrays& arrays, const ImageNumbers& numbers) const {
    for (std::int64_t c = 0; c < layout_.channels; ++c)
      numbers.rows[0][c] = statisticsOf(numbers, c).nearMean;
    repeatRows(numbers, 1);
    std::fill_n(numbers.first, layout_.channels, 0.0);
    std::fill_n(numbers.second, layout_.channels, 0.0);
    const bool shiftsLater = shiftsSums(problem_.source);
    sumChunks(
        stream, arrays,
        [&](std::int64_t chunk, const ChunkSums& sums) {
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
          layout_.fold(sums.first);
          layout_.fold(sums.second);
          if (shiftsLater) subtractMeans(layout_.channels, numbers.rows[0], sums.first, sums.second);
        },
        [&](std::int64_t /*chunk*/, const ChunkSums& sums) {
          for (std::int64_t c = 0; c < layout_.channels; ++c) {
            numbers.first[c] += sums.first[c];
            numbers.second[c] += sums.second[c];
          }
        });
  }

  /// G, and what leaves the plan.
  void finishSums(const Operands& operands, std::int64_t image, const ImageNumbers& numbers) const {
    for (std::int64_t c = 0; c < layout_.channels; ++c) {
      const GroupStatistics group = statisticsOf(numbers, c);
      numbers.second[c] = group.r * (numbers.second[c] - group.restOfMean * numbers.first[c]);
    }
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
                     const ImageNumbers& numbers) const {
    const auto* gamma = reinterpret_cast<const float*>(operands.parameters[0]);
    const std::int64_t each = problem_.groupChannels();
    const double count = static_cast<double>(layout_.pixels) * static_cast<double>(each);
    for (std::int64_t group = 0; group < problem_.groups; ++group) {
      const GroupStatistics own = statisticsOf(numbers, group * each);
      double sum = 0;
      double product = 0;
      for (std::int64_t c = group * each; c < (group + 1) * each; ++c) {
        sum += static_cast<double>(gamma[c]) * numbers.first[c];
        product += static_cast<double>(gamma[c]) * numbers.second[c];
      }
      const auto factor = static_cast<float>(own.r * (product / count));
      const auto meanGradient =
          static_cast<float>(sum / count - own.restOfMean * static_cast<double>(factor));
      for (std::int64_t c = group * each; c < (group + 1) * each; ++c) {
        numbers.rows[0][c] = own.nearMean;
        numbers.rows[1][c] = gamma[c];
        numbers.rows[2][c] = meanGradient;
        numbers.rows[3][c] = factor;
        numbers.rows[4][c] = static_cast<float>(own.r);
      }
    }
    repeatRows(numbers, 5);
    forEachTile(stream, image, [&](const Tile& tile) {
      alignas(64) float sourceBuffer[Tiling::capacity];
      alignas(64) float gradientBuffer[Tiling::capacity];
      alignas(64) float targetBuffer[Tiling::capacity];
      const std::int64_t c = tile.firstChannel;
      const FloatRun target =
          runTarget(problem_.destination, operands.destination, tile, targetBuffer, operands.accumulate);
      HWY_DYNAMIC_DISPATCH(imageGradientRows)
      (layout_.rowsOf(tile), loadRun(problem_.gradient, operands.gradient, tile, gradientBuffer),
       loadRun(problem_.source, operands.source, tile, sourceBuffer),
       {numbers.rows[0] + c, numbers.rows[1] + c, numbers.rows[2] + c, numbers.rows[3] + c,
        numbers.rows[4] + c},
       target);
      storeTile(problem_.destination, operands.destination, tile, target, operands.accumulate);
    });
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

  template <class Body>
  void forEachTile(const mtl::cpu::Stream* stream, std::int64_t image, Body&& body) const {
    if (stream == nullptr) {
      for (std::int64_t chunk = 0; chunk < layout_.chunks; ++chunk)
        layout_.forTiles(chunk, body, origin(image));
      return;
    }
    stream->parallelFor(layout_.chunks, layout_.grain(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t chunk = begin; chunk < end; ++chunk) layout_.forTiles(chunk, body, origin(image));
      finishStreaming();
    });
  }

  struct GroupStatistics {
    float nearMean;     ///< the float32 number next to the mean
    double restOfMean;  ///< what it lacks
    double r;
  };
  [[nodiscard]] GroupStatistics statisticsOf(const ImageNumbers& numbers, std::int64_t channel) const {
    const std::int64_t group = channel / problem_.groupChannels();
    const double mean = numbers.statistics[group];
    const auto near = static_cast<float>(mean);
    return {near, mean - static_cast<double>(near), numbers.statistics[problem_.groups + group]};
  }
  void repeatRows(const ImageNumbers& numbers, std::size_t count) const {
    for (std::size_t i = 0; i < count; ++i) layout_.repeat(numbers.rows[i]);
  }

  ChunkSums chunkSums(Arrays& arrays) const {
    return {arrays.take<double>(layout_.roomyRow()), arrays.take<double>(layout_.roomyRow()),
            arrays.take<float>(layout_.roomyRow())};
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
    const ImageNumbers numbers(counted, layout_, problem_.groups);
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
  [[nodiscard]] double pixelsOf(std::int64_t chunk) const {
    return static_cast<double>(layout_.pixelsOf(chunk));
  }

  InstanceNormalizationProblem problem_;
  ChannelLayout layout_;  ///< of one image
  std::int64_t workers_;
};

Preparation prepareImages(const InstanceNormalizationProblem& problem) {
  return std::make_shared<const ImagesPlan>(problem);
}

constexpr std::array<Implementation<InstanceNormalizationProblem>, 1> kImplementations{
    {{"images", prepareImages}}};

}  // namespace

std::string InstanceNormalizationProblem::describe() const {
  const bool isForward = operation == Operation::Forward;
  std::ostringstream text;
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
