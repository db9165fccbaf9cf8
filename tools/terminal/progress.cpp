#include "tools/terminal/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <string_view>
#include <utility>

#include "tools/terminal/signals.hpp"
#include "train/text/fixed_point.hpp"

namespace unmetal {
namespace {

constexpr double meterWindow = 5;      // seconds
constexpr double meterSpacing = 0.05;  // seconds between two samples
constexpr double terminalInterval = 0.1;
constexpr double plainInterval = 10;
constexpr std::size_t longestBar = 40;
constexpr std::size_t defaultColumns = 80;

/// "  loss 0.4312  3421 images/s  1:23 left"
std::string describeSpeed(const Progress& progress) {
  std::string text = "  loss " + (std::abs(progress.loss) < 1e5 ? formatFixed(progress.loss, 4) : "large");
  if (!std::isfinite(progress.loss)) text = "  loss is not finite";
  if (progress.imagesPerSecond <= 0) return text;
  const std::uint64_t stepsDone = (progress.epoch - 1) * progress.stepsPerEpoch + progress.step;
  const std::uint64_t stepsLeft = progress.epochs * progress.stepsPerEpoch - stepsDone;
  const auto imagesLeft = static_cast<double>(stepsLeft * progress.batchSize);
  text += "  " + formatFixed(progress.imagesPerSecond, progress.imagesPerSecond < 10 ? 1 : 0) + " images/s";
  if (!progress.hasEstimate) return text;
  return text + "  " + formatDuration(imagesLeft / progress.imagesPerSecond) + " left";
}

std::string describeEpoch(const Progress& progress) {
  return "epoch " + std::to_string(progress.epoch) + "/" + std::to_string(progress.epochs);
}

std::size_t columnsOfStandardOutput() {
  winsize size{};
  const bool isKnown = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return isKnown ? size.ws_col : defaultColumns;
}

}  // namespace

double steadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

ThroughputMeter::ThroughputMeter(Clock clock) : clock_(std::move(clock)) {
  restart();
}

void ThroughputMeter::add(std::uint64_t images) {
  const Sample sample{clock_(), samples_.back().images + images};
  // Close samples are merged; the first stays, it is where the time begins.
  const bool isClose = samples_.size() > 1 && sample.time - samples_[samples_.size() - 2].time < meterSpacing;
  if (isClose) samples_.pop_back();
  samples_.push_back(sample);
  while (samples_.size() > 2 && sample.time - samples_[1].time >= meterWindow) samples_.pop_front();
}

void ThroughputMeter::restart() {
  samples_ = {{clock_(), 0}};
}

double ThroughputMeter::imagesPerSecond() const {
  const Sample& first = samples_.front();
  const Sample& last = samples_.back();
  if (last.time <= first.time) return 0;
  return static_cast<double>(last.images - first.images) / (last.time - first.time);
}

std::string formatDuration(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::clamp(std::ceil(seconds), 0.0, 1e9));
  if (whole < 60) return std::to_string(whole) + " s";
  const auto twoDigits = [](std::uint64_t number) {
    return (number < 10 ? "0" : "") + std::to_string(number);
  };
  const std::uint64_t minutes = whole / 60;
  if (minutes < 60) return std::to_string(minutes) + ":" + twoDigits(whole % 60);
  return std::to_string(minutes / 60) + ":" + twoDigits(minutes % 60) + ":" + twoDigits(whole % 60);
}

std::string progressBar(const Progress& progress, std::size_t columns) {
  const double done = static_cast<double>(progress.step) / static_cast<double>(progress.stepsPerEpoch);
  std::string percent = std::to_string(static_cast<int>(100 * done)) + " %";
  percent.insert(0, 5 - percent.size(), ' ');
  const std::string before = describeEpoch(progress) + " ";
  const std::string after = " " + percent + describeSpeed(progress);
  std::string bar;
  constexpr std::size_t brackets = 2;
  constexpr std::size_t shortestBar = 5;
  const std::size_t used = before.size() + after.size() + brackets;
  if (used + shortestBar <= columns) {
    const std::size_t length = std::min(longestBar, columns - used);
    const auto filled = static_cast<std::size_t>(done * static_cast<double>(length));
    bar = std::string(filled, '=') + (filled < length ? ">" : "");
    bar = "[" + bar + std::string(length - bar.size(), ' ') + "]";
  }
  return (before + bar + after).substr(0, columns);
}

std::string progressLine(const Progress& progress) {
  return describeEpoch(progress) + "  step " + std::to_string(progress.step) + "/" +
         std::to_string(progress.stepsPerEpoch) + describeSpeed(progress);
}

ProgressDisplay::ProgressDisplay(std::ostream& stream, bool isTerminal, Columns columns, Clock clock)
    : stream_(stream),
      isTerminal_(isTerminal),
      columns_(std::move(columns)),
      clock_(std::move(clock)),
      lastShown_(-std::numeric_limits<double>::infinity()) {}

ProgressDisplay ProgressDisplay::onStandardOutput() {
  const char* const terminal = std::getenv("TERM");
  const bool isDumb = terminal != nullptr && std::string_view(terminal) == "dumb";
  return {std::cout, ::isatty(STDOUT_FILENO) == 1 && !isDumb, columnsOfStandardOutput};
}

ProgressDisplay ProgressDisplay::silent() {
  static std::ostream nowhere(nullptr);
  return {nowhere, false, columnsOfStandardOutput};
}

ProgressDisplay::~ProgressDisplay() {
  clearBar();
}

void ProgressDisplay::update(const Progress& progress) {
  const double now = clock_();
  if (now - lastShown_ < (isTerminal_ ? terminalInterval : plainInterval)) return;
  lastShown_ = now;
  discardWithoutReader();
  if (isTerminal_) {
    // The last column stays free: some terminals go to the next line when it is written.
    stream_ << "\r\x1B[K" << progressBar(progress, columns_() - 1) << std::flush;
    barIsShown_ = true;
  } else {
    stream_ << progressLine(progress) << std::endl;
  }
}

void ProgressDisplay::print(const std::string& line) {
  discardWithoutReader();
  clearBar();
  stream_ << line << std::endl;
}

void ProgressDisplay::clearBar() {
  if (barIsShown_) stream_ << "\r\x1B[K" << std::flush;
  barIsShown_ = false;
}

void ProgressDisplay::discardWithoutReader() const {
  if (&stream_ == &std::cout) OutputWithoutReader::discard();
}

}  // namespace unmetal
