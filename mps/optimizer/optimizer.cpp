#include "mps/optimizer/optimizer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <vector>

#include "mps/core/array/array_storage.hpp"
#include "mps/core/image/byte_rows.hpp"
#include "mps/core/image/writable.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/core/layer/row_sum.hpp"
#include "mps/core/layer/shared_copies.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/checked_number.hpp"
#include "mps/core/types/error.hpp"
#include "mps/optimizer/combined_updates.hpp"
#include "mps/optimizer/optimizer_problem.hpp"
#include "mtl/back_ends.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {

using detail::OptimizerKind;
using detail::OptimizerNumbers;
using detail::OptimizerProblem;

namespace {

constexpr const char* bufferNames[] = {"momentum", "velocity", "maximumVelocity"};

/// Which of momentum, velocity and maximum velocity a kind's first buffer is.
std::size_t firstSlot(OptimizerKind kind) {
  return kind == OptimizerKind::RMSProp ? 1 : 0;
}

std::size_t bufferCount(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::SGD:
      return 0;
    case OptimizerKind::SGDMomentum:
    case OptimizerKind::SGDNesterov:
    case OptimizerKind::RMSProp:
      return 1;
    case OptimizerKind::Adam:
      return 2;
    case OptimizerKind::AMSGrad:
      return 3;
  }
  return 0;
}

/// What the arrays of one encode have in common.
struct Extent {
  std::size_t arrays = 1;
  std::size_t rows = 0;
  std::size_t columns = 0;
  bool operator==(const Extent&) const = default;
  [[nodiscard]] bool isEmpty() const { return arrays == 0 || rows == 0 || columns == 0; }
  [[nodiscard]] std::string describe() const {
    return (arrays != 1 ? std::to_string(arrays) + " x " : "") + std::to_string(rows) + " x " +
           std::to_string(columns);
  }
};
Extent extentOf(const Vector& vector) {
  return {1, vector.vectors(), vector.length()};
}
Extent extentOf(const Matrix& matrix) {
  return {matrix.matrices(), matrix.rows(), matrix.columns()};
}

template <class Array>
constexpr const char* wordFor = "vector";
template <>
constexpr const char* wordFor<Matrix> = "matrix";

std::int64_t bytesOf(std::size_t size) {
  return static_cast<std::int64_t>(size);
}

/// What an argument takes of a memory.
struct Area {
  std::string argument;
  std::shared_ptr<mtl::Memory> memory;
  detail::ByteRows rows;

  static Area of(std::string argument, Vector& vector) {
    return {std::move(argument),
            vector.data()->memory(),
            {bytesOf(vector.offset()), bytesOf(vector.vectors()), bytesOf(vector.vectorBytes()), 1,
             bytesOf(vector.vectorBytes()), bytesOf(vector.length() * sizeof(float))}};
  }
  static Area of(std::string argument, Matrix& matrix) {
    return {std::move(argument),
            matrix.data()->memory(),
            {bytesOf(matrix.offset()), bytesOf(matrix.matrices()), bytesOf(matrix.matrixBytes()),
             bytesOf(matrix.rows()), bytesOf(matrix.rowBytes()), bytesOf(matrix.columns() * sizeof(float))}};
  }
  [[nodiscard]] bool overlaps(const Area& other) const {
    return memory == other.memory && overlap(rows, other.rows);
  }
  [[nodiscard]] bool isSameAs(const Area& other) const {
    return memory == other.memory && areSame(rows, other.rows);
  }
};

/// What an update reads and writes.
struct UpdatedAreas {
  Area gradient, values, result;
  std::vector<Area> buffers;
};

