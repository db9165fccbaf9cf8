#include "train/data/normalization_file.hpp"

#include <charconv>
#include <string>

#include "mps/core/types/error.hpp"
#include "train/text/fixed_point.hpp"

namespace unmetal::train::detail {
namespace {

constexpr const char* meanKey = "picture.mean";
constexpr const char* deviationKey = "picture.deviation";

std::string textOfNumbers(std::span<const float> values) {
  std::string text;
  for (const float value : values) text += (text.empty() ? "" : " ") + textOf(value);
  return text;
}

std::vector<float> numbersIn(const mps::SafetensorsHeader& file, const std::string& key) {
  const std::string& text = file.metadata(key);
  std::vector<float> numbers;
  const char* begin = text.data();
  const char* const end = begin + text.size();
  while (begin < end) {
    float value = 0;
    const auto [stopped, error] = std::from_chars(begin, end, value);
    const bool isEnd = stopped == end;
    if (error != std::errc{} || (!isEnd && *stopped != ' ')) throw file.error(key + " is no list of numbers");
    numbers.push_back(value);
    begin = isEnd ? end : stopped + 1;
  }
  return numbers;
}

}  // namespace

void addTo(mps::SafetensorsMetadata& metadata, const Normalization& normalization) {
  metadata[meanKey] = textOfNumbers(normalization.mean);
  metadata[deviationKey] = textOfNumbers(normalization.deviation);
}

std::optional<Normalization> normalizationIn(const mps::SafetensorsHeader& file, const Shape& pictures) {
  if (!file.metadata().contains(meanKey)) return std::nullopt;
  Normalization normalization{numbersIn(file, meanKey), numbersIn(file, deviationKey)};
  try {
    checkNormalization(normalization, pictures);
  } catch (const mps::Error& error) {
    throw file.error(error.what());
  }
  return normalization;
}

}  // namespace unmetal::train::detail
