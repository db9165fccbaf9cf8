#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "mps/core/neuron/neuron_descriptor.hpp"
#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/tensor_shape.hpp"

/// A matrix is a tensor of images = matrices, height = rows, width 1 and channels = columns; a vector is one
/// row. Words of random bits have the format of float32.
namespace mps::detail {

/// C = alpha op(A) op(B) + beta C for each matrix of a batch. A is M x K or, to be
/// transposed, K x M in memory, B likewise; sums are float32 whatever the format, rounded once at the store.
///
/// | operand | what |
/// |---|---|
/// | source | A |
/// | secondary | B |
/// | destination | C, not read when beta is 0; shares no memory with A and B |
struct MatrixMultiplicationProblem {
  bool transposeLeft = false;
  bool transposeRight = false;
  float alpha = 1;
  float beta = 0;
  TensorShape left;  ///< as it is in memory; all three have the same format, float32 or float16
  TensorShape right;
  TensorShape result;
  int threadCount = 0;  ///< of the stream that will run the plan; 0: unknown
  /// mtl::Device::name() of the device that will run it, for libraries that choose by the GPU. Empty: the current
  /// one.
  std::string deviceName;

  [[nodiscard]] std::int64_t interiorColumns() const { return transposeLeft ? left.height : left.channels; }

  bool operator==(const MatrixMultiplicationProblem&) const = default;
  [[nodiscard]] std::size_t hash() const {
    return hashOf(transposeLeft, transposeRight, std::bit_cast<std::uint32_t>(alpha),
                  std::bit_cast<std::uint32_t>(beta), left.hash(), right.hash(), result.hash(), threadCount,
                  std::hash<std::string>()(deviceName));
  }
  /// "1 A^T B + 0 C, A 1x7x1x5 float32, B ..., C ...".
  [[nodiscard]] std::string describe() const;
};

/// In order of preference; the last one accepts every problem.
std::span<const Implementation<MatrixMultiplicationProblem>> matrixMultiplicationImplementationsCpu();
std::span<const Implementation<MatrixMultiplicationProblem>> matrixMultiplicationImplementationsCuda();
inline constexpr BackEnds<MatrixMultiplicationProblem> matrixMultiplicationBackEnds{
    matrixMultiplicationImplementationsCpu, UNMETAL_CUDA_LIST(matrixMultiplicationImplementationsCuda)};

/// Copies the elements of images to the rows of a matrix, or back, bit by bit: image n is
/// row n; a pixel's channel c is column (y W + x) C + c, or (c H + y) W + x with channels first.
///
/// | operand | to the matrix | to the images |
/// |---|---|---|
/// | source | images | matrix |
/// | destination | matrix | images |
struct ImageMatrixCopyProblem {
  bool toMatrix = true;
  bool channelsFirst = true;
  TensorShape images;
  TensorShape matrix;  ///< images.images rows of W H C columns, in the images' format

  bool operator==(const ImageMatrixCopyProblem&) const = default;
  [[nodiscard]] std::size_t hash() const {
    return hashOf(toMatrix, channelsFirst, images.hash(), matrix.hash());
  }
  /// "images 2x3x3x5 float32 to matrix 1x2x1x45 float32, channels first".
  [[nodiscard]] std::string describe() const;
};

/// The CPU has one implementation, which takes every problem.
std::span<const Implementation<ImageMatrixCopyProblem>> imageMatrixCopyImplementationsCpu();
std::span<const Implementation<ImageMatrixCopyProblem>> imageMatrixCopyImplementationsCuda();
inline constexpr BackEnds<ImageMatrixCopyProblem> imageMatrixCopyBackEnds{
    imageMatrixCopyImplementationsCpu, UNMETAL_CUDA_LIST(imageMatrixCopyImplementationsCuda)};

/// One term of a sum of matrices. With (r, c) = offsets, of a row and a column:
///
///     term_ij   = scale B(r + i, c + j), transposed: scale B(r + j, c + i); 0 outside B
///     sum_ij    = term_ij, or sumBefore_ij + term_ij
///     result_ij = sum_ij, of the last term f(sum_ij + bias_j)
///
/// | operand | what |
/// |---|---|
/// | source | B |
/// | secondary | sumBefore, of the destination's size; where addsToSum |
/// | destination | result; may be the very elements of secondary, or the very elements of B that are read |
/// | parameters[0] | scale, one float32; where hasScale, else 1 |
/// | parameters[1] | r and c, two 32-bit integers; where hasOffsets, else 0 |
/// | parameters[2] | bias, of the last term and in the destination's format; where hasBias, else 0 |
struct MatrixTermProblem {
  bool transpose = false;
  bool hasScale = false;
  bool hasOffsets = false;
  bool hasBias = false;
  bool addsToSum = false;
  NNNeuronDescriptor neuron;  ///< f; no PReLU
  TensorShape source;         ///< one matrix
  TensorShape sum;            ///< sumBefore, one matrix; where addsToSum
  TensorShape destination;    ///< one matrix

