#pragma once

#include <type_traits>

#include "mps/normalization/normalization_column_memory_cuda.cuh"

/// Windows of five pixels by five of whole images: a thread has four pixels of a row beside one another, four bytes of each
/// or one of three channels, and goes down two rows at once, which come to shared memory ahead of it. What columns have goes
/// to the threads beside a thread through shared memory, and so does what gradients have of windows.
namespace mps::detail::cuda {

/// T^-beta and a quotient by T, of normal numbers, infinite ones and NaN. @tparam quarters of 1 that beta has, 2 or 3
template <int quarters>
struct RootPowers {
  float power;
  float quotient;

  __device__ RootPowers(float t, float dividend) {
    const float root = inverseRootOf(t);
    power = quarters == 3 ? root * rootOf(root) : root;
    quotient = root * dividend * root;
  }
};

/// The work of a thread: four pixels of the rows of a part of an item, a pair of rows in each step. The windows of a pair
/// lie a pair behind it, their gradients another one.
/// @tparam quarters as RootPowers has them, of T that are normal numbers; 0: any exponent that has no logarithm
template <class T, int threads, bool isContrast, bool isGradient, int quarters>
struct ColumnWalk {
  using Build = ColumnBuild<T, threads, isContrast, isGradient>;
  using Memory = ColumnMemory<T, threads, isContrast, isGradient>;
  static constexpr int lanes = Build::lanes;
  static constexpr bool isFew = Build::isFew;
  /// Otherwise a thread asks for what it has told others, which takes fewer registers.
  static constexpr bool keepsOwn = isContrast || isFew;
  static constexpr int fields = isContrast ? 2 : 1;  ///< of a window that its neighbours ask for
  using Bits = std::conditional_t<lanes * sizeof(T) == 4, unsigned, unsigned short>;
  /// Pixels stay in registers until nobody needs them: halves of few channels would be loaded one by one. Gradients of
  /// contrast, and of any exponent, need the registers.
  static constexpr bool keepsPixels =
      isFew && sizeof(T) == 2 && !(isGradient && (isContrast || quarters == 0));
  using Window = std::conditional_t<isContrast, Moments, float>;
  using Exchanged = ColumnLanes<fields * lanes>;
  using Tile = float[2][kColumns][lanes];
  using Column = std::conditional_t<Build::isRowsFirst, FiveRows<Window>,
                                    std::conditional_t<isContrast, ColumnOfMoments, ColumnOfSquares>>;

  const ColumnArguments& a;
  Memory layout;
  std::int32_t place;        ///< of its first column in a row of shared memory
  std::int32_t columnsLeft;  ///< of the image, with its own
  std::int32_t begin, end;   ///< rows
  std::int32_t y, nextY;     ///< the first row of the pair, and of the one that is fetched next
  ColumnPiece<const T, isFew> source;
  ColumnPiece<const T, isFew> gradient;
  ColumnPiece<T, isFew> destination;
  // Bytes of shared memory.
  std::int32_t sourceMemory;
  std::int32_t gradientMemory;
  std::int32_t exchanged;                                ///< where a thread's columns are told to others
  std::int32_t current, before, beforeThat, nextSource;  ///< pairs of rows
  std::int32_t ofGradient, nextGradient;

  Column columns[kColumns][lanes];
  FiveRows<float> sums[fields][kColumns][lanes];  ///< of what gradients have
  Tile centers = {};  ///< what the windows of the pair before have for their center

  enum Pair { Current, Before, BeforeThat };
  /// Where they stay in registers: by rows, two columns in a word.
  unsigned pixels[keepsPixels ? 3 : 1][2][kColumns / 2] = {};

  // Of a step.
  Bits centerBits[2][kColumns];  ///< elsewhere
  Window windows[2][kColumns][lanes];
  Tile results;
  Exchanged terms[2][kColumns];

