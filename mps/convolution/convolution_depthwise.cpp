#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mps/convolution/convolution_cpu.hpp"
#include "mps/convolution/convolution_depthwise_rows.hpp"
#include "mps/convolution/convolution_staging.hpp"
#include "mps/core/streamed_stores.hpp"

namespace mps::detail {
namespace {

/// Elements below which another thread does not pay.
constexpr std::int64_t kElementsPerRange = 16 * 1024;
/// Windows times channels whose products are added up before partial sums are.
constexpr std::int64_t kElementsPerChunk = 128 * 1024;
constexpr std::int64_t kMostChunks = 256;
constexpr std::int64_t kVectorBytes = 64;  // of the widest vectors

std::size_t asSize(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

std::int64_t quotientUp(std::int64_t dividend, std::int64_t divisor) {
  return (dividend + divisor - 1) / divisor;
}

/// Adds a phase with positions 0 ... count - 1.
void addPhase(GatherAxis& axis, GatherPhase phase, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::vector<GatherTap> taps;
    for (const GatherTap& tap : phase.taps) {
      const std::int64_t at = tap.shift + axis.inputStep * i;
      if (at >= 0 && at < axis.inputSize) taps.push_back(tap);
    }
    // Shifts are in order, so the taps inside are neighbours.
    const auto areThose = [&](const GatherRun& run) {
      return run.taps.size() == taps.size() && (taps.empty() || run.taps[0].tap == taps[0].tap);
    };
    if (phase.runs.empty() || !areThose(phase.runs.back())) phase.runs.push_back({{i, i}, std::move(taps)});
    phase.runs.back().positions.end = i + 1;
  }
  axis.phases.push_back(std::move(phase));
}

GatherAxis forwardAxis(const WindowAxis& axis) {
  GatherAxis gather{
      .size = axis.destinationSize, .inputSize = axis.sourceSize, .inputStep = axis.stride, .resultStep = 1};
  GatherPhase phase{0, {}, {}};
  for (std::int64_t tap = 0; tap < axis.kernelSize; ++tap)
    phase.taps.push_back({tap, axis.firstTap(0) + axis.dilation * tap});
  addPhase(gather, std::move(phase), axis.destinationSize);
  return gather;
}

/// Pixel u is read by the windows x with stride * x = u - firstTap(0) - dilation * tap.
GatherAxis dataGradientAxis(const WindowAxis& axis) {
  GatherAxis gather{
      .size = axis.sourceSize, .inputSize = axis.destinationSize, .inputStep = 1, .resultStep = axis.stride};
  for (std::int64_t first = 0; first < std::min(axis.stride, axis.sourceSize); ++first) {
    GatherPhase phase{first, {}, {}};
    for (std::int64_t tap = axis.kernelSize - 1; tap >= 0; --tap) {
      const std::int64_t distance = first - axis.firstTap(0) - axis.dilation * tap;
      if (distance % axis.stride == 0) phase.taps.push_back({tap, distance / axis.stride});
    }
    addPhase(gather, std::move(phase), quotientUp(axis.sourceSize - first, axis.stride));
  }
  return gather;
}

/// For each tap, the windows for which it lies in the source.
std::vector<Range> insideOfTaps(const WindowAxis& axis) {
  std::vector<Range> inside;
  for (std::int64_t tap = 0; tap < axis.kernelSize; ++tap) {
    const std::int64_t first = axis.firstTap(0) + axis.dilation * tap;
    const auto windowsBefore = [&](std::int64_t pixel) {
      return pixel <= first ? 0 : std::min(axis.destinationSize, quotientUp(pixel - first, axis.stride));
    };
    inside.push_back({windowsBefore(0), windowsBefore(axis.sourceSize)});
  }
  return inside;
}

/// Rows of a tensor as float32: where they lie, or copies of the last few of them.
class InputRows {
 public:
  struct Layout {
    TensorShape tensor;
    std::int64_t rows = 0;  ///< copies that are kept; 0 where none are needed
    std::size_t values = 0;
    std::size_t held = 0;

    Layout() = default;
    /// @param span rows that are needed at the same time are less than that apart
    Layout(const TensorShape& shape, std::int64_t span, ScratchLayout& scratch) : tensor(shape) {
      if (shape.format == ImageFeatureChannelFormat::Float32) return;
      rows = std::min(span, shape.height);
      values = scratch.reserve(asSize(rows * shape.width * shape.channels) * sizeof(float));
      held = scratch.reserve(asSize(rows) * sizeof(std::int64_t));
    }
    /// Elements from one pixel of a row to the next.
    [[nodiscard]] std::int64_t pixel() const { return rows == 0 ? tensor.pixelStride : tensor.channels; }
  };

