#include <cuda_pipeline_primitives.h>

#include <cstdint>
#include <memory>
#include <type_traits>

#include "mps/core/elements_cuda.cuh"
#include "mps/core/rows_cuda.cuh"
#include "mps/gather/gather_columns_cuda.cuh"
#include "mps/gather/gather_found_rows_cuda.cuh"
#include "mps/gather/gather_order_cuda.cuh"
#include "mps/gather/gather_problem.hpp"
#include "mps/gather/gather_row_pieces_cuda.cuh"
#include "mps/gather/gather_terms_cuda.cuh"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

using cuda::ColumnArguments;
using cuda::Divider;
using cuda::FoundRowArguments;
using cuda::Indices;
using cuda::RowGrid;
using cuda::RowPieceArguments;

/// The rows of a call's destination, and strides in pieces.
struct RowArguments {
  RowGrid grid;
  Divider height;  ///< of the destination
  std::int64_t fromImage, fromRow, toImage, toRow;

  /// @param lanes elements of a piece
  RowArguments(const TensorShape& from, const TensorShape& to, std::int64_t lanes)
      : grid(to.images * to.height, to.channels / lanes),
        height(to.height),
        fromImage(from.imageStride / lanes),
        fromRow(from.rowStride / lanes),
        toImage(to.imageStride / lanes),
        toRow(to.rowStride / lanes) {}
};

// Forward -------------------------------------------------------------------------------------------------------------

/// A piece is an element, or 16 bytes of them.
template <class Piece>
__global__ void copyRows(RowArguments a, Indices indices, const Piece* source, Piece* destination) {
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    const std::uint32_t n = a.height.divide(row);
    const std::uint32_t i = row - n * a.height.divisor();
    const std::int64_t k = indices.row(i);
    const Piece* const from = source + n * a.fromImage + (k < 0 ? 0 : k) * a.fromRow;
    Piece* const to = destination + n * a.toImage + i * a.toRow;
    cuda::forEachPiece(a.grid, [&](std::uint32_t piece) { to[piece] = k < 0 ? Piece{} : from[piece]; });
  });
}

/// The same of 16 bytes at once: a thread has some of the pieces of all rows, a block's width apart.
__global__ void __launch_bounds__(mtl::cuda::kBlockThreads)
    copyPieces(RowPieceArguments a, Indices indices, std::int64_t elementBytes, const std::byte* source,
               std::byte* destination) {
  constexpr int together = RowPieceArguments::kTogether;
  const std::byte* from[together] = {};
  std::byte* to[together] = {};
#pragma unroll
  for (int i = 0; i < together; ++i) {
    const std::uint32_t number = RowPieceArguments::numberOf(i);
    if (number >= a.pieces) continue;
    const RowPieceArguments::Place place = a.placeOf(number);
    const std::int64_t first =
        static_cast<std::int64_t>(place.piece) * static_cast<std::int64_t>(sizeof(uint4));
    const std::int64_t k = indices.row(place.row);
    if (k >= 0) from[i] = source + (place.image * a.fromImage + k * a.fromRow) * elementBytes + first;
    to[i] = destination + (place.image * a.toImage + place.row * a.toRow) * elementBytes + first;
  }
  uint4 pieces[together] = {};
#pragma unroll
  for (int i = 0; i < together; ++i)
    if (from[i] != nullptr) pieces[i] = *reinterpret_cast<const uint4*>(from[i]);
#pragma unroll
  for (int i = 0; i < together; ++i)
    if (to[i] != nullptr) __stcs(reinterpret_cast<uint4*>(to[i]), pieces[i]);
}

// Gradient ------------------------------------------------------------------------------------------------------------

constexpr int kTermsOfGroup = 4;
constexpr int kTermGroups = 3;  ///< on their way, with the one that is added

