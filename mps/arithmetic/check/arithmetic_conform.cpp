#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>

#include "mps/arithmetic/arithmetic.hpp"
#include "mps/arithmetic/check/arithmetic_cases.hpp"
#include "mps/arithmetic/check/arithmetic_reference.hpp"
#include "mps/arithmetic/compare.hpp"
#include "mps/conform/guarded/guarded_memory.hpp"
#include "mps/conform/kernel_cases.hpp"

namespace mps::detail {
namespace {

using ArithmeticImplementation = Implementation<ArithmeticProblem>;

/// Divisors keep away from 0; in the exact tier they are powers of two.
std::vector<double> operandValues(ConformRun& run, const TensorShape& shape, Tier tier, bool isDivisor) {
  std::vector<double> values =
      run.values(static_cast<std::size_t>(shape.elements()), valuesFor(tier, shape.format));
  if (!isDivisor) return values;
  if (isUnorm(shape.format)) {
    std::ranges::replace(values, 0.0, 1.0);
    return values;
  }
  for (double& value : values)
    value = tier == Tier::Exact ? (value < 0 ? -0.5 : 2) : value + (value < 0 ? -0.5 : 0.5);
  return values;
}

ReferenceTensor referenceOf(const TensorShape& shape, std::vector<double> values) {
  ReferenceTensor tensor(shape.images, shape.height, shape.width, shape.channels);
  tensor.values = std::move(values);
  return tensor;
}

/// The saved fields of a call: mask and what a division keeps in one piece of memory.
class SavedFields {
 public:
  SavedFields(ConformRun& run, const ArithmeticProblem& problem)
      : problem_(problem),
        memory_(run.device(),
                std::max(end(problem.mask, problem.maskOffset), end(problem.kept, problem.keptOffset))) {
    if (problem.isForward()) return;
    const auto values = [&](const TensorShape& shape, RandomKind kind) {
      return run.values(static_cast<std::size_t>(shape.elements()), kind);
    };
    if (problem.hasMask())
      writeTensor(problem.mask, at(problem.maskOffset), values(problem.mask, RandomKind::ZeroOrOne));
    if (problem.hasKept()) {
      std::vector<double> kept = values(problem.kept, RandomKind::SmallIntegers);
      writeTensor(problem.kept, at(problem.keptOffset), kept);
    }
    memory_.didModify();
  }

  [[nodiscard]] std::byte* address() const { return memory_.address(); }
  void synchronize() { memory_.synchronize(); }
  [[nodiscard]] bool guardsIntact() const { return memory_.guardsIntact(); }
  [[nodiscard]] std::vector<double> mask() const { return read(problem_.mask, problem_.maskOffset); }
  [[nodiscard]] std::vector<double> kept() const { return read(problem_.kept, problem_.keptOffset); }

 private:
  static std::size_t end(const TensorShape& shape, std::int64_t offset) {
    return shape.images > 0 ? extentInBytes(shape) + static_cast<std::size_t>(offset) : 0;
  }
  [[nodiscard]] std::byte* at(std::int64_t offset) const { return memory_.bytes().data() + offset; }
  [[nodiscard]] std::vector<double> read(const TensorShape& shape, std::int64_t offset) const {
    return shape.images > 0 ? readTensor(shape, at(offset)) : std::vector<double>{};
  }

