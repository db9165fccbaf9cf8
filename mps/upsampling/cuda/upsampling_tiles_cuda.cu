#include "mps/upsampling/cuda/upsampling_tiles_cuda.cuh"

#include <algorithm>
#include <bit>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "mps/core/cuda/store_numbers_cuda.cuh"
#include "mps/core/plan/fallback_plan.hpp"
#include "mps/upsampling/cuda/upsampling_cuda.hpp"
#include "mps/upsampling/upsampling_taps.hpp"
#include "mtl/cuda/api.hpp"

namespace mps::detail::cuda {
namespace {

/// The inputs that a position of the destination is a weighted sum of, on one axis. Those at both ends count something.
struct AxisTaps {
  std::int64_t first = 0;
  std::vector<float> weights;  ///< of inputs from `first` on

  [[nodiscard]] std::int64_t end() const { return first + static_cast<std::int64_t>(weights.size()); }
};

std::vector<AxisTaps> axisTaps(const UpsamplingTaps& all, std::int64_t positions) {
  std::vector<AxisTaps> taps(static_cast<std::size_t>(positions));
  for (std::int64_t i = 0; i < positions; ++i) {
    AxisTaps& own = taps[static_cast<std::size_t>(i)];
    own.weights.resize(static_cast<std::size_t>(all.span(i)));
    if (!own.weights.empty()) own.first = all.begin(i)->input;
    for (const UpsamplingTap* tap = all.begin(i); tap != all.end(i); ++tap)
      own.weights[static_cast<std::size_t>(tap->input - own.first)] = tap->weight;
  }
  return taps;
}

/// A line for each row of the destination. @return none: a result takes other rows than the latest ones
template <class Tile>
std::optional<std::vector<float>> rowTable(std::span<const AxisTaps> rows) {
  std::vector<float> table;
  std::int64_t last = 0;
  for (const AxisTaps& taps : rows) {
    float line[Tile::kRowFloats] = {};
    if (!taps.weights.empty()) {
      last = std::max(last, taps.end() - 1);
      if (taps.first <= last - Tile::kRows) return std::nullopt;
      for (std::int64_t row = taps.first; row < taps.end(); ++row)
        line[last - row] = taps.weights[static_cast<std::size_t>(row - taps.first)];
    }
    line[Tile::kRows] = std::bit_cast<float>(static_cast<std::int32_t>(last));
    table.insert(table.end(), std::begin(line), std::end(line));
  }
  return table;
}

/// The columns of threads: the first input pixel of each, and its line of the table.
struct GroupTable {
  std::vector<std::int64_t> firsts;
  std::vector<float> lines;

  template <class Tile>
  static std::optional<GroupTable> make(std::span<const AxisTaps> columns, std::int64_t inputWidth) {
    GroupTable table;
    if (inputWidth < Tile::kSpan) return std::nullopt;
    for (std::size_t begin = 0; begin < columns.size(); begin += Tile::kColumns) {
      const auto own = columns.subspan(begin, std::min<std::size_t>(Tile::kColumns, columns.size() - begin));
      // Pixels that count nothing are inside the input, too.
      std::int64_t first = inputWidth;
      for (const AxisTaps& taps : own)
        if (!taps.weights.empty()) first = std::min(first, taps.first);
      if (first == inputWidth) first = table.firsts.empty() ? 0 : table.firsts.back();
      first = std::min(first, inputWidth - Tile::kSpan);
      float line[Tile::kGroupFloats] = {};
      for (std::size_t j = 0; j < own.size(); ++j) {
        if (own[j].weights.empty()) continue;
        if (own[j].end() > first + Tile::kSpan) return std::nullopt;
        for (std::size_t k = 0; k < own[j].weights.size(); ++k)
          line[(static_cast<std::size_t>(own[j].first - first) + k) * Tile::kColumns + j] = own[j].weights[k];
      }
      line[Tile::kGroupFloats - 1] = std::bit_cast<float>(static_cast<std::int32_t>(first));
      table.lines.insert(table.lines.end(), std::begin(line), std::end(line));
      table.firsts.push_back(first);
    }
    if (!std::is_sorted(table.firsts.begin(), table.firsts.end())) return std::nullopt;
    return table;
  }
  /// Input pixels from the first to the last one of so many threads. @param span of one
  [[nodiscard]] std::int64_t mostPixels(std::int64_t groups, std::int64_t span) const {
    std::int64_t most = 0;
    const auto count = static_cast<std::int64_t>(firsts.size());
    for (std::int64_t begin = 0; begin < count; begin += groups) {
      const std::int64_t last = std::min(begin + groups, count) - 1;
      most = std::max(
          most, firsts[static_cast<std::size_t>(last)] + span - firsts[static_cast<std::size_t>(begin)]);
    }
    return most;
  }
};

/// How many threads' columns a block has, so that few of its threads have none. @param most of them
std::int64_t groupsOfBlock(std::int64_t groups, std::int64_t most) {
  const auto all = [&](std::int64_t own) { return (groups + own - 1) / own * own; };
  std::int64_t best = std::min(groups, most);
  for (std::int64_t own = best; own > best / 2; --own)
    if (all(own) < all(best)) best = own;
  return best;
}

template <class T, class Tile>
class TilePlan final : public SelectivePlan {
 public:
  explicit TilePlan(const UpsamplingProblem& problem)
      : input_(problem.input), destination_(problem.destination) {}

