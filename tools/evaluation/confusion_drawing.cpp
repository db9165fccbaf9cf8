#include "tools/evaluation/confusion_drawing.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <vector>

#include "tools/terminal/text.hpp"
#include "train/text/fixed_point.hpp"
#include "train/text/svg.hpp"

namespace unmetal {
namespace {

using train::detail::fadedColor;
using train::detail::pixels;
using train::detail::Point;
using train::detail::SvgWriter;
using train::detail::textColor;

constexpr std::size_t mostClasses = 40;
constexpr std::size_t mostLetters = 18;

// Sizes in pixels.
constexpr double margin = 24;
constexpr double headHeight = 64;
constexpr double letterWidth = 7;
constexpr double widthOfAll = 520;

/// The classes that are shown, in their order: all, or those with the most mistakes.
std::vector<std::size_t> shownClasses(const ConfusionMatrix& matrix) {
  std::vector<std::size_t> classes(matrix.classNames().size());
  std::iota(classes.begin(), classes.end(), std::size_t{0});
  if (classes.size() <= mostClasses) return classes;
  std::vector<std::uint64_t> mistakes(classes.size());
  for (const auto& [pair, count] : matrix.evaluation().confusion) {
    if (pair.first == pair.second) continue;
    mistakes[pair.first] += count;
    mistakes[pair.second] += count;
  }
  std::ranges::stable_sort(classes, std::ranges::greater(), [&](std::size_t i) { return mistakes[i]; });
  classes.resize(mostClasses);
  std::ranges::sort(classes);
  return classes;
}

/// From white to the colour of mistakes or of what is right.
std::string colorOf(double share, bool isRight) {
  const std::array<double, 3> darkest =
      isRight ? std::array{31.0, 95.0, 168.0} : std::array{194.0, 83.0, 10.0};
  // The root makes few mistakes visible.
  const double strength = std::sqrt(share);
  std::string color = "rgb(";
  for (std::size_t i = 0; i < darkest.size(); ++i)
    color += (i == 0 ? "" : ",") + std::to_string(std::lround(255 + strength * (darkest[i] - 255)));
  return color + ")";
}

class Drawing {
 public:
  Drawing(const ConfusionMatrix& matrix, const std::string& title)
      : matrix_(matrix), title_(title), classes_(shownClasses(matrix)) {
    std::size_t longest = 6;
    for (const std::size_t i : classes_) {
      names_.push_back(shortened(printable(matrix.classNames()[i]), mostLetters));
      longest = std::max(longest, names_.back().size());
    }
    const double names = letterWidth * static_cast<double>(longest);
    const auto count = static_cast<double>(std::max<std::size_t>(1, classes_.size()));
    cell_ = std::clamp(widthOfAll / count, 14.0, 64.0);
    corner_ = {margin + names + 12, headHeight + names + 12};
    side_ = cell_ * count;
  }

  std::string text() {
    svg_.begin(corner_.first + side_ + margin, corner_.second + side_ + margin, title_);
    svg_.words({margin, 30}, "start", 17, textColor, title_, {{"font-weight", "bold"}});
    svg_.words({margin, 52}, "start", 12, fadedColor, explanation());
    for (std::size_t row = 0; row < classes_.size(); ++row) drawRow(row);
    svg_.close();
    return svg_.text();
  }

 private:
  [[nodiscard]] std::string explanation() const {
    std::string all = "rows: what they are, columns: what they were taken for; " +
                      formatFixed(100 * matrix_.accuracy(), 2) + " % of " + std::to_string(matrix_.total()) +
                      " pictures are right";
    if (classes_.size() == matrix_.classNames().size()) return all;
    return all + "; the " + std::to_string(classes_.size()) + " classes with the most mistakes of " +
           std::to_string(matrix_.classNames().size());
  }

  /// A row of cells, its name, and the name of the column of the same number.
  void drawRow(std::size_t row) {
    const double middle = (static_cast<double>(row) + 0.5) * cell_;
    const double size = std::min(12.0, cell_ - 2);
    svg_.words({corner_.first - 8, corner_.second + middle + 0.35 * size}, "end", size, textColor,
               names_[row]);
    const double x = corner_.first + middle + 0.35 * size;
    const double y = corner_.second - 8;
    svg_.words({x, y}, "start", size, textColor, names_[row],
               {{"transform", "rotate(-90 " + pixels(x) + " " + pixels(y) + ")"}});
    std::uint64_t sum = 0;
    for (std::size_t other = 0; other < matrix_.classNames().size(); ++other)
      sum += matrix_.countAt(classes_[row], other);
    for (std::size_t column = 0; column < classes_.size(); ++column) drawCell(row, column, sum);
  }

  void drawCell(std::size_t row, std::size_t column, std::uint64_t rowSum) {
    const std::uint64_t count = matrix_.countAt(classes_[row], classes_[column]);
    const double share = rowSum == 0 ? 0 : static_cast<double>(count) / static_cast<double>(rowSum);
    const Point at{corner_.first + static_cast<double>(column) * cell_,
                   corner_.second + static_cast<double>(row) * cell_};
    svg_.rectangle(at, {cell_, cell_}, {{"fill", colorOf(share, row == column)}, {"stroke", "#e4e7eb"}});
    const std::string number = std::to_string(count);
    const double size = std::min(12.0, 1.5 * (cell_ - 4) / static_cast<double>(number.size()));
    constexpr double least = 7;
    if (count == 0 || size < least) return;
    svg_.words({at.first + cell_ / 2, at.second + cell_ / 2 + 0.35 * size}, "middle", size,
               share > 0.4 ? "#ffffff" : textColor, number);
  }

  const ConfusionMatrix& matrix_;
  const std::string& title_;
  std::vector<std::size_t> classes_;
  std::vector<std::string> names_;
  SvgWriter svg_;
  Point corner_;
  double cell_ = 0;
  double side_ = 0;
};

}  // namespace

std::string drawConfusion(const std::string& title, const ConfusionMatrix& matrix) {
  return Drawing(matrix, title).text();
}

}  // namespace unmetal
