#include "mps/core/cpu/highway_targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mps/convolution/cpu/convolution_staging.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "mps/convolution/convolution_windows.hpp"
#include "mps/convolution/cpu/convolution_staging.hpp"
#include "mps/core/cpu/array_sum.hpp"
#include "mps/core/cpu/vector_io-inl.hpp"
#include "mps/core/cpu/vector_runs-inl.hpp"
#include "mps/core/neuron/neuron_span.hpp"

HWY_BEFORE_NAMESPACE();
namespace mps::detail::HWY_NAMESPACE {
namespace {

/// A dense row from the pixels `columns` of a tensor's row.
void loadRow(const TensorShape& tensor, const std::byte* row, const AxisMap& columns, float* to) {
  withElementType(tensor.format, [&](auto element) {
    using Element = decltype(element);
    const auto* from = reinterpret_cast<const Element*>(row);
    const auto channels = static_cast<std::size_t>(tensor.channels);
    for (const std::int64_t column : columns.coordinates()) {
      if (column == AxisMap::kZero)
        std::fill_n(to, channels, 0.0F);
      else
        convertToFloats(from + column * tensor.pixelStride, to, channels);
      to += channels;
    }
  });
}

/// A dense row from all pixels of a tensor's row.
void loadWholeRow(const TensorShape& tensor, const std::byte* row, float* to) {
  withElementType(tensor.format, [&](auto element) {
    using Element = decltype(element);
    const auto* from = reinterpret_cast<const Element*>(row);
    const bool isRun = tensor.pixelStride == tensor.channels;
    const auto count = static_cast<std::size_t>(isRun ? tensor.width * tensor.channels : tensor.channels);
    for (std::int64_t x = 0; x < (isRun ? 1 : tensor.width); ++x)
      convertToFloats(from + x * tensor.pixelStride, to + x * tensor.channels, count);
  });
}

/// A tensor's row from a dense one.
void storeRow(const TensorShape& tensor, const float* from, std::byte* row) {
  withElementType(tensor.format, [&](auto element) {
    using Element = decltype(element);
    auto* to = reinterpret_cast<Element*>(row);
    const auto channels = static_cast<std::size_t>(tensor.channels);
    if (tensor.pixelStride == tensor.channels) {
      convertFromFloats(from, to, static_cast<std::size_t>(tensor.width) * channels);
      return;
    }
    for (std::int64_t x = 0; x < tensor.width; ++x)
      convertFromFloats(from + x * tensor.channels, to + x * tensor.pixelStride, channels);
  });
}

}  // namespace
}  // namespace mps::detail::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace mps::detail {
namespace {

HWY_EXPORT(loadRow);
HWY_EXPORT(loadWholeRow);
HWY_EXPORT(storeRow);

/// Elements below which another thread does not pay.
constexpr std::int64_t kElementsPerRange = 16 * 1024;

std::int64_t grainFor(std::int64_t elementsPerItem) {
  return std::max<std::int64_t>(1, kElementsPerRange / std::max<std::int64_t>(1, elementsPerItem));
}

bool isDenseFloat(const TensorShape& tensor) {
  return tensor.format == ImageFeatureChannelFormat::Float32 && tensor.isDense();
}

/// Address of a row of the tensor; `row` counts through all images.
template <class Byte>
Byte* rowAddress(const TensorShape& tensor, Byte* memory, std::int64_t image, std::int64_t y) {
  return memory + tensor.offset(image, y, 0, 0) * static_cast<std::int64_t>(bytesPerChannel(tensor.format));
}

void addBias(const float* bias, std::int64_t channels, float* values, std::int64_t pixels) {
  for (std::int64_t i = 0; i < pixels; ++i) addArray(bias, channels, values + i * channels);
}

/// Adds a dense row to a float32 tensor's row.
void addRow(const TensorShape& tensor, const float* from, float* to) {
  if (tensor.pixelStride == tensor.channels) return addArray(from, tensor.width * tensor.channels, to);
  for (std::int64_t x = 0; x < tensor.width; ++x)
    addArray(from + x * tensor.channels, tensor.channels, to + x * tensor.pixelStride);
}

void applyNeuron(const TensorShape& tensor, const NNNeuronDescriptor& neuron, float* row) {
  if (neuron.neuronType() != CNNNeuronType::None)
    neuronValues(neuron, {tensor.width, tensor.channels, 0}, row, row);
}

}  // namespace

void loadImageRow(const TensorShape& tensor, const std::byte* memory, std::int64_t image, std::int64_t y,
                  float* to) {
  HWY_DYNAMIC_DISPATCH(loadWholeRow)(tensor, rowAddress(tensor, memory, image, y), to);
}

