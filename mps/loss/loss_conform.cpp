#include <algorithm>
#include <cmath>
#include <cstring>

#include "mps/conform/guarded_memory.hpp"
#include "mps/conform/kernel_cases.hpp"
#include "mps/conform/stored_values.hpp"
#include "mps/loss/loss.hpp"
#include "mps/loss/loss_cases.hpp"
#include "mps/loss/loss_reference.hpp"

namespace mps::detail {
namespace {

using LossImplementation = Implementation<LossProblem>;
using Values = std::vector<double>;

std::size_t elementsOf(const TensorShape& shape) {
  return static_cast<std::size_t>(shape.elements());
}

Values scaled(Values values, double low, double high) {
  for (double& value : values) value = low + (high - low) * (value + 1) / 2;
  return values;
}

/// Predictions in the domain of the type.
Values predictionValues(ConformRun& run, const LossCase& item, std::size_t count) {
  if (item.exact) return run.values(count, RandomKind::SmallIntegers);
  const Values uniform = run.values(count, RandomKind::Uniform);
  switch (item.problem.lossType) {
    case CNNLossType::CategoricalCrossEntropy:
      return scaled(uniform, 0.01, 1);
    case CNNLossType::Log:
      return scaled(uniform, 0.01, 0.99);
    case CNNLossType::KullbackLeiblerDivergence:
      return scaled(uniform, -5, 0);
    default:
      return scaled(uniform, -6, 6);
  }
}

Values labelValues(ConformRun& run, const LossCase& item, std::size_t count) {
  Values bits = run.values(count, RandomKind::ZeroOrOne);
  if (item.problem.lossType == CNNLossType::Hinge) return bits;
  if (item.exact) return run.values(count, RandomKind::SmallIntegers);
  Values values = run.values(count, RandomKind::Positive);
  for (std::size_t i = 0; i < count; i += 3) values[i] = bits[i];  // zeros and ones too
  return values;
}

/// Class indices; every third pixel is left out if the case says so.
Values indexValues(ConformRun& run, const LossCase& item, std::size_t count) {
  Values values = run.values(count, RandomKind::Positive);
  const auto classes = static_cast<double>(item.problem.countedChannels);
  const double none = item.problem.labelKind == LossLabels::UInt8Indices ? 255 : 4294967295.0;
  for (std::size_t i = 0; i < count; ++i)
    values[i] = item.leavesOut && i % 3 == 0 ? (i % 2 == 0 ? none : classes)
                                             : std::min(std::floor(values[i] * classes), classes - 1);
  return values;
}

Values weightValues(ConformRun& run, const LossCase& item, std::size_t count) {
  Values values = run.values(count, item.exact ? RandomKind::SmallIntegers : RandomKind::Positive);
  for (std::size_t i = 0; i < count; i += 4) values[i] = 0;
  return values;
}

/// Labels of either kind in guarded memory.
class TestLabels {
 public:
  TestLabels(ConformRun& run, const LossCase& item)
      : dense_(run.device(),
               item.problem.labelKind == LossLabels::Dense ? item.problem.labels : TensorShape{}),
        indices_(run.device(), indexBytes(item.problem)) {
    const TensorShape& shape = item.problem.labels;
    if (item.problem.labelKind == LossLabels::Dense) {
      dense_.write(labelValues(run, item, elementsOf(shape)));
      reference_ = dense_.reference();
      address_ = dense_.address();
      return;
    }
    reference_ = ReferenceTensor(shape.images, shape.height, shape.width, 1);
    reference_.values = indexValues(run, item, elementsOf(shape));
    address_ = indices_.address();
    const std::size_t size = item.problem.labelKind == LossLabels::UInt8Indices ? 1 : 4;
    for (std::int64_t n = 0, i = 0; n < shape.images; ++n)
      for (std::int64_t y = 0; y < shape.height; ++y)
        for (std::int64_t x = 0; x < shape.width; ++x, ++i) {
          const auto index = static_cast<std::uint32_t>(reference_.values[static_cast<std::size_t>(i)]);
          std::memcpy(indices_.bytes().data() + static_cast<std::size_t>(shape.offset(n, y, x, 0)) * size,
                      &index, size);
        }
    indices_.didModify();
  }
  [[nodiscard]] const std::byte* address() const { return address_; }
  [[nodiscard]] const ReferenceTensor& reference() const { return reference_; }

