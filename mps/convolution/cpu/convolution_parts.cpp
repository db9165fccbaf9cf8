#include "mps/convolution/cpu/convolution_parts.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "mps/core/cpu/product_cpu.hpp"

namespace mps::detail {
namespace {

/// Of an image that is divided: each part reads the rows beside its own, too.
constexpr std::int64_t kLeastRows = 4;
/// Float32 copies of a part's tensors, which are to stay in a processor's cache.
constexpr std::int64_t kMostCopiedBytes = std::int64_t{1} << 20U;
/// Weights of a part: each image reads them all, so they are to stay in a processor's cache, too.
constexpr std::int64_t kMostWeightBytes = std::int64_t{1} << 19U;
/// Channels of a part, whose results or gradients are copied. The smaller number is for few large parts.
constexpr std::int64_t kUsualChannels = 64;
constexpr std::int64_t kLeastChannels = 32;
constexpr std::int64_t kChannelsOfVector = 16;
/// Sums of pixels of a weight gradient. Each is as large as the weights and is then added to the others.
constexpr std::int64_t kMostSummands = 32;

/// Processors for which the parts of a weight gradient are chosen, and what each can do in a second.
constexpr std::int64_t kProcessors = 16;
constexpr double kOperationsOfProcessor = 120e9;
constexpr double kBytesOfProcessor = 10e9;

std::int64_t quotientUp(std::int64_t dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
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

/// Images [first, first + count) of a part.
ConvolutionPart imagesOf(ConvolutionPart part, std::int64_t first, std::int64_t count) {
  part.sourceBytes += bytesAt(part.problem.source, first, 0, 0);
  part.gradientBytes += bytesAt(part.problem.gradient, first, 0, 0);
  part.destinationBytes += bytesAt(part.problem.destination, first, 0, 0);
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

/// One image in about `count` parts, or several together.
std::vector<ConvolutionPart> rowsOf(const ConvolutionPart& image, std::int64_t count) {
  if (count == 1) return {image};
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

/// A division of the pixels: groups of images or, where these are divided, rows of each.
struct Pieces {
  std::int64_t images = 1;  ///< of a group
  std::int64_t rows = 1;    ///< about how many parts of an image

  /// About `wanted` of them.
  static Pieces about(std::int64_t wanted, const ConvolutionProblem& problem, bool divideRows) {
    const std::int64_t images = problem.images();
    if (images >= wanted) return {images / wanted, 1};
    const std::int64_t height = problem.operation == ConvolutionOperation::DataGradient
                                    ? problem.y.sourceSize
                                    : problem.y.destinationSize;
    const std::int64_t most = divideRows ? std::max<std::int64_t>(1, height / kLeastRows) : 1;
    return {1, std::min(quotientUp(wanted, images), most)};
  }
  [[nodiscard]] std::int64_t count(const ConvolutionProblem& problem) const {
    return quotientUp(problem.images(), images) * rows;
  }
};

std::int64_t channelsOfResult(const ConvolutionProblem& problem) {
  return problem.operation == ConvolutionOperation::DataGradient ? problem.inputFeatureChannels
                                                                 : problem.outputFeatureChannels;
}

/// Channels of a part: all of them, or as many as a division into about equal parts of at most `most` gives.
std::int64_t channelsOfPart(const ConvolutionProblem& problem, std::int64_t most) {
  const std::int64_t channels = channelsOfResult(problem);
  const std::int64_t parts = problem.groups > 1 ? 1 : quotientUp(channels, most);
  if (parts == 1) return channels;
  return quotientUp(quotientUp(channels, parts), kChannelsOfVector) * kChannelsOfVector;
}

/// ... whose weights stay in a processor's cache.
std::int64_t mostChannels(const ConvolutionProblem& problem) {
  const std::int64_t bytesOfChannel = problem.weightCount() * static_cast<std::int64_t>(sizeof(float)) /
                                      std::max<std::int64_t>(1, channelsOfResult(problem));
  return std::max(kUsualChannels, kMostWeightBytes / std::max<std::int64_t>(1, bytesOfChannel));
}

/// Channels [first, first + count) of a tensor.
void keepChannels(TensorShape& tensor, std::int64_t& bytes, std::int64_t first, std::int64_t count) {
  bytes += bytesAt(tensor, 0, 0, first);
  tensor.channels = count;
}

ConvolutionPart channelsOf(const ConvolutionProblem& problem, std::int64_t first, std::int64_t count) {
  ConvolutionPart part{.problem = problem, .firstChannel = first};
  switch (problem.operation) {
    case ConvolutionOperation::Forward:
      keepChannels(part.problem.destination, part.destinationBytes, first, count);
      part.problem.outputFeatureChannels = count;
      break;
    case ConvolutionOperation::DataGradient:
      keepChannels(part.problem.destination, part.destinationBytes, first, count);
      part.problem.inputFeatureChannels = count;
      break;
    case ConvolutionOperation::WeightsGradient:
      keepChannels(part.problem.gradient, part.gradientBytes, first, count);
      part.problem.outputFeatureChannels = count;
      break;
  }
  return part;
}

/// All parts, `channels` of each.
std::vector<ConvolutionPart> divide(const ConvolutionProblem& problem, std::int64_t channels,
                                    const Pieces& pieces) {
  const std::int64_t all = channelsOfResult(problem);
  std::vector<ConvolutionPart> parts;
  for (std::int64_t channel = 0; channel < all; channel += channels) {
    const ConvolutionPart block = all == channels
                                      ? ConvolutionPart{problem}
                                      : channelsOf(problem, channel, std::min(channels, all - channel));
    std::int64_t summand = 0;
    for (std::int64_t first = 0; first < problem.images(); first += pieces.images) {
      const ConvolutionPart images =
          imagesOf(block, first, std::min(pieces.images, problem.images() - first));
      for (ConvolutionPart& rows : rowsOf(images, pieces.rows)) {
        rows.summand = summand++;
        parts.push_back(std::move(rows));
      }
    }
  }
  return parts;
}

/// Seconds that a weight gradient takes about: the largest parts one after the other on each processor, and what is read
/// and written several times.
double secondsOfWeightsGradient(const ConvolutionProblem& problem, std::int64_t channels,
                                const Pieces& pieces) {
  const std::int64_t blocks = quotientUp(problem.outputFeatureChannels, channels);
  const std::int64_t summands = pieces.count(problem);
  const double share = static_cast<double>(pieces.images * channels) /
                       static_cast<double>(problem.images() * pieces.rows * problem.outputFeatureChannels);
  const auto rounds = static_cast<double>(quotientUp(blocks * summands, kProcessors));
  const std::int64_t values = blocks * problem.source.elements() +
                              (blocks > 1 ? 2 * problem.gradient.elements() : 0) +
                              (summands > 1 ? 2 * summands * problem.weightCount() : 0);
  return rounds * share * problem.operations() / kOperationsOfProcessor +
         static_cast<double>(values) * sizeof(float) / (kProcessors * kBytesOfProcessor);
}

std::vector<ConvolutionPart> partsOfWeightsGradient(const ConvolutionProblem& problem, bool divideRows) {
  const std::int64_t mostParts = partsFor(problem.operations());
  std::int64_t bestChannels = problem.outputFeatureChannels;
  Pieces best{problem.images(), 1};
  double leastSeconds = std::numeric_limits<double>::infinity();
  const std::int64_t usual = mostChannels(problem);
  for (const std::int64_t most : {usual, std::min(usual, kUsualChannels), kLeastChannels}) {
    const std::int64_t channels = channelsOfPart(problem, most);
    const std::int64_t blocks = quotientUp(problem.outputFeatureChannels, channels);
    if (most < usual && blocks > mostParts) continue;
    const std::int64_t mostSummands = std::clamp<std::int64_t>(mostParts / blocks, 1, kMostSummands);
    for (std::int64_t summands = 1; summands <= mostSummands; ++summands) {
      const Pieces pieces = Pieces::about(summands, problem, divideRows);
      const double seconds = secondsOfWeightsGradient(problem, channels, pieces);
      if (seconds >= leastSeconds) continue;
      leastSeconds = seconds;
      bestChannels = channels;
      best = pieces;
    }
  }
  return divide(problem, bestChannels, best);
}

/// Of a forward convolution and a data gradient.
std::vector<ConvolutionPart> partsOfResult(const ConvolutionProblem& problem, bool divideRows) {
  // At a clamped edge several rows of windows read the same row of the source.
  const bool isCuttable = divideRows && (problem.operation == ConvolutionOperation::Forward ||
                                         problem.edgeMode == ImageEdgeMode::Zero);
  const std::int64_t wanted = partsFor(problem.operations());
  const std::int64_t all = channelsOfResult(problem);
  std::int64_t channels = channelsOfPart(problem, mostChannels(problem));
  const std::int64_t most =
      quotientUp(all, channels) * Pieces::about(wanted, problem, isCuttable).count(problem);
  if (most < std::min(wanted, kProcessors)) channels = channelsOfPart(problem, kLeastChannels);
  const std::int64_t blocks = quotientUp(all, channels);
  const ConvolutionPart block = blocks == 1 ? ConvolutionPart{problem} : channelsOf(problem, 0, channels);
  const std::int64_t copies = problem.images() * copiedBytesOfImage(block.problem) / kMostCopiedBytes;
  return divide(problem, channels,
                Pieces::about(std::max(quotientUp(wanted, blocks), copies), problem, isCuttable));
}

}  // namespace

std::vector<ConvolutionPart> partsOf(const ConvolutionProblem& problem, bool divideRows) {
  return problem.operation == ConvolutionOperation::WeightsGradient
             ? partsOfWeightsGradient(problem, divideRows)
             : partsOfResult(problem, divideRows);
}

}  // namespace mps::detail