  /// Which thread it is, of which item and part of its rows.
  struct Place {
    std::uint32_t item, ofBlock, image, slice, chunk;
    std::int32_t segment, thread, begin;

    __device__ explicit Place(const ColumnArguments& a) {
      const std::uint32_t group = a.chunks.divide(blockIdx.x);
      chunk = blockIdx.x - group * a.chunks.divisor();
      const std::uint32_t number = threadIdx.x / threads;
      ofBlock = a.segments.divide(number);
      item = group * a.itemsPerBlock + ofBlock;
      image = a.slices.divide(item);
      slice = item - image * a.slices.divisor();
      segment = static_cast<std::int32_t>(number - ofBlock * a.segments.divisor());
      thread = static_cast<std::int32_t>(threadIdx.x % threads);
      begin = static_cast<std::int32_t>(chunk) * a.rowsPerChunk;
    }
    [[nodiscard]] __device__ std::int32_t firstRow() const { return max(0, begin - (isGradient ? 4 : 2)); }
  };
  /// Its sixteen bytes: of a pixel, or of the row where that is all of the item's.
  template <class Element, class View>
  __device__ static ColumnPiece<Element, isFew> pieceOf(const ColumnArguments& arguments,
                                                        const Memory& memory, const Place& at,
                                                        const View& view, std::int32_t row) {
    constexpr int packed = 16 / static_cast<int>(sizeof(T));
    constexpr int perColumn = isFew ? 1 : threads / kColumns;
    const std::int64_t element =
        at.image * view.image + static_cast<std::int64_t>(at.slice) * (threads * lanes);
    const bool isInside = at.item < arguments.items;
    if (isFew) {
      const std::int32_t piece = at.segment * threads + at.thread;
      return {view, element + packed * piece, row, 16 * piece, isInside && 16 * piece < memory.row};
    }
    const std::int32_t column = at.thread / perColumn;
    const std::int32_t part = at.thread % perColumn;
    const std::int32_t x = at.segment * kColumns + column;
    return {view, element + static_cast<std::int64_t>(x) * view.pixel + packed * part, row,
            (at.segment + Memory::zeros) * Memory::segment + column * Memory::column + 16 * part,
            isInside && x < arguments.width};
  }

  __device__ ColumnWalk(const ColumnArguments& arguments, const Place& at)
      : a(arguments),
        layout(static_cast<std::int32_t>(arguments.segments.divisor())),
        place((at.segment + Memory::zeros) * Memory::segment +
              at.thread * static_cast<std::int32_t>(sizeof(Bits))),
        columnsLeft(arguments.width - at.segment * kColumns),
        begin(at.begin),
        end(min(at.begin + arguments.rowsPerChunk, arguments.height)),
        y(at.firstRow()),
        nextY(at.firstRow()),
        source(pieceOf<const T>(arguments, layout, at, arguments.source, at.firstRow())),
        gradient(pieceOf<const T>(arguments, layout, at, arguments.gradient, at.firstRow() - 2)),
        destination(pieceOf<T>(arguments, layout, at, arguments.destination, at.begin)) {
    sourceMemory = static_cast<std::int32_t>(at.ofBlock) * layout.bytes();
    gradientMemory = sourceMemory + Memory::sourcePairs * 2 * layout.row;
    exchanged = sourceMemory + layout.rows() + (at.segment + 1) * Memory::exchangedSegment +
                at.thread * Memory::exchangedBytes;
    nextSource = current = sourceMemory;
    before = gradientMemory - 2 * layout.row;
    beforeThat = before - 2 * layout.row;
    nextGradient = ofGradient = gradientMemory;
  }