  InputRows(const Layout& layout, const std::byte* memory, std::byte* working)
      : layout_(layout),
        memory_(memory),
        values_(reinterpret_cast<float*>(working + layout.values)),
        held_(reinterpret_cast<std::int64_t*>(working + layout.held)) {
    std::fill_n(held_, layout.rows, -1);
  }

  const float* at(std::int64_t image, std::int64_t y) {
    const TensorShape& tensor = layout_.tensor;
    if (layout_.rows == 0) return reinterpret_cast<const float*>(memory_) + tensor.offset(image, y, 0, 0);
    float* copy = values_ + y % layout_.rows * tensor.width * tensor.channels;
    std::int64_t& held = held_[y % layout_.rows];
    if (held != image * tensor.height + y) loadImageRow(tensor, memory_, image, y, copy);
    held = image * tensor.height + y;
    return copy;
  }

  /// The row after y, of the next image after the last one.
  [[nodiscard]] Ahead after(std::int64_t image, std::int64_t y) const {
    const TensorShape& tensor = layout_.tensor;
    if (++y >= tensor.height) {
      y = 0;
      ++image;
    }
    if (image >= tensor.images) return {};
    const auto elementBytes = static_cast<std::int64_t>(bytesPerChannel(tensor.format));
    return {memory_ + tensor.offset(image, y, 0, 0) * elementBytes,
            ((tensor.width - 1) * tensor.pixelStride + tensor.channels) * elementBytes};
  }

 private:
  const Layout& layout_;
  const std::byte* memory_;
  float* values_;
  std::int64_t* held_;
};

/// What the plans share: weights with channels innermost, working memory for each thread.
class DepthwisePlan : public Plan {
 public:
  explicit DepthwisePlan(const ConvolutionProblem& problem)
      : problem_(problem),
        channels_(problem.inputFeatureChannels),
        taps_(problem.y.kernelSize * problem.x.kernelSize),
        threads_(problem.threadCount > 0
                     ? problem.threadCount
                     : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))) {}

  [[nodiscard]] std::size_t scratchBytes() const override { return scratch_.bytes(); }
  [[nodiscard]] bool canAccumulate() const override { return problem_.accumulate; }
  [[nodiscard]] std::string describe() const override { return "vectors of channels"; }

 protected:
  static float* floats(std::byte* memory, std::size_t offset = 0) {
    return reinterpret_cast<float*>(memory + offset);
  }

  /// To be called once, when what each thread needs is known.
  void reserveWorkingMemory() { working_ = scratch_.reserve(perThread_.bytes() * asSize(threads_)); }
  /// Calls body(part, working memory) for parts of [0, count).
  template <class Body>
  void forParts(mtl::Stream& stream, const Operands& operands, std::int64_t count, std::int64_t grain,
                Body&& body) const {
    const mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    const std::int64_t parts = std::min<std::int64_t>(threads_, cpu.rangeCount(count, grain));
    cpu.parallelFor(parts, 1, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t part = first; part < end; ++part)
        body(Range{count * part / parts, count * (part + 1) / parts},
             operands.scratch + working_ + perThread_.bytes() * asSize(part));
    });
  }

  ConvolutionProblem problem_;
  std::int64_t channels_;
  std::int64_t taps_;
  int threads_;
  ScratchLayout scratch_;
  ScratchLayout perThread_;

 private:
  std::size_t working_ = 0;
};

