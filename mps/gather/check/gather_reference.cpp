#include "mps/gather/check/gather_reference.hpp"

#include <algorithm>
#include <vector>

namespace mps::detail {
namespace {

/// Calls visit(place in the result, place in the source) for each element whose row is there.
template <class Visit>
void forElements(const ReferenceTensor& result, const ReferenceTensor& source,
                 std::span<const std::int64_t> indices, Visit visit) {
  for (std::int64_t n = 0; n < result.images; ++n)
    for (std::int64_t i = 0; i < result.height; ++i) {
      const std::int64_t k = indices[static_cast<std::size_t>(i)];
      if (k < 0 || k >= source.height) continue;
      for (std::int64_t c = 0; c < result.channels; ++c)
        visit(result.index(n, i, 0, c), source.index(n, k, 0, c));
    }
}

ReferenceTensor tensorOf(const TensorShape& shape) {
  return {shape.images, shape.height, 1, shape.channels};
}

}  // namespace

ReferenceTensor gatherForwardReference(const GatherProblem& problem, std::span<const std::int64_t> indices,
                                       const ReferenceTensor& source) {
  ReferenceTensor result = tensorOf(problem.result);
  forElements(result, source, indices,
              [&](std::size_t to, std::size_t from) { result.values[to] = source.values[from]; });
  return result;
}

ReferenceTensor gatherGradientReference(const GatherProblem& problem, std::span<const std::int64_t> indices,
                                        const ReferenceTensor& gradient) {
  ReferenceTensor result = tensorOf(problem.source);
  result.magnitude.resize(result.values.size());
  std::vector<std::int64_t> terms(result.values.size());
  forElements(gradient, result, indices, [&](std::size_t from, std::size_t to) {
    result.add(to, gradient.values[from]);
    ++terms[to];
  });
  // The first term is added to 0, which rounds nothing.
  const auto most = std::max_element(terms.begin(), terms.end());
  result.roundings = most == terms.end() ? 0 : std::max<std::int64_t>(0, *most - 1);
  return result;
}

}  // namespace mps::detail