  bool operator==(const MatrixTermProblem&) const = default;
  [[nodiscard]] std::size_t hash() const {
    return hashOf(transpose, hasScale, hasOffsets, hasBias, addsToSum, neuron.hash(), source.hash(),
                  sum.hash(), destination.hash());
  }
  /// "scaled term at an offset of 1x7x1x5 float32, added, with bias -> 1x7x1x5 float32".
  [[nodiscard]] std::string describe() const;
};

/// One implementation, which takes every problem.
std::span<const Implementation<MatrixTermProblem>> matrixTermImplementationsCpu();
std::span<const Implementation<MatrixTermProblem>> matrixTermImplementationsCuda();
inline constexpr BackEnds<MatrixTermProblem> matrixTermBackEnds{
    matrixTermImplementationsCpu, UNMETAL_CUDA_LIST(matrixTermImplementationsCuda)};

/// Copies regions of a matrix to places in another one, bit by bit. Of a region's rows x columns
/// elements (i, j), with s and d the offsets of its copy, P and Q the indices:
///
///     value = source(s.row + i, s.column + j), of a transposed source source(s.row + j, s.column + i)
///     (r, c) = (i, j), of a transposed destination (j, i)
///     destination(d.row + P(r), d.column + Q(c)) = value
///
/// What would lie outside either matrix is left out.
///
/// | operand | what |
/// |---|---|
/// | source | the whole matrix |
/// | destination | the whole matrix; shares no element that is read; no two copies write the same |
/// | parameters[0] | s.row, s.column, d.row, d.column of each copy, 32-bit integers |
/// | parameters[1], [2] | P, Q, 32-bit integers; where there are some, else P(r) = r, Q(c) = c |
struct MatrixCopyProblem {
  static constexpr std::int64_t kMostCopies = 65535;

  std::int64_t copies = 1;  ///< up to kMostCopies
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool sourceIsTransposed = false;
  bool destinationIsTransposed = false;
  bool hasRowIndices = false;
  bool hasColumnIndices = false;
  TensorShape source;  ///< one matrix; both have elements of the same size
  TensorShape destination;

  bool operator==(const MatrixCopyProblem&) const = default;
  [[nodiscard]] std::size_t hash() const {
    return hashOf(copies, rows, columns, sourceIsTransposed, destinationIsTransposed, hasRowIndices,
                  hasColumnIndices, source.hash(), destination.hash());
  }
  /// "copy of 3x4 of 1x7x1x5 float32 transposed into 1x5x1x7 float32".
  [[nodiscard]] std::string describe() const;
};

/// One implementation, which takes every problem.
std::span<const Implementation<MatrixCopyProblem>> matrixCopyImplementationsCpu();
std::span<const Implementation<MatrixCopyProblem>> matrixCopyImplementationsCuda();
inline constexpr BackEnds<MatrixCopyProblem> matrixCopyBackEnds{
    matrixCopyImplementationsCpu, UNMETAL_CUDA_LIST(matrixCopyImplementationsCuda)};

enum class RandomGenerator : std::uint8_t { MTGP32, Philox };

/// What becomes of a word w, with t = (w >> 9) 2^-23.
enum class RandomNumbers : std::uint8_t {
  Words,         ///< w
  UnitInterval,  ///< t
  Uniform,       ///< in [minimum, maximum)
  Normal,        ///< of mean and standardDeviation, between minimum and maximum
};

/// Fills matrices or vectors with random numbers in the order matrix, row, column.
/// Element e takes word e of the stream from where it is:
///
/// - Philox: word e mod 4 of block scalars[0] + floor(e / 4), key = seed, counter (0, 0, high, low half of
///   the block's number).
/// - MTGP32: the words that follow the state, which is advanced by as many as there are elements.
///
///     Uniform   fma(maximum - minimum, t, minimum) in float32; the float below maximum where that is
///               maximum or more
///     Normal    mean + standardDeviation InvPhi(u), u = t, or 2^-24 for t = 0, in float64, rounded once
///     bounded   u = a + (b - a) (t + 2^-24) with a, b = Phi of the bounds; b = a: the bound next to the mean
///
/// A standard deviation of 0 gives the mean, inside the bounds; equal bounds give the bound.
///
/// | operand | what |
/// |---|---|
/// | destination | the matrices |
/// | scalars[0] | Philox: number of the first block, an integer below 2^53 |
/// | parameters[0] | MTGP32: the state, kMTGP32StateWords words, read and written |
struct MatrixRandomProblem {
  RandomGenerator generator = RandomGenerator::Philox;
  RandomNumbers numbers = RandomNumbers::Words;
  std::uint64_t seed = 0;  ///< Philox
  float minimum = 0;
  float maximum = 0;
  float mean = 0;
  float standardDeviation = 0;
  TensorShape destination;

  bool operator==(const MatrixRandomProblem&) const = default;
  [[nodiscard]] std::size_t hash() const {
    return hashOf(generator, numbers, seed, std::bit_cast<std::uint32_t>(minimum),
                  std::bit_cast<std::uint32_t>(maximum), std::bit_cast<std::uint32_t>(mean),
                  std::bit_cast<std::uint32_t>(standardDeviation), destination.hash());
  }
  /// "Philox uniform -1 1, seed 7, 1x3x1x5 float32".
  [[nodiscard]] std::string describe() const;
};

/// One implementation, which takes every problem. Nothing depends on the number of threads.
std::span<const Implementation<MatrixRandomProblem>> matrixRandomImplementationsCpu();
std::span<const Implementation<MatrixRandomProblem>> matrixRandomImplementationsCuda();
inline constexpr BackEnds<MatrixRandomProblem> matrixRandomBackEnds{
    matrixRandomImplementationsCpu, UNMETAL_CUDA_LIST(matrixRandomImplementationsCuda)};

/// Words of an MTGP32 state: the last ones of the sequence, oldest first.
inline constexpr std::size_t kMTGP32StateWords = 351;
/// The state that a seed starts from.
void seedMTGP32(std::uint32_t seed, std::span<std::uint32_t, kMTGP32StateWords> state);

}  // namespace mps::detail
