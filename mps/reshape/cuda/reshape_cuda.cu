#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "mps/core/cuda/element_grid_cuda.cuh"
#include "mps/core/cuda/store_numbers_cuda.cuh"
#include "mps/core/plan/fallback_plan.hpp"
#include "mps/reshape/reshape_map.hpp"
#include "mps/reshape/reshape_problem.hpp"

namespace mps::detail {
namespace {

using cuda::Divider;
using cuda::ElementGrid;
using cuda::ElementPlace;
using cuda::ResultView;
using cuda::RowGrid;
using cuda::SourceView;

bool accumulates(const ReshapeProblem& problem) {
  return problem.direction == ReshapeDirection::Gradient &&
         problem.destination.format == ImageFeatureChannelFormat::Float32;
}

const std::byte* inputOf(const ReshapeProblem& problem, const Operands& operands) {
  return problem.direction == ReshapeDirection::Forward ? operands.source : operands.gradient;
}

// The order of elements -----------------------------------------------------------------------------------------------

/// Where element k of an image lies.
struct ElementOrder {
  Divider fastest;  ///< channels, or pixels where the channels are slowest
  Divider width;
  bool channelsFirst = false;

  ElementOrder() = default;
  ElementOrder(const TensorShape& shape, ReshapeMapping mapping)
      : fastest(mapping == ReshapeMapping::ChannelsFirst ? shape.height * shape.width : shape.channels),
        width(shape.width),
        channelsFirst(mapping == ReshapeMapping::ChannelsFirst) {}

  [[nodiscard]] __device__ ElementPlace at(std::uint32_t image, std::uint32_t k) const {
    const std::uint32_t slow = fastest.divide(k);
    const std::uint32_t fast = k - slow * fastest.divisor();
    const std::uint32_t pixel = channelsFirst ? fast : slow;
    const std::uint32_t y = width.divide(pixel);
    return {static_cast<std::int32_t>(image), static_cast<std::int32_t>(y),
            static_cast<std::int32_t>(pixel - y * width.divisor()),
            static_cast<std::int32_t>(channelsFirst ? slow : fast)};
  }
};

struct OrderArguments {
  RowGrid grid;  ///< over the elements of images
  ElementOrder from;
  ElementOrder to;
  SourceView input;
  ResultView destination;
  bool accumulate;
};

__global__ void moveElements(OrderArguments a) {
  cuda::forEachRow(a.grid, [&](std::uint32_t image) {
    cuda::forEachPiece(a.grid, [&](std::uint32_t k) {
      const auto value = cuda::OneByOne::load(a.input, a.from.at(image, k));
      cuda::OneByOne::store(value, a.destination, a.to.at(image, k), a.accumulate);
    });
  });
}

/// Images without gaps, in units of 16 bytes. @param inputStride, destinationStride from image to image
__global__ void copyImages(RowGrid grid, const uint4* input, std::int64_t inputStride, uint4* destination,
                           std::int64_t destinationStride) {
  cuda::forEachRow(grid, [&](std::uint32_t image) {
    cuda::forEachPiece(grid, [&](std::uint32_t unit) {
      destination[image * destinationStride + unit] = input[image * inputStride + unit];
    });
  });
}

/// Any order.
class OrderPlan final : public Plan {
 public:
  explicit OrderPlan(const ReshapeProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& from = problem_.input;
    const TensorShape& to = problem_.destination;
    if (to.elements() == 0) return;
    const OrderArguments a{RowGrid(to.images, to.height * to.width * to.channels),
                           ElementOrder(from, problem_.mapping),
                           ElementOrder(to, problem_.mapping),
                           {from, inputOf(problem_, operands)},
                           {to, operands.destination},
                           operands.accumulate};
    mtl::cuda::launch(stream, moveElements, a.grid.grid, a.grid.block, 0, a);
  }

  [[nodiscard]] bool canAccumulate() const override { return accumulates(problem_); }

 private:
  ReshapeProblem problem_;
};

/// Dense images of one format in their order. Earns the flattening in front of fully connected layers.
class CopyPlan final : public SelectivePlan {
 public:
  explicit CopyPlan(const ReshapeProblem& problem) : problem_(problem) {}

  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    if (operands.accumulate) return "it adds nothing to what is there";
    return objectionToUnaligned({inputOf(problem_, operands), operands.destination});
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& to = problem_.destination;
    if (to.elements() == 0) return;
    const auto unit = static_cast<std::int64_t>(16 / bytesPerChannel(to.format));
    const RowGrid grid(to.images, to.height * to.width * to.channels / unit);
    mtl::cuda::launch(stream, copyImages, grid.grid, grid.block, 0, grid,
                      reinterpret_cast<const uint4*>(inputOf(problem_, operands)),
                      problem_.input.imageStride / unit, reinterpret_cast<uint4*>(operands.destination),
                      to.imageStride / unit);
  }

