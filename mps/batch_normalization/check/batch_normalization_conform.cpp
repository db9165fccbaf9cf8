#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/batch_normalization/check/batch_normalization_cases_setting.hpp"
#include "mps/batch_normalization/check/batch_normalization_fixed_source.hpp"
#include "mps/conform/kernel_cases.hpp"
#include "mps/conform/testing/stored_values.hpp"
#include "mps/core/array/vector.hpp"
#include "mtl/buffer.hpp"

namespace mps::detail {
namespace {

using BatchNormalizationImplementation = Implementation<BatchNormalizationProblem>;
using Operation = BatchNormalizationOperation;

const char* classOf(Operation operation) {
  switch (operation) {
    case Operation::Statistics:
      return "CNNBatchNormalizationStatistics";
    case Operation::Forward:
      return "CNNBatchNormalization";
    case Operation::StatisticsGradient:
      return "CNNBatchNormalizationStatisticsGradient";
    case Operation::Gradient:
      break;
  }
  return "CNNBatchNormalizationGradient";
}

/// Whether small integers give exact results; batch statistics of them are quotients.
bool isExact(Operation operation, const NNNeuronDescriptor& neuron) {
  const bool isLine = neuron.neuronType() == CNNNeuronType::None || hasKink(neuron);
  return operation != Operation::Statistics && isLine;
}

/// Where a case has values that are not finite, nor are the sums of their channels then.
enum class NotFinite : std::uint8_t {
  Nowhere,
  NaNInSource,  ///< one in every fourth channel, in the first pixel
  NaNInBeta,    ///< in every eighth channel, so that of each vector of 8 channels it is the first one alone
  InfinityInSource,  ///< as NaNInSource; an infinite mean, which is NaN once moments are joined
};

/// @param end behind the last place that gets the value
void insert(TestTensor& tensor, double value, std::size_t end, std::size_t step) {
  std::vector<double> values = tensor.reference().values;
  for (std::size_t i = 0; i < std::min(end, values.size()); i += step) values[i] = value;
  tensor.write(values);
}

void runPlan(ConformRun& run, const BatchNormalizationImplementation& implementation,
             const BatchNormalizationProblem& problem, Tier tier, bool isAligned, NotFinite place) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  BatchNormalizationSetting setting(
      run.device(), problem, tier,
      [&](std::size_t count, RandomKind kind) { return run.values(count, kind); }, isAligned);
  const auto channels = static_cast<std::size_t>(problem.source.channels);
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (place == NotFinite::NaNInSource) insert(setting.source(), std::nan(""), channels, 4);
  if (place == NotFinite::NaNInBeta) insert(setting.beta(), std::nan(""), channels, 8);
  if (place == NotFinite::InfinityInSource) insert(setting.source(), infinity, channels, 4);
  const auto judge = [&] {
    setting.judge([&](const ReferenceTensor& expected, TestTensor& found) {
      run.check(expected, found, Zeros::Expected);
    });
    run.require(setting.inputsAreUnchanged(), "an input was written");
    run.require(setting.guardsAreIntact(), "memory around the sums was written");
  };
  Operands operands = setting.operands();
  run.execute(*plan, operands);
  judge();
  if (place == NotFinite::InfinityInSource) return;
  if (!setting.sumsUp())
    return run.checkAccumulated(*plan, operands, setting.expected(problem), setting.destination());
  setting.nextPart();
  operands = setting.operands();
  run.execute(*plan, operands);
  judge();
  if (!problem.storesDataGradient() || problem.gradient != problem.destination) return;
  // The destination is the memory of the gradient.
  setting.nextPart();
  setting.destination().write(setting.gradient().reference().values);
  operands = setting.operands();
  operands.gradient = operands.destination;
  run.execute(*plan, operands);
  judge();
}

/// A whole step with the public kernels, each in two parts of the batch, and what it left behind.
class Step {
 public:
  Step(ConformRun& run, const KernelBatch& batch, const NNNeuronDescriptor& neuron, ConformFormats formats)
      : run_(run),
        source_(sourceFor(run, batch.channels)),
        forward_(CNNBatchNormalization::create(run.device(), source_, neuron)),
        x_(imagesOf(run, batch.form, batch.descriptor(formats.source), batch.count,
                    run.values(batch.count * elements(batch), valuesFor(Tier::Bounded, formats.source)))),
        y_(run.destinations(batch.form, batch.descriptor(formats.result), batch.count)),
        dy_(imagesOf(run, batch.form, batch.descriptor(formats.result), batch.count,
                     run.values(batch.count * elements(batch), valuesFor(Tier::Bounded, formats.result)))),
        dx_(run.destinations(batch.form, batch.descriptor(formats.result), batch.count)),
        state_(std::static_pointer_cast<CNNBatchNormalizationState>(forward_->resultState(x_.batch()[0]))),
        count_(batch.count) {
    problem_.neuron = neuron;
    problem_.epsilon = source_->epsilonValue;
  }

