#include "mps/matrix/check/matrix_layers_conform.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mps/conform/kernel_cases.hpp"
#include "mps/conform/testing/test_matrices.hpp"
#include "mps/matrix/check/matrix_layers_reference.hpp"
#include "mps/matrix/check/matrix_reference.hpp"
#include "mps/matrix/matrix_copy.hpp"
#include "mps/matrix/matrix_fully_connected.hpp"
#include "mps/matrix/matrix_sum.hpp"

namespace mps::detail {
namespace {

using Words = std::vector<std::uint32_t>;

template <class T>
std::shared_ptr<Vector> vectorOf(ConformRun& run, const std::vector<T>& values, DataType type) {
  auto vector = Vector::create(run.device(), VectorDescriptor::vectorDescriptor(values.size(), type));
  std::copy(values.begin(), values.end(), vector->data()->template contentsAs<T>().begin());
  vector->data()->didModifyRange(0, vector->data()->length());
  return vector;
}
std::shared_ptr<Vector> vectorOf(ConformRun& run, const Words& words) {
  return vectorOf(run, words, DataType::UInt32);
}

TensorShape matrixOf(std::int64_t rows, std::int64_t columns, ImageFeatureChannelFormat format) {
  return TensorShape::dense(1, rows, 1, columns, format);
}

/// The whole matrix of an array, frame and all.
ReferenceTensor wholeOf(const TestMatrix& array) {
  TensorShape whole = array.shape;
  whole.height = static_cast<std::int64_t>(array.matrix->rows());
  whole.channels = static_cast<std::int64_t>(array.matrix->columns());
  ReferenceTensor tensor(1, whole.height, 1, whole.channels);
  tensor.values = readTensor(whole, array.buffer->contents());
  return tensor;
}
/// An array whose region is the whole matrix, for kernels that may write its frame.
TestArray wholeArrayOf(const TestMatrix& matrix) {
  TestArray array = matrix;
  array.shape.height = static_cast<std::int64_t>(matrix.matrix->rows());
  array.shape.channels = static_cast<std::int64_t>(matrix.matrix->columns());
  array.firstByte = 0;
  array.before = wholeOf(matrix);
  return array;
}

// -------------------------------------------------------------------------------------------------
// Sums
// -------------------------------------------------------------------------------------------------

struct SumCase {
  MatrixSize size;
  std::size_t count = 1;
  bool transpose = false;
  CNNNeuronType neuron = CNNNeuronType::None;
};

void runSum(ConformRun& run, const SumCase& item, Tier tier) {
  const RandomKind kind = valuesFor(tier, run.format());
  const std::int64_t height = item.transpose ? item.size.columns : item.size.rows;
  const std::int64_t width = item.transpose ? item.size.rows : item.size.columns;
  std::vector<TestMatrix> sources;
  std::vector<std::shared_ptr<Matrix>> matrices;
  std::vector<float> scales;
  Words offsets;
  std::vector<MatrixTermReference> terms;
  for (std::size_t k = 0; k < item.count; ++k) {
    const TestMatrix& source =
        sources.emplace_back(run, matrixOf(item.size.rows, item.size.columns, run.format()), kind);
    matrices.push_back(source.matrix);
    scales.push_back(tier == Tier::Exact ? static_cast<float>(k) - 1 : 0.75F / static_cast<float>(k + 1));
    // Elements of the frame take part, and what lies beyond it.
    offsets.push_back(static_cast<std::uint32_t>(k));
    offsets.push_back(static_cast<std::uint32_t>(3 * k));
    terms.push_back({wholeOf(source), static_cast<double>(scales[k]), offsets[2 * k], offsets[2 * k + 1]});
  }
  const TestMatrix result(run, matrixOf(height, width, run.format()), kind);
  const TestVector bias(run, width, 1, run.values(static_cast<std::size_t>(width), kind));
  const auto kernel = MatrixSum::create(run.device(), item.count, static_cast<std::size_t>(item.size.rows),
                                        static_cast<std::size_t>(item.size.columns), item.transpose);
  kernel->setNeuronType(item.neuron, 1, 1, 0);
  kernel->setResultMatrixOrigin(TestMatrix::origin);
  std::vector<const TestArray*> read{&bias};
  for (const TestMatrix& source : sources) read.push_back(&source);
  if (!encodeMatrices(run, read, {&result}, [&](const auto& commandBuffer) {
        kernel->encode(commandBuffer, matrices, result.matrix, vectorOf(run, scales, DataType::Float32),
                       vectorOf(run, offsets), bias.vector);
      }))
    return;
  const auto neuron = NNNeuronDescriptor::cnnNeuronDescriptor(item.neuron, 1, 1, 0);
  run.check(matrixSumReference(ReferenceTensor(1, height, 1, width), terms, item.transpose,
                               bias.before.values, neuron),
            result.read(), run.format(), Zeros::Expected);
}

void conformSums(Conform& conform) {
  for (const auto& implementation : conform.implementations(matrixTermBackEnds))
    for (const auto format : kGradientFormats)
      for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
        std::vector<ConformCase> cases;
        for (const MatrixSize& size : matrixSizes())
          for (const bool transpose : {false, true})
            for (const std::size_t count : {1U, 3U})
              for (const auto neuron : {CNNNeuronType::None, CNNNeuronType::TanH}) {
                if (tier == Tier::Exact && neuron != CNNNeuronType::None) continue;
                const SumCase item{size, count, transpose, neuron};
                cases.push_back({size.name, [=](ConformRun& run) { runSum(run, item, tier); }});
              }
        conformRow(conform, {"MatrixSum", Direction::Forward, format, std::string(implementation.name), tier},
                   cases);
      }
}

// -------------------------------------------------------------------------------------------------
// Copies
// -------------------------------------------------------------------------------------------------

/// Indices 0 to count - 1 in another order.
Words permuted(ConformRun& run, std::int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  const std::vector<double> keys = run.values(size, RandomKind::Uniform);
  Words indices(size);
  std::iota(indices.begin(), indices.end(), 0U);
  std::sort(indices.begin(), indices.end(),
            [&](std::uint32_t a, std::uint32_t b) { return keys[a] < keys[b]; });
  return indices;
}

/// One copy has its offsets in a vector; several give those that are encoded.
MatrixCopyDescriptor descriptorOf(ConformRun& run, const TestMatrix& source, const TestMatrix& destination,
                                  std::span<const Words> offsets) {
  if (offsets.size() == 1)
    return MatrixCopyDescriptor(std::vector{source.matrix}, std::vector{destination.matrix},
                                vectorOf(run, offsets[0]));
  MatrixCopyDescriptor descriptor(offsets.size());
  for (std::size_t k = 0; k < offsets.size(); ++k)
    descriptor.setCopyOperation(k, source.matrix, destination.matrix,
                                {offsets[k][0], offsets[k][1], offsets[k][2], offsets[k][3]});
  return descriptor;
}

/// Where copies read and write.
enum class CopyPlaces : std::uint8_t {
  Inside,
  FromFirstColumn,     ///< of both matrices, so that rows begin at multiples of 16 bytes
  PastTheSource,       ///< a row and a column of what is copied lie outside
  PastTheDestination,  ///< likewise
};

/// Several copies take regions that lie below one another, to places in the reverse order.
void runCopy(ConformRun& run, const MatrixCopyProblem& problem, CopyPlaces places) {
  const RandomKind kind = isUnorm(run.format()) ? RandomKind::Positive : RandomKind::Uniform;
  const auto heightOf = [&](bool isTransposed) { return isTransposed ? problem.columns : problem.rows; };
  const auto shapeOf = [&](bool isTransposed) {
    return matrixOf(problem.copies * heightOf(isTransposed), heightOf(!isTransposed), run.format());
  };
  const TestMatrix source(run, shapeOf(problem.sourceIsTransposed), kind);
  const TestMatrix destination(run, shapeOf(problem.destinationIsTransposed), kind);
  const std::int64_t height = heightOf(problem.destinationIsTransposed);
  std::vector<Words> offsets;
  for (std::int64_t k = 0; k < problem.copies; ++k) {
    const auto from = static_cast<std::uint32_t>(k * heightOf(problem.sourceIsTransposed));
    const auto to =
        static_cast<std::uint32_t>((problem.copies - 1 - k) * height) + std::uint32_t{TestMatrix::kRow};
    switch (places) {
      case CopyPlaces::Inside:
        offsets.push_back({1 + from, 2, to, TestMatrix::kColumn});
        break;
      case CopyPlaces::FromFirstColumn:
        offsets.push_back({1 + from, 0, to, 0});
        break;
      case CopyPlaces::PastTheSource:
        offsets.push_back(
            {std::uint32_t{TestMatrix::kRow} + 2 + from, TestMatrix::kColumn + 2, to, TestMatrix::kColumn});
        break;
      case CopyPlaces::PastTheDestination:
        offsets.push_back({1 + from, 2, to + 2, TestMatrix::kColumn + 2});
        break;
    }
  }
  const Words rows = problem.hasRowIndices ? permuted(run, height) : Words();
  const Words columns = problem.hasColumnIndices ? permuted(run, destination.shape.channels) : Words();
  const TestArray whole = wholeArrayOf(destination);
  const auto kernel = MatrixCopy::create(run.device(), static_cast<std::size_t>(problem.rows),
                                         static_cast<std::size_t>(problem.columns),
                                         problem.sourceIsTransposed, problem.destinationIsTransposed);
  const MatrixCopyDescriptor descriptor = descriptorOf(run, source, destination, offsets);
  const auto indices = [&](const Words& words) { return words.empty() ? nullptr : vectorOf(run, words); };
  const TestArray& written = places == CopyPlaces::Inside ? destination : whole;
  if (!encodeMatrices(run, {&source}, {&written}, [&](const auto& commandBuffer) {
        kernel->encode(commandBuffer, descriptor, indices(rows), 0, indices(columns), 0);
      }))
    return;
  ReferenceTensor expected = whole.before;
  for (const Words& ofCopy : offsets)
    expected = matrixCopyReference(problem, wholeOf(source), std::move(expected), ofCopy, rows, columns);
  run.check(expected, whole.read(), run.format(), Zeros::Expected);
}

void conformMatrixCopies(Conform& conform) {
  constexpr std::array<ImageFeatureChannelFormat, 4> formats{
      ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16,
      ImageFeatureChannelFormat::Unorm8, ImageFeatureChannelFormat::Unorm16};
  for (const auto& implementation : conform.implementations(matrixCopyBackEnds))
    for (const auto format : formats) {
      std::vector<ConformCase> cases;
      for (const MatrixSize& size : matrixSizes())
        for (int flags = 0; flags < 16; ++flags) {
          MatrixCopyProblem problem;
          problem.rows = size.rows;
          problem.columns = size.columns;
          problem.sourceIsTransposed = (flags & 1) != 0;
          problem.destinationIsTransposed = (flags & 2) != 0;
          problem.hasRowIndices = (flags & 4) != 0;
          problem.hasColumnIndices = (flags & 8) != 0;
          const auto add = [&](const std::string& name, const MatrixCopyProblem& copies, CopyPlaces places) {
            cases.push_back({name, [=](ConformRun& run) { runCopy(run, copies, places); }});
          };
          add(size.name, problem, CopyPlaces::Inside);
          add(size.name + "PastTheSource", problem, CopyPlaces::PastTheSource);
          add(size.name + "PastTheDestination", problem, CopyPlaces::PastTheDestination);
          // Indices may lead two copies to the same place.
          if (problem.hasRowIndices || problem.hasColumnIndices) continue;
          add(size.name + "FromFirstColumn", problem, CopyPlaces::FromFirstColumn);
          MatrixCopyProblem several = problem;
          several.copies = 3;
          add("ThreeTimes" + size.name, several, CopyPlaces::Inside);
          add("ThreeTimes" + size.name + "FromFirstColumn", several, CopyPlaces::FromFirstColumn);
        }
      conformRow(conform,
                 {"MatrixCopy", Direction::Forward, format, std::string(implementation.name), Tier::Exact},
                 cases);
    }
}

// -------------------------------------------------------------------------------------------------
// Fully connected
// -------------------------------------------------------------------------------------------------

struct LayerCase {
  std::string name;
  std::int64_t matrices, rows, inputs, outputs;
  CNNNeuronType neuron = CNNNeuronType::None;
  bool hasBias = true;

