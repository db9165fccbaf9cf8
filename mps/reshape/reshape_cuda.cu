#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "mps/core/element_grid_cuda.cuh"
#include "mps/core/store_numbers_cuda.cuh"
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

class OrderPlan final : public Plan {
 public:
  explicit OrderPlan(const ReshapeProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& from = problem_.input;
    const TensorShape& to = problem_.destination;
    if (to.elements() == 0) return;
    const std::byte* const input = inputOf(problem_, operands);
    const std::int64_t elements = to.height * to.width * to.channels;
    if (problem_.mapping == ReshapeMapping::Order && !operands.accumulate &&
        takesUnits(input, operands.destination)) {
      const auto unit = static_cast<std::int64_t>(16 / bytesPerChannel(to.format));
      const RowGrid grid(to.images, elements / unit);
      return mtl::cuda::launch(stream, copyImages, grid.grid, grid.block, 0, grid,
                               reinterpret_cast<const uint4*>(input), from.imageStride / unit,
                               reinterpret_cast<uint4*>(operands.destination), to.imageStride / unit);
    }
    const OrderArguments a{RowGrid(to.images, elements),       ElementOrder(from, problem_.mapping),
                           ElementOrder(to, problem_.mapping), {from, input},
                           {to, operands.destination},         operands.accumulate};
    mtl::cuda::launch(stream, moveElements, a.grid.grid, a.grid.block, 0, a);
  }

  [[nodiscard]] bool canAccumulate() const override { return accumulates(problem_); }

 private:
  [[nodiscard]] bool takesUnits(const std::byte* input, const std::byte* destination) const {
    const auto isRun = [](const TensorShape& shape, const std::byte* address) {
      const std::int64_t elements = shape.height * shape.width * shape.channels;
      const auto element = static_cast<std::int64_t>(bytesPerChannel(shape.format));
      const std::int64_t mixed = (elements | shape.imageStride) * element |
                                 static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(address));
      return shape.pixelStride == shape.channels && shape.rowStride == shape.width * shape.channels &&
             mixed % 16 == 0;
    };
    return problem_.input.format == problem_.destination.format && isRun(problem_.input, input) &&
           isRun(problem_.destination, destination);
  }

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

/// Adjacent elements of a source, from `begin` on.
struct Elements {
  std::int32_t begin = 0;
  std::uint32_t count = 0;

  Elements() = default;
  Elements(std::int64_t first, std::int64_t end)
      : begin(static_cast<std::int32_t>(first)),
        count(static_cast<std::uint32_t>(std::max<std::int64_t>(0, end - first))) {}
  [[nodiscard]] __device__ bool contain(std::int32_t i) const {
    return static_cast<std::uint32_t>(i - begin) < count;
  }
};

/// An axis whose positions read the source, once mirrored at either end, or nothing: an element has up to three readers.
struct NearAxis {
  static constexpr int kReaders = 3;
  static constexpr std::int32_t kNone = -1;
  std::int32_t before = 0;
  std::int32_t leftSum = 0;  ///< of an element's number and the position of its image on the left
  std::int32_t rightSum = 0;
  Elements own, left, right;  ///< those that have such a reader
  Elements copied;            ///< most of those that have their own reader alone

  /// Whether the axis is one.
  static bool takes(const Axis& axis, ImageEdgeMode edgeMode) {
    if (edgeMode == ImageEdgeMode::Clamp) return false;
    const std::int32_t image = axis.source - (edgeMode == ImageEdgeMode::Mirror ? 1 : 0);
    return !isMirrored(edgeMode) ||
           (axis.before <= image && axis.result - axis.before - axis.source <= image);
  }
  NearAxis(const Axis& axis, ImageEdgeMode edgeMode) : before(axis.before) {
    const std::int64_t source = axis.source;
    const std::int64_t result = axis.result;
    own = within(-before, result - before, 0, source);
    std::int64_t copiedBegin = own.begin;
    std::int64_t copiedEnd = copiedBegin + own.count;
    if (isMirrored(edgeMode)) {
      // Without its own repetition an end has no image there.
      const std::int64_t edge = edgeMode == ImageEdgeMode::Mirror ? 0 : 1;
      const std::int64_t first = before - edge;
      const std::int64_t last = before + 2 * (source - 1) + edge;
      leftSum = static_cast<std::int32_t>(first);
      rightSum = static_cast<std::int32_t>(last);
      left = within(first - result + 1, first + 1, 1 - edge, source);
      right = within(last - result + 1, last + 1, 0, source - 1 + edge);
      if (left.count > 0) copiedBegin = std::max<std::int64_t>(copiedBegin, left.begin + left.count);
      if (right.count > 0) copiedEnd = std::min<std::int64_t>(copiedEnd, right.begin);
    }
    copied = Elements(copiedBegin, copiedEnd);
  }

