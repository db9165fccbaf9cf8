#pragma once

#include <type_traits>

#include "mps/normalization/normalization_column_rows_cuda.cuh"

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

/// Whether pixels stay in registers: halves of few channels would be loaded one by one. Gradients of any exponent need the
/// registers. @param quarters as RootPowers has them, or 0
template <class T, int threads, bool isGradient>
constexpr bool keepsColumnPixels(int quarters) {
  return threads == kFewChannels && sizeof(T) == 2 && !(isGradient && quarters == 0);
}

/// The work of a thread: four pixels of the rows of items, a pair of rows in each step. The windows of a pair lie a pair
/// behind it, their gradients another one.
/// @tparam quarters as RootPowers has them, of T that are normal numbers; 0: any exponent that has no logarithm
template <class T, int threads, bool isContrast, bool isGradient, int quarters>
struct ColumnWalk
    : ColumnRows<T, threads, isContrast, isGradient, keepsColumnPixels<T, threads, isGradient>(quarters)> {
  using Rows =
      ColumnRows<T, threads, isContrast, isGradient, keepsColumnPixels<T, threads, isGradient>(quarters)>;
  using Rows::a, Rows::layout, Rows::stored, Rows::exchanged, Rows::arriving;
  using Rows::lanes, Rows::isFew, Rows::Current, Rows::Before, Rows::BeforeThat;
  using Rows::pixelAt, Rows::seenAt, Rows::lanesAt, Rows::gradientPair;
  using Rows::Rows;
  using typename Rows::Build, typename Rows::Memory, typename Rows::Tile;
  /// Channels of a thread one after the other, or all of them, which keeps more registers busy.
  static constexpr int lanesAtOnce = Build::isWhole ? 1 : lanes;
  /// Otherwise a thread asks for what it has told others, which takes fewer registers.
  static constexpr bool keepsOwn = isContrast || isFew;
  static constexpr int fields = isContrast ? 2 : 1;  ///< of a window that its neighbours ask for
  using Window = std::conditional_t<isContrast, Moments, float>;
  using Exchanged = ColumnLanes<fields * lanes>;
  using Column = std::conditional_t<Build::isRowsFirst, FiveRows<Window>,
                                    std::conditional_t<isContrast, ColumnOfMoments, ColumnOfSquares>>;

  Column columns[kColumns][lanes];
  FiveRows<float> sums[fields][kColumns][lanes];  ///< of what gradients have
  Tile centers[2] = {};  ///< what windows have for their center: of the pairs before, by parity

  // Of a step.
  Window windows[2][kColumns][lanes];
  Exchanged terms[2][kColumns];

  /// @param memory where an exchange begins, from the first one  @param column from -2 to 5
  __device__ Exchanged* exchangedAt(std::int32_t memory, int row, int column) const {
    return reinterpret_cast<Exchanged*>(sharedMemory() + exchanged + memory +
                                        row * (kColumns * Memory::exchangedColumn) +
                                        Memory::toExchangedColumn(column));
  }

  /// The windows that end with the pair, by its rows. @param first of the channels
  template <int parity>
  __device__ void sumRows(int first) {
    Window ofRows[2][lanesAtOnce][kColumns];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float x[lanesAtOnce][kColumnsSeen];
#pragma unroll
      for (int k = 0; k < kColumnsSeen; ++k)
#pragma unroll
        for (int i = 0; i < lanesAtOnce; ++i) x[i][k] = seenAt(row, k - kColumnsBeside, first + i);
#pragma unroll
      for (int i = 0; i < lanesAtOnce; ++i) fiveValues(x[i], ofRows[row][i]);
    }
#pragma unroll
    for (int k = 0; k < kColumns; ++k)
#pragma unroll
      for (int i = 0; i < lanesAtOnce; ++i)
        columns[k][first + i].advance(parity, ofRows[0][i][k], ofRows[1][i][k], windows[0][k][first + i],
                                      windows[1][k][first + i]);
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

  /// The results of a row of windows, or what gradients have of it. @param first of the channels
  template <int parity>
  __device__ void finish(int row, int first) {
    constexpr int elements = lanesAtOnce * kColumns;
    float center[elements];
    float windowSums[elements] = {};
    float t[elements];
    float powers[elements];
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      const auto pixel = pixelAt(Before, row, k);
#pragma unroll
      for (int i = 0; i < lanesAtOnce; ++i) {
        const int e = k * lanesAtOnce + i;
        const Window& window = windows[row][k][first + i];
        center[e] = pixel.values[first + i];
        if constexpr (isContrast) {
          windowSums[e] = window.sum;
          center[e] = fmaf(-a.ofMean, windowSums[e], center[e]);
          t[e] = fmaf(a.ofSquares, window.squares, a.delta);
        } else {
          t[e] = fmaf(a.ofSquares, window, a.delta);
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
        for (int i = 0; i < lanesAtOnce; ++i) {
          const float value = center[lanesAtOnce * k + i] * powers[lanesAtOnce * k + i];
          centers[parity][row][k][first + i] = isContrast ? fmaf(a.ps, value, a.pm) : value;
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
          // Of contrast what ofSum is for is in all of T and in what results are multiplied with.
          const RootPowers<quarters> both(t[e], isContrast ? 1 : a.ofSum);
          powers[e] = both.power;
          factors[e] = both.quotient;
        }
      }
      finishGradient<parity>(row, center, windowSums, powers, factors);
    }
  }
  template <int parity, int elements>
  __device__ void finishGradient(int row, const float (&center)[elements],
                                 const float (&windowSums)[elements], const float (&powers)[elements],
                                 const float (&factors)[elements]) {
    const bool isInside = this->areWindows(row);
#pragma unroll
    for (int k = 0; k < kColumns; ++k) {
      Exchanged& all = terms[row][k];
      const auto dy = lanesAt(gradientPair(1 - parity), row, k);
      // Of roots, what a window beside the image gives is 0 as the gradient is there, or NaN where a window of the image is.
      const bool counts = quarters != 0 || (isInside && k < this->columnsLeft());
#pragma unroll
      for (int i = 0; i < lanes; ++i) {
        const int e = lanes * k + i;
        const float result = dy.values[i] * powers[e];
        const float term = (quarters == 0 ? dy.values[i] : result) * center[e] * factors[e];
        centers[parity][row][k][i] = result;
        all.values[i] = counts ? term : 0;
        if (isContrast) all.values[lanes + i] = counts ? fmaf(term, windowSums[e], -a.p0 * result) : 0;
      }
      *exchangedAt(exchangeOfTerms(parity), row, k) = all;
    }
  }

  /// What gradients have of windows between two images, which see pixels of both: nothing.
  template <int parity>
  __device__ void finishNothing() {
#pragma unroll
    for (int row = 0; row < 2; ++row)
#pragma unroll
      for (int k = 0; k < kColumns; ++k) {
        terms[row][k] = {};
        *exchangedAt(exchangeOfTerms(parity), row, k) = terms[row][k];
      }
  }

  /// Where the terms of a step are told.
  [[nodiscard]] __device__ std::int32_t exchangeOfTerms(int parity) const {
    return (Build::isDelayed ? parity : Memory::exchanges - 1) * layout.exchange();
  }
  /// The gradients of pixels whose windows are all there, in place of what their centers have.
  /// @param parity of their pair  @param parityOfTerms of the step that told the last ones
  template <int parity, int parityOfTerms>
  __device__ void gather() {
    float ofRows[2][fields * lanes][kColumns];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float x[fields * lanes][kColumnsSeen];
#pragma unroll
      for (int k = -kColumnsBeside; k < kColumns + kColumnsBeside; ++k) {
        const bool isKept = keepsOwn && k >= 0 && k < kColumns;
        const Exchanged all = isKept ? terms[row][k] : *exchangedAt(exchangeOfTerms(parityOfTerms), row, k);
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
          float& result = centers[parity][row][k][i];
          result = fmaf(-pixel.values[i], seen[row][i], result);
          if constexpr (isContrast) result = a.ps * fmaf(a.ofWindow, seen[row][lanes + i], result);
        }
      }
    }
  }

  template <int parity>
  __device__ void step() {
    // A warp's threads have read what the gradient was for the windows before.
    if constexpr (Build::isDelayed) __syncwarp();
    this->template fetchNext<parity>(arriving[Build::ahead]);
    asm volatile("cp.async.wait_group %0;" ::"n"(Build::ahead) : "memory");
    this->waitForPieces(isFew || Build::isRowsFirst);
    if constexpr (Build::isDelayed) {
      gather<parity, 1 - parity>();
      this->store(centers[parity]);
    }
    this->loadPixels();
    if constexpr (Build::isWhole) this->loadSeen();
    if constexpr (!Build::isRowsFirst) {
      sumColumns();
      __syncthreads();
    }
#pragma unroll
    for (int first = 0; first < lanes; first += lanesAtOnce) {
      if constexpr (Build::isRowsFirst) sumRows<parity>(first);
      if constexpr (isGradient && Build::gap == 1) {
        if (!this->areWindows(0)) {
          finishNothing<parity>();
          continue;
        }
      }
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        if constexpr (!Build::isRowsFirst) joinColumns(row);
        finish<parity>(row, first);
      }
    }
    if constexpr (isGradient && !Build::isDelayed) {
      __syncthreads();
      gather<1 - parity, parity>();
      this->store(centers[1 - parity]);
    }
    if constexpr (!isGradient) {
      this->store(centers[parity]);
      // What was told is read before the next step tells more.
      if (!isFew && !Build::isRowsFirst) __syncthreads();
    }
    this->goOn();
  }
};

