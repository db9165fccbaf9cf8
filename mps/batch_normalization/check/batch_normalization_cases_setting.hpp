#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "mps/batch_normalization/check/batch_normalization_cases.hpp"
#include "mps/batch_normalization/check/batch_normalization_reference.hpp"
#include "mps/conform/compare.hpp"
#include "mps/conform/guarded/guarded_memory.hpp"
#include "mps/conform/testing/test_tensor.hpp"

/// What tests of plans and conform share: a problem with its operands.
namespace mps::detail {

/// Operands of a problem, what the reference makes of them, and further parts of the batch.
///
/// Every third channel of floating-point sources has a large mean. Of the exact tier all values are small
/// integers, 1 / sqrt(variance + epsilon) a power of two and the shares of the sums integers.
/// Addresses are multiples of 16 where `isAligned`, else elements off them.
class BatchNormalizationSetting {
 public:
  BatchNormalizationSetting(const std::shared_ptr<mtl::Device>& device,
                            const BatchNormalizationProblem& problem, Tier tier, NewValues values,
                            bool isAligned = false)
      : problem_(problem),
        tier_(tier),
        values_(std::move(values)),
        channels_(problem.source.channels),
        source_(device, problem.source, isAligned ? 0 : 1),
        gradient_(device, problem.gradient, isAligned ? 0 : 3),
        addend_(device, problem.addend, isAligned ? 0 : 1),
        destination_(device, problem.destination, isAligned ? 0 : 2),
        gamma_(device, numbersOf(1), 1),
        beta_(device, numbersOf(1), 1),
        mean_(device, numbersOf(1), 1),
        variance_(device, numbersOf(1), 1),
        gammaGradient_(device, numbersOf(1), 1),
        betaGradient_(device, numbersOf(1), 1),
        statisticsGradients_(device, numbersOf(2), 1),
        sums_(device, 2 * static_cast<std::size_t>(channels_) * sizeof(double), sizeof(double)) {
    fillImages();
    fillNumbers();
  }

  [[nodiscard]] Operands operands() const {
    Operands operands;
    if (problem_.readsSource()) operands.source = source_.address();
    if (problem_.gradient.channels > 0) operands.gradient = gradient_.address();
    operands.destination = destination_.address();
    operands.parameters = {
        gamma_.address(), beta_.address(),          mean_.address(),         variance_.address(),
        sums_.address(),  gammaGradient_.address(), betaGradient_.address(), statisticsGradients_.address()};
    if (problem_.hasAddend()) operands.parameters[4] = addend_.address();
    operands.accumulate = !sources_.empty();
    operands.scalars[0] = problem_.operation == BatchNormalizationOperation::Gradient ? count_ : seen();
    return operands;
  }
  [[nodiscard]] TestTensor& destination() { return destination_; }
  [[nodiscard]] TestTensor& source() { return source_; }
  [[nodiscard]] TestTensor& gradient() { return gradient_; }
  [[nodiscard]] TestTensor& beta() { return beta_; }
  [[nodiscard]] TestTensor& mean() { return mean_; }
  [[nodiscard]] TestTensor& variance() { return variance_; }

  [[nodiscard]] bool sumsUp() const {
    return problem_.operation == BatchNormalizationOperation::Statistics ||
           problem_.operation == BatchNormalizationOperation::StatisticsGradient;
  }
  /// Of an operation that sums: another part of the batch, of the same size, to go on with after a run.
  void nextPart() {
    sources_.push_back(loaded(source_));
    gradients_.push_back(loaded(gradient_));
    fillImages();
  }
  [[nodiscard]] bool inputsAreUnchanged() {
    const bool writesMean = problem_.operation == BatchNormalizationOperation::Statistics;
    return source_.isUnchanged() && gradient_.isUnchanged() && addend_.isUnchanged() &&
           gamma_.isUnchanged() && beta_.isUnchanged() &&
           (writesMean || (mean_.isUnchanged() && variance_.isUnchanged()));
  }
  [[nodiscard]] bool guardsAreIntact() {
    sums_.synchronize();
    return sums_.guardsIntact();
  }

  /// What the destination must hold.
  [[nodiscard]] ReferenceTensor expected(const BatchNormalizationProblem& problem) const {
    if (problem.operation == BatchNormalizationOperation::Forward)
      return batchNormalizationReference(problem, numbers(), loaded(source_), loaded(addend_));
    BatchNormalizationSums sums;
    sums.beta = sums.gamma = ReferenceTensor(1, 1, 1, channels_);
    const auto half = static_cast<std::ptrdiff_t>(channels_);
    std::copy_n(storedSums_.begin(), half, sums.beta.values.begin());
    std::copy_n(storedSums_.begin() + half, half, sums.gamma.values.begin());
    return batchNormalizationGradientReference(problem, numbers(), sums, count_, loaded(source_),
                                               loaded(gradient_));
  }
  /// Calls check(expected, tensor) for everything that the operation writes.
  template <class Check>
  void judge(const BatchNormalizationProblem& problem, Check&& check) {
    std::vector<ReferenceTensor> sources = sources_;
    std::vector<ReferenceTensor> gradients = gradients_;
    sources.push_back(loaded(source_));
    gradients.push_back(loaded(gradient_));
    switch (problem.operation) {
      case BatchNormalizationOperation::Statistics: {
        const BatchStatistics statistics = batchStatisticsReference(sources);
        check(statistics.mean, mean_);
        check(statistics.variance, variance_);
        return;
      }
      case BatchNormalizationOperation::StatisticsGradient: {
        const BatchNormalizationSums sums =
            batchNormalizationSumsReference(problem, numbers(), sources, gradients);
        check(sums.beta, betaGradient_);
        if (problem.storesDataGradient()) {
          check(expected(problem), destination_);
          return;
        }
        check(sums.gamma, gammaGradient_);
        ReferenceTensor both = sums.mean;
        both.channels *= 2;
        both.values.insert(both.values.end(), sums.variance.values.begin(), sums.variance.values.end());
        both.magnitude.insert(both.magnitude.end(), sums.variance.magnitude.begin(),
                              sums.variance.magnitude.end());
        check(both, statisticsGradients_);
        return;
      }
      case BatchNormalizationOperation::Forward:
      case BatchNormalizationOperation::Gradient:
        break;
    }
    check(expected(problem), destination_);
  }
  template <class Check>
  void judge(Check&& check) {
    judge(problem_, std::forward<Check>(check));
  }

