#include "tools/metrics/chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "train/text/fixed_point.hpp"
#include "train/text/svg.hpp"

namespace unmetal {
namespace {

using train::detail::fadedColor;
using train::detail::pixels;
using train::detail::Point;
using train::detail::SvgWriter;
using train::detail::textColor;

// Sizes in pixels.
constexpr double panelWidth = 480;
constexpr double panelHeight = 360;
constexpr double titleHeight = 44;
constexpr double leftMargin = 66;
constexpr double rightMargin = 24;
constexpr double topMargin = 34;
constexpr double bottomMargin = 52;

constexpr const char* gridColor = "#e4e7eb";
constexpr const char* axisColor = "#8c959f";

/// More points of one curve than this cannot be told apart.
constexpr std::size_t mostPoints = 900;

bool isFinite(const Point& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

/// From the numbers of an axis to pixels.
struct Axis {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  double beginPixel = 0;
  double endPixel = 0;

  bool isEmpty() const { return low > high; }
  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  double at(double value) const {
    return beginPixel + (value - low) / (high - low) * (endPixel - beginPixel);
  }
};

/// Decimals that tell ticks of this distance apart.
int decimalsFor(double distance) {
  return std::clamp(static_cast<int>(-std::floor(std::log10(distance) + 1e-9)), 0, 12);
}

double tickDistance(double low, double high, bool hasWholeNumbersOnly) {
  constexpr double mostTicks = 8;
  const double least = (high - low) / (mostTicks - 1);
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  double distance = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= least * (1 - 1e-9)) distance = factor * power;
  }
  return hasWholeNumbersOnly ? std::max(1.0, distance) : distance;
}

/// Makes a range out of what may be empty or a single number.
void settle(Axis& axis, bool hasWholeNumbersOnly) {
  if (axis.isEmpty()) {
    axis.low = 0;
    axis.high = 1;
  }
  if (axis.high - axis.low < 1e-9 * std::max(std::abs(axis.low), std::abs(axis.high)) ||
      axis.high == axis.low) {
    const double room = hasWholeNumbersOnly ? 1 : std::max(0.05 * std::abs(axis.high), 1e-3);
    axis.low -= room;
    axis.high += room;
  }
}

class PanelDrawing {
 public:
  PanelDrawing(SvgWriter& svg, const Panel& panel, double left, std::size_t number)
      : svg_(svg), panel_(panel), clip_("plot" + std::to_string(number)) {
    for (const Curve& curve : panel.curves) {
      for (const Point& point : curve.points) {
        if (!isFinite(point)) continue;
        x_.include(point.first);
        y_.include(std::min(point.second, panel.yLimit));
      }
    }
    isEmpty_ = y_.isEmpty();
    if (panel.beginsAtZero && !isEmpty_) y_.include(0);
    settle(x_, panel.hasWholeX);
    settle(y_, false);
    if (!panel.beginsAtZero) y_.low -= 0.06 * (y_.high - y_.low);
    y_.high += 0.06 * (y_.high - y_.low);
    x_.beginPixel = left + leftMargin;
    x_.endPixel = left + panelWidth - rightMargin;
    y_.beginPixel = titleHeight + panelHeight - bottomMargin;
    y_.endPixel = titleHeight + topMargin;
  }

  void draw() {
    drawGrid();
    drawLabels();
    svg_.open("clipPath", {{"id", clip_}});
    // A line at the edge keeps its whole width, and so do markers.
    constexpr double room = 6;
    rectangle({x_.beginPixel - room, y_.endPixel - room},
              {x_.endPixel - x_.beginPixel + 2 * room, y_.beginPixel - y_.endPixel + room + 1});
    svg_.close();
    for (const Curve& curve : panel_.curves) drawCurve(curve);
    drawLegend();
    if (isEmpty_) {
      svg_.words({(x_.beginPixel + x_.endPixel) / 2, (y_.beginPixel + y_.endPixel) / 2}, "middle", 13,
                 fadedColor, "nothing was measured yet");
    }
  }

 private:
  void rectangle(Point corner, Point size) {
    svg_.element("rect", {{"x", pixels(corner.first)},
                          {"y", pixels(corner.second)},
                          {"width", pixels(size.first)},
                          {"height", pixels(size.second)}});
  }

  void drawGrid() {
    const double top = std::min(y_.high, panel_.largestY);
    const std::vector<double> yTicks = axisTicks(y_.low, top, false);
    const double yDistance = tickDistance(y_.low, top, false);
    for (const double tick : yTicks) {
      const double y = y_.at(tick);
      svg_.line({x_.beginPixel, y}, {x_.endPixel, y}, gridColor, 1);
      svg_.words({x_.beginPixel - 9, y + 4}, "end", 12, fadedColor,
                 formatFixed(tick, decimalsFor(yDistance)));
    }
    const std::vector<double> xTicks = axisTicks(x_.low, x_.high, panel_.hasWholeX);
    const double xDistance = tickDistance(x_.low, x_.high, panel_.hasWholeX);
    for (const double tick : xTicks) {
      const double x = x_.at(tick);
      svg_.line({x, y_.beginPixel}, {x, y_.beginPixel + 5}, axisColor, 1);
      svg_.words({x, y_.beginPixel + 20}, "middle", 12, fadedColor,
                 formatFixed(tick, decimalsFor(xDistance)));
    }
    svg_.line({x_.beginPixel, y_.beginPixel}, {x_.endPixel, y_.beginPixel}, axisColor, 1);
  }

