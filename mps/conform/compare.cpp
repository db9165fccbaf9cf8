#include "mps/conform/compare.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "mps/core/types/error.hpp"
#include "mps/core/types/float16.hpp"
#include "mps/core/types/text_stream.hpp"

namespace mps::detail {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kReportedMismatches = 5;
constexpr std::int64_t kFewestElementsForZeroCheck = 64;
constexpr std::int64_t kElementsPerNonZero = 1000;

/// 0 when equal, otherwise how many times the tolerance the error is.
double ratio(double error, double allowed) {
  if (error == 0) return 0;
  return allowed > 0 ? error / allowed : kInfinity;
}

/// Error over tolerance where NaN or infinity is involved on either side.
double judgeNonFinite(double expected, double found, double arithmetic, ImageFeatureChannelFormat format) {
  if (std::isnan(expected) || std::isnan(found))
    return std::isnan(expected) && std::isnan(found) ? 0 : kInfinity;
  if (std::isinf(expected)) return found == expected ? 0 : kInfinity;
  const bool mayOverflow = std::abs(expected) + arithmetic >= overflowThreshold(format);
  return mayOverflow && std::signbit(found) == std::signbit(expected) ? 0 : kInfinity;
}

/// Error over tolerance of one element; more than 1 is a mismatch.
double judge(double expected, double found, double arithmetic, ImageFeatureChannelFormat format, Tier tier) {
  if (tier == Tier::Exact) {
    const double stored = roundTo(expected, format);
    if (std::isnan(stored) && std::isnan(found)) return 0;
    return stored == found ? 0 : kInfinity;
  }
  const bool unorm =
      format == ImageFeatureChannelFormat::Unorm8 || format == ImageFeatureChannelFormat::Unorm16;
  if (unorm) expected = std::isnan(expected) ? 0 : std::clamp(expected, 0.0, 1.0);
  if (!std::isfinite(expected) || !std::isfinite(found))
    return judgeNonFinite(expected, found, arithmetic, format);
  if (std::abs(expected) - arithmetic >= overflowThreshold(format)) return kInfinity;
  return ratio(std::abs(found - expected), tolerance(expected, arithmetic, format));
}

double arithmeticOf(const ReferenceTensor& expected, std::size_t i, Tier tier) {
  double magnitude = expected.magnitude.empty() ? kInfinity : expected.magnitude[i];
  if (!std::isfinite(magnitude)) magnitude = std::abs(expected.values[i]);
  if (!std::isfinite(magnitude)) return 0;
  const double bound = arithmeticBound(magnitude, expected.roundings, expected.transcendental);
  return tier == Tier::Norm ? bound + reducedArithmeticBound(magnitude) : bound;
}

std::string describeMismatch(const ReferenceTensor& expected, std::size_t i, double found, double judged) {
  auto rest = static_cast<std::int64_t>(i);
  const std::int64_t channel = rest % expected.channels;
  rest /= expected.channels;
  const std::int64_t x = rest % expected.width;
  rest /= expected.width;
  TextStream text;
  text.precision(9);
  text << "  image " << rest / expected.height << ", y " << rest % expected.height << ", x " << x
       << ", channel " << channel << ": found " << found << ", expected " << expected.values[i] << ", error "
       << judged << " times the tolerance\n";
  return text.str();
}

/// Relative L2 error over its limit; elements that are not finite are judged one by one.
double judgeNorm(const ReferenceTensor& expected, std::span<const double> found) {
  double error = 0;
  double norm = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!std::isfinite(expected.values[i]) || !std::isfinite(found[i])) continue;
    const double difference = found[i] - expected.values[i];
    error += difference * difference;
    norm += expected.values[i] * expected.values[i];
  }
  return ratio(std::sqrt(error), kNormTolerance * std::sqrt(norm));
}

/// A sentence when the two sides cannot be compared, else empty.
std::string checkComparable(const ReferenceTensor& expected, std::size_t found) {
  const std::size_t count = expected.values.size();
  if (static_cast<std::int64_t>(count) !=
      expected.images * expected.height * expected.width * expected.channels)
    return "the reference has " + std::to_string(count) + " values, which is not its shape's number\n";
  if (found != count)
    return "found " + std::to_string(found) + " elements, expected " + std::to_string(count) + "\n";
  if (count == 0) return "nothing was compared\n";
  if (!expected.magnitude.empty() && expected.magnitude.size() != count)
    return "the reference has " + std::to_string(expected.magnitude.size()) + " magnitudes for " +
           std::to_string(count) + " values\n";
  return {};
}

/// Calls visit(first byte's offset) for each pixel, in the order image, y, x.
template <class Visit>
void forEachPixel(const TensorShape& shape, Visit visit) {
  const auto bytes = static_cast<std::int64_t>(bytesPerChannel(shape.format));
  for (std::int64_t n = 0; n < shape.images; ++n)
    for (std::int64_t y = 0; y < shape.height; ++y)
      for (std::int64_t x = 0; x < shape.width; ++x) visit(shape.offset(n, y, x, 0) * bytes);
}

/// Converts a pixel's channels to numbers.
template <class Stored, class ToNumber>
void load(const std::byte* address, std::span<double> numbers, ToNumber toNumber) {
  for (double& number : numbers) {
    Stored value;
    std::memcpy(&value, address, sizeof value);
    number = toNumber(value);
    address += sizeof value;
  }
}

