#pragma once

#include <array>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "mps/normalization/normalization_problem.hpp"

/// The problems that tests and conform share.
namespace mps::detail {

/// How the tensors of a case lie in memory.
enum class NormalizationMemory : std::uint8_t {
  Dense,
  Strided,        ///< gaps between pixels, rows and images
  StridedRows,    ///< gaps between rows and images
  RepeatedImage,  ///< the inputs' images are all the same memory
};

/// One axis of windows of pixels.
struct NormalizationExtent {
  std::int64_t sourceSize = 1;
  std::int64_t kernelSize = 1;
  std::int64_t offset = 0;
  std::int64_t windows = 0;  ///< 0: sourceSize
  /// The part of the source that the destination of the gradient shows; by default all of it.
  std::int64_t viewOrigin = 0;
  std::int64_t viewSize = 0;

  [[nodiscard]] std::int64_t windowCount() const { return windows == 0 ? sourceSize : windows; }
  [[nodiscard]] std::int64_t viewCount() const { return viewSize == 0 ? sourceSize : viewSize; }
  [[nodiscard]] WindowAxis axis() const {
    return {.sourceSize = sourceSize,
            .destinationSize = windowCount(),
            .kernelSize = kernelSize,
            .offset = offset};
  }
};

struct NormalizationGeometry {
  std::string_view name;
  std::int64_t images = 1;
  NormalizationExtent y;  ///< of CrossChannel the sizes alone
  NormalizationExtent x;
  std::int64_t channels = 1;
  std::int64_t kernelSize = 1;  ///< CrossChannel only
  NormalizationMemory memory = NormalizationMemory::Dense;
  bool readsNothing = false;  ///< all windows lie outside, or the view does
};

/// Parameters of the formulas.
struct NormalizationSetting {
  std::string_view name;
  float alpha = 1;
  float beta = 0.75F;
  float delta = 1;
};

/// One formula on one geometry.
struct NormalizationCase {
  std::string name;
  NormalizationKind kind = NormalizationKind::CrossChannel;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
  NormalizationGeometry geometry;
  NormalizationSetting setting;

  [[nodiscard]] NormalizationProblem forward(ImageFeatureChannelFormat sourceFormat,
                                             ImageFeatureChannelFormat resultFormat) const {
    NormalizationProblem problem = common(NormalizationDirection::Forward, sourceFormat);
    problem.destination = tensor(geometry.y.windowCount(), geometry.x.windowCount(), resultFormat, true);
    return problem;
  }

  [[nodiscard]] NormalizationProblem gradient(ImageFeatureChannelFormat format,
                                              ImageFeatureChannelFormat destinationFormat) const {
    NormalizationProblem problem = common(NormalizationDirection::Gradient, format);
    problem.pm = 0;
    problem.gradient = tensor(geometry.y.windowCount(), geometry.x.windowCount(), format, false);
    problem.destination = tensor(geometry.y.viewCount(), geometry.x.viewCount(), destinationFormat, true);
    problem.destinationOriginX = geometry.x.viewOrigin;
    problem.destinationOriginY = geometry.y.viewOrigin;
    return problem;
  }