  void drawLabels() {
    svg_.words({x_.beginPixel, y_.endPixel - 14}, "start", 14, textColor, panel_.title,
               {{"font-weight", "bold"}});
    svg_.words({(x_.beginPixel + x_.endPixel) / 2, y_.beginPixel + 41}, "middle", 13, textColor,
               panel_.xLabel);
    const double x = x_.beginPixel - 48;
    const double y = (y_.beginPixel + y_.endPixel) / 2;
    svg_.words({x, y}, "middle", 13, textColor, panel_.yLabel,
               {{"transform", "rotate(-90 " + pixels(x) + " " + pixels(y) + ")"}});
  }

  Point place(const Point& point) const { return {x_.at(point.first), y_.at(point.second)}; }

  void drawCurve(const Curve& curve) {
    std::string path;
    bool isDown = false;
    for (const Point& point : curve.points) {
      if (!isFinite(point)) {
        isDown = false;
        continue;
      }
      const auto [x, y] = place(point);
      // Far outside the picture programs that show SVG become inaccurate.
      path += (isDown ? "L" : "M") + pixels(x) + " " + pixels(std::clamp(y, -1e4, 1e4));
      isDown = true;
    }
    if (!path.empty()) {
      svg_.element("path", {{"d", path},
                            {"fill", "none"},
                            {"stroke", curve.color},
                            {"stroke-width", pixels(curve.lineWidth)},
                            {"stroke-linejoin", "round"},
                            {"stroke-linecap", "round"},
                            {"clip-path", "url(#" + clip_ + ")"}});
    }
    if (curve.hasMarkers) drawMarkers(curve);
  }

  void drawMarkers(const Curve& curve) {
    const Point* highest = nullptr;
    for (const Point& point : curve.points) {
      if (!isFinite(point)) continue;
      drawDot(place(point), curve.color);
      if (highest == nullptr || point.second > highest->second) highest = &point;
    }
    if (highest == nullptr) return;
    const auto [x, y] = place(*highest);
    const bool isAtLeft = x < x_.beginPixel + 30;
    const bool isAtRight = x > x_.endPixel - 30;
    svg_.words({isAtLeft ? x - 3 : (isAtRight ? x + 3 : x), y - 9},
               isAtLeft ? "start" : (isAtRight ? "end" : "middle"), 12, curve.color,
               formatFixed(highest->second, 2), {{"font-weight", "bold"}});
  }

  /// In the line of the title, where no curve can be, from right to left.
  void drawLegend() {
    constexpr double swatch = 22;
    constexpr double characterWidth = 6.8;  // the mean in all usual fonts
    const double y = y_.endPixel - 18;
    double right = x_.endPixel;
    for (auto curve = panel_.curves.rbegin(); curve != panel_.curves.rend(); ++curve) {
      svg_.words({right, y + 4}, "end", 12, textColor, curve->name);
      right -= characterWidth * static_cast<double>(curve->name.size()) + 6;
      svg_.line({right - swatch, y}, {right, y}, curve->color, std::max(2.0, curve->lineWidth));
      if (curve->hasMarkers) drawDot({right - swatch / 2, y}, curve->color);
      right -= swatch + 18;
    }
  }

  void drawDot(Point at, const std::string& color) {
    svg_.element("circle",
                 {{"cx", pixels(at.first)}, {"cy", pixels(at.second)}, {"r", "3.5"}, {"fill", color}});
  }

