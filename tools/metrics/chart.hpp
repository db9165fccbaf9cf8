#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tools/metrics/metrics.hpp"

namespace unmetal {

/// A line in a chart.
struct Curve {
  std::string name;
  /// As in CSS, "#2f6db3".
  std::string color;
  double lineWidth = 2;
  /// Draws a dot at each point and writes the value of the highest one beside it.
  bool hasMarkers = false;
  /// x and y, x ascending. A point that is not finite makes a gap.
  std::vector<std::pair<double, double>> points;
};

/// A coordinate system with its curves. Both axes cover all finite points, but for those of y above `yLimit`,
/// which are cut off.
struct Panel {
  std::string title;
  std::string xLabel;
  std::string yLabel;
  std::vector<Curve> curves;
  double yLimit = 1e300;
  /// No y can be larger: no ticks there.
  double largestY = 1e300;
  /// Only whole numbers at the ticks of x.
  bool hasWholeX = true;
  /// The axis of y begins at 0, else near the lowest point.
  bool beginsAtZero = false;
};

/// The panels side by side as an SVG document. The same input gives the same text.
std::string drawChart(const std::string& title, std::span<const Panel> panels);

/// Loss over steps (each step, a running mean, and that of validation) and accuracy over epochs.
std::string drawTrainingCurves(const std::string& title, std::span<const MetricsRow> rows);

/// At most eight round numbers from `low` to `high`, which may be equal.
std::vector<double> axisTicks(double low, double high, bool hasWholeNumbersOnly);

}  // namespace unmetal