  ArithmeticProblem problem_;
  GuardedMemory memory_;
};

void multiply(std::vector<double>& values, double factor) {
  for (double& value : values) value *= factor;
}

/// Values in place of the usual ones.
enum class Special : std::uint8_t {
  None,
  HugeDivisors,  ///< of float32 whose reciprocals are subnormal, with quotients that are not
  NotFinite,     ///< zeros, infinities and NaN against each other
};

/// Puts the values one after the other into the first elements, round and round.
void repeat(std::vector<double>& to, std::initializer_list<double> values) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = values.begin()[i % values.size()];
}

/// @param step of the first elements; 0: addresses are aligned for vectors
void runPlan(ConformRun& run, const ArithmeticImplementation& implementation,
             const ArithmeticProblem& problem, Tier tier, std::size_t step, Special special = Special::None) {
  const auto plan = run.prepare(implementation, problem);
  if (!plan) return;
  const bool divides = problem.operation == ArithmeticOperation::Divide;
  std::vector<double> dividends = operandValues(run, problem.primary, tier, false);
  std::vector<double> divisors = operandValues(run, problem.secondary, tier, divides);
  if (special == Special::NotFinite) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    // Periods without a common divisor: each meets each.
    repeat(dividends, {1, -1, 0, infinity, -infinity, nan});
    repeat(divisors, {0, 2, infinity, -infinity, nan, -1, 0});
  }
  if (special == Special::HugeDivisors) {
    multiply(dividends, 0x1p100);
    multiply(divisors, 0x1p127);
  }
  TestTensor x = run.source(problem.primary, dividends, step);
  TestTensor y = run.source(problem.secondary, divisors, 3 * step);
  TestTensor g = run.source(problem.gradient, operandValues(run, problem.gradient, tier, false), 2 * step);
  TestTensor destination = run.destination(problem.destination, step);
  SavedFields saved(run, problem);
  const Operands operands{.source = x.address(),
                          .secondary = y.address(),
                          .gradient = g.address(),
                          .destination = destination.address(),
                          .saved = saved.address()};
  run.execute(*plan, operands);
  saved.synchronize();
  run.require(x.isUnchanged() && y.isUnchanged() && g.isUnchanged(), "an input was written");
  run.require(saved.guardsIntact(), "memory around the saved fields was written");
  if (!problem.isForward()) {
    const ReferenceTensor derivative =
        problem.hasKept() ? arithmeticDerivative(problem, saved.kept(), y.reference()) : ReferenceTensor();
    const ReferenceTensor expected = arithmeticGradientReference(
        problem, g.reference(), y.reference(), referenceOf(problem.mask, saved.mask()), derivative);
    run.check(expected, destination, Zeros::Expected);
    run.checkAccumulated(*plan, operands, expected, destination);
    return;
  }
  const ArithmeticReference expected = arithmeticForwardReference(problem, x.reference(), y.reference());
  run.check(expected.result, destination, Zeros::Expected);
  if (problem.hasMask())
    run.check(expected.mask, saved.mask(), ImageFeatureChannelFormat::Unorm8, Zeros::Expected);
  if (problem.hasKept()) run.check(expected.kept, saved.kept(), problem.kept.format, Zeros::Expected);
}

/// Limits go with the exact tier: elsewhere a rounding may carry a result over one.
void addPlanCases(std::vector<ConformCase>& cases, const ArithmeticImplementation& implementation,
                  ArithmeticOperation operation, ArithmeticDirection direction, ConformFormats formats,
                  Tier tier) {
  for (const ArithmeticTensors& tensors : arithmeticTensors())
    for (const ArithmeticNumbers& numbers : arithmeticNumbers()) {
      const bool limits = numbers.hasLimits();
      if (limits && tier != Tier::Exact) continue;
      ArithmeticProblem problem =
          tensors.problem(operation, direction, formats.source, formats.result, limits);
      numbers.setIn(problem);
      const bool isFloatQuotient = problem.isForward() && operation == ArithmeticOperation::Divide &&
                                   formats.source == ImageFeatureChannelFormat::Float32 &&
                                   formats.result == ImageFeatureChannelFormat::Float32;
      const bool hasHuge = isFloatQuotient && tier == Tier::Bounded && numbers.primaryScale == 1;
      const bool takesInfinity = bytesPerChannel(formats.source) > 1 &&
                                 formats.source != ImageFeatureChannelFormat::Unorm16 &&
                                 problem.isForward() && tier == Tier::Exact && !problem.hasKept();
      for (const Special special : {Special::None, Special::NotFinite, Special::HugeDivisors})
        for (const std::size_t step : {std::size_t{0}, std::size_t{1}}) {
          if (special == Special::HugeDivisors && !hasHuge) continue;
          if (special == Special::NotFinite && !takesInfinity) continue;
          if (special == Special::HugeDivisors)
            describeSavedFields(problem, problem.destination, false, formats.source);
          cases.push_back({tensors.name + ": " + problem.describe(), [=](ConformRun& run) {
                             runPlan(run, implementation, problem, tier, step, special);
                           }});
        }
    }
}