 private:
  ReshapeProblem problem_;
};

// Padding and slices --------------------------------------------------------------------------------------------------

/// Every `step`-th position from `begin` on, `count` of them.
struct Positions {
  std::int32_t begin = 0;
  std::int32_t step = 1;
  std::int32_t count = 0;
};

struct Axis {
  std::int32_t before = 0;
  std::int32_t source = 0;  ///< elements of the axis
  std::int32_t result = 0;
  std::int32_t shift = 0;  ///< periods that make positions positive
  Divider period;          ///< of mirrored images

  Axis() = default;
  Axis(const ReshapeAxis& axis, ImageEdgeMode edgeMode, std::int64_t sourceSize, std::int64_t resultSize)
      : before(static_cast<std::int32_t>(axis.before)),
        source(static_cast<std::int32_t>(sourceSize)),
        result(static_cast<std::int32_t>(resultSize)) {
    const std::int64_t length =
        std::max<std::int64_t>(1, 2 * sourceSize - (edgeMode == ImageEdgeMode::Mirror ? 2 : 0));
    period = Divider(length);
    shift =
        static_cast<std::int32_t>((std::max<std::int64_t>(0, -axis.before) + length - 1) / length * length);
  }

  [[nodiscard]] __device__ std::int32_t sourceOf(ImageEdgeMode edgeMode, std::int32_t position) const {
    return mappedIndex<std::int32_t>(edgeMode, position - before, source);
  }
  static constexpr std::int32_t kNone = -1;
  static constexpr std::int32_t kPerhapsSeveral = -2;
  /// The position of the result that reads source element i, if that is easily said.
  [[nodiscard]] __device__ std::int32_t onlyReader(ImageEdgeMode edgeMode, std::int32_t i) const {
    const std::int32_t own = i + before;
    const bool isThere = own >= 0 && own < result;
    bool isOnly = true;
    if (edgeMode == ImageEdgeMode::Clamp) {
      isOnly = i > 0 && i < source - 1;
    } else if (edgeMode == ImageEdgeMode::Mirror || edgeMode == ImageEdgeMode::MirrorWithEdge) {
      // Neither mirrored image of it is there, so none further off.
      const std::int32_t edge = edgeMode == ImageEdgeMode::MirrorWithEdge ? 1 : 0;
      const auto length = static_cast<std::int32_t>(period.divisor());
      isOnly = isThere && before - i - edge < 0 && before + 2 * source - 2 + edge - i >= result &&
               own - length < 0 && own + length >= result;
    }
    return !isOnly ? kPerhapsSeveral : isThere ? own : kNone;
  }
  /// Positions first, first + 1 ... last of the result, as far as they exist.
  [[nodiscard]] __device__ Positions between(std::int32_t first, std::int32_t last) const {
    first = max(first, 0);
    return {first, 1, max(0, min(last, result - 1) - first + 1)};
  }
  /// Positions of the result at `position` and every whole number of periods from there.
  [[nodiscard]] __device__ Positions periodic(std::int32_t position) const {
    const auto step = static_cast<std::int32_t>(period.divisor());
    const auto number = static_cast<std::uint32_t>(position + shift);
    const auto begin = static_cast<std::int32_t>(number - period.divide(number) * period.divisor());
    if (begin >= result) return {};
    const std::uint32_t more = period.divide(static_cast<std::uint32_t>(result - 1 - begin));
    return {begin, step, static_cast<std::int32_t>(more) + 1};
  }
  /// Calls visit(position) for the positions of the result that read source element i.
  template <class Visit>
  __device__ void forEachReader(ImageEdgeMode edgeMode, std::int32_t i, Visit visit) const {
    const std::int32_t own = i + before;
    Positions all[2];
    if (edgeMode == ImageEdgeMode::Clamp)
      all[0] = between(i == 0 ? 0 : own, i == source - 1 ? result - 1 : own);
    else if (edgeMode == ImageEdgeMode::Mirror && source == 1)
      all[0] = between(0, result - 1);
    else if (edgeMode == ImageEdgeMode::Mirror || edgeMode == ImageEdgeMode::MirrorWithEdge) {
      const bool repeatsEdge = edgeMode == ImageEdgeMode::MirrorWithEdge;
      const std::int32_t mirrored = static_cast<std::int32_t>(period.divisor()) - i - (repeatsEdge ? 1 : 0);
      all[0] = periodic(own);
      // Without their own repetition both ends are their own images.
      if (repeatsEdge || (i != 0 && i != source - 1)) all[1] = periodic(mirrored + before);
    } else {
      all[0] = between(own, own);
    }
    for (const Positions& positions : all)
      for (std::int32_t k = 0; k < positions.count; ++k) visit(positions.begin + k * positions.step);
  }
};

struct AxesArguments {
  RowGrid grid;  ///< over the destination's rows and the threads of a row
  Divider height;
  Divider pixel;  ///< threads of one
  ImageEdgeMode edgeMode;
  Axis x, y, channels;
  SourceView input;
  ResultView destination;
  const float* fill;  ///< of each channel of a forward result, or null
  bool accumulate;
};

/// Calls visit(place) for what this thread has of the destination.
template <int lanes, class Visit>
__device__ void forEachPlace(const AxesArguments& a, Visit visit) {
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    const std::uint32_t image = a.height.divide(row);
    cuda::forEachPiece(a.grid, [&](std::uint32_t piece) {
      const std::uint32_t x = a.pixel.divide(piece);
      visit(ElementPlace{
          static_cast<std::int32_t>(image), static_cast<std::int32_t>(row - image * a.height.divisor()),
          static_cast<std::int32_t>(x), static_cast<std::int32_t>(piece - x * a.pixel.divisor()) * lanes});
    });
  });
}