  /// The pair behind a pair in a ring of them.
  __device__ std::int32_t after(std::int32_t pair, std::int32_t memory, int pairs) const {
    const std::int32_t next = pair + 2 * layout.row;
    return next == memory + pairs * 2 * layout.row ? memory : next;
  }
  [[nodiscard]] __device__ bool isRow(std::int32_t row) const { return row >= 0 && row < a.height; }
  __device__ void fetchNext() {
#pragma unroll
    for (int i = 0; i < 2; ++i) source.fetch(nextSource + i * layout.row, isRow(nextY + i));
    nextSource = after(nextSource, sourceMemory, Memory::sourcePairs);
    if (isGradient) {
#pragma unroll
      for (int i = 0; i < 2; ++i) gradient.fetch(nextGradient + i * layout.row, isRow(nextY - 2 + i));
      nextGradient = after(nextGradient, gradientMemory, Memory::gradientPairs);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    nextY += 2;
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
    return reinterpret_cast<Bits*>(sharedMemory() + pair + row * layout.row + place +
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
    }
    if (pair == Before) return lanesOf(centerBits[row][column]);
    return lanesAt(pair == Current ? current : beforeThat, row, column);
  }
  /// Of the pair before, or of this one where they stay.
  __device__ void loadPixels() {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      if constexpr (keepsPixels) {
#pragma unroll
        for (int k = 0; k < kColumns; k += 2)
          pixels[Current][row][k / 2] = *bitsAt(current, row, k) | unsigned{*bitsAt(current, row, k + 1)}
                                                                       << 16U;
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
  /// @param memory where an exchange begins, from the first one  @param column from -2 to 5
  __device__ Exchanged* exchangedAt(std::int32_t memory, int row, int column) const {
    return reinterpret_cast<Exchanged*>(sharedMemory() + exchanged + memory + row * layout.exchangedRow +
                                        layout.toExchangedColumn(column));
  }

  /// The windows that end with the pair, by its rows.
  template <int parity>
  __device__ void sumRows() {
    Window ofRows[2][lanes][kColumns];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float x[lanes][kColumnsSeen];
#pragma unroll
      for (int k = 0; k < kColumnsSeen; ++k) {
        const auto pixel = lanesAt(current, row, k - kColumnsBeside);
#pragma unroll
        for (int i = 0; i < lanes; ++i) x[i][k] = pixel.values[i];
      }
#pragma unroll
      for (int i = 0; i < lanes; ++i) fiveValues(x[i], ofRows[row][i]);
    }
#pragma unroll
    for (int k = 0; k < kColumns; ++k)
#pragma unroll
      for (int i = 0; i < lanes; ++i)
        columns[k][i].advance(parity, ofRows[0][i][k], ofRows[1][i][k], windows[0][k][i], windows[1][k][i]);
  }
  /// The columns of the windows that end with the pair, for the threads beside this one, too.
  __device__ void sumColumns() {
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      const auto row0 = pixelAt(BeforeThat, 0, k);
      const auto row3 = pixelAt(Before, 1, k);
      const auto row4 = pixelAt(Current, 0, k);
      const auto row5 = pixelAt(Current, 1, k);
#pragma unroll
      for (int i = 0; i < lanes; ++i)
        columns[k][i].advance({row0.values[i], row3.values[i], row4.values[i], row5.values[i]},
                              windows[0][k][i], windows[1][k][i]);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        Exchanged all;
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          if constexpr (isContrast) {
            all.values[i] = windows[row][k][i].sum;
            all.values[lanes + i] = windows[row][k][i].squares;
          } else {
            all.values[i] = windows[row][k][i];
          }
        }
        *exchangedAt(0, row, k) = all;
      }
    }
  }
  /// Of the columns of a row of windows the windows.
  __device__ void joinColumns(int row) {
    Window x[lanes][kColumnsSeen];
#pragma unroll
    for (int k = -kColumnsBeside; k < kColumns + kColumnsBeside; ++k) {
      const bool isKept = keepsOwn && k >= 0 && k < kColumns;
      const Exchanged all = isKept ? Exchanged{} : *exchangedAt(0, row, k);
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        Window& window = x[i][k + kColumnsBeside];
        if constexpr (isContrast)
          window = isKept ? windows[row][k][i] : Moments{all.values[i], all.values[lanes + i]};
        else
          window = isKept ? windows[row][k][i] : all.values[i];
      }
    }
#pragma unroll
    for (int i = 0; i < lanes; ++i) {
      Window joined[kColumns];
      fiveColumns(x[i], joined);
#pragma unroll
      for (int k = 0; k < kColumns; ++k) windows[row][k][i] = joined[k];
    }
  }

  /// The results of a row of windows, or what gradients have of it.
  __device__ void finish(int row) {
    constexpr int elements = lanes * kColumns;
    float center[elements];
    float means[elements] = {};
    float t[elements];
    float powers[elements];
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      const auto pixel = pixelAt(Before, row, k);
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        const int e = k * lanes + i;
        center[e] = pixel.values[i];
        if constexpr (isContrast) {
          means[e] = windows[row][k][i].sum * a.ofWindow;
          center[e] = fmaf(-a.p0, means[e], center[e]);
          t[e] = fmaf(a.ofSquares, windows[row][k][i].squares, a.delta);
        } else {
          t[e] = fmaf(a.ofSquares, windows[row][k][i], a.delta);
        }
      }
    }
    PowerRule rule = a.rule;
    rule.isGeneral = false;
    if constexpr (!isGradient) {
      if constexpr (quarters == 0) {
        negativePowers(rule, t, powers, a.isNormal);
      } else {
#pragma unroll
        for (int e = 0; e < elements; ++e) powers[e] = RootPowers<quarters>(t[e], 1).power;
      }
#pragma unroll
      for (int k = 0; k < kColumns; ++k)
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          const float value = center[lanes * k + i] * powers[lanes * k + i];
          results[row][k][i] = isContrast ? fmaf(a.ps, value, a.pm) : value;
        }
    } else {
      float factors[elements];  // ofSum T^(-beta - 1), or ofSum / T
      if constexpr (quarters == 0) {
        bothNegativePowers(rule, t, powers, factors, a.isNormal);
#pragma unroll
        for (float& factor : factors) factor *= a.ofSum;
      } else {
#pragma unroll
        for (int e = 0; e < elements; ++e) {
          const RootPowers<quarters> both(t[e], a.ofSum);
          powers[e] = both.power;
          factors[e] = both.quotient;
        }
      }
      finishGradient(row, center, means, powers, factors);
    }
  }
  template <int elements>
  __device__ void finishGradient(int row, const float (&center)[elements], const float (&means)[elements],
                                 const float (&powers)[elements], const float (&factors)[elements]) {
    const bool isInside = isRow(y - 2 + row);
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      Exchanged& all = terms[row][k];
      const auto dy = lanesAt(ofGradient, row, k);
      // Of roots, what a window beyond the image gives is 0 as the gradient is there, or NaN where a window of the image is.
      const bool counts = quarters != 0 || (isInside && k < columnsLeft);
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        const int e = lanes * k + i;
        const float result = dy.values[i] * powers[e];
        const float term = (quarters == 0 ? dy.values[i] : result) * center[e] * factors[e];
        results[row][k][i] = result;
        all.values[i] = counts ? term : 0;
        if (isContrast) all.values[lanes + i] = counts ? fmaf(term, means[e], -a.ofMean * result) : 0;
      }
      *exchangedAt((Memory::exchanges - 1) * layout.exchange, row, k) = all;
    }
  }

  /// The gradients of pixels whose windows are all there: results become those, and centers what results have been.
  template <int parity>
  __device__ void gather() {
    float ofRows[2][fields * lanes][kColumns];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float x[fields * lanes][kColumnsSeen];
#pragma unroll
      for (int k = -kColumnsBeside; k < kColumns + kColumnsBeside; ++k) {
        const bool isKept = keepsOwn && k >= 0 && k < kColumns;
        const Exchanged all =
            isKept ? terms[row][k] : *exchangedAt((Memory::exchanges - 1) * layout.exchange, row, k);
#pragma unroll
        for (int i = 0; i < fields * lanes; ++i) x[i][k + kColumnsBeside] = all.values[i];
      }
#pragma unroll
      for (int i = 0; i < fields * lanes; ++i) fiveColumns(x[i], ofRows[row][i]);
    }
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      float seen[2][fields * lanes];
#pragma unroll
      for (int i = 0; i < fields * lanes; ++i)
        sums[i / lanes][k][i % lanes].advance(parity, ofRows[0][i][k], ofRows[1][i][k], seen[0][i],
                                              seen[1][i]);
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const auto pixel = pixelAt(BeforeThat, row, k);
#pragma unroll
        for (int i = 0; i < lanes; ++i) {
          const float next = results[row][k][i];
          float result = fmaf(-pixel.values[i], seen[row][i], centers[row][k][i]);
          if constexpr (isContrast) result = a.ps * (result + seen[row][lanes + i]);
          results[row][k][i] = result;
          centers[row][k][i] = next;
        }
      }
    }
  }

  /// Results take the places of rows that nobody reads any more.
  __device__ void store() {
#pragma unroll
    for (int row = 0; row < 2; ++row)
#pragma unroll
      for (int k = 0; k < kColumns; ++k) putColumnLanes(results[row][k], bitsAt(beforeThat, row, k));
    waitForPieces(isFew);
    const std::int32_t first = y - (isGradient ? 4 : 2);
#pragma unroll
    for (int row = 0; row < 2; ++row)
      if (first + row >= begin && first + row < end)
        destination.store(beforeThat + row * layout.row, isGradient && a.accumulate);
  }

  template <int parity>
  __device__ void step() {
    fetchNext();
    asm volatile("cp.async.wait_group %0;" ::"n"(Build::ahead) : "memory");
    waitForPieces(isFew || Build::isRowsFirst);
    loadPixels();
    if constexpr (Build::isRowsFirst) {
      sumRows<parity>();
    } else {
      sumColumns();
      __syncthreads();
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      if constexpr (!Build::isRowsFirst) joinColumns(row);
      finish(row);
    }
    if constexpr (isGradient) {
      __syncthreads();
      gather<parity>();
    }
    store();
    // What was told is read before the next step tells more.
    if (!isGradient && !isFew && !Build::isRowsFirst) __syncthreads();
    passPixelsOn();
    beforeThat = before;
    before = current;
    current = after(current, sourceMemory, Memory::sourcePairs);
    if (isGradient) ofGradient = after(ofGradient, gradientMemory, Memory::gradientPairs);
    y += 2;
  }
};

