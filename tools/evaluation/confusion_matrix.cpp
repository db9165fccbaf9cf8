#include "tools/evaluation/confusion_matrix.hpp"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "tools/terminal/text.hpp"
#include "train/text/fixed_point.hpp"

namespace unmetal {
namespace {

constexpr std::size_t percentWidth = 5;
constexpr std::size_t mostColumns = 30;
constexpr std::size_t mostMistakes = 20;

/// Characters of a text in UTF-8: bytes that continue none.
std::size_t widthOf(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }));
}

std::string alignRight(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

std::string alignLeft(const std::string& text, std::size_t width) {
  return text + std::string(width - std::min(width, widthOf(text)), ' ');
}

std::string percentOf(std::uint64_t part, std::uint64_t whole) {
  if (whole == 0) return "-";
  return formatFixed(100.0 * static_cast<double>(part) / static_cast<double>(whole), 1);
}

}  // namespace

ConfusionMatrix::ConfusionMatrix(std::vector<std::string> classNames) : classNames_(std::move(classNames)) {}

void ConfusionMatrix::add(std::size_t label, std::size_t prediction, double loss) {
  if (label >= classNames_.size() || prediction >= classNames_.size()) {
    throw std::out_of_range("there is no class " + std::to_string(std::max(label, prediction)));
  }
  ++counts_[{label, prediction}];
  lossSum_ += loss;
}

std::uint64_t ConfusionMatrix::total() const {
  return std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const auto& entry) { return sum + entry.second; });
}

std::uint64_t ConfusionMatrix::correct() const {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < classNames_.size(); ++i) sum += countAt(i, i);
  return sum;
}

double ConfusionMatrix::accuracy() const {
  const std::uint64_t all = total();
  return all == 0 ? 0 : static_cast<double>(correct()) / static_cast<double>(all);
}

double ConfusionMatrix::loss() const {
  const std::uint64_t all = total();
  return all == 0 ? 0 : lossSum_ / static_cast<double>(all);
}

train::Evaluation ConfusionMatrix::evaluation() const {
  train::Evaluation evaluation;
  evaluation.correct = correct();
  evaluation.count = total();
  evaluation.loss = loss();
  evaluation.classCount = classNames_.size();
  for (const auto& [classes, count] : counts_)
    evaluation
        .confusion[{static_cast<std::uint32_t>(classes.first), static_cast<std::uint32_t>(classes.second)}] =
        count;
  return evaluation;
}

std::string ConfusionMatrix::json() const {
  const train::Evaluation all = evaluation();
  nlohmann::ordered_json json{{"accuracy", all.accuracy()},
                              {"correct", all.correct},
                              {"count", all.count},
                              {"loss", all.loss},
                              {"macro_f1", all.macroF1()}};
  json["classes"] = nlohmann::ordered_json::array();
  const std::vector<train::ClassScores> scores = all.classScores();
  for (std::size_t i = 0; i < scores.size(); ++i)
    json["classes"].push_back({{"name", classNames_[i]},
                               {"count", scores[i].count},
                               {"precision", scores[i].precision},
                               {"recall", scores[i].recall},
                               {"f1", scores[i].f1}});
  json["confusion"] = nlohmann::ordered_json::array();
  for (const auto& [classes, count] : counts_)
    json["confusion"].push_back({{"class", classes.first}, {"taken_for", classes.second}, {"count", count}});
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string ConfusionMatrix::table() const {
  return classNames_.size() > mostColumns ? mistakes() : wholeTable();
}

std::string ConfusionMatrix::mistakes() const {
  std::vector<std::pair<std::pair<std::size_t, std::size_t>, std::uint64_t>> found;
  for (const auto& entry : counts_)
    if (entry.first.first != entry.first.second) found.push_back(entry);
  const std::size_t shown = std::min(found.size(), mostMistakes);
  std::ranges::stable_sort(found, std::ranges::greater(), [](const auto& entry) { return entry.second; });
  std::string text = "most frequent mistakes, of " + std::to_string(found.size()) + " kinds:\n";
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& [classes, count] = found[i];
    text += alignRight(std::to_string(count), std::to_string(found.front().second).size()) + " x " +
            printable(classNames_[classes.first]) + " taken for " + printable(classNames_[classes.second]) +
            "\n";
  }
  return text;
}

std::string ConfusionMatrix::wholeTable() const {
  const std::size_t classes = classNames_.size();
  const std::string corner = "actual \\ predicted";
  const std::string lastRow = "precision %";
  std::vector<std::string> rowNames;
  std::size_t nameWidth = corner.size();
  for (std::size_t i = 0; i < classes; ++i) {
    rowNames.push_back(std::to_string(i) + " " + printable(classNames_[i]));
    nameWidth = std::max(nameWidth, widthOf(rowNames.back()));
  }
  std::uint64_t largest = 0;
  for (const auto& entry : counts_) largest = std::max(largest, entry.second);
  const std::size_t width = std::max(percentWidth, std::to_string(largest).size()) + 1;

  std::string text = alignLeft(corner, nameWidth);
  for (std::size_t i = 0; i < classes; ++i) text += alignRight(std::to_string(i), width);
  text += "  recall %   F1 %\n";
  const std::vector<train::ClassScores> scores = evaluation().classScores();
  for (std::size_t label = 0; label < classes; ++label) {
    text += alignLeft(rowNames[label], nameWidth);
    std::uint64_t sum = 0;
    for (std::size_t prediction = 0; prediction < classes; ++prediction) {
      sum += countAt(label, prediction);
      text += alignRight(std::to_string(countAt(label, prediction)), width);
    }
    text += "  " + alignRight(percentOf(countAt(label, label), sum), std::string("recall %").size()) + "  " +
            alignRight(sum == 0 ? "-" : formatFixed(100 * scores[label].f1, 1), percentWidth) + "\n";
  }
  text += alignLeft(lastRow, nameWidth);
  for (std::size_t prediction = 0; prediction < classes; ++prediction) {
    std::uint64_t sum = 0;
    for (std::size_t label = 0; label < classes; ++label) sum += countAt(label, prediction);
    text += alignRight(percentOf(countAt(prediction, prediction), sum), width);
  }
  return text + "\n";
}

std::uint64_t ConfusionMatrix::countAt(std::size_t label, std::size_t prediction) const {
  const auto found = counts_.find({label, prediction});
  return found == counts_.end() ? 0 : found->second;
}

}  // namespace unmetal