 private:
  [[nodiscard]] static ReferenceTensor loaded(const TestTensor& tensor) {
    return asLoaded(tensor.reference());
  }
  [[nodiscard]] TensorShape numbersOf(std::int64_t perChannel) const {
    return TensorShape::dense(1, 1, 1, perChannel * channels_);
  }
  [[nodiscard]] double seen() const {
    return static_cast<double>(static_cast<std::int64_t>(sources_.size()) * problem_.source.pixels());
  }
  [[nodiscard]] BatchNormalizationNumbers numbers() const {
    return {gamma_.reference().values, beta_.reference().values, mean_.reference().values,
            variance_.reference().values, true};
  }
  [[nodiscard]] static bool isNormalized(ImageFeatureChannelFormat format) {
    return format == ImageFeatureChannelFormat::Unorm8 || format == ImageFeatureChannelFormat::Unorm16;
  }
  [[nodiscard]] RandomKind kindFor(ImageFeatureChannelFormat format) const {
    if (isNormalized(format)) return tier_ == Tier::Exact ? RandomKind::ZeroOrOne : RandomKind::Positive;
    return tier_ == Tier::Exact ? RandomKind::SmallIntegers : RandomKind::Uniform;
  }
  [[nodiscard]] double offsetOf(std::size_t channel) const {
    return isNormalized(problem_.source.format) || channel % 3 != 1 ? 0 : 64;
  }
  [[nodiscard]] std::vector<double> perChannel(RandomKind kind, double factor = 1) {
    std::vector<double> numbers = values_(static_cast<std::size_t>(channels_), kind);
    for (double& number : numbers) number *= factor;
    return numbers;
  }

  void fillImages() {
    std::vector<double> x =
        values_(static_cast<std::size_t>(problem_.source.elements()), kindFor(problem_.source.format));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += offsetOf(i % static_cast<std::size_t>(channels_));
    source_.write(x);
    gradient_.write(
        values_(static_cast<std::size_t>(problem_.gradient.elements()), kindFor(problem_.gradient.format)));
    if (problem_.hasAddend())
      addend_.write(
          values_(static_cast<std::size_t>(problem_.addend.elements()), kindFor(problem_.addend.format)));
  }

  void fillNumbers() {
    const bool isExact = tier_ == Tier::Exact;
    const RandomKind kind = isExact ? RandomKind::SmallIntegers : RandomKind::Uniform;
    gamma_.write(perChannel(kind, isExact ? 1 : 2));
    beta_.write(perChannel(kind));
    count_ = 16;
    const double share = isExact ? count_ : 3;
    storedSums_ = perChannel(kind, share);
    const std::vector<double> products = perChannel(kind, share);
    storedSums_.insert(storedSums_.end(), products.begin(), products.end());
    if (problem_.operation == BatchNormalizationOperation::Gradient) {
      std::memcpy(sums_.bytes().data(), storedSums_.data(), storedSums_.size() * sizeof(double));
      sums_.didModify();
    }
    if (problem_.operation == BatchNormalizationOperation::Statistics) return;
    std::vector<double> mean = perChannel(kind, isExact ? 1 : 0.25);
    std::vector<double> variance = perChannel(isExact ? RandomKind::SmallIntegers : RandomKind::Positive);
    for (std::size_t c = 0; c < mean.size(); ++c) {
      mean[c] += offsetOf(c);
      constexpr double powers[] = {0.25, 1, 4};
      variance[c] = isExact ? powers[static_cast<std::size_t>(variance[c] + 4) % 3] -
                                  static_cast<double>(problem_.epsilon)
                            : 0.125 + variance[c];
    }
    mean_.write(mean);
    variance_.write(variance);
  }

  BatchNormalizationProblem problem_;
  Tier tier_;
  NewValues values_;
  std::int64_t channels_;
  TestTensor source_, gradient_, addend_, destination_;
  TestTensor gamma_, beta_, mean_, variance_;
  TestTensor gammaGradient_, betaGradient_, statisticsGradients_;
  GuardedMemory sums_;  ///< parameters[4]
  std::vector<double> storedSums_;
  std::vector<ReferenceTensor> sources_, gradients_;  ///< of the parts before
  double count_ = 0;
};

}  // namespace mps::detail