/// Results of the windows, or their gradient.
template <class T, int threads, bool isContrast, bool isGradient, int quarters>
__global__ void __launch_bounds__(ColumnBuild<T, threads, isContrast, isGradient>::threadsOfBlock,
                                  ColumnBuild<T, threads, isContrast, isGradient>::blocks)
    normalizeColumns(const ColumnArguments a) {
  using Walk = ColumnWalk<T, threads, isContrast, isGradient, quarters>;
  const typename Walk::Memory layout(static_cast<std::int32_t>(a.segments.divisor()));
  const std::int32_t packs =
      layout.bytes() / 16 * static_cast<std::int32_t>(a.imagesPerBlock * a.slicesPerBlock.divisor());
  for (auto i = static_cast<std::int32_t>(threadIdx.x); i < packs; i += static_cast<std::int32_t>(blockDim.x))
    reinterpret_cast<uint4*>(sharedMemory())[i] = uint4{};
  __syncthreads();
  Walk walk(a);
#pragma unroll
  for (int i = 0; i < Walk::Build::ahead; ++i) walk.template fetchNext<1>(walk.arriving[i]);
  // What two steps keep moves from register to register behind them, but not behind four.
  constexpr bool takesFour =
      isContrast && !isGradient && sizeof(T) == 2 && threads == kSliceThreads && quarters != 0;
  while (true) {
    walk.template step<0>();
    if (walk.stepsLeft == 0) break;
    walk.template step<1>();
    if (walk.stepsLeft == 0) break;
    if constexpr (takesFour) {
      walk.template step<0>();
      if (walk.stepsLeft == 0) break;
      walk.template step<1>();
      if (walk.stepsLeft == 0) break;
    }
  }
}

}  // namespace mps::detail::cuda
