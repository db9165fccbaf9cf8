#include "mps/conform/kernel_cases.hpp"
#include "mps/conform/testing/test_matrices.hpp"
#include "mps/softmax/check/softmax_cases.hpp"
#include "mps/softmax/check/softmax_reference.hpp"
#include "mps/softmax/matrix_softmax.hpp"
#include "mps/softmax/softmax.hpp"

namespace mps::detail {
namespace {

using SoftMaxImplementation = Implementation<SoftMaxProblem>;

/// Arguments up to `range` on both sides of 0.
std::vector<double> arguments(ConformRun& run, ImageFeatureChannelFormat format, std::size_t count,
                              double range) {
  std::vector<double> x = run.values(count, valuesFor(Tier::Bounded, format));
  if (!isUnorm(format))
    for (double& value : x) value *= range;
  return x;
}

/// @param range of the arguments; 300: results down to 0 and below -88
/// @param isLastLarge the last argument is 300, whatever the range: where none is large exponentials need no shift
void runPlan(ConformRun& run, const SoftMaxImplementation& implementation, const SoftMaxProblem& problem,
             Tier tier, double range, bool isLastLarge) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  const bool isForward = problem.direction == SoftMaxDirection::Forward;
  const auto count = static_cast<std::size_t>(problem.input.elements());
  std::vector<double> x = arguments(run, problem.input.format, count, range);
  if (isLastLarge) x.back() = 300;
  TestTensor input = run.source(problem.input, x, 1);
  if (tier == Tier::Exact)  // results that make gradients without rounding
    input.write(problem.kind == SoftMaxKind::SoftMax ? run.values(count, RandomKind::SmallIntegers)
                                                     : std::vector<double>(count));
  else if (!isForward)
    input.write(softMaxForwardReference(problem, input.reference()).values);
  TestTensor gradient = run.source(problem.gradient, valuesFor(tier, problem.gradient.format), 3);
  TestTensor destination = run.destination(problem.destination, 2);
  Operands operands{.destination = destination.address()};
  (isForward ? operands.source : operands.secondary) = input.address();
  if (!isForward) operands.gradient = gradient.address();
  run.execute(*plan, operands);
  run.require(input.isUnchanged() && gradient.isUnchanged(), "an input was written");
  const ReferenceTensor expected =
      isForward ? softMaxForwardReference(problem, input.reference())
                : softMaxGradientReference(problem, input.reference(), gradient.reference());
  run.check(expected, destination, Zeros::Expected);
  run.checkAccumulated(*plan, operands, expected, destination);
}

template <class Forward, class Gradient>
void runKernel(ConformRun& run, const SoftMaxProblem& problem, const KernelBatch& batch,
               ConformFormats formats) {
  const auto forward = Forward::create(run.device());
  const std::size_t count = batch.count * batch.height * batch.width * batch.channels;
  const TestImages sources = imagesOf(run, batch.form, batch.descriptor(formats.source), batch.count,
                                      arguments(run, formats.source, count, 6));
  if (problem.direction == SoftMaxDirection::Forward)
    runForwardKernel(run, *forward, sources, batch.form, formats.result,
                     [&](const ReferenceTensor& x) { return softMaxForwardReference(problem, x); });
  else
    runGradientKernel(run, *forward, *Gradient::create(run.device()), sources, batch.form, true,
                      RandomKind::Uniform, [&](const ReferenceTensor& result, const ReferenceTensor& dy) {
                        return softMaxGradientReference(problem, result, dy);
                      });
}

template <class Forward, class Gradient>
void runMatrices(ConformRun& run, const SoftMaxProblem& problem, const MatrixSize& size) {
  const TensorShape shape = size.shape(run.format());
  const auto count = static_cast<std::size_t>(shape.elements());
  const TestMatrix result(run, shape, RandomKind::Uniform);
  if (problem.direction == SoftMaxDirection::Forward) {
    const TestMatrix x(run, shape, arguments(run, run.format(), count, 6));
    const auto kernel = Forward::create(run.device());
    kernel->setSourceMatrixOrigin(TestMatrix::origin);
    kernel->setResultMatrixOrigin(TestMatrix::origin);
    kernel->setSourceRows(static_cast<std::size_t>(size.rows));
    kernel->setSourceColumns(static_cast<std::size_t>(size.columns));
    if (encodeMatrices(run, {&x}, {&result}, [&](const auto& commandBuffer) {
          kernel->encode(commandBuffer, x.matrix, result.matrix);
        }))
      run.check(softMaxForwardReference(problem, x.before), result.read(), run.format(), Zeros::Expected);
    return;
  }
  ReferenceTensor x(shape.images, shape.height, 1, shape.channels);
  x.values = arguments(run, run.format(), count, 6);
  const TestMatrix y(run, shape, softMaxForwardReference(problem, x).values);
  const TestMatrix dy(run, shape, RandomKind::Uniform);
  const auto kernel = Gradient::create(run.device());
  kernel->setPrimarySourceMatrixOrigin(TestMatrix::origin);
  kernel->setSecondarySourceMatrixOrigin(TestMatrix::origin);
  kernel->setResultMatrixOrigin(TestMatrix::origin);
  kernel->setSourceRows(static_cast<std::size_t>(size.rows));
  kernel->setSourceColumns(static_cast<std::size_t>(size.columns));
  if (encodeMatrices(run, {&y, &dy}, {&result}, [&](const auto& commandBuffer) {
        kernel->encode(commandBuffer, dy.matrix, y.matrix, result.matrix);
      }))
    run.check(softMaxGradientReference(problem, y.before, dy.before), result.read(), run.format(),
              Zeros::Expected);
}

/// The front ends over matrices, one row for each direction, format and implementation.
template <class Forward, class Gradient>
void conformMatrices(Conform& conform, SoftMaxKind kind, const char* name) {
  for (const SoftMaxImplementation& implementation : conform.implementations(softMaxBackEnds))
    for (const auto direction : {SoftMaxDirection::Forward, SoftMaxDirection::Gradient})
      for (const auto format : kGradientFormats) {
        SoftMaxProblem problem;
        problem.kind = kind;
        problem.direction = direction;
        std::vector<ConformCase> cases;
        for (const MatrixSize& size : matrixSizes())
          cases.push_back(
              {size.name, [=](ConformRun& run) { runMatrices<Forward, Gradient>(run, problem, size); }});
        const bool isForward = direction == SoftMaxDirection::Forward;
        conformRow(conform,
                   {std::string(name) + (isForward ? "" : "Gradient"),
                    isForward ? Direction::Forward : Direction::Gradient, format,
                    std::string(implementation.name), Tier::Bounded},
                   cases);
      }
}

template <class Forward, class Gradient>
void conformKind(Conform& conform, SoftMaxKind kind, const char* name) {
  const auto conformDirection = [&](const SoftMaxImplementation& implementation, SoftMaxDirection direction,
                                    ConformFormats formats, Tier tier) {
    const bool isForward = direction == SoftMaxDirection::Forward;
    const ConformKey key{std::string(name) + (isForward ? "" : "Gradient"),
                         isForward ? Direction::Forward : Direction::Gradient, formats.source,
                         std::string(implementation.name), tier};
    if (!conform.isSelected(key)) return;
    std::vector<ConformCase> cases;
    for (const SoftMaxCase& item : softMaxCases()) {
      const SoftMaxProblem problem = item.problem(kind, direction, formats.source, formats.result);
      const auto add = [&](const std::string& caseName, double range, bool isLastLarge) {
        cases.push_back({caseName, [=](ConformRun& run) {
                           runPlan(run, implementation, problem, tier, range, isLastLarge);
                         }});
      };
      add(item.name, 6, false);
      add(item.name, 300, false);
      if (isForward && formats.source == ImageFeatureChannelFormat::Float16)
        add(item.name + "LastLarge", 6, true);
    }
    if (tier == Tier::Bounded) {
      SoftMaxProblem problem;
      problem.kind = kind;
      problem.direction = direction;
      for (const KernelBatch& batch : kernelBatches())
        cases.push_back({batch.name, [=](ConformRun& run) {
                           runKernel<Forward, Gradient>(run, problem, batch, formats);
                         }});
    }
    conformRow(conform, key, cases);
  };
  for (const SoftMaxImplementation& implementation : conform.implementations(softMaxBackEnds)) {
    for (const ConformFormats formats : kForwardFormats)
      conformDirection(implementation, SoftMaxDirection::Forward, formats, Tier::Bounded);
    for (const auto format : kGradientFormats)
      for (const Tier tier : {Tier::Exact, Tier::Bounded})
        conformDirection(implementation, SoftMaxDirection::Gradient, {format, format}, tier);
  }
}

}  // namespace

void conformSoftmax(Conform& conform) {
  conformKind<CNNSoftMax, CNNSoftMaxGradient>(conform, SoftMaxKind::SoftMax, "CNNSoftMax");
  conformKind<CNNLogSoftMax, CNNLogSoftMaxGradient>(conform, SoftMaxKind::LogSoftMax, "CNNLogSoftMax");
  conformMatrices<MatrixSoftMax, MatrixSoftMaxGradient>(conform, SoftMaxKind::SoftMax, "MatrixSoftMax");
  conformMatrices<MatrixLogSoftMax, MatrixLogSoftMaxGradient>(conform, SoftMaxKind::LogSoftMax,
                                                              "MatrixLogSoftMax");
}

}  // namespace mps::detail
