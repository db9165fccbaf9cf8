#include "mps/concatenation/check/concatenation_reference.hpp"

namespace mps::detail {

ReferenceTensor concatenationReference(const ConcatenationProblem& problem, const ReferenceTensor& input,
                                       const ReferenceTensor* second) {
  const TensorShape& shape = problem.destination;
  ReferenceTensor result(shape.images, shape.height, shape.width, shape.channels);
  // A unorm code is a quotient, which float32 rounds.
  const auto isUnorm = [](const TensorShape& source) {
    return source.format == ImageFeatureChannelFormat::Unorm8 ||
           source.format == ImageFeatureChannelFormat::Unorm16;
  };
  if (isUnorm(problem.input) || (second != nullptr && isUnorm(problem.second))) result.roundings = 1;
  const std::int64_t behind = problem.input.channels;
  for (std::int64_t n = 0; n < shape.images; ++n)
    for (std::int64_t y = 0; y < shape.height; ++y)
      for (std::int64_t x = 0; x < shape.width; ++x)
        for (std::int64_t c = 0; c < shape.channels; ++c)
          if (c < behind)
            result.at(n, y, x, c) = input.at(n, y, x, c);
          else if (second != nullptr && c < behind + problem.second.channels)
            result.at(n, y, x, c) = second->at(n, y, x, c - behind);
  return result;
}

ReferenceTensor concatenatedReference(std::span<const ReferenceTensor> sources,
                                      std::int64_t channelAlignment) {
  const auto padded = [&](const ReferenceTensor& source) {
    return (source.channels + channelAlignment - 1) / channelAlignment * channelAlignment;
  };
  std::int64_t channels = 0;
  for (const ReferenceTensor& source : sources) channels += padded(source);
  const ReferenceTensor& first = sources.front();
  ReferenceTensor result(first.images, first.height, first.width, channels);
  std::int64_t begin = 0;
  for (const ReferenceTensor& source : sources) {
    for (std::int64_t n = 0; n < source.images; ++n)
      for (std::int64_t y = 0; y < source.height; ++y)
        for (std::int64_t x = 0; x < source.width; ++x)
          for (std::int64_t c = 0; c < source.channels; ++c)
            result.at(n, y, x, begin + c) = source.at(n, y, x, c);
    begin += padded(source);
  }
  return result;
}

ReferenceTensor sliceReference(const ReferenceTensor& tensor, std::int64_t first, std::int64_t count) {
  ReferenceTensor result(tensor.images, tensor.height, tensor.width, count);
  for (std::int64_t n = 0; n < tensor.images; ++n)
    for (std::int64_t y = 0; y < tensor.height; ++y)
      for (std::int64_t x = 0; x < tensor.width; ++x)
        for (std::int64_t c = 0; c < count; ++c) result.at(n, y, x, c) = tensor.at(n, y, x, first + c);
  return result;
}

}  // namespace mps::detail
