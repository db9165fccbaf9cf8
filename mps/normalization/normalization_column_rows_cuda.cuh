#pragma once

#include <type_traits>

#include "mps/normalization/normalization_column_memory_cuda.cuh"

/// Pairs of rows of images that come to shared memory one after the other, and results that go back. A block goes from image
/// to image without a stop; pairs of zeros are between them.
namespace mps::detail::cuda {

/// A place in the pairs of rows of items, one item behind the other.
struct ColumnPlace {
  std::uint32_t group;  ///< of items
  std::int32_t pair;    ///< of rows; below 0: nothing yet

  /// @param pairs of an item, with those of zeros @return whether that is another group
  __device__ bool advance(std::int32_t pairs) {
    if (++pair < pairs) return false;
    pair = 0;
    ++group;
    return true;
  }
};

/// What a thread does for that: it brings sixteen bytes of rows, and has four pixels of them.
/// @tparam keepsPixels whether these stay in registers until nobody needs them
template <class T, int threads, bool isContrast, bool isGradient, bool keepsPixels>
struct ColumnRows {
  using Build = ColumnBuild<T, threads, isContrast, isGradient>;
  using Memory = ColumnMemory<T, threads, isContrast, isGradient>;
  static constexpr int lanes = Build::lanes;
  static constexpr bool isFew = Build::isFew;
  static constexpr int pieces = Build::isWhole ? 2 : 1;  ///< sixteen bytes of a row that a thread fetches
  using Bits = std::conditional_t<lanes * sizeof(T) == 4, unsigned, unsigned short>;
  using Tile = float[2][kColumns][lanes];

  const ColumnArguments& a;
  Memory layout;
  std::uint32_t imageOfBlock, slice;
  std::int32_t segment, thread;
  std::int32_t stepsLeft;
  ColumnPlace fetched;       ///< what is fetched next
  ColumnPlace stored;        ///< what is stored next
  std::int32_t firstStored;  ///< pair of the first image
  bool wereRows[2];          ///< whether the last pair that was fetched is of the image
  ColumnPiece<const T, isFew> source;
  ColumnPiece<const T, isFew> gradient;
  ColumnPiece<T, isFew> destination;
  // Bytes of shared memory.
  std::int32_t own;                         ///< from a row to the first column of this thread
  std::int32_t piece;                       ///< from a row to what this thread fetches
  std::int32_t exchanged;                   ///< where a thread's columns are told to others
  std::int32_t arriving[Build::ahead + 1];  ///< pairs of rows, the current one first
  std::int32_t before;
  std::int32_t beforeThat;  ///< that results are made of: the pair before that one, or one more back

  enum Pair { Current, Before, BeforeThat };
  /// Where they stay in registers: by rows, two columns in a word.
  unsigned pixels[keepsPixels ? 3 : 1][2][kColumns / 2] = {};

  // Of a step.
  Bits centerBits[2][kColumns];                                          ///< elsewhere
  uint2 centerWords[2][3];                                               ///< or of whole pixels
  unsigned seenWords[2][Build::isWhole ? lanes * kColumnsSeen / 2 : 1];  ///< what windows see of the pair

  /// Of an image of a block with the pairs of zeros behind it.
  [[nodiscard]] __device__ std::int32_t pairsOfItem() const {
    return static_cast<std::int32_t>(a.pairs.divisor()) + Build::gap;
  }
  [[nodiscard]] __device__ std::int32_t columnsLeft() const { return a.width - segment * kColumns; }
  /// Moves to a row of an item: to sixteen bytes of a pixel, or of the row where that is all of the item's.
  template <class Element, class View>
  __device__ void move(ColumnPiece<Element, isFew>& to, const View& view, std::uint32_t group,
                       std::int32_t row) const {
    constexpr int packed = 16 / static_cast<int>(sizeof(T));
    constexpr int perColumn = isFew ? 1 : threads / kColumns;
    const std::uint32_t image = group * a.imagesPerBlock + imageOfBlock;
    to.row = reinterpret_cast<Element*>(view.memory) + image * view.image + row * view.row;
    if (isFew) {
      const std::int32_t number = segment * threads + thread;
      to.row += packed * number;
      to.isThere = image < a.images && 16 * number < layout.segments * Memory::segment;
    } else {
      const std::int32_t x = segment * kColumns + thread / perColumn;
      to.row += x * view.pixel + static_cast<std::int32_t>(slice) * (threads * lanes) +
                packed * (thread % perColumn);
      to.isThere = image < a.images && x < a.width;
    }
  }