  SvgWriter& svg_;
  const Panel& panel_;
  std::string clip_;
  Axis x_;
  Axis y_;
  bool isEmpty_ = false;
};

/// Means over windows of about a fortieth of all points, at some of them; a point that is not finite makes a
/// gap.
std::vector<Point> runningMean(const std::vector<Point>& points) {
  const std::size_t reach = std::max<std::size_t>(1, points.size() / 80);
  const std::size_t distance = 1 + points.size() / mostPoints;
  std::vector<Point> result;
  for (std::size_t i = 0; i < points.size(); i += distance) {
    // Shorter windows in the beginning, where the loss falls fast and a lopsided mean would lie beside the
    // curve.
    const std::size_t half = std::min(reach, i);
    const std::size_t last = std::min(i + half, points.size() - 1);
    double sum = 0;
    for (std::size_t j = i - half; j <= last; ++j) sum += points[j].second;
    result.emplace_back(points[i].first, sum / static_cast<double>(last - (i - half) + 1));
  }
  return result;
}

/// Keeps the lowest and the highest of each group of neighbours, so that the curve looks the same.
std::vector<Point> thinned(const std::vector<Point>& points) {
  if (points.size() <= mostPoints) return points;
  const std::size_t group = 2 * ((points.size() + mostPoints - 1) / mostPoints);
  std::vector<Point> result;
  for (std::size_t begin = 0; begin < points.size(); begin += group) {
    const auto first = points.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = points.begin() + static_cast<std::ptrdiff_t>(std::min(begin + group, points.size()));
    const auto isLower = [](const Point& a, const Point& b) { return a.second < b.second; };
    const auto notFinite = std::find_if_not(first, last, isFinite);
    if (notFinite != last) {
      result.push_back(*notFinite);
      continue;
    }
    auto lowest = std::min_element(first, last, isLower);
    auto highest = std::max_element(first, last, isLower);
    if (highest < lowest) std::swap(lowest, highest);
    result.push_back(*lowest);
    if (highest != lowest) result.push_back(*highest);
  }
  if (result.back().first != points.back().first) result.push_back(points.back());
  return result;
}

/// So high that only one value in a hundred is above: the first steps must not press the rest to the ground.
double limitWithoutPeaks(const std::vector<Point>& points) {
  std::vector<double> values;
  for (const Point& point : points) {
    if (isFinite(point)) values.push_back(point.second);
  }
  if (values.empty()) return 1;
  const std::size_t peaks = values.size() / 100;
  const auto limit = values.end() - 1 - static_cast<std::ptrdiff_t>(peaks);
  std::nth_element(values.begin(), limit, values.end());
  return *limit;
}

double percentOf(float part) {
  return 100.0 * static_cast<double>(part);
}

/// Means over the steps of each whole epoch.
std::vector<Point> accuraciesOfEpochs(std::span<const MetricsRow> rows) {
  std::vector<Point> means;
  double sum = 0;
  std::size_t count = 0;
  for (const MetricsRow& row : rows) {
    if (row.trainAccuracy) {
      sum += percentOf(*row.trainAccuracy);
      ++count;
    }
    if (!row.validationAccuracy) continue;
    if (count > 0) means.emplace_back(static_cast<double>(row.epoch), sum / static_cast<double>(count));
    sum = 0;
    count = 0;
  }
  return means;
}

}  // namespace

std::vector<double> axisTicks(double low, double high, bool hasWholeNumbersOnly) {
  if (low == high) return {low};
  const double distance = tickDistance(low, high, hasWholeNumbersOnly);
  std::vector<double> ticks;
  for (double number = std::ceil(low / distance - 1e-9); number * distance <= high + 1e-9 * distance;
       ++number) {
    ticks.push_back(number * distance + 0.0);  // never the negative zero
  }
  return ticks;
}

std::string drawChart(const std::string& title, std::span<const Panel> panels) {
  SvgWriter svg;
  svg.begin(panelWidth * static_cast<double>(panels.size()), titleHeight + panelHeight, title);
  svg.words({leftMargin, 30}, "start", 17, textColor, title, {{"font-weight", "bold"}});
  for (std::size_t i = 0; i < panels.size(); ++i) {
    PanelDrawing(svg, panels[i], panelWidth * static_cast<double>(i), i).draw();
  }
  svg.close();
  return svg.text();
}

std::string drawTrainingCurves(const std::string& title, std::span<const MetricsRow> rows) {
  std::vector<Point> losses;
  std::vector<Point> validationLosses;
  std::vector<Point> validationAccuracies;
  for (const MetricsRow& row : rows) {
    const auto step = static_cast<double>(row.step);
    losses.emplace_back(step, static_cast<double>(row.trainLoss));
    if (row.validationLoss) validationLosses.emplace_back(step, static_cast<double>(*row.validationLoss));
    if (row.validationAccuracy)
      validationAccuracies.emplace_back(static_cast<double>(row.epoch), percentOf(*row.validationAccuracy));
  }
  const char* const training = "#1f5fa8";
  const char* const validation = "#c2530a";
  Panel loss{.title = "Loss",
             .xLabel = "step",
             .yLabel = "loss",
             .curves = {{"each step", "#b4cdea", 1, false, thinned(losses)},
                        {"running mean", training, 2, false, runningMean(losses)},
                        {"validation", validation, 2, false, std::move(validationLosses)}},
             .yLimit = limitWithoutPeaks(losses),
             .beginsAtZero = true};
  Panel accuracy{.title = "Accuracy",
                 .xLabel = "epoch",
                 .yLabel = "accuracy in %",
                 .curves = {{"training", training, 2, false, accuraciesOfEpochs(rows)},
                            {"validation", validation, 2, true, std::move(validationAccuracies)}},
                 .largestY = 100};
  return drawChart(title, std::array{std::move(loss), std::move(accuracy)});
}

}  // namespace unmetal