void load(ImageFeatureChannelFormat format, const std::byte* address, std::span<double> numbers) {
  switch (format) {
    case ImageFeatureChannelFormat::Unorm8:
      return load<std::uint8_t>(address, numbers, [](std::uint8_t code) { return code / 255.0; });
    case ImageFeatureChannelFormat::Unorm16:
      return load<std::uint16_t>(address, numbers, [](std::uint16_t code) { return code / 65535.0; });
    case ImageFeatureChannelFormat::Float16:
      return load<Float16>(address, numbers,
                           [](Float16 value) { return static_cast<double>(toFloat(value)); });
    case ImageFeatureChannelFormat::Float32:
      return load<float>(address, numbers, [](float value) { return static_cast<double>(value); });
    case ImageFeatureChannelFormat::None:
      break;
  }
  throw Error("a tensor in memory needs a format");
}

template <class ToStored>
void store(std::byte* address, std::span<const double> numbers, ToStored toStored) {
  for (const double number : numbers) {
    const auto value = toStored(number);
    std::memcpy(address, &value, sizeof value);
    address += sizeof value;
  }
}

void store(ImageFeatureChannelFormat format, std::byte* address, std::span<const double> numbers) {
  switch (format) {
    case ImageFeatureChannelFormat::Unorm8:
      return store(address, numbers, [&](double number) {
        return static_cast<std::uint8_t>(std::lround(roundTo(number, format) * 255));
      });
    case ImageFeatureChannelFormat::Unorm16:
      return store(address, numbers, [&](double number) {
        return static_cast<std::uint16_t>(std::lround(roundTo(number, format) * 65535));
      });
    case ImageFeatureChannelFormat::Float16:
      return store(address, numbers, [](double number) { return toFloat16(number); });
    case ImageFeatureChannelFormat::Float32:
      return store(address, numbers, [](double number) { return static_cast<float>(number); });
    case ImageFeatureChannelFormat::None:
      break;
  }
  throw Error("a tensor in memory needs a format");
}

}  // namespace

Comparison compare(const ReferenceTensor& expected, std::span<const double> found,
                   ImageFeatureChannelFormat format, Tier tier, Zeros zeros) {
  Comparison result;
  result.report = checkComparable(expected, found.size());
  if (!result.report.empty()) return result;

  std::int64_t nonZero = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double judged = judge(expected.values[i], found[i], arithmeticOf(expected, i, tier), format, tier);
    if (expected.values[i] != 0) ++nonZero;
    result.worst = std::max(result.worst, judged);
    if (judged <= 1) continue;
    if (++result.mismatches <= kReportedMismatches)
      result.report += describeMismatch(expected, i, found[i], judged);
  }
  result.elements = static_cast<std::int64_t>(found.size());
  if (result.mismatches > 0)
    result.report = std::to_string(result.mismatches) + " of " + std::to_string(result.elements) +
                    " elements differ:\n" + result.report;
  if (tier == Tier::Norm) {
    const double judged = judgeNorm(expected, found);
    result.worst = std::max(result.worst, judged);
    if (judged > 1)
      result.report +=
          "relative error in the L2 norm is " + std::to_string(judged) + " times the tolerance\n";
  }
  if (zeros == Zeros::Suspicious && result.elements >= kFewestElementsForZeroCheck &&
      nonZero * kElementsPerNonZero < result.elements)
    result.report += "only " + std::to_string(nonZero) + " of " + std::to_string(result.elements) +
                     " expected elements differ from 0: the case shows nothing\n";
  return result;
}

std::vector<double> readTensor(const TensorShape& shape, const std::byte* memory) {
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  std::span<double> rest = values;
  const auto channels = static_cast<std::size_t>(shape.channels);
  forEachPixel(shape, [&](std::int64_t offset) {
    load(shape.format, memory + offset, rest.first(channels));
    rest = rest.subspan(channels);
  });
  return values;
}

void writeTensor(const TensorShape& shape, std::byte* memory, std::span<const double> values) {
  if (static_cast<std::int64_t>(values.size()) != shape.elements())
    throw Error("writeTensor: found " + std::to_string(values.size()) + " values, expected " +
                std::to_string(shape.elements()));
  const auto channels = static_cast<std::size_t>(shape.channels);
  forEachPixel(shape, [&](std::int64_t offset) {
    store(shape.format, memory + offset, values.first(channels));
    values = values.subspan(channels);
  });
}

std::vector<double> randomValues(std::size_t count, std::uint64_t seed, RandomKind kind) {
  std::mt19937_64 generator(seed);  // its output is fixed by the standard, that of the distributions is not
  std::vector<double> values(count);
  for (double& value : values) {
    const std::uint64_t bits = generator() >> 32U;
    switch (kind) {
      case RandomKind::SmallIntegers:
        value = static_cast<double>(bits % 9) - 4;
        break;
      case RandomKind::ZeroOrOne:
        value = static_cast<double>(bits % 2);
        break;
      case RandomKind::Uniform:
        value = static_cast<double>(bits % 0x1000001) * 0x1p-23 - 1;
        break;
      case RandomKind::Positive:
        value = static_cast<double>(bits % 256) / 255;
        break;
    }
  }
  return values;
}

}  // namespace mps::detail