/// A thread adds the terms of its part of a row one after the other. Those that follow come by asynchronous copies to
/// places of its own. Behind the last term come zeros, which change nothing: a sum that begins with 0 is never -0.
template <class T>
__global__ void __launch_bounds__(mtl::cuda::kBlockThreads)
    addRows(RowArguments a, const std::uint32_t* starts, const std::uint32_t* places, const T* gradient,
            T* destination) {
  constexpr int lanes = cuda::kLanes<T>;
  using Sum = cuda::Terms<T, lanes>;
  __shared__ uint4 held[kTermGroups][kTermsOfGroup][mtl::cuda::kBlockThreads];
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    const std::uint32_t n = a.height.divide(row);
    const std::uint32_t k = row - n * a.height.divisor();
    const std::uint32_t* const begin = places + starts[k];
    const auto count = static_cast<int>(starts[k + 1] - starts[k]);
    const std::int64_t stride = a.fromRow * lanes;
    const T* const from = gradient + n * a.fromImage * lanes;
    T* const to = destination + (n * a.toImage + k * a.toRow) * lanes;
    cuda::forEachPiece(a.grid, [&](std::uint32_t piece) {
      const std::int64_t first = static_cast<std::int64_t>(piece) * lanes;
      const auto ask = [&](int firstTerm, int group) {
        if (firstTerm < count) {
#pragma unroll
          for (int i = 0; i < kTermsOfGroup; ++i) {
            const bool isThere = firstTerm + i < count;
            const std::int64_t place = begin[isThere ? firstTerm + i : firstTerm];
            __pipeline_memcpy_async(&held[group][i][thread], from + place * stride + first, sizeof(uint4),
                                    isThere ? 0 : sizeof(uint4));
          }
        }
        __pipeline_commit();
      };
      int asked = 0;
      for (; asked < kTermGroups - 1; ++asked) ask(asked * kTermsOfGroup, asked);
      int group = 0;
      Sum sum;
      for (int done = 0; done < count; done += kTermsOfGroup) {
        ask(done + (kTermGroups - 1) * kTermsOfGroup, group == 0 ? kTermGroups - 1 : group - 1);
        __pipeline_wait_prior(kTermGroups - 1);
#pragma unroll
        for (int i = 0; i < kTermsOfGroup; ++i) sum.add(held[group][i][thread]);
        group = group == kTermGroups - 1 ? 0 : group + 1;
      }
      sum.store(to + first);
    });
  });
}

/// The same where most rows have one term or none, or are accessed element by element.
template <class T, int lanes>
__global__ void addSparseRows(RowArguments a, const std::uint32_t* starts, const std::uint32_t* places,
                              const T* gradient, T* destination) {
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    const std::uint32_t n = a.height.divide(row);
    const std::uint32_t k = row - n * a.height.divisor();
    const std::uint32_t begin = starts[k];
    const std::uint32_t end = starts[k + 1];
    const T* const from = gradient + n * a.fromImage * lanes;
    T* const to = destination + (n * a.toImage + k * a.toRow) * lanes;
    cuda::forEachPiece(a.grid, [&](std::uint32_t piece) {
      const std::int64_t first = static_cast<std::int64_t>(piece) * lanes;
      cuda::Terms<T, lanes> sum;
#pragma unroll 4
      for (std::uint32_t p = begin; p < end; ++p)
        sum.add(cuda::Terms<T, lanes>::fetch(from + places[p] * a.fromRow * lanes + first));
      sum.store(to + first);
    });
  });
}

class RowPlan final : public Plan {
 public:
  explicit RowPlan(const GatherProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const bool isForward = problem_.direction == GatherDirection::Forward;
    if ((isForward ? problem_.result : problem_.source).elements() == 0) return;
    if (isForward) return copy(stream, operands);
    if (findsRows(operands)) return addFound(stream, operands);
    const auto order =
        cuda::GatherOrder(count(), problem_.source.height).sort(stream, indices(operands), operands.scratch);
    if (problem_.source.format == ImageFeatureChannelFormat::Float16)
      add<Float16>(stream, operands, order);
    else
      add<float>(stream, operands, order);
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    if (problem_.direction == GatherDirection::Forward) return 0;
    return cuda::GatherOrder(count(), problem_.source.height).scratchBytes();
  }

 private:
  [[nodiscard]] std::int64_t count() const { return problem_.result.height; }
  [[nodiscard]] Indices indices(const Operands& operands) const {
    return {operands.secondary, problem_.indices, count(), problem_.source.height};
  }
  /// Whether 16 bytes can be accessed at once on both sides.
  [[nodiscard]] bool takesLanes(const std::byte* source, const std::byte* result) const {
    return cuda::takesLanes(problem_.source, source) && cuda::takesLanes(problem_.result, result);
  }