/// Every form of a batch, y a vector of channels.
void addKernelCases(
    std::vector<ConformCase>& cases, ArithmeticOperation operation,
    const std::function<std::shared_ptr<CNNArithmetic>(const std::shared_ptr<mtl::Device>&)>& make,
    ConformFormats formats, Tier tier) {
  for (const KernelBatch& batch : kernelBatches())
    cases.push_back({batch.name, [=](ConformRun& run) {
                       const auto kernel = make(run.device());
                       kernel->setSecondaryStrideInPixelsX(0);
                       kernel->setSecondaryStrideInPixelsY(0);
                       ImageDescriptor vector(formats.source, 1, 1, batch.channels);
                       const TestImages x = run.sources(batch.form, batch.descriptor(formats.source),
                                                        batch.count, valuesFor(tier, formats.source));
                       const TensorShape shape =
                           TensorShape::dense(static_cast<std::int64_t>(batch.count), 1, 1,
                                              static_cast<std::int64_t>(batch.channels), formats.source);
                       const TestImages y = imagesOf(
                           run, batch.form, vector, batch.count,
                           operandValues(run, shape, tier, operation == ArithmeticOperation::Divide));
                       const TestImages results =
                           run.destinations(batch.form, batch.descriptor(formats.result), batch.count);
                       if (!run.encode([&](const auto& commandBuffer) {
                             kernel->encodeBatch(commandBuffer, x.batch(), y.batch(), results.batch());
                           }))
                         return;
                       run.require(x.isUnchanged() && y.isUnchanged(), "a source was written");
                       ArithmeticProblem problem;
                       problem.operation = operation;
                       problem.destination = results.shape();
                       run.check(arithmeticForwardReference(problem, x.reference(), y.reference()).result,
                                 results, Zeros::Expected);
                     }});
}

/// Forward alone; each case with and without a threshold. Values of the exact tier are often equal.
void conformComparison(Conform& conform, const ArithmeticImplementation& implementation) {
  for (const Tier tier : {Tier::Exact, Tier::Bounded})
    for (const ConformFormats formats : kForwardFormats) {
      const ConformKey key{"NNCompare", Direction::Forward, formats.source, std::string(implementation.name),
                           tier};
      if (!conform.isSelected(key)) continue;
      std::vector<ConformCase> cases;
      for (auto type = NNComparisonType::Equal; type <= NNComparisonType::GreaterOrEqual;
           type = static_cast<NNComparisonType>(static_cast<std::uint64_t>(type) + 1)) {
        const auto operation = static_cast<ArithmeticOperation>(
            static_cast<std::uint64_t>(ArithmeticOperation::Equal) + static_cast<std::uint64_t>(type));
        for (const ArithmeticTensors& tensors : arithmeticTensors())
          for (const float threshold : {0.0F, 1.0F})
            for (const std::size_t step : {std::size_t{0}, std::size_t{1}}) {
              ArithmeticProblem problem =
                  tensors.problem(operation, ArithmeticDirection::Forward, formats.source, formats.result);
              problem.threshold = threshold;
              cases.push_back({tensors.name + ": " + problem.describe(),
                               [=](ConformRun& run) { runPlan(run, implementation, problem, tier, step); }});
            }
        addKernelCases(
            cases, operation,
            [type](const auto& device) {
              auto kernel = NNCompare::create(device);
              kernel->setComparisonType(type);
              return kernel;
            },
            formats, tier);
      }
      conformRow(conform, key, cases);
    }
}

template <class Kernel>
void conformOperation(Conform& conform, const ArithmeticImplementation& implementation,
                      ArithmeticOperation operation, const char* className) {
  for (const Tier tier : {Tier::Exact, Tier::Bounded}) {
    for (const ConformFormats formats : kForwardFormats) {
      const ConformKey key{className, Direction::Forward, formats.source, std::string(implementation.name),
                           tier};
      if (!conform.isSelected(key)) continue;
      std::vector<ConformCase> cases;
      addPlanCases(cases, implementation, operation, ArithmeticDirection::Forward, formats, tier);
      addKernelCases(
          cases, operation, [](const auto& device) { return Kernel::create(device); }, formats, tier);
      conformRow(conform, key, cases);
    }
    for (const auto format : kGradientFormats) {
      const ConformKey key{std::string(className) + "Gradient", Direction::Gradient, format,
                           std::string(implementation.name), tier};
      if (!conform.isSelected(key)) continue;
      std::vector<ConformCase> cases;
      for (const auto direction :
           {ArithmeticDirection::PrimaryGradient, ArithmeticDirection::SecondaryGradient})
        addPlanCases(cases, implementation, operation, direction, {format, format}, tier);
      conformRow(conform, key, cases);
    }
  }
}

}  // namespace

void conformArithmetic(Conform& conform) {
  for (const ArithmeticImplementation& implementation : conform.implementations(arithmeticBackEnds)) {
    conformOperation<CNNAdd>(conform, implementation, ArithmeticOperation::Add, "CNNAdd");
    conformOperation<CNNSubtract>(conform, implementation, ArithmeticOperation::Subtract, "CNNSubtract");
    conformOperation<CNNMultiply>(conform, implementation, ArithmeticOperation::Multiply, "CNNMultiply");
    conformOperation<CNNDivide>(conform, implementation, ArithmeticOperation::Divide, "CNNDivide");
    conformComparison(conform, implementation);
  }
}

}  // namespace mps::detail