/// Forward and data gradient: each result gathers its sum.
class GatherPlan final : public DepthwisePlan {
 public:
  explicit GatherPlan(const ConvolutionProblem& problem)
      : DepthwisePlan(problem),
        isForward_(problem.operation == ConvolutionOperation::Forward),
        y_(isForward_ ? forwardAxis(problem.y) : dataGradientAxis(problem.y)),
        x_(isForward_ ? forwardAxis(problem.x) : dataGradientAxis(problem.x)),
        weights_(scratch_.reserve(asSize(problem.weightCount()) * sizeof(float))),
        bias_(scratch_.reserve(asSize(channels_) * sizeof(float))) {
    const TensorShape& result = problem.destination;
    const std::int64_t reach = problem.y.dilatedSize() - 1;
    input_ = InputRows::Layout(isForward_ ? problem.source : problem.gradient,
                               (isForward_ ? reach : reach / problem.y.stride) + 1, perThread_);
    row_ = perThread_.reserve(asSize(result.width * channels_) * sizeof(float));
    rowTaps_ = perThread_.reserve(asSize(taps_) * sizeof(TapValues));
    inputRows_ = perThread_.reserve(asSize(problem.y.kernelSize) * sizeof(InputRow));
    reserveWorkingMemory();

    isFloat16_ = result.format == ImageFeatureChannelFormat::Float16;
    isDirect_ = (result.format == ImageFeatureChannelFormat::Float32 || isFloat16_) &&
                problem.neuron.neuronType() == CNNNeuronType::None;
    writesPastCaches_ = !isFloat16_ && writesPastCaches(input_.tensor.bytes() + result.bytes());
    for (const std::int64_t distance : {channels_, result.pixelStride, result.rowStride, result.imageStride})
      writesPastCaches_ =
          writesPastCaches_ && distance * static_cast<std::int64_t>(sizeof(float)) % kVectorBytes == 0;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    pack(operands);
    const TensorShape& result = problem_.destination;
    const std::int64_t grain =
        std::max<std::int64_t>(1, kElementsPerRange / std::max<std::int64_t>(1, result.width * channels_));
    forParts(stream, operands, result.images * result.height, grain, [&](Range rows, std::byte* working) {
      InputRows input(input_, isForward_ ? operands.source : operands.gradient, working);
      for (std::int64_t i = rows.begin; i < rows.end; ++i)
        runRow(operands, input, i / result.height, i % result.height, working);
    });
  }

 private:
  /// OHWI -> HWC, and a bias for each channel.
  void pack(const Operands& operands) const {
    const float* weights = floats(operands.parameters[0]);
    float* packed = floats(operands.scratch, weights_);
    for (std::int64_t c = 0; c < channels_; ++c)
      for (std::int64_t tap = 0; tap < taps_; ++tap) packed[tap * channels_ + c] = weights[c * taps_ + tap];
    float* bias = floats(operands.scratch, bias_);
    if (problem_.hasBias)
      std::copy_n(floats(operands.parameters[1]), channels_, bias);
    else
      std::fill_n(bias, channels_, 0.0F);
  }

  void runRow(const Operands& operands, InputRows& input, std::int64_t image, std::int64_t y,
              std::byte* working) const {
    auto* inputRows = reinterpret_cast<InputRow*>(working + inputRows_);
    std::size_t count = 0;
    std::int64_t last = -1;
    const GatherPhase& phase = y_.phases[asSize(y % y_.resultStep)];
    for (const GatherTap& tap : phase.taps) {
      const std::int64_t at = tap.shift + y_.inputStep * (y / y_.resultStep);
      if (at < 0 || at >= y_.inputSize) continue;
      inputRows[count++] = {tap.tap, input.at(image, at)};
      last = at;
    }

    const TensorShape& result = problem_.destination;
    const bool isDirect = isDirect_ && !operands.accumulate;
    const bool isAligned = reinterpret_cast<std::uintptr_t>(operands.destination) % kVectorBytes == 0;
    std::byte* const destination =
        operands.destination +
        result.offset(image, y, 0, 0) * static_cast<std::int64_t>(bytesPerChannel(result.format));
    const ResultRow row{.weights = floats(operands.scratch, weights_),
                        .bias = floats(operands.scratch, bias_),
                        .values = isDirect ? destination : working + row_,
                        .isFloat16 = isDirect && isFloat16_,
                        .channels = channels_,
                        .kernelWidth = problem_.x.kernelSize,
                        .inputPixel = input_.pixel(),
                        .resultPixel = isDirect ? result.pixelStride : channels_,
                        .taps = reinterpret_cast<TapValues*>(working + rowTaps_),
                        .ahead = input.after(image, last),
                        .writesPastCaches = isDirect && writesPastCaches_ && isAligned};
    gatherRow(x_, {inputRows, count}, row);
    if (!isDirect)
      storeImageRow(result, problem_.neuron, floats(row.values), operands.destination, image, y,
                    operands.accumulate);
  }

  bool isForward_;
  GatherAxis y_;
  GatherAxis x_;
  std::size_t weights_;
  std::size_t bias_;
  InputRows::Layout input_;
  std::size_t row_ = 0;
  std::size_t rowTaps_ = 0;
  std::size_t inputRows_ = 0;
  bool isFloat16_ = false;  ///< the destination
  bool isDirect_ = false;   ///< sums are results, unless they are added to
  bool writesPastCaches_ = false;
};