void storeImageRow(const TensorShape& tensor, const NNNeuronDescriptor& neuron, float* row, std::byte* memory,
                   std::int64_t image, std::int64_t y, bool accumulate) {
  applyNeuron(tensor, neuron, row);
  std::byte* to = rowAddress(tensor, memory, image, y);
  if (accumulate)
    addRow(tensor, row, reinterpret_cast<float*>(to));
  else
    HWY_DYNAMIC_DISPATCH(storeRow)(tensor, row, to);
}

AxisMap::AxisMap(std::vector<std::int64_t> coordinates, std::int64_t tensorSize)
    : coordinates_(std::move(coordinates)), copies_(static_cast<std::size_t>(tensorSize)) {
  for (std::int64_t i = 0; i < size(); ++i) {
    if ((*this)[i] == kZero) continue;
    Range& copies = copies_[static_cast<std::size_t>((*this)[i])];
    if (copies.begin == copies.end) copies.begin = i;
    copies.end = i + 1;
  }
  identity_ = size() == tensorSize;
  for (std::int64_t i = 0; identity_ && i < size(); ++i) identity_ = (*this)[i] == i;
}

AxisMap AxisMap::identity(std::int64_t size) {
  std::vector<std::int64_t> coordinates(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) coordinates[static_cast<std::size_t>(i)] = i;
  return {std::move(coordinates), size};
}

AxisMap AxisMap::coverage(const WindowAxis& axis, ImageEdgeMode edgeMode) {
  const std::int64_t first = axis.firstTap(0);
  const std::int64_t size = coveredSize(axis);
  std::vector<std::int64_t> coordinates(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t at = first + i;
    const std::int64_t clamped = std::clamp<std::int64_t>(at, 0, axis.sourceSize - 1);
    coordinates[static_cast<std::size_t>(i)] =
        at == clamped || edgeMode == ImageEdgeMode::Clamp ? clamped : kZero;
  }
  return {std::move(coordinates), axis.sourceSize};
}

StagedInput::StagedInput(const TensorShape& tensor, AxisMap rows, AxisMap columns, ScratchLayout& scratch)
    : tensor_(tensor),
      rows_(std::move(rows)),
      columns_(std::move(columns)),
      copied_(!isDenseFloat(tensor) || !rows_.isIdentity() || !columns_.isIdentity()) {
  if (copied_)
    offset_ = scratch.reserve(
        static_cast<std::size_t>(tensor.images * rows_.size() * columns_.size() * tensor.channels) *
        sizeof(float));
}

StagedInput::StagedInput(const TensorShape& tensor, ScratchLayout& scratch)
    : StagedInput(tensor, AxisMap::identity(tensor.height), AxisMap::identity(tensor.width), scratch) {}

const float* StagedInput::load(mtl::cpu::Stream& stream, const std::byte* tensor, std::byte* scratch) const {
  if (!copied_) return reinterpret_cast<const float*>(tensor);
  auto* dense = reinterpret_cast<float*>(scratch + offset_);
  const std::int64_t rowElements = columns_.size() * tensor_.channels;
  stream.parallelFor(tensor_.images * rows_.size(), grainFor(rowElements),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) {
                         float* to = dense + i * rowElements;
                         const std::int64_t y = rows_[i % rows_.size()];
                         if (y == AxisMap::kZero)
                           std::fill_n(to, rowElements, 0.0F);
                         else if (columns_.isIdentity())
                           loadImageRow(tensor_, tensor, i / rows_.size(), y, to);
                         else
                           HWY_DYNAMIC_DISPATCH(loadRow)
                         (tensor_, rowAddress(tensor_, tensor, i / rows_.size(), y), columns_, to);
                       }
                     });
  return dense;
}

StagedOutput::StagedOutput(const ConvolutionProblem& problem, AxisMap rows, AxisMap columns,
                           ScratchLayout& scratch)
    : tensor_(problem.destination),
      neuron_(problem.neuron),
      rows_(std::move(rows)),
      columns_(std::move(columns)),
      direct_(isDenseFloat(tensor_)) {
  if (!rows_.isIdentity() || !columns_.isIdentity())
    foldedOffset_ = scratch.reserve(
        static_cast<std::size_t>(tensor_.images * rows_.size() * columns_.size() * tensor_.channels) *
        sizeof(float));
  if (!direct_ || problem.accumulate)
    denseOffset_ = scratch.reserve(static_cast<std::size_t>(tensor_.elements()) * sizeof(float));
}

StagedOutput::StagedOutput(const ConvolutionProblem& problem, ScratchLayout& scratch)
    : StagedOutput(problem, AxisMap::identity(problem.destination.height),
                   AxisMap::identity(problem.destination.width), scratch) {}