/// The channels of a thread lie wholly inside the source's, in their order, or outside.
template <class Access>
__global__ void pad(AxesArguments a) {
  forEachPlace<Access::lanes>(a, [&](const ElementPlace& place) {
    const ElementPlace from{place.image, a.y.sourceOf(a.edgeMode, place.y), a.x.sourceOf(a.edgeMode, place.x),
                            a.channels.sourceOf(a.edgeMode, place.channel)};
    typename Access::Values values{};
    if (from.y >= 0 && from.x >= 0 && from.channel >= 0) {
      values = Access::load(a.input, from);
    } else if (a.fill != nullptr && (a.edgeMode == ImageEdgeMode::Constant || from.channel < 0)) {
#pragma unroll
      for (int lane = 0; lane < Access::lanes; ++lane) values.values[lane] = a.fill[place.channel + lane];
    }
    Access::store(values, a.destination, place);
  });
}

template <class Values>
__device__ void addTo(Values& sums, const Values& values) {
#pragma unroll
  for (int lane = 0; lane < static_cast<int>(sizeof(Values) / sizeof(float)); ++lane)
    sums.values[lane] += values.values[lane];
}

template <class Access>
__global__ void padGradient(AxesArguments a) {
  forEachPlace<Access::lanes>(a, [&](const ElementPlace& place) {
    typename Access::Values sums{};
    const std::int32_t onlyY = a.y.onlyReader(a.edgeMode, place.y);
    const std::int32_t onlyX = a.x.onlyReader(a.edgeMode, place.x);
    // Several channels stay together.
    const std::int32_t onlyChannel =
        a.channels.onlyReader(Access::lanes > 1 ? ImageEdgeMode::Zero : a.edgeMode, place.channel);
    if (min(onlyY, min(onlyX, onlyChannel)) > Axis::kPerhapsSeveral) {
      if (min(onlyY, min(onlyX, onlyChannel)) != Axis::kNone)
        sums = Access::load(a.input, {place.image, onlyY, onlyX, onlyChannel});
      return Access::store(sums, a.destination, place, a.accumulate);
    }
    const auto add = [&](const ElementPlace& from) { addTo(sums, Access::load(a.input, from)); };
    a.y.forEachReader(a.edgeMode, place.y, [&](std::int32_t y) {
      a.x.forEachReader(a.edgeMode, place.x, [&](std::int32_t x) {
        if (Access::lanes == 1)
          return a.channels.forEachReader(a.edgeMode, place.channel, [&](std::int32_t channel) {
            add({place.image, y, x, channel});
          });
        const std::int32_t channel = place.channel + a.channels.before;
        if (channel >= 0 && channel < a.channels.result) add({place.image, y, x, channel});
      });
    });
    Access::store(sums, a.destination, place, a.accumulate);
  });
}

/// Padding and slices.
class AxesPlan final : public AccessPlan {
 public:
  explicit AxesPlan(const ReshapeProblem& problem)
      : problem_(problem),
        x_(problem.x, problem.edgeMode, problem.source().width, problem.result().width),
        y_(problem.y, problem.edgeMode, problem.source().height, problem.result().height),
        channels_(problem.channels, problem.edgeMode, problem.source().channels, problem.result().channels) {}