  /// @return whether the tile has room for the taps of any position, and blocks are small enough
  bool setTaps(std::span<const AxisTaps> rows, std::span<const AxisTaps> columns) {
    const auto rowLines = rowTable<Tile>(rows);
    const auto groups = GroupTable::make<Tile>(columns, input_.width);
    return rowLines && groups && setGrid(*rowLines, *groups);
  }

  [[nodiscard]] std::size_t scratchBytes() const override { return table_.size() * sizeof(float); }
  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    return objectionToUnaligned({operands.gradient, operands.destination});
  }
  void run(mtl::Stream& stream, const Operands& operands) const override {
    auto* const memory = reinterpret_cast<float*>(operands.scratch);
    storeNumbers(stream, table_, memory);
    TileArguments a = arguments_;
    a.rowTable = memory;
    a.groupTable = memory + destination_.height * Tile::kRowFloats;
    a.input = {input_, operands.gradient};
    a.destination = {destination_, operands.destination};
    const auto kernel = operands.accumulate ? sumTiles<T, Tile, true> : sumTiles<T, Tile, false>;
    mtl::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(sharedBytes_)),
                     "cudaFuncSetAttribute");
    mtl::cuda::launch(stream, kernel, dim3(blocks_), dim3(threads_), sharedBytes_, a);
  }

 private:
  /// @return whether blocks are small enough
  bool setGrid(const std::vector<float>& rowLines, const GroupTable& groups) {
    TileArguments& a = arguments_;
    const auto count = static_cast<std::int64_t>(groups.firsts.size());
    const std::int64_t own = groupsOfBlock(count, Tile::kThreads / Tile::kThreadsOfGroup);
    const std::int64_t held = groups.mostPixels(own, Tile::kSpan);
    const std::int64_t copies = held * TileRows<T, Tile>::vectors;
    if (held * input_.pixelStride > 0x1FFFFFFF) return false;
    if (copies > Tile::template kCopies<T> * own * Tile::kThreadsOfGroup) return false;
    a.slices = Divider((destination_.channels + kTileChannels - 1) / kTileChannels);
    a.tiles = Divider((count + own - 1) / own);
    const std::int64_t blocksOfRows = destination_.images * a.slices.divisor() * a.tiles.divisor();
    // Enough blocks for a large GPU come first; each chunk begins with sums that the one before it has, too.
    constexpr std::int64_t enough = 2000;
    const std::int64_t rows = std::clamp<std::int64_t>(
        destination_.height * blocksOfRows / enough,
        std::min<std::int64_t>(destination_.height, 4 * Tile::kRows), destination_.height);
    const std::int64_t chunks = (destination_.height + rows - 1) / rows;
    a.rowsPerChunk = static_cast<std::int32_t>((destination_.height + chunks - 1) / chunks);
    a.chunks = Divider((destination_.height + a.rowsPerChunk - 1) / a.rowsPerChunk);
    if (blocksOfRows * a.chunks.divisor() > 0x7FFFFFFF) return false;
    blocks_ = static_cast<unsigned>(blocksOfRows * a.chunks.divisor());
    threads_ = static_cast<unsigned>(own * Tile::kThreadsOfGroup);
    a.height = static_cast<std::int32_t>(destination_.height);
    a.width = static_cast<std::int32_t>(destination_.width);
    a.channels = static_cast<std::int32_t>(destination_.channels);
    a.inputWidth = static_cast<std::int32_t>(input_.width);
    a.columnsHeld = static_cast<std::int32_t>(held);
    a.groupsOfTile = static_cast<std::int32_t>(own);
    sharedBytes_ =
        static_cast<std::size_t>(kTileRowsHeld * held * TileRows<T, Tile>::vectors) * sizeof(uint4) +
        static_cast<std::size_t>(a.rowsPerChunk + 1) * Tile::kRowFloats * sizeof(float);
    if (sharedBytes_ > kMostBytes) return false;
    table_ = rowLines;
    table_.insert(table_.end(), groups.lines.begin(), groups.lines.end());
    return true;
  }
  /// Two blocks have room on a multiprocessor.
  static constexpr std::size_t kMostBytes = std::size_t{110} << 10;

  TensorShape input_;
  TensorShape destination_;
  TileArguments arguments_;
  std::vector<float> table_;  ///< of rows, and behind it that of columns
  unsigned blocks_ = 0;
  unsigned threads_ = 0;
  std::size_t sharedBytes_ = 0;
};

