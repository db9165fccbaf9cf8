#include "mps/instance_normalization/check/instance_normalization_reference.hpp"

#include <cmath>

#include "mps/conform/tolerance.hpp"

namespace mps::detail {
namespace {

// Roundings to float32 on the longest path.
constexpr std::int64_t kRoundingsOfResult = 5;    // scale, difference, product, shift, sum
constexpr std::int64_t kRoundingsOfGradient = 8;  // gamma dy; share, factor, difference and their product;
                                                  // two sums; r and its product, one of them exact

ReferenceTensor withMagnitude(ReferenceTensor tensor) {
  tensor.magnitude.assign(tensor.values.size(), 0);
  return tensor;
}

/// One group of one image.
struct Group {
  const ReferenceTensor& source;
  std::int64_t image, first, channels;
  double mean = 0;
  double r = 0;

  Group(const InstanceNormalizationProblem& problem, const ReferenceTensor& x, std::int64_t n,
        std::int64_t group)
      : source(x), image(n), channels(x.channels / problem.groups) {
    first = group * channels;
    double sum = 0;
    forElements([&](std::size_t i, std::size_t) { sum += source.values[i]; });
    mean = sum / count();
    double squares = 0;
    forElements([&](std::size_t i, std::size_t) { squares += distance(i) * distance(i); });
    r = 1 / std::sqrt(squares / count() + static_cast<double>(problem.epsilon));
  }

  [[nodiscard]] double count() const { return static_cast<double>(source.height * source.width * channels); }
  [[nodiscard]] double distance(std::size_t i) const { return source.values[i] - mean; }
  /// |x - mean| with what a float32 number instead of the mean changes, before it is made good.
  [[nodiscard]] double reach(std::size_t i) const {
    return std::abs(distance(i)) + 2 * kFloat32Roundoff * std::abs(mean);
  }
  /// Calls visit(element, its channel).
  template <class Visit>
  void forElements(Visit visit) const {
    for (std::int64_t y = 0; y < source.height; ++y)
      for (std::int64_t x = 0; x < source.width; ++x)
        for (std::int64_t c = first; c < first + channels; ++c)
          visit(source.index(image, y, x, c), static_cast<std::size_t>(c));
  }
};

template <class Visit>
void forGroups(const InstanceNormalizationProblem& problem, const ReferenceTensor& source, Visit visit) {
  for (std::int64_t n = 0; n < source.images; ++n)
    for (std::int64_t group = 0; group < problem.groups; ++group)
      visit(Group(problem, source, n, group), group);
}

}  // namespace

ReferenceTensor instanceStatisticsReference(const InstanceNormalizationProblem& problem,
                                            const ReferenceTensor& source) {
  ReferenceTensor result(source.images, 1, 1, 2 * problem.groups);
  forGroups(problem, source, [&](const Group& group, std::int64_t index) {
    result.at(group.image, 0, 0, index) = group.mean;
    result.at(group.image, 0, 0, problem.groups + index) = group.r;
  });
  return result;
}

ReferenceTensor instanceNormalizationReference(const InstanceNormalizationProblem& problem,
                                               const std::vector<double>& gamma,
                                               const std::vector<double>& beta,
                                               const ReferenceTensor& source) {
  ReferenceTensor result =
      withMagnitude(ReferenceTensor(source.images, source.height, source.width, source.channels));
  result.roundings = kRoundingsOfResult;
  forGroups(problem, source, [&](const Group& group, std::int64_t) {
    group.forElements([&](std::size_t i, std::size_t c) {
      result.values[i] = gamma[c] * (group.distance(i) * group.r) + beta[c];
      result.magnitude[i] = std::abs(gamma[c]) * group.r * group.reach(i) + std::abs(beta[c]);
    });
  });
  return result;
}

InstanceNormalizationGradients instanceNormalizationGradientReference(
    const InstanceNormalizationProblem& problem, const std::vector<double>& gamma,
    const ReferenceTensor& source, const ReferenceTensor& gradient) {
  const std::int64_t rows = problem.sumsImages ? 1 : source.images;
  InstanceNormalizationGradients result;
  result.gamma = withMagnitude(ReferenceTensor(rows, 1, 1, source.channels));
  result.beta = withMagnitude(ReferenceTensor(rows, 1, 1, source.channels));
  result.gamma.roundings = result.beta.roundings = 1;
  result.source = withMagnitude(ReferenceTensor(source.images, source.height, source.width, source.channels));
  result.source.roundings = kRoundingsOfGradient;
  forGroups(problem, source, [&](const Group& group, std::int64_t) {
    double sum = 0;
    double product = 0;
    group.forElements([&](std::size_t i, std::size_t c) {
      const double dy = gradient.values[i];
      const double h = group.distance(i) * group.r;
      const std::size_t at =
          result.gamma.index(problem.sumsImages ? 0 : group.image, 0, 0, static_cast<std::int64_t>(c));
      result.gamma.add(at, dy * h);
      result.beta.add(at, dy);
      sum += gamma[c] * dy;
      product += gamma[c] * dy * h;
    });
    sum /= group.count();
    product /= group.count();
    group.forElements([&](std::size_t i, std::size_t c) {
      const double e = gamma[c] * gradient.values[i];
      const double h = group.distance(i) * group.r;
      result.source.values[i] = group.r * (e - sum - h * product);
      result.source.magnitude[i] =
          group.r * (std::abs(e) + std::abs(sum) + group.reach(i) * group.r * std::abs(product));
    });
  });
  return result;
}

}  // namespace mps::detail