  __device__ explicit ColumnRows(const ColumnArguments& arguments)
      : a(arguments), layout(static_cast<std::int32_t>(arguments.segments.divisor())) {
    const std::uint32_t number = threadIdx.x / threads;
    const std::uint32_t itemOfBlock = a.segments.divide(number);
    segment = static_cast<std::int32_t>(number - itemOfBlock * a.segments.divisor());
    thread = static_cast<std::int32_t>(threadIdx.x % threads);
    // Blocks beside one another have the slices of the same pixels.
    const std::uint32_t block = a.slices.divide(blockIdx.x);
    imageOfBlock = a.slicesPerBlock.divide(itemOfBlock);
    slice =
        (blockIdx.x - block * a.slices.divisor() - imageOfBlock) * a.slicesPerBlock.divisor() + itemOfBlock;
    const std::uint32_t begin = block * a.pairsPerBlock + min(block, a.blocksWithMore);
    const std::uint32_t end = begin + a.pairsPerBlock + (block < a.blocksWithMore ? 1 : 0);
    fetched.group = a.pairs.divide(begin);
    firstStored = static_cast<std::int32_t>(begin - fetched.group * a.pairs.divisor());
    fetched.pair = max(0, firstStored - (isGradient ? 2 : 1));
    stored = {fetched.group, fetched.pair - Build::lag};
    const std::uint32_t lastGroup = a.pairs.divide(end - 1);
    const auto items = static_cast<std::int32_t>(lastGroup - fetched.group);
    const auto lastPair = static_cast<std::int32_t>(end - 1 - lastGroup * a.pairs.divisor());
    stepsLeft = items * pairsOfItem() + lastPair - stored.pair + 1;

    constexpr int perColumn = isFew ? 1 : threads / kColumns;
    const std::int32_t item = static_cast<std::int32_t>(itemOfBlock) * layout.bytes();
    const std::int32_t first = item + Memory::zeros + segment * Memory::segment;
    own = first + thread * static_cast<std::int32_t>(sizeof(Bits));
    piece = isFew ? item + Memory::zeros + 16 * (segment * threads + thread)
                  : first + thread / perColumn * Memory::column + thread % perColumn * 16;
    exchanged =
        item + layout.pairs() + (segment + 1) * Memory::exchangedSegment + thread * Memory::exchangedBytes;
    before = (Memory::sourcePairs - 1) * layout.pair();
    beforeThat = 0;
    wereRows[0] = wereRows[1] = fetched.pair > 0;
    move(source, a.source, fetched.group, 2 * fetched.pair);
    if (isGradient) move(gradient, a.gradient, fetched.group, 2 * fetched.pair - 2);
    move(destination, a.destination, stored.group, 2 * firstStored);
  }

  /// Whether the windows of a row of a step of a gradient are of the image: those a pair behind what has come.
  [[nodiscard]] __device__ bool areWindows(int row) const {
    const std::int32_t pair = stored.pair + 1 == pairsOfItem() ? 0 : stored.pair + 1;
    return pair >= 0 && 2 * pair + row < a.height;
  }
  /// From a thread's first piece to its other one, and whether it has that.
  [[nodiscard]] __device__ std::int32_t toPiece(int which) const { return 16 * which * layout.segments; }
  [[nodiscard]] __device__ bool hasPiece(int which) const {
    return which == 0 || 16 * segment + toPiece(which) < layout.segments * Memory::segment;
  }
  [[nodiscard]] __device__ std::int32_t gradientPair(int parity) const {
    return (Memory::sourcePairs + parity) * layout.pair();
  }
  /// Results of the pair that was there have been stored. @param parity of the step
  template <int parity>
  __device__ void fetchNext(std::int32_t& pair) {
    static_assert(!isGradient || Memory::gradientPairs == 2);
    const std::int32_t y = 2 * fetched.pair;
    pair = beforeThat;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const std::int32_t to = piece + row * layout.row();
      const bool isRow = y + row < a.height;
#pragma unroll
      for (int i = 0; i < pieces; ++i)
        if (hasPiece(i)) source.fetch(pair + to, toPiece(i), isRow);
      source.row += a.source.row;
      if (!isGradient) continue;
      gradient.fetch(gradientPair(parity) + to, 0, wereRows[row]);
      gradient.row += a.gradient.row;
      wereRows[row] = isRow;
    }
    beforeThat += layout.pair();
    if (beforeThat == Memory::sourcePairs * layout.pair()) beforeThat = 0;
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (fetched.advance(pairsOfItem())) {
      move(source, a.source, fetched.group, 0);
      if (isGradient) move(gradient, a.gradient, fetched.group, -2);
    }
  }
  /// Waits for what others have put into rows: threads of the same warp, or of the block.
  __device__ static void waitForPieces(bool isOfBlock) {
    if (isOfBlock)
      __syncthreads();
    else
      __syncwarp();
  }