  /// Bytes that a block holds of places of so many images. @param from what is gathered from
  template <class T, int words>
  [[nodiscard]] static std::size_t heldBytes(const TensorShape& from) {
    return static_cast<std::size_t>(cuda::heldPlaces(from.height)) * sizeof(cuda::ColumnPack<T, words>);
  }
  /// Whether blocks can hold what is gathered from. @param from what that is
  [[nodiscard]] static bool areColumns(const TensorShape& from, const TensorShape& to) {
    return from.channels == 1 && from.images >= cuda::kFewestImagesOfColumns && from.rowStride == 1 &&
           to.rowStride == 1 && heldBytes<float, 2>(from) <= cuda::kHeldBytes;
  }
  /// Calls start with the number of words of a pack that fits.
  template <class Start>
  static void withWords(const TensorShape& from, Start start) {
    if (heldBytes<float, 4>(from) <= cuda::kHeldBytes)
      start(std::integral_constant<int, 4>());
    else
      start(std::integral_constant<int, 2>());
  }
  template <class T, int words, class... Arguments>
  static void startColumns(mtl::Stream& stream, unsigned threads,
                           void (*kernel)(ColumnArguments, Arguments...), const TensorShape& from,
                           const std::byte* input, const TensorShape& to, std::byte* destination,
                           const Arguments&... arguments) {
    const auto isMultiple = [](const std::byte* address, std::int64_t stride, std::uintptr_t bytes) {
      return (reinterpret_cast<std::uintptr_t>(address) | static_cast<std::uintptr_t>(stride) * sizeof(T)) %
                 bytes ==
             0;
    };
    ColumnArguments a;
    a.from = input;
    a.to = destination;
    a.fromImage = from.imageStride;
    a.toImage = to.imageStride;
    a.length = static_cast<std::uint32_t>(from.height);
    a.results = static_cast<std::uint32_t>(to.height);
    a.images = static_cast<std::uint32_t>(from.images);
    a.fromIsAligned = isMultiple(input, from.imageStride, 16);
    a.toIsAligned = isMultiple(destination, to.imageStride, cuda::kColumnResults * sizeof(T));
    const std::size_t held = heldBytes<T, words>(from);
    mtl::cuda::check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(cuda::kHeldBytes)),
                     "cudaFuncSetAttribute");
    mtl::cuda::launch(stream, kernel,
                      dim3(mtl::cuda::blocksFor(from.images, cuda::ColumnPack<T, words>::images)),
                      dim3(threads), held, a, arguments...);
  }

  void copy(mtl::Stream& stream, const Operands& operands) const {
    const bool isHalf = problem_.source.format == ImageFeatureChannelFormat::Float16;
    if (areColumns(problem_.source, problem_.result)) {
      const auto start = [&](auto element) {
        using T = decltype(element);
        withWords(problem_.source, [&](auto words) {
          startColumns<T, words()>(stream, cuda::kColumnThreads, cuda::copyColumns<T, words()>,
                                   problem_.source, operands.source, problem_.result, operands.destination,
                                   indices(operands));
        });
      };
      return isHalf ? start(Float16{}) : start(0.0F);
    }
    const std::int64_t lanes = isHalf ? 8 : 4;
    if (!takesLanes(operands.source, operands.destination))
      return isHalf ? startCopy<std::uint16_t>(stream, operands, 1)
                    : startCopy<std::uint32_t>(stream, operands, 1);
    if (!RowPieceArguments::fits(problem_.result, lanes)) return startCopy<uint4>(stream, operands, lanes);
    const RowPieceArguments a(problem_.source, problem_.result, lanes);
    mtl::cuda::launch(stream, copyPieces, dim3(a.blocks()), dim3(mtl::cuda::kBlockThreads), 0, a,
                      indices(operands), std::int64_t{isHalf ? 2 : 4}, operands.source, operands.destination);
  }
  template <class Piece>
  void startCopy(mtl::Stream& stream, const Operands& operands, std::int64_t lanes) const {
    const RowArguments a(problem_.source, problem_.result, lanes);
    mtl::cuda::launch(stream, copyRows<Piece>, a.grid.grid, a.grid.block, 0, a, indices(operands),
                      reinterpret_cast<const Piece*>(operands.source),
                      reinterpret_cast<Piece*>(operands.destination));
  }

  /// Whether warps look for the indices of their rows themselves.
  [[nodiscard]] bool findsRows(const Operands& operands) const {
    const auto lanes = static_cast<std::int64_t>(16 / bytesPerChannel(problem_.source.format));
    return takesLanes(operands.destination, operands.gradient) &&
           !areColumns(problem_.result, problem_.source) &&
           FoundRowArguments::isWorthIt(problem_.result, problem_.source, lanes);
  }
  void addFound(mtl::Stream& stream, const Operands& operands) const {
    const auto start = [&](auto element) {
      using T = decltype(element);
      const FoundRowArguments a(problem_.result, problem_.source, cuda::kLanes<T>);
      withIndices(problem_.indices, operands.secondary, [&](auto* typed) {
        using Index = std::remove_cvref_t<decltype(*typed)>;
        mtl::cuda::launch(stream, cuda::addFoundRows<T, Index>,
                          dim3(mtl::cuda::blocksFor(a.warps, FoundRowArguments::kWarps)),
                          dim3(32, FoundRowArguments::kWarps), 0, a, typed,
                          reinterpret_cast<const T*>(operands.gradient),
                          reinterpret_cast<T*>(operands.destination));
      });
    };
    if (problem_.source.format == ImageFeatureChannelFormat::Float16)
      start(Float16{});
    else
      start(0.0F);
  }

  template <class T>
  void add(mtl::Stream& stream, const Operands& operands, const cuda::GatherOrder::Result& order) const {
    if (areColumns(problem_.result, problem_.source))
      return withWords(problem_.result, [&](auto words) {
        startColumns<T, words()>(stream, cuda::kColumnGradientThreads<T>, cuda::addColumns<T, words()>,
                                 problem_.result, operands.gradient, problem_.source, operands.destination,
                                 order.starts, order.places);
      });
    if (takesLanes(operands.destination, operands.gradient))
      addPieces<T, cuda::kLanes<T>>(stream, operands, order);
    else
      addPieces<T, 1>(stream, operands, order);
  }
  template <class T, int lanes>
  void addPieces(mtl::Stream& stream, const Operands& operands,
                 const cuda::GatherOrder::Result& order) const {
    const TensorShape& to = problem_.source;
    const auto* const gradient = reinterpret_cast<const T*>(operands.gradient);
    auto* const destination = reinterpret_cast<T*>(operands.destination);
    const bool isSparse = count() <= to.height;
    if constexpr (lanes > 1)
      if (isSparse && RowPieceArguments::fits(to, lanes)) {
        const RowPieceArguments sparse(problem_.result, to, lanes);
        return mtl::cuda::launch(stream, cuda::addSparsePieces<T>, dim3(sparse.blocks()),
                                 dim3(mtl::cuda::kBlockThreads), 0, sparse, order.starts, order.places,
                                 gradient, destination);
      }
    const RowArguments a(problem_.result, to, lanes);
    auto* kernel = addSparseRows<T, lanes>;
    if constexpr (lanes > 1)
      if (!isSparse) kernel = addRows<T>;
    mtl::cuda::launch(stream, kernel, a.grid.grid, a.grid.block, 0, a, order.starts, order.places, gradient,
                      destination);
  }

  GatherProblem problem_;
};

Preparation prepareRows(const GatherProblem& problem) {
  constexpr std::int64_t kMost = 0x7FFFFFFF - 0x10000;
  const auto isTooLarge = [](const TensorShape& shape) {
    return shape.height > kMost || !RowGrid::fits(shape.images * shape.height, shape.channels);
  };
  if (isTooLarge(problem.source) || isTooLarge(problem.result))
    return Refusal{"about 2^31 rows, or a row of about 2^31 elements"};
  return std::make_shared<const RowPlan>(problem);
}

constexpr Implementation<GatherProblem> implementations[] = {{"rows", prepareRows}};

}  // namespace

std::span<const Implementation<GatherProblem>> gatherImplementationsCuda() {
  return implementations;
}

}  // namespace mps::detail