float* StagedOutput::dense(const Operands& operands) const {
  return reinterpret_cast<float*>(direct_ && !operands.accumulate ? operands.destination
                                                                  : operands.scratch + denseOffset_);
}

float* StagedOutput::target(const Operands& operands) const {
  if (rows_.isIdentity() && columns_.isIdentity()) return dense(operands);
  return reinterpret_cast<float*>(operands.scratch + foldedOffset_);
}

void StagedOutput::fold(mtl::cpu::Stream& stream, const float* from, float* to) const {
  const std::int64_t channels = tensor_.channels;
  const std::int64_t foldedRow = columns_.size() * channels;
  stream.parallelFor(tensor_.images * tensor_.height, grainFor(tensor_.width * channels),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) {
                         const AxisMap::Range rows = rows_.copiesOf(i % tensor_.height);
                         const float* image = from + i / tensor_.height * rows_.size() * foldedRow;
                         for (std::int64_t x = 0; x < tensor_.width; ++x) {
                           float* pixel = to + (i * tensor_.width + x) * channels;
                           std::fill_n(pixel, channels, 0.0F);
                           const AxisMap::Range columns = columns_.copiesOf(x);
                           for (std::int64_t row = rows.begin; row < rows.end; ++row)
                             for (std::int64_t column = columns.begin; column < columns.end; ++column)
                               addArray(image + row * foldedRow + column * channels, channels, pixel);
                         }
                       }
                     });
}

void StagedOutput::store(mtl::cpu::Stream& stream, const Operands& operands, const float* bias) const {
  float* values = dense(operands);
  if (const float* folded = target(operands); folded != values) fold(stream, folded, values);
  const bool inPlace = reinterpret_cast<std::byte*>(values) == operands.destination;
  const bool unchanged = bias == nullptr && neuron_.neuronType() == CNNNeuronType::None;
  if (inPlace && unchanged) return;

  const std::int64_t rowElements = tensor_.width * tensor_.channels;
  stream.parallelFor(tensor_.images * tensor_.height, grainFor(rowElements),
                     [&](std::int64_t begin, std::int64_t end) {
                       for (std::int64_t i = begin; i < end; ++i) {
                         float* row = values + i * rowElements;
                         if (bias != nullptr) addBias(bias, tensor_.channels, row, tensor_.width);
                         if (inPlace)
                           applyNeuron(tensor_, neuron_, row);
                         else
                           storeImageRow(tensor_, neuron_, row, operands.destination, i / tensor_.height,
                                         i % tensor_.height, operands.accumulate);
                       }
                     });
}

void sumPixels(mtl::cpu::Stream& stream, const float* values, std::int64_t pixels, std::int64_t channels,
               float* sums, bool accumulate) {
  constexpr std::int64_t kBlock = 64;  // channels that stay in registers or next to them
  const std::int64_t blocks = (channels + kBlock - 1) / kBlock;
  stream.parallelFor(blocks, grainFor(pixels * kBlock), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t first = block * kBlock;
      const std::int64_t count = std::min(kBlock, channels - first);
      if (!accumulate) std::fill_n(sums + first, count, 0.0F);
      for (std::int64_t i = 0; i < pixels; ++i) addArray(values + i * channels + first, count, sums + first);
    }
  });
}

namespace {

/// Calls visit(index in the partner's weights, index in the transposed convolution's) for each weight.
template <class Visit>
void forEachWeight(mtl::cpu::Stream& stream, const ConvolutionProblem& problem, Visit visit) {
  const std::int64_t inputs = problem.inputChannelsPerGroup();
  const std::int64_t outputs = problem.outputChannelsPerGroup();
  const std::int64_t taps = problem.y.kernelSize * problem.x.kernelSize;
  stream.parallelFor(
      problem.outputFeatureChannels, grainFor(taps * inputs), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t k = begin; k < end; ++k)
          for (std::int64_t tap = 0; tap < taps; ++tap)
            for (std::int64_t c = 0; c < inputs; ++c) {
              const std::int64_t input = k / outputs * inputs + c;
              visit((k * taps + tap) * inputs + c, (input * taps + taps - 1 - tap) * outputs + k % outputs);
            }
      });
}

}  // namespace

void partnerWeights(mtl::cpu::Stream& stream, const ConvolutionProblem& problem, const float* from,
                    float* to) {
  forEachWeight(stream, problem,
                [&](std::int64_t partner, std::int64_t transposed) { to[partner] = from[transposed]; });
}

void transposedWeights(mtl::cpu::Stream& stream, const ConvolutionProblem& problem, const float* from,
                       float* to, bool accumulate) {
  forEachWeight(stream, problem, [&](std::int64_t partner, std::int64_t transposed) {
    to[transposed] = accumulate ? to[transposed] + from[partner] : from[partner];
  });
}

}  // namespace mps::detail

#endif
