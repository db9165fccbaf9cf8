#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <ostream>
#include <string>

namespace unmetal {

/// Seconds since some fixed moment.
using Clock = std::function<double()>;
/// The system's steady clock.
double steadySeconds();

/// Images per second over the last seconds of training.
class ThroughputMeter {
 public:
  explicit ThroughputMeter(Clock clock = steadySeconds);
  /// Call when so many images are done.
  void add(std::uint64_t images);
  /// Forgets everything: what took time since the last add() was no training.
  void restart();
  /// 0 before the first add().
  double imagesPerSecond() const;

 private:
  struct Sample {
    double time;
    std::uint64_t images;
  };
  Clock clock_;
  std::deque<Sample> samples_;
};

/// Where a training is.
struct Progress {
  /// Counted from 1.
  std::uint64_t epoch = 0;
  std::uint64_t epochs = 0;
  /// Steps of this epoch that are done, and all of them.
  std::uint64_t step = 0;
  std::uint64_t stepsPerEpoch = 0;
  std::uint64_t batchSize = 0;
  double loss = 0;
  double imagesPerSecond = 0;
  /// Whether the time that is left can be told: not from the first steps.
  bool hasEstimate = true;
};

/// "5 s", "1:05" or "2:03:04".
std::string formatDuration(double seconds);
/// "epoch 2/5 [=====>    ]  50 %  loss 0.4312  3421 images/s  1:23 left", never wider than `columns`.
std::string progressBar(const Progress& progress, std::size_t columns);
/// "epoch 2/5  step 468/937  loss 0.4312  3421 images/s  1:23 left"
std::string progressLine(const Progress& progress);

/// Shows the progress: on a terminal one line that is drawn again up to ten times a second, elsewhere a plain
/// line after the first step and then every ten seconds.
class ProgressDisplay {
 public:
  /// The width of a terminal, asked for each time: it can change.
  using Columns = std::function<std::size_t()>;
  ProgressDisplay(std::ostream& stream, bool isTerminal, Columns columns, Clock clock = steadySeconds);
  /// On the standard output, as it is. A terminal that moves no cursor (TERM=dumb) gets plain lines; what nobody reads any
  /// more goes nowhere (OutputWithoutReader).
  static ProgressDisplay onStandardOutput();
  /// Shows nothing.
  static ProgressDisplay silent();
  /// Clears the bar.
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  /// Call after every step.
  void update(const Progress& progress);
  /// Prints a line of its own that stays, for example an epoch's result.
  void print(const std::string& line);

 private:
  void clearBar();
  void discardWithoutReader() const;

  std::ostream& stream_;
  bool isTerminal_;
  Columns columns_;
  Clock clock_;
  double lastShown_;
  bool barIsShown_ = false;
};

}  // namespace unmetal