/// Of all updates of an encode. A result may be the very gradient or values of its update, other than that what is
/// written is apart. @throws Error
void checkApart(const Kernel& kernel, std::span<const UpdatedAreas> updates) {
  const auto check = [&](const Area& written, const Area& other, bool mayBeSame) {
    if (!written.overlaps(other) || (mayBeSame && written.isSameAs(other))) return;
    throw Error(kernel.describe(), written.argument, "memory that is also of " + other.argument,
                mayBeSame ? "memory of its own, or the very same" : "memory of its own");
  };
  for (std::size_t i = 0; i < updates.size(); ++i)
    for (std::size_t j = 0; j < updates.size(); ++j) {
      for (const Area& buffer : updates[i].buffers) {
        for (const Area* other : {&updates[j].gradient, &updates[j].values, &updates[j].result})
          check(buffer, *other, false);
        for (const Area& other : updates[j].buffers)
          if (&buffer != &other) check(buffer, other, false);
      }
      const Area& result = updates[i].result;
      for (const Area* other : {&updates[j].gradient, &updates[j].values}) check(result, *other, i == j);
      if (i != j) check(result, updates[j].result, false);
    }
}

/// A buffer of one of a pair. @throws Error
void checkBuffer(const Kernel& kernel, mtl::CommandBuffer& commandBuffer, const char* argument,
                 const std::shared_ptr<Vector>& vector, std::size_t count) {
  if (!vector) throw Error(kernel.describe(), argument, "null", "a vector");
  vector->storage().check(kernel, argument, commandBuffer, true);
  if (vector->dataType() != DataType::Float32)
    throw Error(kernel.describe(), argument, name(vector->dataType()), "Float32");
  const bool isDense = vector->vectors() == 1 || vector->vectorBytes() == vector->length() * sizeof(float);
  if (!isDense || vector->length() * vector->vectors() != count)
    throw Error(
        kernel.describe(), argument,
        std::to_string(vector->length() * vector->vectors()) + " values" + (isDense ? "" : " with gaps"),
        std::to_string(count) + " values without gaps");
}

void consumeRead(const std::shared_ptr<State>& state) {
  if (state->isTemporary() && state->readCount() > 0) state->setReadCount(state->readCount() - 1);
}

}  // namespace

/// The arrays of one update: float32, rows of the same length.
struct NNOptimizer::Arrays {
  struct Array {
    std::shared_ptr<mtl::Memory> memory;
    std::size_t byteOffset = 0;
    std::int64_t stride = 0;  ///< elements from row to row
  };
  std::int64_t count = 0;
  std::int64_t rows = 1;
  Array gradient, values, result;
  std::array<Array, 3> buffers;  ///< momentum, velocity, maximum velocity

  /// @param part of a pair
  [[nodiscard]] UpdatedAreas areas(std::size_t part) const {
    const auto area = [&](const char* argument, const Array& array) {
      return Area{std::string(argument) + (part == 0 ? " of the weights or gamma" : " of the biases or beta"),
                  array.memory,
                  {bytesOf(array.byteOffset), 1, 0, 1, 0, count * bytesOf(sizeof(float))}};
    };
    UpdatedAreas all{area("gradient", gradient), area("values", values), area("result", result), {}};
    for (std::size_t i = 0; i < buffers.size(); ++i)
      if (buffers[i].memory) all.buffers.push_back(area(bufferNames[i], buffers[i]));
    return all;
  }
  static Array of(Vector& vector, std::size_t /*index*/) {
    return {vector.data()->memory(), vector.offset(),
            static_cast<std::int64_t>(vector.vectorBytes() / sizeof(float))};
  }
  static Array of(Matrix& matrix, std::size_t index) {
    return {matrix.data()->memory(), matrix.offset() + index * matrix.matrixBytes(),
            static_cast<std::int64_t>(matrix.rowBytes() / sizeof(float))};
  }
};

NNOptimizer::NNOptimizer(std::shared_ptr<mtl::Device> device, const NNOptimizerDescriptor& descriptor)
    : Kernel(std::move(device)), descriptor_(descriptor) {
  checkDescriptor();
}

