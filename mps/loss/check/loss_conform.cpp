#include <algorithm>
#include <cmath>
#include <cstring>

#include "mps/conform/guarded/guarded_memory.hpp"
#include "mps/conform/kernel_cases.hpp"
#include "mps/conform/testing/stored_values.hpp"
#include "mps/core/plan/tensor_copy.hpp"
#include "mps/loss/check/loss_cases.hpp"
#include "mps/loss/check/loss_reference.hpp"
#include "mps/loss/forward_loss.hpp"
#include "mps/loss/loss.hpp"

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
      return scaled(uniform, -item.range, item.range);
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
  const double none = 4294967295.0;
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
    for (std::int64_t n = 0, i = 0; n < shape.images; ++n)
      for (std::int64_t y = 0; y < shape.height; ++y)
        for (std::int64_t x = 0; x < shape.width; ++x, ++i) {
          const auto index = static_cast<std::uint32_t>(reference_.values[static_cast<std::size_t>(i)]);
          std::memcpy(
              indices_.bytes().data() + static_cast<std::size_t>(shape.offset(n, y, x, 0)) * sizeof index,
              &index, sizeof index);
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
    return last * sizeof(std::uint32_t);
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

/// What the public kernels are given: predictions and dense labels.
struct KernelInputs {
  KernelInputs(ConformRun& run, CNNLossType type, CNNReductionType reduction, const KernelBatch& batch,
               ConformFormats formats)
      : item(lossCase(type, reduction, static_cast<std::int64_t>(batch.count),
                      static_cast<std::int64_t>(batch.height), static_cast<std::int64_t>(batch.width),
                      static_cast<std::int64_t>(batch.channels))),
        descriptor(CNNLossDescriptor::cnnLossDescriptor(type, reduction)),
        sources(imagesOf(run, batch.form, batch.descriptor(formats.source), batch.count,
                         predictionValues(run, item, elementsOf(item.problem.predictions)))),
        labelImages(imagesOf(run, batch.form, batch.descriptor(ImageFeatureChannelFormat::Float32),
                             batch.count, labelValues(run, item, elementsOf(item.problem.predictions)))) {
    descriptor.setWeight(0.75F);
    descriptor.setNumberOfClasses(batch.channels);
  }
  [[nodiscard]] LossInputs reference() const {
    LossInputs inputs;
    inputs.predictions = sources.reference();
    inputs.labels = labelImages.reference();
    inputs.weight = static_cast<double>(descriptor.weight());
    inputs.epsilon = static_cast<double>(descriptor.epsilon());
    return inputs;
  }
  void requireUnchanged(ConformRun& run) const {
    run.require(sources.isUnchanged() && labelImages.isUnchanged(), "an input was written");
  }

  LossCase item;
  CNNLossDescriptor descriptor;
  TestImages sources;
  TestImages labelImages;
};

/// CNNLoss.
void runKernel(ConformRun& run, CNNLossType type, CNNReductionType reduction, const KernelBatch& batch,
               ConformFormats formats) {
  const KernelInputs given(run, type, reduction, batch, formats);
  const TestImages gradients = run.destinations(batch.form, batch.descriptor(formats.result), batch.count);
  const bool perElement = reduction == CNNReductionType::None;
  const mtl::Size lossSize =
      perElement ? mtl::Size{batch.width, batch.height, batch.channels} : mtl::Size{1, 1, 1};
  const StateBatch labels = CNNLossLabels::createBatch(run.device(), lossSize, given.labelImages.batch());
  const auto kernel = CNNLoss::create(run.device(), given.descriptor);
  if (!run.encode([&](const auto& commandBuffer) {
        kernel->encodeBatch(commandBuffer, given.sources.batch(), labels, gradients.batch());
      }))
    return;
  given.requireUnchanged(run);
  const LossOutputs expected = lossReference(given.item.problem, given.reference());
  run.check(expected.gradient, gradients, Zeros::Expected);
  run.check(expected.loss, storedValues(CNNLossLabels::lossImages(labels)).values,
            ImageFeatureChannelFormat::Float32, Zeros::Expected);
}

void runForwardKernel(ConformRun& run, CNNLossType type, CNNReductionType reduction, const KernelBatch& batch,
                      ConformFormats formats) {
  const KernelInputs given(run, type, reduction, batch, formats);
  const auto kernel = NNForwardLoss::create(run.device(), given.descriptor);
  ImageDescriptor result = kernel->sizeDestination(batch.descriptor(formats.source));
  result.setChannelFormat(formats.result);
  const TestImages losses = run.destinations(batch.form, result, batch.count);
  if (!run.encode([&](const auto& commandBuffer) {
        kernel->encodeBatch(commandBuffer, given.sources.batch(), given.labelImages.batch(), {}, {},
                            losses.batch());
      }))
    return;
  given.requireUnchanged(run);
  run.check(lossReference(given.item.problem, given.reference()).loss, losses, Zeros::Expected);
}

/// The gradient kernel after the forward kernel, whose state holds the numbers.
void runGradientKernel(ConformRun& run, CNNLossType type, CNNReductionType reduction,
                       const KernelBatch& batch, ConformFormats formats, bool ofLabels) {
  const KernelInputs given(run, type, reduction, batch, formats);
  const auto forward = NNForwardLoss::create(run.device(), given.descriptor);
  CNNLossDescriptor others = given.descriptor;
  others.setWeight(100);  // the state's counts
  const auto kernel = NNLossGradient::create(run.device(), others);
  kernel->setComputeLabelGradients(ofLabels);
  ImageDescriptor lossSize = forward->sizeDestination(batch.descriptor(formats.source));
  lossSize.setChannelFormat(ImageFeatureChannelFormat::Float32);
  const TestImages losses = run.destinations(batch.form, lossSize, batch.count);
  const TestImages incoming = run.sources(batch.form, lossSize, batch.count, RandomKind::Uniform);
  const TestImages gradients = run.destinations(batch.form, batch.descriptor(formats.result), batch.count);
  const StateBatch states = forward->resultStateBatch(given.sources.batch());
  if (!run.encode([&](const auto& commandBuffer) {
        forward->encodeBatch(commandBuffer, given.sources.batch(), given.labelImages.batch(), {}, states,
                             losses.batch());
        kernel->encodeBatch(commandBuffer, incoming.batch(), given.sources.batch(), given.labelImages.batch(),
                            {}, states, gradients.batch());
      }))
    return;
  given.requireUnchanged(run);
  run.require(incoming.isUnchanged(), "the source gradient was written");
  LossProblem problem = given.item.problem;
  problem.divideGradient = true;
  problem.sourceGradient = problem.loss;
  LossInputs inputs = given.reference();
  inputs.sourceGradient = incoming.reference();
  const LossOutputs expected = lossReference(problem, inputs);
  run.check(ofLabels ? expected.labelGradient : expected.gradient, gradients, Zeros::Expected);
}

/// Which kernel of the family a row is about.
struct LossClass {
  const char* name;
  Direction direction;
  bool hasLoss, hasGradients;
};
constexpr LossClass kBoth{"CNNLoss", Direction::Gradient, true, true};
constexpr LossClass kForward{"NNForwardLoss", Direction::Forward, true, false};
constexpr LossClass kGradient{"NNLossGradient", Direction::Gradient, false, true};

/// A case with the outputs of that kernel alone; none when it has no such output.
std::vector<LossCase> casesOf(const LossClass& kernel) {
  std::vector<LossCase> cases;
  for (LossCase item : lossCases()) {
    if (!kernel.hasLoss) item.problem.loss = {};
    if (!kernel.hasGradients)
      item.problem.gradient = item.problem.labelGradient = item.problem.sourceGradient = {};
    const LossProblem& problem = item.problem;
    if (problem.loss.channels + problem.gradient.channels + problem.labelGradient.channels > 0)
      cases.push_back(item);
  }
  return cases;
}

void addKernelCases(std::vector<ConformCase>& cases, const LossClass& kernel, ConformFormats formats) {
  const std::vector<KernelBatch> batches = kernelBatches();
  std::size_t next = 0;
  for (const CNNLossType type : lossTypes())
    for (const CNNReductionType reduction :
         {CNNReductionType::None, CNNReductionType::Sum, CNNReductionType::Mean}) {
      const bool onlySums = type == CNNLossType::CosineDistance;
      if (onlySums && reduction != CNNReductionType::Sum) continue;
      const KernelBatch& batch = batches[next++ % batches.size()];
      cases.push_back({batch.name + name(type) + name(reduction), [=](ConformRun& run) {
                         if (!kernel.hasGradients)
                           return runForwardKernel(run, type, reduction, batch, formats);
                         if (kernel.hasLoss) return runKernel(run, type, reduction, batch, formats);
                         runGradientKernel(run, type, reduction, batch, formats, false);
                         if (run.report().empty() && !run.isRefused())
                           runGradientKernel(run, type, reduction, batch, formats, true);
                       }});
    }
}

void conformLossClass(Conform& conform, const LossClass& kernel) {
  for (const LossImplementation& implementation : conform.implementations(lossBackEnds))
    for (const Tier tier : {Tier::Exact, Tier::Bounded})
      for (const ConformFormats formats : kForwardFormats) {
        const ConformKey key{kernel.name, kernel.direction, formats.source, std::string(implementation.name),
                             tier};
        if (!conform.isSelected(key)) continue;
        std::vector<ConformCase> cases;
        for (const LossCase& item : casesOf(kernel))
          if (item.problem.predictions.format == formats.source && item.exact == (tier == Tier::Exact))
            cases.push_back({item.name, [=](ConformRun& run) { runPlan(run, implementation, item); }});
        if (tier == Tier::Bounded && !isUnorm(formats.source)) addKernelCases(cases, kernel, formats);
        conformRow(conform, key, cases);
      }
}

/// Ones, in images of every form and in tensors with gaps.
void conformInitialGradient(Conform& conform) {
  for (const auto& implementation : conform.implementations(tensorCopyBackEnds))
    for (const ImageFeatureChannelFormat format : kGradientFormats) {
      const ConformKey key{"NNInitialGradient", Direction::Forward, format, std::string(implementation.name),
                           Tier::Exact};
      if (!conform.isSelected(key)) continue;
      const auto ones = [](const TensorShape& shape) {
        ReferenceTensor tensor(shape.images, shape.height, shape.width, shape.channels);
        std::fill(tensor.values.begin(), tensor.values.end(), 1.0);
        return tensor;
      };
      std::vector<ConformCase> cases;
      for (const KernelBatch& batch : kernelBatches()) {
        cases.push_back({batch.name, [=](ConformRun& run) {
                           const TestImages losses = run.sources(batch.form, batch.descriptor(format),
                                                                 batch.count, RandomKind::Uniform);
                           runForwardKernel(run, *NNInitialGradient::create(run.device()), losses, batch.form,
                                            format,
                                            [&](const ReferenceTensor&) { return ones(losses.shape()); });
                         }});
        cases.push_back({batch.name + "Gaps", [=](ConformRun& run) {
                           TensorCopyProblem problem;
                           problem.fills = true;
                           problem.destination = withGaps(TensorShape::dense(
                               3, 16, 5, static_cast<std::int64_t>(batch.channels), format));
                           const auto plan = run.prepare(implementation, problem);
                           if (!plan) return;
                           TestTensor destination = run.destination(problem.destination, 1);
                           Operands operands;
                           operands.destination = destination.address();
                           operands.scalars[0] = 1;
                           run.execute(*plan, operands);
                           run.check(ones(problem.destination), destination);
                         }});
      }
      conformRow(conform, key, cases);
    }
}

}  // namespace

/// A call of CNNLoss gives loss and gradient together; the other kernels give one of them.
void conformLoss(Conform& conform) {
  for (const LossClass& kernel : {kBoth, kForward, kGradient}) conformLossClass(conform, kernel);
  conformInitialGradient(conform);
}

}  // namespace mps::detail