  [[nodiscard]] std::size_t scratchBytes() const override { return problem_.fill.size() * sizeof(float); }
  [[nodiscard]] bool canAccumulate() const override { return accumulates(problem_); }
  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& to = problem_.destination;
    if (to.elements() == 0) return;
    auto* const fill = reinterpret_cast<float*>(operands.scratch);
    cuda::storeNumbers(stream, problem_.fill, fill);
    const std::int64_t threadsOfPixel = to.channels / lanes();
    const AxesArguments a{RowGrid(to.images * to.height, to.width * threadsOfPixel),
                          Divider(to.height),
                          Divider(threadsOfPixel),
                          problem_.edgeMode,
                          x_,
                          y_,
                          channels_,
                          {problem_.input, inputOf(problem_, operands)},
                          {to, operands.destination},
                          problem_.fill.empty() ? nullptr : fill,
                          operands.accumulate};
    cuda::withAccess(vectorFormat(), [&](auto access) {
      using Access = decltype(access);
      const bool isForward = problem_.direction == ReshapeDirection::Forward;
      mtl::cuda::launch(stream, isForward ? pad<Access> : padGradient<Access>, a.grid.grid, a.grid.block, 0,
                        a);
    });
  }

 protected:
  [[nodiscard]] AccessedTensors accessed(const Operands& operands) const override {
    return {{{problem_.input, inputOf(problem_, operands)}, {problem_.destination, operands.destination}}};
  }

 private:
  ReshapeProblem problem_;
  Axis x_;
  Axis y_;
  Axis channels_;
};

/// Whether the channels of each 16 bytes stay together, if both tensors have whole ones.
bool keepsVectors(const ReshapeProblem& problem) {
  const auto lanes = static_cast<std::int64_t>(16 / bytesPerChannel(problem.destination.format));
  const bool readsOnce =
      problem.edgeMode == ImageEdgeMode::Zero || problem.edgeMode == ImageEdgeMode::Constant;
  return readsOnce ? problem.channels.before % lanes == 0
                   : problem.channels.before == 0 && problem.source().channels == problem.result().channels;
}

/// Why no kernel computes a problem, or null.
const char* refusalOfSizes(const ReshapeProblem& problem) {
  constexpr std::int64_t most = std::int64_t{1} << 28;
  for (const ReshapeAxis& axis : {problem.x, problem.y, problem.channels})
    if (axis.before < -most || axis.before > most) return "a padding of about 2^28 elements";
  for (const TensorShape* shape : {&problem.input, &problem.destination}) {
    if (!ElementGrid::fits(*shape)) return ElementGrid::kTooLarge;
    if (std::max({shape->width, shape->height, shape->channels}) > most)
      return "an axis of about 2^28 elements";
    if (problem.isReshape() && !RowGrid::fits(shape->images, shape->height * shape->width * shape->channels))
      return "an image of about 2^31 elements";
  }
  return nullptr;
}

Preparation prepareElements(const ReshapeProblem& problem) {
  if (const char* const refusal = refusalOfSizes(problem)) return Refusal{refusal};
  if (problem.isReshape()) return std::make_shared<const OrderPlan>(problem);
  return std::make_shared<const AxesPlan>(problem);
}

constexpr Implementation<ReshapeProblem> kElements{"thread per element", prepareElements};

Preparation prepareCopy(const ReshapeProblem& problem) {
  if (const char* const refusal = refusalOfSizes(problem)) return Refusal{refusal};
  if (problem.mapping != ReshapeMapping::Order)
    return Refusal{"elements that change their order, or padding"};
  if (problem.input.format != problem.destination.format) return Refusal{"formats that differ"};
  for (const TensorShape* shape : {&problem.input, &problem.destination}) {
    const std::int64_t elements = shape->height * shape->width * shape->channels;
    const auto bytes = static_cast<std::int64_t>(bytesPerChannel(shape->format));
    if (shape->pixelStride != shape->channels || shape->rowStride != shape->width * shape->channels ||
        (elements | shape->imageStride) * bytes % 16 != 0)
      return Refusal{"images that are not dense, or no multiples of 16 bytes"};
  }
  return withFallback(std::make_shared<const CopyPlan>(problem), kElements, problem);
}

Preparation prepareVectors(const ReshapeProblem& problem) {
  if (problem.isReshape()) return Refusal{"neither padding nor a slice"};
  if (!keepsVectors(problem)) return Refusal{"padding in channels that is no multiple of 16 bytes"};
  return inVectors(std::make_shared<AxesPlan>(problem), kElements, problem);
}

constexpr std::array<Implementation<ReshapeProblem>, 3> kImplementations{
    {{"copy", prepareCopy}, {"16 bytes per thread", prepareVectors}, kElements}};

}  // namespace

std::span<const Implementation<ReshapeProblem>> reshapeImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