void NNOptimizer::checkDescriptor() const {
  constexpr const char* owner = "NNOptimizerDescriptor";
  detail::checkedFinite(owner, "learningRate", learningRate());
  detail::checkedFinite(owner, "gradientRescale", gradientRescale());
  detail::checkedFinite(owner, "regularizationScale", regularizationScale());
  // An infinite limit is none.
  for (const auto& [property, limit] :
       {std::pair("gradientClipMin", gradientClipMin()), std::pair("gradientClipMax", gradientClipMax())})
    if (std::isnan(limit)) throw Error(owner, property, std::to_string(limit), "a number");
}

void NNOptimizer::setLearningRate(float learningRate) {
  descriptor_.setLearningRate(detail::checkedFinite(describe(), "learningRate", learningRate));
}

void NNOptimizer::setLossScale(std::shared_ptr<LossScale> lossScale) {
  if (lossScale && lossScale->device() != device())
    throw Error(describe(), "lossScale", "one of " + mtl::nameForMessages(*lossScale->device()),
                "one of " + mtl::nameForMessages(*device()));
  lossScale_ = std::move(lossScale);
}

void NNOptimizer::didCopy(bool /*hasMoved*/) {
  lossScale_ = detail::lossScaleOfOptimizerOn(device(), lossScale_);
}

OptimizerNumbers NNOptimizer::numbers() const {
  if (applyGradientClipping() && gradientClipMin() > gradientClipMax())
    throw Error(describe(), "gradientClipMin", std::to_string(gradientClipMin()),
                "at most gradientClipMax, " + std::to_string(gradientClipMax()));
  OptimizerNumbers numbers;
  numbers.learningRate = learningRate();
  numbers.gradientRescale = gradientRescale();
  numbers.gradientClipMin = gradientClipMin();
  numbers.gradientClipMax = gradientClipMax();
  numbers.regularizationScale = regularizationScale();
  if (regularizationType() == NNRegularizationType::Decoupled) numbers.regularizationScale *= learningRate();
  return numbers;
}

void NNOptimizer::record(mtl::CommandBuffer& commandBuffer, OptimizerKind kind,
                         const OptimizerNumbers& numbers, const Arrays& arrays) const {
  OptimizerProblem problem;
  problem.rule = {kind, regularizationType(), applyGradientClipping()};
  problem.count = arrays.count;
  problem.rows = arrays.rows;
  problem.gradientStride = arrays.gradient.stride;
  problem.valuesStride = arrays.values.stride;
  problem.resultStride = arrays.result.stride;
  problem.momentumStride = arrays.buffers[0].stride;
  problem.velocityStride = arrays.buffers[1].stride;
  problem.maximumVelocityStride = arrays.buffers[2].stride;
  detail::Operands operands;
  operands.scalars = numbers.scalars();
  mtl::Command command;
  command.label = describe();
  const auto bind = [&](const Arrays::Array& array) { return array.memory->address() + array.byteOffset; };
  operands.gradient = bind(arrays.gradient);
  operands.source = bind(arrays.values);
  operands.destination = bind(arrays.result);
  command.reads = {arrays.gradient.memory, arrays.values.memory};
  detail::checkWritable(describe(), "result", *arrays.result.memory);
  command.writes = {arrays.result.memory};
  command.retained = {arrays.gradient.memory, arrays.values.memory, arrays.result.memory};
  for (std::size_t i = 0; i < arrays.buffers.size(); ++i) {
    const Arrays::Array& buffer = arrays.buffers[i];
    if (!buffer.memory) continue;
    detail::checkWritable(describe(), "momentum or velocity", *buffer.memory);
    operands.parameters[i] = bind(buffer);
    command.reads.push_back(buffer.memory);
    command.writes.push_back(buffer.memory);
    command.retained.push_back(buffer.memory);
  }
  if (lossScale_) {
    const auto& scale = lossScale_->numbers()->memory();
    operands.parameters[3] = scale->address();
    command.reads.push_back(scale);
    command.retained.push_back(scale);
  }
  if (auto* combined = detail::CombinedUpdates::current();
      combined != nullptr && problem.rows == 1 && combined->takes(lossScale_)) {
    const auto floats = [](std::byte* address) { return reinterpret_cast<float*>(address); };
    combined->add(
        {problem.rule, numbers, reinterpret_cast<const detail::LossScaleNumbers*>(operands.parameters[3])},
        {reinterpret_cast<const float*>(operands.gradient), reinterpret_cast<const float*>(operands.source),
         floats(operands.destination), floats(operands.parameters[0]), floats(operands.parameters[1]),
         floats(operands.parameters[2]), problem.count},
        lossScale_, std::move(command));
    return;
  }
  if (lossScale_) {
    const auto rowBytes = static_cast<std::size_t>(arrays.gradient.stride) * sizeof(float);
    for (std::size_t row = 0; row < static_cast<std::size_t>(arrays.rows); ++row)
      lossScale_->inspect(commandBuffer, arrays.gradient.memory, arrays.gradient.byteOffset + row * rowBytes,
                          arrays.count);
  }
  const auto chosen = detail::planFor(*device(), detail::optimizerBackEnds, problem);
  detail::comment(*this, chosen);
  detail::setRun(command, chosen.plan, operands);
  commandBuffer.append(std::move(command));
}