  bool encode() {
    const auto statistics = CNNBatchNormalizationStatistics::create(run_.device());
    const auto sums = CNNBatchNormalizationStatisticsGradient::create(run_.device(), problem_.neuron);
    const auto gradient = CNNBatchNormalizationGradient::create(run_.device(), problem_.neuron);
    return run_.encode([&](const auto& commandBuffer) {
      forParts([&](auto part) { statistics->encodeBatch(commandBuffer, part(x_), state_); });
      forParts([&](auto part) { forward_->encodeBatch(commandBuffer, part(x_), state_, part(y_)); });
      forParts([&](auto part) { sums->encodeBatch(commandBuffer, part(dy_), part(x_), state_); });
      forParts(
          [&](auto part) { gradient->encodeBatch(commandBuffer, part(dy_), part(x_), state_, part(dx_)); });
    });
  }

  void judge(Operation operation) {
    run_.require(x_.isUnchanged() && dy_.isUnchanged(), "an input was written");
    const ReferenceTensor sources[] = {loaded(x_)};
    if (operation == Operation::Statistics) {
      const BatchStatistics expected = batchStatisticsReference(sources);
      check(expected.mean, read(*state_->mean()));
      check(expected.variance, read(*state_->variance()));
      return;
    }
    const BatchNormalizationNumbers numbers{asNumbers(source_->gammas), asNumbers(source_->betas),
                                            read(*state_->mean()), read(*state_->variance()), true};
    if (operation == Operation::Forward)
      return run_.check(batchNormalizationReference(problem_, numbers, sources[0]), y_, Zeros::Expected);
    const ReferenceTensor gradients[] = {loaded(dy_)};
    const BatchNormalizationSums expected =
        batchNormalizationSumsReference(problem_, numbers, sources, gradients);
    if (operation == Operation::StatisticsGradient) {
      check(expected.gamma, read(*state_->gradientForGamma()));
      check(expected.beta, read(*state_->gradientForBeta()));
      check(expected.mean, read(*state_->gradientForMean()));
      check(expected.variance, read(*state_->gradientForVariance()));
      return;
    }
    const auto elementCount = static_cast<double>(state_->elementCount());
    run_.check(batchNormalizationGradientReference(problem_, numbers, expected, elementCount, sources[0],
                                                   gradients[0]),
               dx_, Zeros::Expected);
  }

 private:
  static std::size_t elements(const KernelBatch& batch) {
    return batch.height * batch.width * batch.channels;
  }
  static std::shared_ptr<FixedBatchNormalization> sourceFor(ConformRun& run, std::size_t channels) {
    auto source = FixedBatchNormalization::create(channels);
    for (const double value : run.values(channels, RandomKind::Uniform))
      source->gammas.push_back(static_cast<float>(2 * value));
    for (const double value : run.values(channels, RandomKind::Uniform))
      source->betas.push_back(static_cast<float>(value));
    return source;
  }
  static std::vector<double> asNumbers(const std::vector<float>& values) {
    return {values.begin(), values.end()};
  }
  static ReferenceTensor loaded(const TestImages& images) { return asLoaded(images.reference()); }
  [[nodiscard]] std::vector<double> read(mtl::Buffer& buffer) const {
    return storedFloats(run_.device(), buffer.memory(), 0, buffer.length() / sizeof(float));
  }
  [[nodiscard]] std::vector<double> read(Vector& vector) const {
    return storedFloats(run_.device(), vector.data()->memory(), vector.offset(), vector.length());
  }
  void check(const ReferenceTensor& expected, const std::vector<double>& found) {
    run_.check(expected, found, ImageFeatureChannelFormat::Float32, Zeros::Expected);
  }
  /// Calls body(part) for the first image and the others; part(images) selects them.
  template <class Body>
  void forParts(Body&& body) {
    body([](const TestImages& images) { return images.batch().slice(0, 1); });
    if (count_ > 1) body([this](const TestImages& images) { return images.batch().slice(1, count_ - 1); });
  }

