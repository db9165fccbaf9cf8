#include <algorithm>

#include "mps/normalization/normalization.hpp"
#include "onnx/export/windows.hpp"

/// Normalisations by what lies around a value.
namespace unmetal::onnx::detail {
namespace {

/// T^-beta of T = delta + alpha * mean
std::string addFactor(const Step& step, const mps::CNNNormalization& normalization, const std::string& mean) {
  const std::string sum = step.shifted(step.scaled(mean, normalization.alpha()), normalization.delta());
  return step.add("Pow", {sum, step.model.constant("exponent", -normalization.beta())});
}

/// Of the squares of neighbouring channels: a matrix of the channels that a sum has.
std::string addChannelMean(const Step& step, const Picture& source, std::int64_t size) {
  const auto count = static_cast<std::size_t>(source.channels);
  std::vector<float> matrix(count * count, 0);
  for (std::int64_t to = 0; to < source.channels; ++to)
    for (std::int64_t from = std::max<std::int64_t>(to - size / 2, 0);
         from <= std::min(to + (size - 1) / 2, source.channels - 1); ++from)
      matrix[static_cast<std::size_t>(to * source.channels + from)] = 1 / static_cast<float>(size);
  const std::string squares = step.add("Mul", {source.value, source.value});
  return step.add("Conv",
                  {squares, step.model.constant("neighbours", {source.channels, source.channels, 1, 1},
                                                std::move(matrix))});
}

/// The operator has another place for even windows than we have, and OpenVINO (2026.4) computes it wrongly with a delta below 1.
std::string addCrossChannel(const Step& step, const mps::CNNCrossChannelNormalization& normalization) {
  const Picture source = step.pointwiseSource(normalization);
  const auto size = static_cast<std::int64_t>(normalization.kernelSize());
  if (size % 2 != 0 && normalization.delta() >= 1)
    return step.add("LRN", {source.value},
                    {{"size", size},
                     {"alpha", normalization.alpha()},
                     {"beta", normalization.beta()},
                     {"bias", normalization.delta()}});
  return step.add("Mul", {source.value, addFactor(step, normalization, addChannelMean(step, source, size))});
}

/// What lies in the windows of a normalisation, with what they have around the source.
struct Surroundings {
  Windows windows;
  Picture padded;

  /// The mean of each window of a picture of that size.
  [[nodiscard]] std::string meanOf(const Step& step, const std::string& value) const {
    return step.add("AveragePool", {value}, {windows.kernelShape(), windows.strides()});
  }
};
Surroundings surroundingsOf(const Step& step, const mps::CNNNormalization& normalization) {
  const Windows windows = windowsOf(normalization, step);
  return {windows, padSource(step, windows, normalization.edgeMode(), {}).picture};
}

std::string addSpatial(const Step& step, const mps::CNNSpatialNormalization& normalization) {
  const Surroundings around = surroundingsOf(step, normalization);
  const std::string squares = step.add("Mul", {around.padded.value, around.padded.value});
  const std::string mean = around.meanOf(step, squares);
  return step.add("Mul", {step.pointwiseSource(normalization).value, addFactor(step, normalization, mean)});
}

/// V = mean of the squares - M^2, of values from which the mean of their picture was subtracted: large means cost it no accuracy.
std::string addVariance(const Step& step, const Surroundings& around) {
  const std::string centre = step.add(
      "ReduceMean", {step.source().value, step.model.constant("axes", std::vector<std::int64_t>{2, 3})});
  const std::string values = step.add("Sub", {around.padded.value, centre});
  const std::string mean = around.meanOf(step, values);
  const std::string squares = around.meanOf(step, step.add("Mul", {values, values}));
  return step.add("Sub", {squares, step.add("Mul", {mean, mean})});
}

std::string addLocalContrast(const Step& step, const mps::CNNLocalContrastNormalization& normalization) {
  const Surroundings around = surroundingsOf(step, normalization);
  const std::string mean = around.meanOf(step, around.padded.value);
  const std::string difference =
      step.add("Sub", {step.pointwiseSource(normalization).value, step.scaled(mean, normalization.p0())});
  const std::string quotient =
      step.add("Mul", {difference, addFactor(step, normalization, addVariance(step, around))});
  return step.shifted(step.scaled(quotient, normalization.ps()), normalization.pm());
}

}  // namespace

std::optional<std::string> translateLocalNormalization(const Step& step) {
  if (const auto* channels = step.as<mps::CNNCrossChannelNormalization>())
    return addCrossChannel(step, *channels);
  if (const auto* spatial = step.as<mps::CNNSpatialNormalization>()) return addSpatial(step, *spatial);
  if (const auto* contrast = step.as<mps::CNNLocalContrastNormalization>())
    return addLocalContrast(step, *contrast);
  return std::nullopt;
}

}  // namespace unmetal::onnx::detail