template <class Array>
void NNOptimizer::encodeArrays(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, OptimizerKind kind,
                               const OptimizerNumbers& numbers, const std::shared_ptr<Array>& gradient,
                               const std::shared_ptr<Array>& values,
                               const std::vector<std::shared_ptr<Array>>& buffers,
                               const std::shared_ptr<Array>& result) {
  detail::checkCommandBuffer(*this, commandBuffer);
  const auto check = [&](const std::string& argument, const std::shared_ptr<Array>& array,
                         bool isRead = true) {
    if (!array) throw Error(describe(), argument, "null", std::string("a ") + wordFor<Array>);
    array->storage().check(*this, argument.c_str(), *commandBuffer, isRead);
    if (array->dataType() != DataType::Float32)
      throw Error(describe(), argument, name(array->dataType()), "Float32");
    if (gradient && extentOf(*array) != extentOf(*gradient))
      throw Error(describe(), argument, extentOf(*array).describe(),
                  extentOf(*gradient).describe() + ", as the gradient");
  };
  const std::string suffix = std::is_same_v<Array, Vector> ? "Vector" : "Matrix";
  check("inputGradient" + suffix, gradient);
  check("inputValues" + suffix, values);
  check("resultValues" + suffix, result, false);
  for (std::size_t i = 0; i < bufferCount(kind); ++i) check(bufferNames[firstSlot(kind) + i], buffers[i]);
  const Extent extent = extentOf(*gradient);
  if (!extent.isEmpty()) {
    UpdatedAreas areas{Area::of("inputGradient" + suffix, *gradient),
                       Area::of("inputValues" + suffix, *values),
                       Area::of("resultValues" + suffix, *result),
                       {}};
    for (std::size_t i = 0; i < bufferCount(kind); ++i)
      areas.buffers.push_back(Area::of(bufferNames[firstSlot(kind) + i], *buffers[i]));
    checkApart(*this, std::span(&areas, 1));
  }
  mtl::RecordingGuard guard(*commandBuffer);
  for (std::size_t k = 0; k < extent.arrays && !extent.isEmpty(); ++k) {
    Arrays arrays;
    arrays.gradient = Arrays::of(*gradient, k);
    arrays.values = Arrays::of(*values, k);
    arrays.result = Arrays::of(*result, k);
    for (std::size_t i = 0; i < bufferCount(kind); ++i)
      arrays.buffers[firstSlot(kind) + i] = Arrays::of(*buffers[i], k);
    arrays.count = static_cast<std::int64_t>(extent.columns);
    arrays.rows = static_cast<std::int64_t>(extent.rows);
    record(*commandBuffer, kind, numbers, arrays);
  }
  guard.keep();
  result->storage().setProducer(describe());
  detail::consumeRead({&gradient->storage(), values != result ? &values->storage() : nullptr});
}