/// Weights gradient: partial sums of chunks of rows of windows, which the number of threads does not change.
class SumPlan final : public DepthwisePlan {
 public:
  explicit SumPlan(const ConvolutionProblem& problem)
      : DepthwisePlan(problem),
        insideOfTap_(insideOfTaps(problem.x)),
        rows_(problem.gradient.images * problem.gradient.height),
        chunks_(std::clamp<std::int64_t>(problem.gradient.elements() / kElementsPerChunk, 1,
                                         std::clamp<std::int64_t>(rows_, 1, kMostChunks))),
        sums_(scratch_.reserve(asSize(chunks_ * sumsPerChunk()) * sizeof(float))),
        source_(problem.source, problem.y.dilatedSize(), perThread_),
        gradient_(problem.gradient, 1, perThread_),
        inputRows_(perThread_.reserve(asSize(problem.y.kernelSize) * sizeof(InputRow))) {
    reserveWorkingMemory();
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    float* sums = floats(operands.scratch, sums_);
    forParts(stream, operands, chunks_, 1, [&](Range part, std::byte* working) {
      InputRows source(source_, operands.source, working);
      InputRows gradient(gradient_, operands.gradient, working);
      for (std::int64_t chunk = part.begin; chunk < part.end; ++chunk) {
        float* chunkSums = sums + chunk * sumsPerChunk();
        std::fill_n(chunkSums, sumsPerChunk(), 0.0F);
        for (std::int64_t i = rows_ * chunk / chunks_; i < rows_ * (chunk + 1) / chunks_; ++i)
          addRow(source, gradient, i / problem_.y.destinationSize, i % problem_.y.destinationSize, chunkSums,
                 working);
      }
    });
    mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    for (std::int64_t chunk = 1; chunk < chunks_; ++chunk)
      storeOrAdd(cpu, sums + chunk * sumsPerChunk(), sumsPerChunk(), sums, true);

    float* weights = floats(operands.parameters[2]);
    for (std::int64_t c = 0; c < channels_; ++c)
      for (std::int64_t tap = 0; tap < taps_; ++tap) {
        const float sum = sums[tap * channels_ + c];
        float& weight = weights[c * taps_ + tap];
        weight = operands.accumulate ? weight + sum : sum;
      }
    if (problem_.hasBias)
      storeOrAdd(cpu, sums + taps_ * channels_, channels_, floats(operands.parameters[3]),
                 operands.accumulate);
  }

 private:
  /// [kH][kW][channels] for the weights, [channels] for the biases.
  [[nodiscard]] std::int64_t sumsPerChunk() const { return (taps_ + 1) * channels_; }

  void addRow(InputRows& source, InputRows& gradient, std::int64_t image, std::int64_t y, float* sums,
              std::byte* working) const {
    auto* inputRows = reinterpret_cast<InputRow*>(working + inputRows_);
    std::size_t count = 0;
    std::int64_t last = -1;
    for (std::int64_t tap = problem_.y.firstInside(y); tap < problem_.y.endInside(y); ++tap) {
      last = problem_.y.firstTap(y) + problem_.y.dilation * tap;
      inputRows[count++] = {tap, source.at(image, last)};
    }
    addParameterGradients(problem_.x, insideOfTap_, {inputRows, count},
                          {.gradient = gradient.at(image, y),
                           .weightSums = sums,
                           .biasSums = problem_.hasBias ? sums + taps_ * channels_ : nullptr,
                           .channels = channels_,
                           .sourcePixel = source_.pixel(),
                           .gradientPixel = gradient_.pixel(),
                           .sourceAhead = source.after(image, last),
                           .gradientAhead = gradient.after(image, y)});
  }

  std::vector<Range> insideOfTap_;
  std::int64_t rows_;
  std::int64_t chunks_;
  std::size_t sums_;
  InputRows::Layout source_;
  InputRows::Layout gradient_;
  std::size_t inputRows_;
};

}  // namespace

Preparation prepareConvolutionDepthwise(const ConvolutionProblem& problem) {
  if (problem.sumsNothing()) return Refusal{kSumsNothing};
  if (problem.transposed) return Refusal{"the convolution is transposed"};
  if (problem.groups != problem.inputFeatureChannels || problem.groups != problem.outputFeatureChannels)
    return Refusal{"not each channel has one result of its own"};
  if (problem.edgeMode != ImageEdgeMode::Zero) return Refusal{"the edge mode is not Zero"};
  if (problem.operation == ConvolutionOperation::WeightsGradient)
    return std::make_shared<const SumPlan>(problem);
  return std::make_shared<const GatherPlan>(problem);
}

}  // namespace mps::detail
