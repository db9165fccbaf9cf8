#include "mps/reshape/check/reshape_reference.hpp"

#include <algorithm>
#include <optional>

namespace mps::detail {
namespace {

/// Index maps of section 15.2, by walking from the edge: i is reflected until it lies inside.
std::optional<std::int64_t> sourceIndex(ImageEdgeMode edgeMode, std::int64_t i, std::int64_t n) {
  if (edgeMode == ImageEdgeMode::Clamp) return i < 0 ? 0 : std::min(i, n - 1);
  if (edgeMode == ImageEdgeMode::Mirror && n == 1) return 0;
  while (i < 0 || i >= n) {
    if (edgeMode == ImageEdgeMode::Mirror)
      i = i < 0 ? -i : 2 * (n - 1) - i;
    else if (edgeMode == ImageEdgeMode::MirrorWithEdge)
      i = i < 0 ? -1 - i : 2 * n - 1 - i;
    else
      return std::nullopt;
  }
  return i;
}

/// Calls visit(result index, source index or nothing, fill) for all elements of the forward result.
template <class Visit>
void forEachResult(const ReshapeProblem& problem, const ReferenceTensor& result,
                   const ReferenceTensor& source, Visit visit) {
  const auto position = [&](const ReshapeAxis& axis, std::int64_t i, std::int64_t n) {
    return sourceIndex(problem.edgeMode, i - axis.before, n);
  };
  const bool isConstant = problem.edgeMode == ImageEdgeMode::Constant;
  for (std::int64_t n = 0; n < result.images; ++n)
    for (std::int64_t y = 0; y < result.height; ++y)
      for (std::int64_t x = 0; x < result.width; ++x)
        for (std::int64_t c = 0; c < result.channels; ++c) {
          const auto fromY = position(problem.y, y, source.height);
          const auto fromX = position(problem.x, x, source.width);
          const auto fromC = position(problem.channels, c, source.channels);
          std::optional<std::size_t> from;
          if (fromY && fromX && fromC) from = source.index(n, *fromY, *fromX, *fromC);
          const bool filled = !problem.fill.empty() && (!fromC || isConstant);
          visit(result.index(n, y, x, c), from,
                filled ? static_cast<double>(problem.fill[static_cast<std::size_t>(c)]) : 0.0);
        }
}

}  // namespace

ReferenceTensor reshapeReference(const ReshapeProblem& problem, const ReferenceTensor& input) {
  const TensorShape& shape = problem.destination;
  ReferenceTensor destination(shape.images, shape.height, shape.width, shape.channels);
  // A unorm code is a quotient, which float32 rounds.
  const bool isCode = problem.input.format == ImageFeatureChannelFormat::Unorm8 ||
                      problem.input.format == ImageFeatureChannelFormat::Unorm16;
  destination.roundings = isCode ? 1 : 0;
  if (problem.mapping == ReshapeMapping::Order) {
    destination.values = input.values;  // both in the order image, y, x, channel
    return destination;
  }
  if (problem.mapping == ReshapeMapping::ChannelsFirst) {
    const auto inOrder = [](const ReferenceTensor& tensor, auto visit) {
      for (std::int64_t n = 0; n < tensor.images; ++n)
        for (std::int64_t c = 0; c < tensor.channels; ++c)
          for (std::int64_t y = 0; y < tensor.height; ++y)
            for (std::int64_t x = 0; x < tensor.width; ++x) visit(tensor.index(n, y, x, c));
    };
    std::vector<double> values;
    inOrder(input, [&](std::size_t i) { values.push_back(input.values[i]); });
    std::size_t next = 0;
    inOrder(destination, [&](std::size_t i) { destination.values[i] = values[next++]; });
    return destination;
  }
  if (problem.direction == ReshapeDirection::Forward) {
    forEachResult(problem, destination, input,
                  [&](std::size_t to, std::optional<std::size_t> from, double fill) {
                    destination.values[to] = from ? input.values[*from] : fill;
                  });
    return destination;
  }
  std::vector<std::int64_t> terms(destination.values.size());
  destination.magnitude.resize(destination.values.size());
  forEachResult(problem, input, destination, [&](std::size_t from, std::optional<std::size_t> to, double) {
    if (!to) return;
    destination.add(*to, input.values[from]);
    ++terms[*to];
  });
  if (!terms.empty())
    destination.roundings += std::max<std::int64_t>(1, *std::max_element(terms.begin(), terms.end())) - 1;
  return destination;
}

}  // namespace mps::detail