void NNOptimizer::encodeConvolution(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                    OptimizerKind kind, const OptimizerNumbers& numbers,
                                    const std::shared_ptr<CNNConvolutionGradientState>& gradientState,
                                    const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& sourceState,
                                    const std::vector<Vectors>& buffers,
                                    const std::shared_ptr<CNNConvolutionWeightsAndBiasesState>& resultState) {
  detail::checkCommandBuffer(*this, commandBuffer);
  if (!gradientState || !sourceState || !resultState)
    throw Error(describe(), "a state", "null", "gradient, source and result states");
  detail::checkStates(*this, "convolutionGradientState", *commandBuffer, StateBatch{gradientState}, 1);
  detail::checkStates(*this, "convolutionSourceState", *commandBuffer, StateBatch{sourceState}, 1);
  detail::checkStates(*this, "resultState", *commandBuffer, StateBatch{resultState}, 1);
  const auto checkCounts = [&](const char* what, std::size_t source, std::size_t result,
                               std::size_t gradient) {
    if (source != gradient || result != gradient)
      throw Error(describe(), "convolutionSourceState and resultState",
                  std::to_string(source) + " and " + std::to_string(result) + what,
                  std::to_string(gradient) + ", as in convolutionGradientState");
  };
  const std::size_t weightCount = gradientState->bufferSize(0) / sizeof(float);
  checkCounts(" weights", sourceState->weightCount(), resultState->weightCount(), weightCount);
  const bool hasBiases =
      gradientState->hasBiases() && sourceState->biasCount() > 0 && resultState->biasCount() > 0;
  if (hasBiases)
    checkCounts(" biases", sourceState->biasCount(), resultState->biasCount(),
                gradientState->bufferSize(1) / sizeof(float));
  std::array<Arrays, 2> pair;
  const auto fill = [](Arrays& arrays, std::size_t count, const mtl::Buffer& gradient,
                       const Arrays::Array& values, const Arrays::Array& result) {
    arrays.count = static_cast<std::int64_t>(count);
    arrays.gradient = {gradient.memory(), 0, 0};
    arrays.values = values;
    arrays.result = result;
  };
  fill(pair[0], weightCount, *gradientState->gradientForWeights(),
       {sourceState->weights()->memory(), sourceState->weightsOffset(), 0},
       {resultState->weights()->memory(), resultState->weightsOffset(), 0});
  if (hasBiases)
    fill(pair[1], resultState->biasCount(), *gradientState->gradientForBiases(),
         {sourceState->biases()->memory(), sourceState->biasesOffset(), 0},
         {resultState->biases()->memory(), resultState->biasesOffset(), 0});
  mtl::RecordingGuard guard(*commandBuffer);
  recordPair(*commandBuffer, kind, numbers, std::span(pair).first(hasBiases ? 2 : 1), buffers);
  guard.keep();
  resultState->setProducer(describe());
  consumeRead(gradientState);
  if (sourceState != resultState) consumeRead(sourceState);
}

void NNOptimizer::recordPair(mtl::CommandBuffer& commandBuffer, OptimizerKind kind,
                             const OptimizerNumbers& numbers, std::span<Arrays> pair,
                             const std::vector<Vectors>& buffers) const {
  std::size_t parts = 2;
  for (std::size_t b = 0; b < bufferCount(kind); ++b) {
    const Vectors& vectors = buffers[b];
    if (vectors.empty() || vectors.size() > 2)
      throw Error(describe(), bufferNames[firstSlot(kind) + b], std::to_string(vectors.size()) + " vectors",
                  "1 (weights, or gamma) or 2 (biases, or beta, too)");
    parts = std::min(parts, vectors.size());
  }
  std::vector<UpdatedAreas> areas;
  for (std::size_t part = 0; part < pair.size(); ++part) {
    Arrays& arrays = pair[part];
    if (part < parts)
      for (std::size_t b = 0; b < bufferCount(kind); ++b) {
        const std::size_t slot = firstSlot(kind) + b;
        const auto& vector = buffers[b][part];
        checkBuffer(*this, commandBuffer, bufferNames[slot], vector, static_cast<std::size_t>(arrays.count));
        arrays.buffers[slot] = {vector->data()->memory(), vector->offset(), 0};
      }
    areas.push_back(arrays.areas(part));
  }
  checkApart(*this, areas);
  for (std::size_t part = 0; part < pair.size(); ++part) {
    const Arrays& arrays = pair[part];
    if (part < parts)
      record(commandBuffer, kind, numbers, arrays);
    else if (arrays.values.memory != arrays.result.memory ||
             arrays.values.byteOffset != arrays.result.byteOffset)
      // Not updated: a reload from the result still finds them.
      detail::recordMemoryCopy(commandBuffer, describe(), arrays.values.memory, arrays.values.byteOffset,
                               arrays.result.memory, arrays.result.byteOffset,
                               static_cast<std::size_t>(arrays.count) * sizeof(float));
  }
}