/// Results of the windows, or their gradient.
template <class T, int threads, bool isContrast, bool isGradient, int quarters>
__global__ void __launch_bounds__(ColumnBuild<T, threads, isContrast, isGradient>::threadsOfBlock,
                                  ColumnBuild<T, threads, isContrast, isGradient>::blocks)
    normalizeColumns(const ColumnArguments a) {
  using Walk = ColumnWalk<T, threads, isContrast, isGradient, quarters>;
  const typename Walk::Memory layout(static_cast<std::int32_t>(a.segments.divisor()));
  const std::int32_t packs = layout.bytes() / 16 * static_cast<std::int32_t>(a.itemsPerBlock);
  for (auto i = static_cast<std::int32_t>(threadIdx.x); i < packs; i += static_cast<std::int32_t>(blockDim.x))
    reinterpret_cast<uint4*>(sharedMemory())[i] = uint4{};
  __syncthreads();
  Walk walk(a, typename Walk::Place(a));
#pragma unroll
  for (int i = 0; i < Walk::Build::ahead; ++i) walk.fetchNext();
  const std::int32_t last = walk.end + (isGradient ? 4 : 2);
  while (walk.y < last) {
    walk.template step<0>();
    walk.template step<1>();
  }
}

}  // namespace mps::detail::cuda
