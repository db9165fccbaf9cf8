#include "mps/convolution/cpu/convolution_parts.hpp"

#include <algorithm>
#include <utility>

#include "mps/core/cpu/product_cpu.hpp"

namespace mps::detail {
namespace {

/// Of an image that is divided: each part reads the rows beside its own, too.
constexpr std::int64_t kLeastRows = 4;
/// Float32 copies of a part's tensors, which are to stay in a processor's cache.
constexpr std::int64_t kMostCopiedBytes = std::int64_t{1} << 20U;
/// Pixels that a part of a weight gradient sums: its result, as large as the weights, is then added to others.
constexpr std::int64_t kLeastSummedPixels = 2048;
constexpr std::int64_t kMostSummands = 32;
/// Output channels of a part of a weight gradient, whose gradients are copied.
constexpr std::int64_t kLeastChannels = 64;
constexpr std::int64_t kChannelsOfVector = 16;

double operationsOf(const ConvolutionProblem& problem) {
  return 2.0 * static_cast<double>(problem.images() * problem.y.destinationSize * problem.x.destinationSize) *
         static_cast<double>(problem.weightCount());
}

std::int64_t bytesAt(const TensorShape& tensor, std::int64_t image, std::int64_t row, std::int64_t channel) {
  return tensor.offset(image, row, 0, channel) * static_cast<std::int64_t>(bytesPerChannel(tensor.format));
}

/// Bytes of float32 copies of an image; nothing where the tensors are read and written as they are.
std::int64_t copiedBytesOfImage(const ConvolutionProblem& problem) {
  std::int64_t bytes = 0;
  for (const TensorShape* tensor : {&problem.source, &problem.gradient, &problem.destination})
    if (tensor->elements() > 0 &&
        (tensor->format != ImageFeatureChannelFormat::Float32 || !tensor->isDense()))
      bytes += tensor->height * tensor->width * tensor->channels * static_cast<std::int64_t>(sizeof(float));
  return bytes;
}

/// Images [first, first + count).
ConvolutionPart imagesOf(const ConvolutionProblem& problem, std::int64_t first, std::int64_t count) {
  ConvolutionPart part{problem, bytesAt(problem.source, first, 0, 0), bytesAt(problem.gradient, first, 0, 0),
                       bytesAt(problem.destination, first, 0, 0)};
  for (TensorShape* tensor : {&part.problem.source, &part.problem.gradient, &part.problem.destination})
    if (tensor->images > 0) tensor->images = count;
  return part;
}

void keepRows(TensorShape& tensor, std::int64_t& bytes, std::int64_t begin, std::int64_t end) {
  bytes += bytesAt(tensor, 0, begin, 0);
  tensor.height = end - begin;
}

/// Windows [begin, end) of the rows, and of the source what they read.
ConvolutionPart windowsOf(ConvolutionPart part, std::int64_t begin, std::int64_t end) {
  WindowAxis& y = part.problem.y;
  const std::int64_t first = std::clamp<std::int64_t>(y.firstTap(begin), 0, y.sourceSize - 1);
  const std::int64_t last =
      std::clamp<std::int64_t>(y.firstTap(end - 1) + y.dilatedSize() - 1, first, y.sourceSize - 1);
  y.offset += y.stride * begin - first;
  y.sourceSize = last + 1 - first;
  y.destinationSize = end - begin;
  keepRows(part.problem.source, part.sourceBytes, first, last + 1);
  if (part.problem.operation == ConvolutionOperation::Forward)
    keepRows(part.problem.destination, part.destinationBytes, begin, end);
  else
    keepRows(part.problem.gradient, part.gradientBytes, begin, end);
  return part;
}

/// Rows [begin, end) of a data gradient, and of the gradient the windows that read them.
ConvolutionPart sourceRowsOf(ConvolutionPart part, std::int64_t begin, std::int64_t end) {
  WindowAxis& y = part.problem.y;
  const auto windowAt = [&](std::int64_t row) {  // the last one that begins there or before
    const std::int64_t distance = row - y.firstTap(0);
    return distance >= 0 ? distance / y.stride : -((-distance + y.stride - 1) / y.stride);
  };
  const std::int64_t first =
      std::clamp<std::int64_t>(windowAt(begin - y.dilatedSize()) + 1, 0, y.destinationSize - 1);
  const std::int64_t last = std::clamp<std::int64_t>(windowAt(end - 1), first, y.destinationSize - 1);
  y.offset += y.stride * first - begin;
  y.sourceSize = end - begin;
  y.destinationSize = last + 1 - first;
  keepRows(part.problem.gradient, part.gradientBytes, first, last + 1);
  keepRows(part.problem.destination, part.destinationBytes, begin, end);
  return part;
}

/// Where a data gradient is cut: at the first rows of windows, so that a part begins with a whole window.
std::vector<std::int64_t> cutsOfSource(const WindowAxis& y, std::int64_t count) {
  std::vector<std::int64_t> cuts{0};
  for (std::int64_t i = 1; i < count; ++i) {
    const std::int64_t row = y.firstTap(y.destinationSize * i / count);
    if (row - cuts.back() >= kLeastRows && y.sourceSize - row >= kLeastRows) cuts.push_back(row);
  }
  cuts.push_back(y.sourceSize);
  return cuts;
}

/// One image in about `count` parts.
std::vector<ConvolutionPart> rowsOf(const ConvolutionPart& image, std::int64_t count) {
  const WindowAxis& y = image.problem.y;
  std::vector<ConvolutionPart> parts;
  if (image.problem.operation == ConvolutionOperation::DataGradient) {
    const std::vector<std::int64_t> cuts = cutsOfSource(y, count);
    for (std::size_t i = 1; i < cuts.size(); ++i) parts.push_back(sourceRowsOf(image, cuts[i - 1], cuts[i]));
  } else {
    count = std::clamp<std::int64_t>(y.destinationSize / kLeastRows, 1, count);
    for (std::int64_t i = 0; i < count; ++i)
      parts.push_back(windowsOf(image, y.destinationSize * i / count, y.destinationSize * (i + 1) / count));
  }
  return parts;
}

/// Groups of images or, where there are fewer of these than `count`, rows of each.
std::vector<ConvolutionPart> divideImages(const ConvolutionProblem& problem, std::int64_t together,
                                          std::int64_t count, bool divideRows) {
  const std::int64_t images = problem.images();
  std::vector<ConvolutionPart> parts;
  for (std::int64_t first = 0; first < images; first += together) {
    ConvolutionPart part = imagesOf(problem, first, std::min(together, images - first));
    if (divideRows && images < count)
      for (ConvolutionPart& rows : rowsOf(part, (count + images - 1) / images))
        parts.push_back(std::move(rows));
    else
      parts.push_back(std::move(part));
  }
  return parts;
}

/// Output channels [first, first + count) of a weight gradient.
ConvolutionPart channelsOf(ConvolutionPart part, std::int64_t first, std::int64_t count) {
  part.gradientBytes += bytesAt(part.problem.gradient, 0, 0, first);
  part.problem.gradient.channels = count;
  part.problem.outputFeatureChannels = count;
  part.outputChannel = first;
  return part;
}

std::vector<ConvolutionPart> partsOfWeightsGradient(const ConvolutionProblem& problem, bool divideRows) {
  const std::int64_t wanted = partsFor(operationsOf(problem));
  const std::int64_t images = problem.images();
  const std::int64_t pixels = images * problem.y.destinationSize * problem.x.destinationSize;
  const std::int64_t summands =
      std::clamp<std::int64_t>(pixels / kLeastSummedPixels, 1, std::min(wanted, kMostSummands));
  const std::int64_t channels = problem.outputFeatureChannels;
  const std::int64_t wantedOfChannels =
      problem.groups > 1 ? 1 : std::clamp<std::int64_t>(channels / kLeastChannels, 1, wanted / summands);
  const std::int64_t together =
      wantedOfChannels == 1
          ? channels
          : (channels / wantedOfChannels + kChannelsOfVector - 1) / kChannelsOfVector * kChannelsOfVector;

  std::vector<ConvolutionPart> parts;
  const std::vector<ConvolutionPart> sums =
      divideImages(problem, (images + summands - 1) / summands, summands, divideRows);
  for (std::int64_t first = 0; first < channels; first += together)
    for (std::size_t i = 0; i < sums.size(); ++i) {
      parts.push_back(channelsOf(sums[i], first, std::min(together, channels - first)));
      parts.back().summand = static_cast<std::int64_t>(i);
    }
  return parts;
}

}  // namespace

std::vector<ConvolutionPart> partsOf(const ConvolutionProblem& problem, bool divideRows) {
  if (problem.operation == ConvolutionOperation::WeightsGradient)
    return partsOfWeightsGradient(problem, divideRows);
  const std::int64_t copies = problem.images() * copiedBytesOfImage(problem) / kMostCopiedBytes;
  const std::int64_t wanted = std::max(partsFor(operationsOf(problem)), copies);
  // At a clamped edge several rows of windows read the same row of the source.
  const bool isCuttable =
      problem.operation == ConvolutionOperation::Forward || problem.edgeMode == ImageEdgeMode::Zero;
  return divideImages(problem, std::max<std::int64_t>(1, problem.images() / wanted), wanted,
                      divideRows && isCuttable);
}

}  // namespace mps::detail