  /// Reader k of element i, its own one first.
  [[nodiscard]] __device__ std::int32_t reader(int k, std::int32_t i) const {
    if (k == 0) return own.contain(i) ? i + before : kNone;
    if (k == 1) return left.contain(i) ? leftSum - i : kNone;
    return right.contain(i) ? rightSum - i : kNone;
  }

 private:
  static bool isMirrored(ImageEdgeMode edgeMode) {
    return edgeMode == ImageEdgeMode::Mirror || edgeMode == ImageEdgeMode::MirrorWithEdge;
  }
  static Elements within(std::int64_t begin, std::int64_t end, std::int64_t least, std::int64_t most) {
    return {std::max(begin, least), std::min(end, most)};
  }
};

struct AxesArguments {
  RowGrid grid;  ///< over the destination's rows and the packs of a row
  Divider height;
  Divider packs;  ///< of a pixel
  ImageEdgeMode edgeMode;
  Axis x, y, channels;
  SourceView input;
  ResultView destination;
  const float* fill;  ///< of each channel of a forward result, or null
  bool accumulate;
};

/// Calls visit(place) for the packs of the destination of this thread.
template <int lanes, class Visit>
__device__ void forEachPlace(const AxesArguments& a, Visit visit) {
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    const std::uint32_t image = a.height.divide(row);
    cuda::forEachPiece(a.grid, [&](std::uint32_t piece) {
      const std::uint32_t x = a.packs.divide(piece);
      visit(ElementPlace{
          static_cast<std::int32_t>(image), static_cast<std::int32_t>(row - image * a.height.divisor()),
          static_cast<std::int32_t>(x), static_cast<std::int32_t>(piece - x * a.packs.divisor()) * lanes});
    });
  });
}

/// Packs lie wholly inside the source's channels, in their order, or outside.
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
    // The channels of a pack stay together.
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

struct NearArguments {
  RowGrid grid;  ///< a thread for each pack of a row
  Divider height;
  Divider packs;  ///< of a pixel
  NearAxis x, y;
  Elements channels;           ///< that are read
  std::int32_t channelBefore;  ///< where the source's begin in the result
  SourceView input;
  ResultView destination;
  bool accumulate;
};

/// Packs of axes that read near. Nearly all have one reader and are copied.
template <class T>
__global__ void __launch_bounds__(mtl::cuda::kBlockThreads, 6) padGradientNear(const NearArguments a) {
  const std::uint32_t piece = blockIdx.x * blockDim.x + threadIdx.x;
  if (piece >= a.grid.pieces) return;
  const auto x = static_cast<std::int32_t>(a.packs.divide(piece));
  const auto channel =
      static_cast<std::int32_t>(piece - static_cast<std::uint32_t>(x) * a.packs.divisor()) * cuda::kLanes<T>;
  const bool isRead = a.channels.contain(channel);
  const bool isCopied = !a.accumulate && isRead && a.x.copied.contain(x);
  const auto offset = [&](std::int32_t column) {
    return static_cast<std::int64_t>(column) * a.input.pixel + (channel + a.channelBefore);
  };
  const std::int64_t toOffset = static_cast<std::int64_t>(x) * a.destination.pixel + channel;
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    const std::uint32_t image = a.height.divide(row);
    const auto y = static_cast<std::int32_t>(row - image * a.height.divisor());
    const T* const from = reinterpret_cast<const T*>(a.input.memory) + image * a.input.image;
    T* const to = reinterpret_cast<T*>(a.destination.memory) + image * a.destination.image +
                  y * a.destination.row + toOffset;
    if (isCopied && a.y.copied.contain(y)) {
      *reinterpret_cast<uint4*>(to) =
          *reinterpret_cast<const uint4*>(from + (y + a.y.before) * a.input.row + offset(x + a.x.before));
      return;
    }
    cuda::Lanes<T> sums{};
#pragma unroll 1
    for (int i = 0; i < NearAxis::kReaders; ++i) {
      const std::int32_t readRow = a.y.reader(i, y);
      if (readRow < 0 || !isRead) continue;
      const T* const source = from + readRow * a.input.row;
#pragma unroll
      for (int k = 0; k < NearAxis::kReaders; ++k)
        if (const std::int32_t column = a.x.reader(k, x); column >= 0) {
          const uint4 pack = *reinterpret_cast<const uint4*>(source + offset(column));  // by one load
          addTo(sums, cuda::lanesOf(pack, to));
        }
    }
    if (a.accumulate) addTo(sums, cuda::loadLanes(to));
    cuda::storeLanes(sums, to);
  });
}

