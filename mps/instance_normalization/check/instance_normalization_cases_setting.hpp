#pragma once

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/conform/guarded/guarded_memory.hpp"
#include "mps/conform/testing/test_tensor.hpp"
#include "mps/instance_normalization/check/instance_normalization_cases.hpp"
#include "mps/instance_normalization/check/instance_normalization_reference.hpp"

/// What tests of plans and conform share: a problem with its operands.
namespace mps::detail {

/// Operands of a problem, and what the reference makes of them.
///
/// Every third group of floating-point sources has a mean that is large, or as large as the caller says. Of the exact tier half of a group's values lie 1
/// (1/2) above its mean, the others below, and gamma, beta and dy are small integers.
/// Addresses are multiples of 16 where `isAligned`, else elements off them.
class InstanceNormalizationSetting {
 public:
  InstanceNormalizationSetting(const std::shared_ptr<mtl::Device>& device,
                               const InstanceNormalizationProblem& problem, Tier tier,
                               const NewValues& values, bool isAligned = false, double largeMean = 64)
      : problem_(problem),
        largeMean_(largeMean),
        source_(device, problem.source, isAligned ? 0 : 1),
        gradient_(device, problem.gradient, isAligned ? 0 : 3),
        destination_(device, problem.destination, isAligned ? 0 : 2),
        gamma_(device, numbers(1), 1),
        beta_(device, numbers(1), 1),
        gammaGradient_(device, numbers(problem.gradientRows()), 1),
        betaGradient_(device, numbers(problem.gradientRows()), 1),
        saved_(device, static_cast<std::size_t>(problem.source.images) * problem.savedBytesPerImage(),
               sizeof(double)) {
    const bool isExact = tier == Tier::Exact;
    fillSource(isExact, values);
    const RandomKind kind = isExact ? RandomKind::SmallIntegers : RandomKind::Uniform;
    gradient_.write(values(static_cast<std::size_t>(problem.gradient.elements()), kind));
    const auto channels = static_cast<std::size_t>(problem.source.channels);
    gamma_.write(values(channels, kind));
    beta_.write(values(channels, kind));
    if (isForward() || !problem.hasSavedStatistics) return;
    const ReferenceTensor statistics = instanceStatisticsReference(problem, asLoaded(source_.reference()));
    std::memcpy(saved_.bytes().data(), statistics.values.data(), saved_.bytes().size());
    saved_.didModify();
  }

  [[nodiscard]] Operands operands() const {
    Operands operands;
    operands.source = source_.address();
    if (!isForward()) operands.gradient = gradient_.address();
    if (problem_.computesData) operands.destination = destination_.address();
    if (problem_.hasSavedStatistics) operands.saved = saved_.address();
    operands.parameters = {gamma_.address(), isForward() ? beta_.address() : nullptr,
                           isForward() ? nullptr : gammaGradient_.address(),
                           isForward() ? nullptr : betaGradient_.address()};
    return operands;
  }
  [[nodiscard]] TestTensor& source() { return source_; }
  [[nodiscard]] TestTensor& gradient() { return gradient_; }
  [[nodiscard]] TestTensor& destination() { return destination_; }
  [[nodiscard]] TestTensor& gamma() { return gamma_; }
  [[nodiscard]] TestTensor& beta() { return beta_; }
  [[nodiscard]] TestTensor& gammaGradient() { return gammaGradient_; }
  [[nodiscard]] TestTensor& betaGradient() { return betaGradient_; }

  [[nodiscard]] bool inputsAreUnchanged() {
    return source_.isUnchanged() && gradient_.isUnchanged() && gamma_.isUnchanged() && beta_.isUnchanged();
  }
  [[nodiscard]] bool surroundingsAreIntact() {
    saved_.synchronize();
    return saved_.guardsIntact() && destination_.surroundingsIntact() &&
           gammaGradient_.surroundingsIntact() && betaGradient_.surroundingsIntact();
  }

  /// What the destination must hold.
  [[nodiscard]] ReferenceTensor expected(const InstanceNormalizationProblem& problem) const {
    return isForward() ? instanceNormalizationReference(problem, gamma_.reference().values,
                                                        beta_.reference().values, loadedSource())
                       : gradients(problem).source;
  }
  /// Calls check(expected, found, format) for everything that the operation writes.
  template <class Check>
  void judge(const InstanceNormalizationProblem& problem, Check&& check) {
    const auto float32 = ImageFeatureChannelFormat::Float32;
    if (problem.computesData) check(expected(problem), destination_.read(), problem_.destination.format);
    if (!isForward()) {
      const InstanceNormalizationGradients expected = gradients(problem);
      check(expected.gamma, gammaGradient_.read(), float32);
      check(expected.beta, betaGradient_.read(), float32);
    } else if (problem.hasSavedStatistics) {
      saved_.synchronize();
      std::vector<double> found(saved_.bytes().size() / sizeof(double));
      std::memcpy(found.data(), saved_.bytes().data(), saved_.bytes().size());
      check(instanceStatisticsReference(problem, loadedSource()), found, float32);
    }
  }
  template <class Check>
  void judge(Check&& check) {
    judge(problem_, std::forward<Check>(check));
  }

 private:
  [[nodiscard]] bool isForward() const {
    return problem_.operation == InstanceNormalizationOperation::Forward;
  }
  [[nodiscard]] TensorShape numbers(std::int64_t rows) const {
    return TensorShape::dense(rows, 1, 1, problem_.source.channels);
  }
  [[nodiscard]] ReferenceTensor loadedSource() const { return asLoaded(source_.reference()); }
  [[nodiscard]] InstanceNormalizationGradients gradients(const InstanceNormalizationProblem& problem) const {
    return instanceNormalizationGradientReference(problem, gamma_.reference().values, loadedSource(),
                                                  gradient_.reference());
  }

  void fillSource(bool isExact, const NewValues& values) {
    const TensorShape& shape = problem_.source;
    const auto channels = static_cast<std::size_t>(shape.channels);
    const auto each = static_cast<std::size_t>(problem_.groupChannels());
    const bool isUnorm = shape.format == ImageFeatureChannelFormat::Unorm8 ||
                         shape.format == ImageFeatureChannelFormat::Unorm16;
    std::vector<double> x = values(static_cast<std::size_t>(shape.elements()),
                                   isUnorm ? RandomKind::Positive : RandomKind::Uniform);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t group = i % channels / each;
      if (isExact) {
        const bool isAbove = (i / channels * each + i % each) % 2 == 0;
        x[i] = isUnorm ? (isAbove ? 1 : 0) : static_cast<double>(group % 5) + (isAbove ? 1 : -1);
      }
      if (!isUnorm && group % 3 == 1) x[i] += largeMean_;
    }
    source_.write(x);
  }

  InstanceNormalizationProblem problem_;
  double largeMean_;
  TestTensor source_, gradient_, destination_;
  TestTensor gamma_, beta_;
  TestTensor gammaGradient_, betaGradient_;
  GuardedMemory saved_;
};

}  // namespace mps::detail