void NNOptimizer::encodeBatchNormalization(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, OptimizerKind kind,
    const OptimizerNumbers& numbers, const std::shared_ptr<CNNBatchNormalizationState>& gradientState,
    const std::shared_ptr<CNNBatchNormalizationState>& sourceState, const std::vector<Vectors>& buffers,
    const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState) {
  detail::checkCommandBuffer(*this, commandBuffer);
  if (!gradientState || !sourceState || !resultState)
    throw Error(describe(), "a state", "null", "gradient, source and result states");
  detail::checkStates(*this, "batchNormalizationGradientState", *commandBuffer, StateBatch{gradientState}, 1);
  detail::checkStates(*this, "batchNormalizationSourceState", *commandBuffer, StateBatch{sourceState}, 1);
  detail::checkStates(*this, "resultState", *commandBuffer, StateBatch{resultState}, 1);
  const std::size_t count = gradientState->numberOfFeatureChannels();
  if (sourceState->numberOfFeatureChannels() != count || resultState->numberOfFeatureChannels() != count)
    throw Error(describe(), "batchNormalizationSourceState and resultState",
                std::to_string(sourceState->numberOfFeatureChannels()) + " and " +
                    std::to_string(resultState->numberOfFeatureChannels()) + " feature channels",
                std::to_string(count) + ", as in the gradient state");
  if (!gradientState->hasGradientStatistics())
    throw Error(describe(), "batchNormalizationGradientState", "without gradients",
                "one that CNNBatchNormalizationStatisticsGradient has encoded with");
  std::array<Arrays, 2> pair;
  const auto fill = [&](Arrays& arrays, const mtl::Buffer& gradient, const mtl::Buffer& values,
                        const mtl::Buffer& result) {
    arrays.count = static_cast<std::int64_t>(count);
    arrays.gradient = {gradient.memory(), 0, 0};
    arrays.values = {values.memory(), 0, 0};
    arrays.result = {result.memory(), 0, 0};
  };
  fill(pair[0], *gradientState->gradientForGamma(), *sourceState->gamma(), *resultState->gamma());
  fill(pair[1], *gradientState->gradientForBeta(), *sourceState->beta(), *resultState->beta());
  mtl::RecordingGuard guard(*commandBuffer);
  recordPair(*commandBuffer, kind, numbers, pair, buffers);
  guard.keep();
  resultState->setProducer(describe());
  consumeRead(gradientState);
  if (sourceState != gradientState) consumeRead(sourceState);
}