 private:
  [[nodiscard]] NormalizationProblem common(NormalizationDirection direction,
                                            ImageFeatureChannelFormat sourceFormat) const {
    NormalizationProblem problem;
    problem.kind = kind;
    problem.direction = direction;
    problem.edgeMode = edgeMode;
    problem.alpha = setting.alpha;
    problem.beta = setting.beta;
    problem.delta = setting.delta;
    if (kind == NormalizationKind::LocalContrast) {
      problem.p0 = 0.5F;
      problem.pm = 3;
      problem.ps = 2;
    }
    if (kind == NormalizationKind::CrossChannel) {
      problem.kernelSize = geometry.kernelSize;
    } else {
      problem.x = geometry.x.axis();
      problem.y = geometry.y.axis();
    }
    if (setting.beta < 0) problem.alpha *= static_cast<float>(problem.taps());
    problem.source = tensor(geometry.y.sourceSize, geometry.x.sourceSize, sourceFormat, false);
    return problem;
  }
  [[nodiscard]] TensorShape tensor(std::int64_t height, std::int64_t width, ImageFeatureChannelFormat format,
                                   bool isWritten) const {
    TensorShape shape = TensorShape::dense(geometry.images, height, width, geometry.channels, format);
    const bool hasGaps = geometry.memory == NormalizationMemory::Strided;
    if (hasGaps || geometry.memory == NormalizationMemory::StridedRows) {
      shape.pixelStride = geometry.channels + (hasGaps ? 3 : 0);
      shape.rowStride = width * shape.pixelStride + 5;
      shape.imageStride = height * shape.rowStride + 7;
    }
    if (geometry.memory == NormalizationMemory::RepeatedImage && !isWritten) shape.imageStride = 0;
    return shape;
  }
};

/// For GoogleTest's messages.
inline void PrintTo(const NormalizationCase& normalization, std::ostream* stream) {
  *stream << normalization.name;
}

/// Awkward on purpose; small enough for a float64 reference. An axis is {source size, kernel size, offset, windows,
/// view origin, view size}.
inline std::vector<NormalizationGeometry> pixelWindowGeometries() {
  using enum NormalizationMemory;
  // clang-format off
  return {
      {.name = "Kernel3", .images = 3, .y = {6, 3}, .x = {7, 3}, .channels = 16},
      {.name = "Kernel5", .images = 1, .y = {6, 5}, .x = {9, 5}, .channels = 64},
      {.name = "Kernel5Channels17", .images = 2, .y = {5, 5}, .x = {6, 5}, .channels = 17},
      {.name = "Kernel7", .images = 2, .y = {9, 7}, .x = {8, 6}, .channels = 8},
      {.name = "EvenKernel", .images = 2, .y = {6, 4}, .x = {7, 4}, .channels = 5},
      {.name = "Kernel2", .images = 3, .y = {5, 2}, .x = {6, 2}, .channels = 3},
      {.name = "RowKernel", .images = 2, .y = {6, 1}, .x = {7, 4}, .channels = 4},
      {.name = "ColumnKernel", .images = 1, .y = {7, 4}, .x = {5, 1}, .channels = 16},
      {.name = "OneTap", .images = 2, .y = {3, 1}, .x = {4, 1}, .channels = 16},
      {.name = "OneChannel", .images = 3, .y = {7, 3}, .x = {19, 3}, .channels = 1},
      {.name = "TwoChannels", .images = 1, .y = {5, 2}, .x = {9, 2}, .channels = 2},
      {.name = "ThreeChannels", .images = 2, .y = {6, 3}, .x = {9, 5}, .channels = 3},
      {.name = "FewChannelsKernel5", .images = 11, .y = {7, 5}, .x = {8, 5}, .channels = 3},
      {.name = "FewChannelsManyRows", .images = 2, .y = {41, 5}, .x = {12, 5}, .channels = 3},
      {.name = "Five", .images = 3, .y = {21, 5}, .x = {22, 5}, .channels = 32},
      {.name = "FiveOnePixel", .images = 2, .y = {1, 5}, .x = {1, 5}, .channels = 16},
      {.name = "FiveManyColumns", .images = 1, .y = {3, 5}, .x = {517, 5}, .channels = 16},
      {.name = "FiveManyChannels", .images = 1, .y = {3, 5}, .x = {40, 5}, .channels = 208},
      {.name = "StridedRows", .images = 2, .y = {5, 5}, .x = {8, 5}, .channels = 3, .memory = StridedRows},
      {.name = "Channels12", .images = 5, .y = {4, 3}, .x = {6, 3}, .channels = 12},
      {.name = "OnePixel", .images = 1, .y = {1, 3}, .x = {1, 3}, .channels = 4},
      {.name = "OneRow", .images = 2, .y = {1, 2}, .x = {8, 2}, .channels = 16},
      {.name = "KernelLargerThanImage", .images = 1, .y = {3, 7}, .x = {4, 10}, .channels = 5},
      {.name = "MoreThan256Taps", .images = 1, .y = {12, 17}, .x = {11, 16}, .channels = 2},
      {.name = "SeveralTiles", .images = 1, .y = {2, 2}, .x = {12, 2}, .channels = 400},
      {.name = "MoreChannelsThanATile", .images = 1, .y = {2, 1}, .x = {3, 2}, .channels = 1030},
      // Rows for more than one thread.
      {.name = "Threads17", .images = 2, .y = {19, 2}, .x = {23, 3}, .channels = 17},
      {.name = "Threads3", .images = 3, .y = {31, 3}, .x = {33, 2}, .channels = 3},
      {.name = "ThreadsNarrow", .images = 3, .y = {37, 5}, .x = {29, 5}, .channels = 3},
      {.name = "Threads32", .images = 2, .y = {37, 5}, .x = {13, 5}, .channels = 32},
      // Offsets of every sign, fewer and more windows than the source has pixels.
      {.name = "FewerWindows", .images = 2, .y = {7, 3, 1, 4}, .x = {8, 2, 2, 5}, .channels = 16},
      {.name = "MoreWindows", .images = 1, .y = {3, 4, -1, 6}, .x = {4, 4, -1, 7}, .channels = 5},
      {.name = "OffsetPositive", .images = 2, .y = {5, 2, 1}, .x = {6, 5, 2}, .channels = 4},
      {.name = "OffsetNegative", .images = 2, .y = {4, 5, -2}, .x = {5, 2, -1}, .channels = 16},
      {.name = "WindowsPartlyOutside", .images = 1, .y = {4, 2, -3, 9}, .x = {5, 2, 3, 6}, .channels = 3},
      {.name = "FarOutside", .images = 1, .y = {3, 2, -7}, .x = {3, 3, 9}, .channels = 4, .readsNothing = true},
      // What the gradient writes.
      {.name = "NarrowView", .images = 2, .y = {6, 3, 0, 0, 3, 2}, .x = {7, 4, 0, 0, 1, 4}, .channels = 3},
      {.name = "ViewBeyondSource", .images = 1, .y = {4, 2, 0, 0, 2, 5}, .x = {4, 2, 0, 0, 3, 4}, .channels = 17},
      {.name = "ViewOutsideSource", .images = 1, .y = {3, 2, 0, 0, 1, 3}, .x = {3, 2, 0, 0, 3, 3}, .channels = 4, .readsNothing = true},
      // Memory.
      {.name = "Strided", .images = 3, .y = {4, 3}, .x = {5, 2}, .channels = 5, .memory = Strided},
      {.name = "StridedWide", .images = 2, .y = {3, 2}, .x = {4, 2}, .channels = 40, .memory = Strided},
      {.name = "RepeatedImage", .images = 3, .y = {4, 3}, .x = {5, 3}, .channels = 16, .memory = RepeatedImage},
  };
  // clang-format on
}

inline std::vector<NormalizationGeometry> channelWindowGeometries() {
  using enum NormalizationMemory;
  // clang-format off
  return {
      {.name = "Window5", .images = 3, .y = {4}, .x = {5}, .channels = 16, .kernelSize = 5},
      {.name = "Window5Channels64", .images = 2, .y = {3}, .x = {4}, .channels = 64, .kernelSize = 5},
      {.name = "EvenWindow", .images = 1, .y = {3}, .x = {5}, .channels = 17, .kernelSize = 4},
      {.name = "Window2", .images = 1, .y = {5}, .x = {3}, .channels = 5, .kernelSize = 2},
      {.name = "WindowLargerThanThree", .images = 2, .y = {3}, .x = {5}, .channels = 3, .kernelSize = 5},
      {.name = "WindowOfAll", .images = 1, .y = {2}, .x = {3}, .channels = 12, .kernelSize = 50},
      {.name = "OneChannel", .images = 2, .y = {4}, .x = {9}, .channels = 1, .kernelSize = 3},
      {.name = "OwnChannel", .images = 1, .y = {2}, .x = {3}, .channels = 21, .kernelSize = 1},
      {.name = "Window9", .images = 1, .y = {3}, .x = {4}, .channels = 260, .kernelSize = 9},
      {.name = "Window7Channels12", .images = 2, .y = {19}, .x = {23}, .channels = 12, .kernelSize = 7},
      {.name = "Window6Channels48", .images = 2, .y = {7}, .x = {9}, .channels = 48, .kernelSize = 6},
      {.name = "LargestPixel", .images = 1, .y = {1}, .x = {3}, .channels = 2048, .kernelSize = 7},
      {.name = "MoreChannelsThanATile", .images = 1, .y = {1}, .x = {2}, .channels = 2100, .kernelSize = 5},
      {.name = "Threads17", .images = 2, .y = {19}, .x = {53}, .channels = 17, .kernelSize = 5},
      {.name = "Threads3", .images = 3, .y = {61}, .x = {63}, .channels = 3, .kernelSize = 2},
      {.name = "Strided", .images = 3, .y = {3}, .x = {4}, .channels = 5, .kernelSize = 3, .memory = Strided},
      {.name = "StridedWide", .images = 2, .y = {3}, .x = {3}, .channels = 40, .kernelSize = 4, .memory = Strided},
      {.name = "RepeatedImage", .images = 3, .y = {3}, .x = {4}, .channels = 16, .kernelSize = 5, .memory = RepeatedImage},
      {.name = "TwoChannels", .images = 2, .y = {3}, .x = {17}, .channels = 2, .kernelSize = 2},
      {.name = "FourChannelsStrided", .images = 2, .y = {5}, .x = {7}, .channels = 4, .kernelSize = 4, .memory = Strided},
  };
  // clang-format on
}

/// Every way of computing the power.
inline constexpr std::array<NormalizationSetting, 7> kNormalizationSettings{{
    {"ThreeQuarters", 1, 0.75F, 1},
    {"Half", 2, 0.5F, 0.5F},
    {"Five", 1, 5, 1},
    {"General", 0.75F, 1.3F, 2},
    {"OneAndAQuarter", 3, 1.25F, 0.75F},
    {"Large", 0.5F, 17, 1},
    {"NoPower", 1, 0, 1},
}};
/// T itself as the factor: integers stay integers. alpha is multiplied with the taps of the window.
inline constexpr NormalizationSetting kExactNormalization{"Exact", 1, -1, 2};

/// Exponents below one without roots, of which logarithms are taken: near 1 and far from it.
inline constexpr std::array<NormalizationSetting, 2> kLogarithmSettings{{
    {"SmallExponent", 0.75F, 0.7F, 2},
    {"SmallExponentFarFromOne", 1e-10F, 0.7F, 1e-11F},
}};

/// Of windows beyond an image that see a faint pixel of it the powers are infinite, of those of the image they are not.
/// Two columns behind the one row they see a single pixel, of which some are as faint as that.
inline constexpr NormalizationSetting kSteepNormalization{"Steep", 25, 7, 1e-6F};
inline constexpr NormalizationGeometry kOneRowOfFiveByFive{
    .name = "FiveOneRow", .images = 9, .y = {1, 5}, .x = {21, 5}, .channels = 96};

/// Every formula on every geometry in both edge modes: the exact setting, and one of the others in turn.
inline std::vector<NormalizationCase> normalizationCases() {
  using enum NormalizationKind;
  std::vector<NormalizationCase> cases;
  std::size_t turn = 0;
  constexpr std::array<const char*, 3> names{"Channels", "Spatial", "Contrast"};
  const auto add = [&](NormalizationKind kind, ImageEdgeMode edgeMode,
                       const NormalizationGeometry& geometry) {
    for (const NormalizationSetting& setting :
         {kExactNormalization, kNormalizationSettings[turn++ % kNormalizationSettings.size()]})
      cases.push_back({std::string(geometry.name) + names[static_cast<std::size_t>(kind)] +
                           (edgeMode == ImageEdgeMode::Clamp ? "Clamp" : "") + std::string(setting.name),
                       kind, edgeMode, geometry, setting});
  };
  for (const NormalizationGeometry& geometry : channelWindowGeometries())
    add(CrossChannel, ImageEdgeMode::Zero, geometry);
  for (const NormalizationKind kind : {Spatial, LocalContrast})
    for (const NormalizationGeometry& geometry : pixelWindowGeometries())
      for (const ImageEdgeMode edgeMode : {ImageEdgeMode::Zero, ImageEdgeMode::Clamp})
        add(kind, edgeMode, geometry);
  const auto addWith = [&](NormalizationKind kind, const NormalizationGeometry& geometry,
                           const NormalizationSetting& setting) {
    cases.push_back(
        {std::string(geometry.name) + names[static_cast<std::size_t>(kind)] + std::string(setting.name), kind,
         ImageEdgeMode::Zero, geometry, setting});
  };
  for (const NormalizationSetting& setting : kLogarithmSettings)
    addWith(CrossChannel, channelWindowGeometries()[1], setting);
  for (const NormalizationKind kind : {Spatial, LocalContrast})
    for (const NormalizationSetting& setting : kNormalizationSettings)
      addWith(kind, pixelWindowGeometries()[1], setting);
  for (const NormalizationKind kind : {Spatial, LocalContrast})
    addWith(kind, kOneRowOfFiveByFive, kSteepNormalization);
  return cases;
}

/// Rows that are whole cache lines, and several tiles of them.
inline NormalizationCase wholeLinesNormalizationCase(NormalizationKind kind) {
  return {"WholeLines",
          kind,
          ImageEdgeMode::Zero,
          {.name = "WholeLines", .images = 3, .y = {20, 2}, .x = {40, 2}, .channels = 128, .kernelSize = 2},
          kExactNormalization};
}

/// Whether integers give results without rounding.
inline bool isExact(const NormalizationProblem& problem) {
  if (problem.beta != -1) return false;
  // A mean of four is a multiple of a quarter.
  return problem.kind != NormalizationKind::LocalContrast || 4 % problem.taps() == 0;
}

}  // namespace mps::detail
