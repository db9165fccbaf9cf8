#include <algorithm>
#include <array>
#include <cstdio>

#include "train/network/network.hpp"

namespace unmetal::train {
namespace {

using Row = std::array<std::string, 5>;

/// With three digits and a unit: "1.23 M".
std::string shortened(double value, double base, const char* const (&units)[5]) {
  std::size_t unit = 0;
  while (value >= base && unit + 1 < std::size(units)) {
    value /= base;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f%s" : "%.3g%s", value, units[unit]);
  return text;
}
std::string bytes(double value) {
  return shortened(value, 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
}
std::string operations(double value) {
  return value == 0 ? "" : shortened(value, 1000, {"", " k", " M", " G", " T"});
}
/// "1,234,567".
std::string grouped(std::size_t value) {
  std::string text;
  const std::string digits = std::to_string(value);
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

void append(std::string& text, const Row& row, const std::array<std::size_t, 5>& widths) {
  for (std::size_t column = 0; column < row.size(); ++column) {
    const std::string blanks(widths[column] - row[column].size(), ' ');
    // Words to the left, numbers to the right.
    text += column < 2 ? row[column] + blanks : blanks + row[column];
    if (column + 1 < row.size()) text += "  ";
  }
  text.erase(text.find_last_not_of(' ') + 1);
  text += '\n';
}

}  // namespace

std::string Network::summary() const {
  std::vector<Row> rows{{"layer", "result", "parameters", "memory", "multiply-adds"}};
  double memory = 0;
  double multiplyAdds = 0;
  for (const Layer& layer : layers()) {
    const double size = sizeof(float) * static_cast<double>(layer.shape.count());
    const std::size_t parameters = layer.trainedParameterCount();
    const std::string kind = nameOf(layer.kind);
    rows.push_back({layer.label == kind ? kind : layer.label + " (" + kind + ")", describe(layer.shape),
                    parameters == 0 ? "" : grouped(parameters), bytes(size), operations(layer.multiplyAdds)});
    memory += size;
    multiplyAdds += layer.multiplyAdds;
  }
  rows.push_back({"sum", "", grouped(parameterCount()), bytes(memory), operations(multiplyAdds)});
  std::array<std::size_t, 5> widths{};
  for (const Row& row : rows)
    for (std::size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  std::string text;
  for (const Row& row : rows) append(text, row, widths);
  return text;
}

}  // namespace unmetal::train