 private:
  static std::size_t indexBytes(const LossProblem& problem) {
    if (problem.labelKind == LossLabels::Dense) return 0;
    const TensorShape& shape = problem.labels;
    const auto last =
        static_cast<std::size_t>(shape.offset(shape.images - 1, shape.height - 1, shape.width - 1, 0) + 1);
    return last * (problem.labelKind == LossLabels::UInt8Indices ? 1 : 4);
  }

  TestTensor dense_;
  GuardedMemory indices_;
  ReferenceTensor reference_;
  const std::byte* address_ = nullptr;
};

/// Puts a reduced loss into the first element of a larger loss image.
ReferenceTensor inLossImage(const ReferenceTensor& loss, const TensorShape& shape) {
  ReferenceTensor result(shape.images, shape.height, shape.width, shape.channels);
  if (loss.values.size() == result.values.size()) return loss;
  result.magnitude.assign(result.values.size(), 0);
  result.roundings = loss.roundings;
  result.transcendental = loss.transcendental;
  for (std::int64_t n = 0; n < shape.images; ++n) {
    result.values[result.index(n, 0, 0, 0)] = loss.values[static_cast<std::size_t>(n)];
    result.magnitude[result.index(n, 0, 0, 0)] = loss.magnitude[static_cast<std::size_t>(n)];
  }
  return result;
}

void runPlan(ConformRun& run, const LossImplementation& implementation, const LossCase& item) {
  const LossProblem& problem = item.problem;
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  const auto input = [](const TestTensor& tensor) {
    return tensor.shape().channels == 0 ? ReferenceTensor() : tensor.reference();
  };
  TestTensor predictions =
      run.source(problem.predictions, predictionValues(run, item, elementsOf(problem.predictions)), 1);
  const TestLabels labels(run, item);
  TestTensor weights = run.source(problem.weights, weightValues(run, item, elementsOf(problem.weights)), 1);
  TestTensor sourceGradient = run.source(problem.sourceGradient, RandomKind::Uniform, 1);
  TestTensor gradient = run.destination(problem.gradient, 1);
  TestTensor loss = run.destination(problem.loss, 1);
  TestTensor labelGradient = run.destination(problem.labelGradient, 1);

  Operands operands;
  operands.source = predictions.address();
  operands.secondary = labels.address();
  operands.gradient = sourceGradient.address();
  operands.destination = gradient.address();
  operands.parameters = {weights.address(), loss.address(), labelGradient.address()};
  operands.scalars = {item.weight, item.labelSmoothing, item.epsilon, item.delta};
  run.execute(*plan, operands);
  for (TestTensor* source : {&predictions, &weights, &sourceGradient})
    run.require(source->isUnchanged(), "an input was written");

  LossInputs inputs;
  inputs.predictions = input(predictions);
  inputs.labels = labels.reference();
  inputs.weights = input(weights);
  inputs.sourceGradient = input(sourceGradient);
  inputs.weight = item.weight;
  inputs.labelSmoothing = item.labelSmoothing;
  inputs.epsilon = item.epsilon;
  inputs.delta = item.delta;
  const LossOutputs expected = lossReference(problem, inputs);
  if (problem.gradient.channels > 0) run.check(expected.gradient, gradient, Zeros::Expected);
  if (problem.labelGradient.channels > 0) run.check(expected.labelGradient, labelGradient, Zeros::Expected);
  if (problem.loss.channels > 0) run.check(inLossImage(expected.loss, problem.loss), loss, Zeros::Expected);
  if (problem.gradient.channels > 0) run.checkAccumulated(*plan, operands, expected.gradient, gradient);
}

/// The public kernel with dense labels.
void runKernel(ConformRun& run, CNNLossType type, CNNReductionType reduction, const KernelBatch& batch,
               ConformFormats formats) {
  LossCase item = lossCase(type, reduction, static_cast<std::int64_t>(batch.count),
                           static_cast<std::int64_t>(batch.height), static_cast<std::int64_t>(batch.width),
                           static_cast<std::int64_t>(batch.channels));
  item.weight = 0.75;
  CNNLossDescriptor descriptor = CNNLossDescriptor::cnnLossDescriptor(type, reduction);
  descriptor.setWeight(0.75F);
  descriptor.setNumberOfClasses(batch.channels);
  item.epsilon = static_cast<double>(descriptor.epsilon());
  const std::size_t count = elementsOf(item.problem.predictions);
  const TestImages sources = imagesOf(run, batch.form, batch.descriptor(formats.source), batch.count,
                                      predictionValues(run, item, count));
  const TestImages labelImages =
      imagesOf(run, batch.form, batch.descriptor(ImageFeatureChannelFormat::Float32), batch.count,
               labelValues(run, item, count));
  const TestImages gradients = run.destinations(batch.form, batch.descriptor(formats.result), batch.count);
  const bool perElement = reduction == CNNReductionType::None;
  const mtl::Size lossSize =
      perElement ? mtl::Size{batch.width, batch.height, batch.channels} : mtl::Size{1, 1, 1};
  const StateBatch labels = CNNLossLabels::createBatch(run.device(), lossSize, labelImages.batch());
  const auto kernel = CNNLoss::create(run.device(), descriptor);
  if (!run.encode([&](const auto& commandBuffer) {
        kernel->encodeBatch(commandBuffer, sources.batch(), labels, gradients.batch());
      }))
    return;
  run.require(sources.isUnchanged() && labelImages.isUnchanged(), "an input was written");
  LossInputs inputs;
  inputs.predictions = sources.reference();
  inputs.labels = labelImages.reference();
  inputs.weight = item.weight;
  inputs.epsilon = item.epsilon;
  const LossOutputs expected = lossReference(item.problem, inputs);
  run.check(expected.gradient, gradients, Zeros::Expected);
  run.check(expected.loss, storedValues(CNNLossLabels::lossImages(labels)).values,
            ImageFeatureChannelFormat::Float32, Zeros::Expected);
}

void addKernelCases(std::vector<ConformCase>& cases, ConformFormats formats) {
  const std::vector<KernelBatch> batches = kernelBatches();
  std::size_t next = 0;
  for (const CNNLossType type : lossTypes())
    for (const CNNReductionType reduction :
         {CNNReductionType::None, CNNReductionType::Sum, CNNReductionType::Mean}) {
      const bool onlySums = type == CNNLossType::CosineDistance;
      if (onlySums && reduction != CNNReductionType::Sum) continue;
      const KernelBatch& batch = batches[next++ % batches.size()];
      cases.push_back({batch.name + name(type) + name(reduction),
                       [=](ConformRun& run) { runKernel(run, type, reduction, batch, formats); }});
    }
}

}  // namespace

/// A call gives loss and gradient together.
void conformLoss(Conform& conform) {
  for (const LossImplementation& implementation : conform.implementations(lossBackEnds))
    for (const Tier tier : {Tier::Exact, Tier::Bounded})
      for (const ConformFormats formats : kForwardFormats) {
        const ConformKey key{"CNNLoss", Direction::Gradient, formats.source, std::string(implementation.name),
                             tier};
        if (!conform.isSelected(key)) continue;
        std::vector<ConformCase> cases;
        for (const LossCase& item : lossCases())
          if (item.problem.predictions.format == formats.source && item.exact == (tier == Tier::Exact))
            cases.push_back({item.name, [=](ConformRun& run) { runPlan(run, implementation, item); }});
        if (tier == Tier::Bounded && !isUnorm(formats.source)) addKernelCases(cases, formats);
        conformRow(conform, key, cases);
      }
}

}  // namespace mps::detail
