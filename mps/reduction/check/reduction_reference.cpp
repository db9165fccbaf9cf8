#include "mps/reduction/check/reduction_reference.hpp"

#include <cmath>
#include <limits>

namespace mps::detail {
namespace {

struct Element {
  std::int64_t y, x, c;
};

/// The source elements of one result element, in their order.
template <class Visit>
void forEachReduced(ReductionAxis axis, const TensorShape& source, const Element& result, Visit visit) {
  const bool overX = axis == ReductionAxis::Row || axis == ReductionAxis::Spatial;
  const bool overY = axis == ReductionAxis::Column || axis == ReductionAxis::Spatial;
  const bool overC = axis == ReductionAxis::FeatureChannels;
  for (std::int64_t y = overY ? 0 : result.y; y < (overY ? source.height : result.y + 1); ++y)
    for (std::int64_t x = overX ? 0 : result.x; x < (overX ? source.width : result.x + 1); ++x)
      for (std::int64_t c = overC ? 0 : result.c; c < (overC ? source.channels : result.c + 1); ++c)
        visit(Element{y, x, c});
}

template <class Visit>
void forEachResult(const TensorShape& result, Visit visit) {
  for (std::int64_t n = 0; n < result.images; ++n)
    for (std::int64_t y = 0; y < result.height; ++y)
      for (std::int64_t x = 0; x < result.width; ++x)
        for (std::int64_t c = 0; c < result.channels; ++c) visit(n, Element{y, x, c});
}

bool isUnormCode(ImageFeatureChannelFormat format) {
  return format == ImageFeatureChannelFormat::Unorm8 || format == ImageFeatureChannelFormat::Unorm16;
}

/// The element that minimum or maximum takes: the first NaN, else the first of equals.
Element selected(const ReductionProblem& problem, const TensorShape& shape, const ReferenceTensor& source,
                 std::int64_t n, const Element& result) {
  const bool isMin =
      problem.operation == ReductionOperation::Min || problem.operation == ReductionOperation::ArgumentMin;
  Element best{-1, 0, 0};
  double value = isMin ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
  forEachReduced(problem.axis, shape, result, [&](const Element& e) {
    const double candidate = source.at(n, e.y, e.x, e.c);
    const bool isFirst = best.y < 0;
    const bool isSmaller = isMin ? candidate < value : candidate > value;
    if (!isFirst && (std::isnan(value) || (!std::isnan(candidate) && !isSmaller))) return;
    best = e;
    value = candidate;
  });
  return best;
}

}  // namespace

ReferenceTensor reductionForwardReference(const ReductionProblem& problem, const ReferenceTensor& source) {
  const TensorShape& shape = problem.result;
  ReferenceTensor result(shape.images, shape.height, shape.width, shape.channels);
  result.magnitude.resize(result.values.size());
  const bool sums =
      problem.operation == ReductionOperation::Sum || problem.operation == ReductionOperation::Mean;
  const bool isArgument = problem.operation == ReductionOperation::ArgumentMin ||
                          problem.operation == ReductionOperation::ArgumentMax;
  // A unorm code is a quotient, which float32 rounds; the sum; one product or quotient at the end.
  result.roundings =
      (isUnormCode(problem.source.format) && !isArgument ? 1 : 0) + (sums ? problem.count() : 0);
  forEachResult(shape, [&](std::int64_t n, const Element& at) {
    const std::size_t i = result.index(n, at.y, at.x, at.c);
    if (!sums) {
      const Element taken = selected(problem, problem.source, source, n, at);
      result.values[i] = isArgument ? static_cast<double>(taken.c) : source.at(n, taken.y, taken.x, taken.c);
      result.magnitude[i] = std::abs(result.values[i]);
      return;
    }
    const double factor = problem.operation == ReductionOperation::Mean
                              ? 1 / static_cast<double>(problem.count())
                              : static_cast<double>(problem.scale);
    forEachReduced(problem.axis, problem.source, at,
                   [&](const Element& e) { result.add(i, factor * source.at(n, e.y, e.x, e.c)); });
  });
  return result;
}

ReferenceTensor reductionGradientReference(const ReductionProblem& problem, const ReferenceTensor& source,
                                           const ReferenceTensor& gradient) {
  const TensorShape& shape = problem.destination;
  ReferenceTensor result(shape.images, shape.height, shape.width, shape.channels);
  result.magnitude.resize(result.values.size());
  result.roundings = (isUnormCode(problem.result.format) ? 1 : 0) + (problem.selects() ? 0 : 1);
  forEachResult(problem.result, [&](std::int64_t n, const Element& at) {
    const double g = gradient.at(n, at.y, at.x, at.c);
    if (problem.selects()) {
      const Element taken = selected(problem, shape, source, n, at);
      result.add(result.index(n, taken.y, taken.x, taken.c), g);
      return;
    }
    const double share = problem.operation == ReductionOperation::Mean
                             ? g / static_cast<double>(problem.count())
                             : g * static_cast<double>(problem.scale);
    forEachReduced(problem.axis, shape, at,
                   [&](const Element& e) { result.add(result.index(n, e.y, e.x, e.c), share); });
  });
  return result;
}

}  // namespace mps::detail