  [[nodiscard]] TensorShape shape(std::int64_t height, std::int64_t width,
                                  ImageFeatureChannelFormat format) const {
    return TensorShape::dense(matrices, height, 1, width, format);
  }
};

std::vector<LayerCase> layerCases() {
  return {{"OneElement", 1, 1, 1, 1},
          {"OneSample", 1, 1, 70, 40, CNNNeuronType::TanH},
          {"Classes10", 1, 64, 84, 10},
          {"Outputs33", 1, 17, 21, 33, CNNNeuronType::Sigmoid},
          {"Matrices", 3, 9, 16, 12, CNNNeuronType::TanH},
          {"Wide", 2, 5, 300, 130},
          {"Tall", 1, 300, 7, 9, CNNNeuronType::Sigmoid},
          {"WithoutBias", 2, 5, 7, 6, CNNNeuronType::TanH, false},
          // For implementations whose result is one row or one column.
          {"OneOutput", 1, 3000, 40, 1},
          {"OneInputAndOutput", 1, 4000, 1, 1}};
}

constexpr double kAlpha = 0.75;

/// alpha times the product of two arrays.
ReferenceTensor productOf(const TestMatrix& left, const TestMatrix& right, const TensorShape& result,
                          bool transposeLeft, bool transposeRight) {
  MatrixMultiplicationProblem problem;
  problem.alpha = static_cast<float>(kAlpha);
  problem.transposeLeft = transposeLeft;
  problem.transposeRight = transposeRight;
  problem.left = left.shape;
  problem.right = right.shape;
  problem.result = result;
  return matrixMultiplicationReference(problem, left.before, right.before, {});
}

template <class KernelType>
void configure(KernelType& kernel, const LayerCase& item) {
  kernel.setAlpha(kAlpha);
  kernel.setPrimarySourceMatrixOrigin(TestMatrix::origin);
  kernel.setSecondarySourceMatrixOrigin(TestMatrix::origin);
  kernel.setResultMatrixOrigin(TestMatrix::origin);
  kernel.setSourceNumberOfFeatureVectors(static_cast<std::size_t>(item.rows));
  kernel.setSourceInputFeatureChannels(static_cast<std::size_t>(item.inputs));
  kernel.setSourceOutputFeatureChannels(static_cast<std::size_t>(item.outputs));
}

void runLayer(ConformRun& run, const LayerCase& item) {
  const TestMatrix x(run, item.shape(item.rows, item.inputs, run.format()), RandomKind::Uniform);
  const TestMatrix w(run, item.shape(item.inputs, item.outputs, run.format()), RandomKind::Uniform);
  const TestMatrix y(run, item.shape(item.rows, item.outputs, run.format()), RandomKind::Uniform);
  const TestVector bias(
      run, item.outputs, item.matrices,
      run.values(static_cast<std::size_t>(item.outputs * item.matrices), RandomKind::Uniform));
  const auto kernel = MatrixFullyConnected::create(run.device());
  configure(*kernel, item);
  kernel->setNeuronType(item.neuron, 1, 1, 0);
  if (!encodeMatrices(run, {&x, &w, &bias}, {&y}, [&](const auto& commandBuffer) {
        kernel->encode(commandBuffer, x.matrix, w.matrix, item.hasBias ? bias.vector : nullptr, y.matrix);
      }))
    return;
  const ReferenceTensor product = productOf(x, w, y.shape, false, false);
  const auto elements = static_cast<std::ptrdiff_t>(item.rows * item.outputs);
  for (std::int64_t k = 0; k < item.matrices; ++k) {
    ReferenceTensor one(1, item.rows, 1, item.outputs);
    one.roundings = product.roundings;
    one.values.assign(product.values.begin() + k * elements, product.values.begin() + (k + 1) * elements);
    one.magnitude.assign(product.magnitude.begin() + k * elements,
                         product.magnitude.begin() + (k + 1) * elements);
    run.check(
        withBiasAndNeuron(std::move(one), item.hasBias ? bias.beforeOf(k).values : std::vector<double>(),
                          NNNeuronDescriptor::cnnNeuronDescriptor(item.neuron, 1, 1, 0)),
        y.read(k), run.format(), Zeros::Expected);
  }
}

void runLayerGradients(ConformRun& run, const LayerCase& item) {
  const TestMatrix dy(run, item.shape(item.rows, item.outputs, run.format()), RandomKind::Uniform);
  const TestMatrix x(run, item.shape(item.rows, item.inputs, run.format()), RandomKind::Uniform);
  const TestMatrix w(run, item.shape(item.inputs, item.outputs, run.format()), RandomKind::Uniform);
  const TestMatrix dx(run, item.shape(item.rows, item.inputs, run.format()), RandomKind::Uniform);
  const TestMatrix dw(run, item.shape(item.inputs, item.outputs, run.format()), RandomKind::Uniform);
  const TestVector dBias(
      run, item.outputs, item.matrices,
      run.values(static_cast<std::size_t>(item.outputs * item.matrices), RandomKind::Uniform));
  const auto kernel = MatrixFullyConnectedGradient::create(run.device());
  configure(*kernel, item);
  if (!encodeMatrices(run, {&dy, &x, &w}, {&dx, &dw, &dBias}, [&](const auto& commandBuffer) {
        kernel->encodeGradientForData(commandBuffer, dy.matrix, w.matrix, dx.matrix);
        kernel->encodeGradientForWeightsAndBias(commandBuffer, dy.matrix, x.matrix, dw.matrix,
                                                item.hasBias ? dBias.vector : nullptr);
      }))
    return;
  run.check(productOf(dy, w, dx.shape, false, true), dx.read(), run.format(), Zeros::Expected);
  run.check(productOf(x, dy, dw.shape, true, false), dw.read(), run.format(), Zeros::Expected);
  if (!item.hasBias) return;
  for (std::int64_t k = 0; k < item.matrices; ++k)
    run.check(columnSumsReference(dy.beforeOf(k)), dBias.read(k), run.format(), Zeros::Expected);
}

void conformLayers(Conform& conform) {
  for (const auto& implementation : conform.implementations(matrixMultiplicationBackEnds))
    for (const auto format : kGradientFormats)
      for (const bool isForward : {true, false}) {
        std::vector<ConformCase> cases;
        for (const LayerCase& item : layerCases())
          cases.push_back({item.name, [=](ConformRun& run) {
                             isForward ? runLayer(run, item) : runLayerGradients(run, item);
                           }});
        conformRow(conform,
                   {isForward ? "MatrixFullyConnected" : "MatrixFullyConnectedGradient",
                    isForward ? Direction::Forward : Direction::Gradient, format,
                    std::string(implementation.name), Tier::Bounded},
                   cases);
      }
}

}  // namespace

void conformMatrixLayers(Conform& conform) {
  conformSums(conform);
  conformMatrixCopies(conform);
  conformLayers(conform);
}

}  // namespace mps::detail