class AxesPlan final : public Plan {
 public:
  explicit AxesPlan(const ReshapeProblem& problem)
      : problem_(problem),
        x_(problem.x, problem.edgeMode, problem.source().width, problem.result().width),
        y_(problem.y, problem.edgeMode, problem.source().height, problem.result().height),
        channels_(problem.channels, problem.edgeMode, problem.source().channels, problem.result().channels) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const TensorShape& to = problem_.destination;
    if (to.elements() == 0) return;
    const std::byte* const input = inputOf(problem_, operands);
    auto* const fill = reinterpret_cast<float*>(operands.scratch);
    cuda::storeNumbers(stream, problem_.fill, fill);
    const bool isForward = problem_.direction == ReshapeDirection::Forward;
    const auto start = [&](auto access) {
      using Access = decltype(access);
      const std::int64_t packs = to.channels / Access::lanes;
      const AxesArguments a{RowGrid(to.images * to.height, to.width * packs),
                            Divider(to.height),
                            Divider(packs),
                            problem_.edgeMode,
                            x_,
                            y_,
                            channels_,
                            {problem_.input, input},
                            {to, operands.destination},
                            problem_.fill.empty() ? nullptr : fill,
                            operands.accumulate};
      if constexpr (Access::lanes > 1)
        if (!isForward && NearAxis::takes(x_, problem_.edgeMode) && NearAxis::takes(y_, problem_.edgeMode)) {
          using Element = std::conditional_t<Access::lanes == cuda::kLanes<float>, float, Float16>;
          const NearArguments near = nearArguments(a);
          return mtl::cuda::launch(stream, padGradientNear<Element>, a.grid.grid, a.grid.block, 0, near);
        }
      auto* const kernel = isForward ? pad<Access> : padGradient<Access>;
      mtl::cuda::launch(stream, kernel, a.grid.grid, a.grid.block, 0, a);
    };
    cuda::withAccess(
        cuda::commonFormat({&problem_.input, &to}),
        cuda::takesLanes(problem_.input, input) && cuda::takesLanes(to, operands.destination) && keepsPacks(),
        start);
  }

  [[nodiscard]] std::size_t scratchBytes() const override { return problem_.fill.size() * sizeof(float); }
  [[nodiscard]] bool canAccumulate() const override { return accumulates(problem_); }

 private:
  [[nodiscard]] NearArguments nearArguments(const AxesArguments& a) const {
    const std::int64_t before = channels_.before;
    const Elements channels(std::max<std::int64_t>(0, -before),
                            std::min<std::int64_t>(channels_.source, channels_.result - before));
    return {a.grid,
            a.height,
            a.packs,
            NearAxis(x_, a.edgeMode),
            NearAxis(y_, a.edgeMode),
            channels,
            channels_.before,
            a.input,
            a.destination,
            a.accumulate};
  }
  /// Whether the channels of a pack stay together, if both tensors have whole packs.
  [[nodiscard]] bool keepsPacks() const {
    const auto lanes = static_cast<std::int32_t>(16 / bytesPerChannel(problem_.destination.format));
    const bool readsOnce =
        problem_.edgeMode == ImageEdgeMode::Zero || problem_.edgeMode == ImageEdgeMode::Constant;
    return readsOnce ? channels_.before % lanes == 0
                     : channels_.before == 0 && channels_.source == channels_.result;
  }

  ReshapeProblem problem_;
  Axis x_;
  Axis y_;
  Axis channels_;
};

Preparation prepareElements(const ReshapeProblem& problem) {
  constexpr std::int64_t most = std::int64_t{1} << 28;
  for (const ReshapeAxis& axis : {problem.x, problem.y, problem.channels})
    if (axis.before < -most || axis.before > most) return Refusal{"a padding of about 2^28 elements"};
  for (const TensorShape* shape : {&problem.input, &problem.destination}) {
    if (!ElementGrid::fits(*shape)) return Refusal{ElementGrid::kTooLarge};
    if (std::max({shape->width, shape->height, shape->channels}) > most)
      return Refusal{"an axis of about 2^28 elements"};
    if (problem.isReshape() && !RowGrid::fits(shape->images, shape->height * shape->width * shape->channels))
      return Refusal{"an image of about 2^31 elements"};
  }
  if (problem.isReshape()) return std::make_shared<const OrderPlan>(problem);
  return std::make_shared<const AxesPlan>(problem);
}

constexpr std::array<Implementation<ReshapeProblem>, 1> kImplementations{{{"elements", prepareElements}}};

}  // namespace

std::span<const Implementation<ReshapeProblem>> reshapeImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