  ConformRun& run_;
  std::shared_ptr<FixedBatchNormalization> source_;
  std::shared_ptr<CNNBatchNormalization> forward_;
  TestImages x_, y_, dy_, dx_;
  std::shared_ptr<CNNBatchNormalizationState> state_;
  std::size_t count_;
  BatchNormalizationProblem problem_;
};

void addSumCases(std::vector<ConformCase>& cases, const BatchNormalizationImplementation& implementation,
                 const std::string& name, const BatchNormalizationProblem& problem, Tier tier) {
  for (const bool isAligned : {false, true})
    cases.push_back({name + ": " + problem.describe(), [=](ConformRun& run) {
                       runPlan(run, implementation, problem, tier, isAligned, NotFinite::Nowhere);
                     }});
}

void addPlanCases(std::vector<ConformCase>& cases, const BatchNormalizationImplementation& implementation,
                  Operation operation, ConformFormats formats, Tier tier) {
  for (const BatchNormalizationTensors& tensors : batchNormalizationTensors())
    for (const NeuronCase& item : batchNormalizationNeurons(tensors.channels)) {
      const bool hasNeuron = item.neuron.neuronType() != CNNNeuronType::None;
      if (!isTested(tensors, item.neuron) || (operation == Operation::Statistics && hasNeuron)) continue;
      if (tier == Tier::Exact && !isExact(operation, item.neuron)) continue;
      for (const bool isConstant : {false, true}) {
        const bool isSumOfGradients = operation == Operation::StatisticsGradient;
        if (isConstant && operation != Operation::Gradient && !isSumOfGradients) continue;
        BatchNormalizationProblem problem =
            tensors.problem(operation, item.neuron, formats.source, formats.result);
        problem.hasConstantStatistics = isConstant;
        if (isConstant && isSumOfGradients) problem.destination = tensors.shape(formats.result, 1);
        const bool sumsSource = operation == Operation::Statistics || (isSumOfGradients && !isConstant);
        const bool isOneChunk = tensors.images * tensors.height * tensors.width <= 64;
        const auto occurs = [&](NotFinite place) {
          if (place == NotFinite::Nowhere) return true;
          if (tier == Tier::Exact || isUnorm(formats.source)) return false;
          if (place == NotFinite::NaNInSource) return sumsSource && !hasNeuron;
          if (place == NotFinite::NaNInBeta) return isSumOfGradients && hasKink(item.neuron);
          return operation == Operation::Statistics && isOneChunk;
        };
        for (const NotFinite place :
             {NotFinite::Nowhere, NotFinite::NaNInSource, NotFinite::NaNInBeta, NotFinite::InfinityInSource})
          for (const bool isAligned : {false, true}) {
            if (!occurs(place)) continue;
            cases.push_back({tensors.name + ": " + problem.describe(), [=](ConformRun& run) {
                               runPlan(run, implementation, problem, tier, isAligned, place);
                             }});
          }
      }
      if (operation == Operation::Forward && hasKink(item.neuron))
        addSumCases(cases, implementation, tensors.name,
                    tensors.sumProblem(item.neuron, formats.source, formats.result), tier);
    }
}

void addKernelCases(std::vector<ConformCase>& cases, Operation operation, ConformFormats formats) {
  std::size_t next = 0;
  for (const KernelBatch& batch : kernelBatches()) {
    const auto neurons = batchNormalizationNeurons(static_cast<std::int64_t>(batch.channels));
    const NNNeuronDescriptor neuron = neurons[next++ % neurons.size()].neuron;
    cases.push_back({batch.name, [=](ConformRun& run) {
                       Step step(run, batch, neuron, formats);
                       if (step.encode()) step.judge(operation);
                     }});
  }
}

void conformOperation(Conform& conform, const BatchNormalizationImplementation& implementation,
                      Operation operation, ConformFormats formats, Tier tier) {
  if (tier == Tier::Exact && operation == Operation::Statistics) return;
  const bool isForward = operation == Operation::Statistics || operation == Operation::Forward;
  const ConformKey key{classOf(operation), isForward ? Direction::Forward : Direction::Gradient,
                       formats.source, std::string(implementation.name), tier};
  if (!conform.isSelected(key)) return;
  std::vector<ConformCase> cases;
  addPlanCases(cases, implementation, operation, formats, tier);
  if (tier == Tier::Bounded) addKernelCases(cases, operation, formats);
  conformRow(conform, key, cases);
}

}  // namespace

void conformBatchNormalization(Conform& conform) {
  for (const BatchNormalizationImplementation& implementation :
       conform.implementations(batchNormalizationBackEnds))
    for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
      for (const Operation operation : {Operation::Statistics, Operation::Forward})
        for (const ConformFormats formats : kForwardFormats)
          conformOperation(conform, implementation, operation, formats, tier);
      for (const Operation operation : {Operation::StatisticsGradient, Operation::Gradient})
        for (const auto format : kGradientFormats)
          conformOperation(conform, implementation, operation, {format, format}, tier);
    }
}

}  // namespace mps::detail