void NNOptimizer::encodeImageNormalization(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, OptimizerKind kind,
    const OptimizerNumbers& numbers, const StateBatch& states, const std::vector<Vectors>& buffers,
    const std::shared_ptr<CNNNormalizationGammaAndBetaState>& resultState) {
  detail::checkCommandBuffer(*this, commandBuffer);
  if (states.empty()) throw Error(describe(), "normalizationStates", "empty", "the states of a batch");
  if (!resultState) throw Error(describe(), "resultState", "null", "a state");
  detail::checkStates(*this, "normalizationStates", *commandBuffer, states, states.count());
  detail::checkStates(*this, "resultState", *commandBuffer, StateBatch{resultState}, 1);
  using GradientState = detail::ImageNormalizationGradientState;
  const detail::ImageNormalizationRows rows = detail::gradientRowsOf(describe(), states);
  std::vector<std::shared_ptr<GradientState>> distinct;  // one after the other in `rows`, or anywhere
  for (std::size_t i = 0; i < rows.rows; ++i) {
    distinct.push_back(std::dynamic_pointer_cast<GradientState>(states[i]));
    if (!distinct[i])
      throw Error(describe(), "normalizationStates", "a state of another kind", "of one kind");
    if (!distinct[i]->gradients()->hasGradient(distinct[i]->gradientRow()))
      throw Error(describe(), "normalizationStates", "without gradients",
                  "states that the gradient kernel has encoded with");
  }
  const std::size_t count = distinct[0]->numberOfFeatureChannels();
  if (resultState->numberOfFeatureChannels() != count)
    throw Error(describe(), "resultState",
                std::to_string(resultState->numberOfFeatureChannels()) + " feature channels",
                std::to_string(count) + ", as in the gradient states");
  const detail::ImageNormalizationParameters& forward = *distinct[0]->parameters();
  std::array<Arrays, 2> pair;
  mtl::RecordingGuard guard(*commandBuffer);
  const std::size_t rowBytes = count * sizeof(float);
  const auto sums = rows.rows > 1 ? device()->allocate(2 * rowBytes) : nullptr;
  const auto fill = [&](std::size_t part, const mtl::Buffer& values, const mtl::Buffer& result) {
    const auto offsetOf = [&](const GradientState& state) {
      const std::size_t row = state.gradientRow();
      return part == 0 ? state.gradients()->gammaOffset(row) : state.gradients()->betaOffset(row);
    };
    pair[part].count = static_cast<std::int64_t>(count);
    pair[part].values = {values.memory(), 0, 0};
    pair[part].result = {result.memory(), 0, 0};
    auto memory = distinct[0]->gradients()->memory();
    std::size_t offset = offsetOf(*distinct[0]);
    if (sums) {
      if (!rows.gradients) {
        memory = device()->allocate(rows.rows * rowBytes);
        for (std::size_t i = 0; i < rows.rows; ++i)
          detail::recordMemoryCopy(*commandBuffer, describe(), distinct[i]->gradients()->memory(),
                                   offsetOf(*distinct[i]), memory, i * rowBytes, rowBytes);
        offset = 0;
      }
      detail::recordRowSum(*commandBuffer, describe(),
                           {static_cast<std::int64_t>(rows.rows), static_cast<std::int64_t>(count)}, memory,
                           offset, sums, part * rowBytes);
      memory = sums;
      offset = part * rowBytes;
    }
    pair[part].gradient = {std::move(memory), offset, 0};
  };
  fill(0, *forward.gamma, *resultState->gamma());
  fill(1, *forward.beta, *resultState->beta());
  recordPair(*commandBuffer, kind, numbers, pair, buffers);
  guard.keep();
  resultState->setProducer(describe());
  detail::consumeRead(states);
}

// For optimizer_kinds.cpp.
template void NNOptimizer::encodeArrays(const std::shared_ptr<mtl::CommandBuffer>&, OptimizerKind,
                                        const OptimizerNumbers&, const std::shared_ptr<Vector>&,
                                        const std::shared_ptr<Vector>&,
                                        const std::vector<std::shared_ptr<Vector>>&,
                                        const std::shared_ptr<Vector>&);
template void NNOptimizer::encodeArrays(const std::shared_ptr<mtl::CommandBuffer>&, OptimizerKind,
                                        const OptimizerNumbers&, const std::shared_ptr<Matrix>&,
                                        const std::shared_ptr<Matrix>&,
                                        const std::vector<std::shared_ptr<Matrix>>&,
                                        const std::shared_ptr<Matrix>&);

}  // namespace mps