  /// @param pair of rows  @param column from -2 to 5
  __device__ Bits* bitsAt(std::int32_t pair, int row, int column) const {
    return reinterpret_cast<Bits*>(sharedMemory() + pair + own + row * layout.row() +
                                   Memory::toColumn(column));
  }
  __device__ static ColumnLanes<lanes> lanesOf(Bits bits) {
    return columnLanesOf(bits, static_cast<const T*>(nullptr));
  }
  __device__ ColumnLanes<lanes> lanesAt(std::int32_t pair, int row, int column) const {
    return lanesOf(*bitsAt(pair, row, column));
  }
  /// A pixel of a column of this thread.
  __device__ ColumnLanes<lanes> pixelAt(Pair pair, int row, int column) const {
    if constexpr (keepsPixels) {
      const float2 two = halvesOf(pixels[pair][row][column / 2]);
      return {{column % 2 == 0 ? two.x : two.y}};
    } else if constexpr (Build::isWhole) {
      ColumnLanes<lanes> all;
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        const int half = lanes * column + i;
        const uint2 words = centerWords[row][half / 4];
        const float2 two = halvesOf(half % 4 < 2 ? words.x : words.y);
        all.values[i] = half % 2 == 0 ? two.x : two.y;
      }
      return all;
    } else {
      if (pair == Before) return lanesOf(centerBits[row][column]);
      return lanesAt(pair == Current ? arriving[0] : beforeThat, row, column);
    }
  }
  /// Of the pair before, or of this one where they stay.
  __device__ void loadPixels() {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      if constexpr (keepsPixels) {
#pragma unroll
        for (int k = 0; k < kColumns; k += 2)
          pixels[Current][row][k / 2] =
              *bitsAt(arriving[0], row, k) | unsigned{*bitsAt(arriving[0], row, k + 1)} << 16U;
      } else if constexpr (Build::isWhole) {
#pragma unroll
        for (int i = 0; i < 3; ++i)
          centerWords[row][i] = reinterpret_cast<const uint2*>(bitsAt(before, row, 0))[i];
      } else {
#pragma unroll
        for (int k = 0; k < kColumns; ++k) centerBits[row][k] = *bitsAt(before, row, k);
      }
    }
  }
  __device__ void passPixelsOn() {
    if constexpr (keepsPixels) {
#pragma unroll
      for (int row = 0; row < 2; ++row)
#pragma unroll
        for (int k = 0; k < kColumns / 2; ++k) {
          pixels[BeforeThat][row][k] = pixels[Before][row][k];
          pixels[Before][row][k] = pixels[Current][row][k];
        }
    }
  }
  /// Of whole pixels what windows see of the pair, in as many bytes at once as their addresses are multiples of.
  __device__ void loadSeen() {
    constexpr int beside = kColumnsBeside * Memory::column;
    constexpr int words = lanes * kColumnsSeen / 2;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const auto* const first = reinterpret_cast<const std::byte*>(bitsAt(arriving[0], row, 0)) - beside;
      seenWords[row][0] = *reinterpret_cast<const unsigned*>(first);
#pragma unroll
      for (int i = 1; i < words - 1; i += 2) {
        const uint2 two = *reinterpret_cast<const uint2*>(first + 4 * i);
        seenWords[row][i] = two.x;
        seenWords[row][i + 1] = two.y;
      }
      seenWords[row][words - 1] = *reinterpret_cast<const unsigned*>(first + 4 * (words - 1));
    }
  }
  __device__ float seenAt(int row, int column, int lane) const {
    if constexpr (Build::isWhole) {
      const int half = lanes * (column + kColumnsBeside) + lane;
      const float2 two = halvesOf(seenWords[row][half / 2]);
      return half % 2 == 0 ? two.x : two.y;
    } else {
      return lanesAt(arriving[0], row, column).values[lane];
    }
  }

  /// Puts results in the places of rows that nobody reads any more.
  __device__ void putResults(int row, const float (&results)[kColumns][lanes]) const {
    if constexpr (Build::isWhole) {
      const auto at = [&](int i) { return results[i / lanes][i % lanes]; };
      auto* const to = reinterpret_cast<uint2*>(bitsAt(beforeThat, row, 0));
#pragma unroll
      for (int i = 0; i < kColumns * lanes; i += 4)
        to[i / 4] = uint2{toHalves(at(i), at(i + 1)), toHalves(at(i + 2), at(i + 3))};
    } else {
#pragma unroll
      for (int k = 0; k < kColumns; ++k) putColumnLanes(results[k], bitsAt(beforeThat, row, k));
    }
  }
  __device__ void store(const Tile& results) {
#pragma unroll
    for (int row = 0; row < 2; ++row) putResults(row, results[row]);
    waitForPieces(isFew);
    if (stored.pair >= firstStored) {
#pragma unroll
      for (int row = 0; row < 2; ++row)
        if (2 * stored.pair + row < a.height) {
#pragma unroll
          for (int i = 0; i < pieces; ++i)
            if (hasPiece(i))
              destination.store(beforeThat + piece + row * layout.row(), toPiece(i),
                                isGradient && a.accumulate);
          destination.row += a.destination.row;
        }
    }
    if (stored.advance(pairsOfItem())) {
      firstStored = 0;
      move(destination, a.destination, stored.group, 0);
    }
  }
  /// To the next pair.
  __device__ void goOn() {
    passPixelsOn();
    before = arriving[0];
#pragma unroll
    for (int i = 0; i < Build::ahead; ++i) arriving[i] = arriving[i + 1];
    --stepsLeft;
  }
};

}  // namespace mps::detail::cuda