/// The plan with the first tile that has room.
template <class T, class... Tiles>
Preparation prepareWith(const UpsamplingProblem& problem) {
  const auto rows = axisTaps(upsamplingRowTaps(problem), problem.destination.height);
  const auto columns = axisTaps(upsamplingColumnTaps(problem), problem.destination.width);
  std::shared_ptr<const SelectivePlan> found;
  const auto tries = [&]<class Tile>(std::type_identity<Tile> /*unused*/) {
    auto plan = std::make_shared<TilePlan<T, Tile>>(problem);
    if (plan->setTaps(rows, columns)) found = std::move(plan);
    return found != nullptr;
  };
  static_cast<void>((tries(std::type_identity<Tiles>()) || ...));
  if (!found) return Refusal{"more gradients of a pixel than a tile has room for"};
  return withFallback(std::move(found), upsamplingImplementationsCuda().back(), problem);
}

}  // namespace
}  // namespace mps::detail::cuda

namespace mps::detail {

Preparation prepareUpsamplingTilesCuda(const UpsamplingProblem& problem) {
  const TensorShape& input = problem.input;
  const TensorShape& destination = problem.destination;
  if (problem.direction == UpsamplingDirection::Forward) return Refusal{"not a gradient"};
  if (problem.sampling == UpsamplingSampling::Nearest)
    return Refusal{"pixels that have no results in common"};
  if (problem.sampling == UpsamplingSampling::LanczosScale) return Refusal{"Lanczos"};
  // Half of the threads have something to do.
  if (destination.channels < cuda::kTileChannels / 2) return Refusal{"fewer than 32 channels"};
  if (destination.elements() == 0 || input.elements() == 0) return Refusal{"nothing to add up"};
  if (!takesLanes(input) || !takesLanes(destination))
    return Refusal{"pixels that are no multiples of 16 bytes"};
  if (!upsamplingTablesFitLaunch(problem)) return Refusal{"tables that one launch does not bring"};
  const ImageFeatureChannelFormat format = cuda::commonFormat({&input, &destination});
  if (format == ImageFeatureChannelFormat::Float32)
    return cuda::prepareWith<float, cuda::Tile<2, 2, 4, 2, 256, 5>, cuda::Tile<2, 2, 6, 4, 256, 4>,
                             cuda::Tile<4, 2, 7, 6, 160, 4>>(problem);
  if (format == ImageFeatureChannelFormat::Float16)
    return cuda::prepareWith<Float16, cuda::Tile<4, 2, 4, 2, 224, 4>, cuda::Tile<4, 2, 6, 4, 224, 3>,
                             cuda::Tile<4, 2, 7, 6, 160, 4>>(problem);
  return Refusal{"not all float32 and not all float16"};
}

}  // namespace mps::detail
