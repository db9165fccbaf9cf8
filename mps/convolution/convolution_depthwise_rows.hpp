#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mps/core/window_geometry.hpp"

/// Depth-wise convolution and its gradients, row by row, by vectors of channels.
namespace mps::detail {

/// begin ... end - 1.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
};

/// Tap `tap` of position i reads the input's pixel shift + inputStep * i.
struct GatherTap {
  std::int64_t tap;
  std::int64_t shift;
};

/// Positions that read inside the input with the same taps.
struct GatherRun {
  Range positions;
  std::vector<GatherTap> taps;
};

/// The results first + resultStep * i for all positions i.
struct GatherPhase {
  std::int64_t first;
  std::vector<GatherTap> taps;  ///< in the order of their shifts
  std::vector<GatherRun> runs;
};

/// How each result of an axis gathers its sum. A convolution has one phase; its data gradient has one for
/// each remainder of a pixel's coordinate modulo the stride.
struct GatherAxis {
  std::int64_t size = 0;
  std::int64_t inputSize = 0;
  std::int64_t inputStep = 1;
  std::int64_t resultStep = 1;
  std::vector<GatherPhase> phases = {};
};

/// A row of the input that is read with a row of the kernel's taps.
struct InputRow {
  std::int64_t tap;
  const float* values;
};

/// One tap, from the first of several neighbouring positions on; or three taps, whose inputs are neighbours.
struct TapValues {
  const float* input;
  const float* weights;
  std::int64_t nextWeights;  ///< distance to the second tap's
};

/// Memory that the next row will read: it is brought to the caches bit by bit while this row is computed.
struct Ahead {
  const std::byte* memory = nullptr;
  std::int64_t bytes = 0;
};

/// A row of results. Distances are in elements.
struct ResultRow {
  const float* weights;  ///< [kH][kW][channels]
  const float* bias;     ///< [channels]
  std::byte* values;     ///< float32 or float16
  bool isFloat16;
  std::int64_t channels;
  std::int64_t kernelWidth;
  std::int64_t inputPixel;
  std::int64_t resultPixel;
  TapValues* taps;  ///< working memory, [kH kW]
  Ahead ahead;
  bool writesPastCaches;  ///< only where vectors are aligned
};

/// A row of windows. Distances are in elements.
struct WindowRow {
  const float* gradient;
  float* weightSums;  ///< [kH][kW][channels]
  float* biasSums;    ///< [channels] or null
  std::int64_t channels;
  std::int64_t sourcePixel;
  std::int64_t gradientPixel;
  Ahead sourceAhead;
  Ahead gradientAhead;
};

/// Computes a row of results; the other axis has chosen which rows of the input, and of the kernel, count.
void gatherRow(const GatherAxis& axis, std::span<const InputRow> inputRows, const ResultRow& row);

/// Adds what a row of windows gives to the gradients.
/// @param insideOfTap for each column of the kernel, the windows whose tap lies in the source
void addParameterGradients(const WindowAxis& axis, std::span<const Range> insideOfTap,
                           std::span<const InputRow> inputRows, const WindowRow& row);

}  // namespace mps::detail
