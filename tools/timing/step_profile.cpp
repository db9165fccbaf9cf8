#include "tools/timing/step_profile.hpp"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "mps/core/types/error.hpp"

namespace unmetal {
namespace {

/// Part of a class' name, and the kind of such kernels; the first that fits counts.
constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kinds{{
    {"Convolution", "convolution"},
    {"FullyConnected", "convolution"},
    {"Normalization", "normalization"},
    {"Pooling", "pooling"},
    {"Upsampling", "resizing"},
    {"Bilinear", "resizing"},
    {"Scale", "resizing"},
    {"Optimizer", "update"},
    {"Loss", "loss"},
    {"Neuron", "element-wise"},
    {"SoftMax", "element-wise"},
    {"Concatenation", "concatenation"},
    {"Matrix", "matrices"},
}};

double median(std::vector<double> values) {
  return mps::detail::summarize(values).milliseconds;
}

void addTo(std::vector<ProfileRow>& rows, const std::string& name, const ProfileRow& command) {
  auto row = std::ranges::find(rows, name, &ProfileRow::name);
  if (row == rows.end()) row = rows.insert(rows.end(), ProfileRow{name});
  row->commands += command.commands;
  row->milliseconds += command.milliseconds;
  row->bytes += command.bytes;
  row->operations += command.operations;
  row->floorMilliseconds += command.floorMilliseconds;
}

std::string line(const ProfileRow& row, double stepMilliseconds) {
  const double seconds = row.milliseconds * 1e-3;
  std::string text = fmt::format("  {:<34} {:>5} {:>10.3f} {:>6.1f} %", row.name, row.commands,
                                 row.milliseconds, 100 * row.milliseconds / stepMilliseconds);
  const auto add = [&](double value, int width, int digits) {
    text += value > 0 ? fmt::format(" {:>{}.{}f}", value, width, digits) : fmt::format(" {:>{}}", "", width);
  };
  add(row.bytes * 1e-9 / seconds, 9, 1);
  add(row.operations * 1e-9 / seconds, 10, 1);
  if (row.floorMilliseconds > 0)
    text += fmt::format(" {:>6.0f} %", 100 * row.floorMilliseconds / row.milliseconds);
  return text + "\n";
}

}  // namespace

std::string kindOfCommand(const std::string& label) {
  const std::string_view className = std::string_view(label).substr(0, label.find(' '));
  for (const auto& [part, kind] : kinds)
    if (className.find(part) != std::string_view::npos) return std::string(kind);
  return "element-wise";
}

std::string layerOfCommand(const std::string& label) {
  const auto without = [](std::string_view text, std::string_view end) {
    if (text.ends_with(end)) text.remove_suffix(end.size());
    return std::string(text);
  };
  const std::string_view className = std::string_view(label).substr(0, label.find(' '));
  const std::size_t begin = label.find('"');
  const std::size_t end = label.rfind('"');
  if (begin == std::string::npos || end == begin) return without(className, "Gradient");
  const std::string name = label.substr(begin + 1, end - begin - 1);
  return className.ends_with("Gradient") ? without(name, " gradient") : name;
}

StepProfile::StepProfile(std::vector<std::vector<mtl::CommandTime>> steps,
                         const mps::detail::MachineFigures& machine)
    : steps_(std::move(steps)) {
  if (steps_.empty() || steps_.front().empty()) throw mps::Error("profile: no command has run");
  std::vector<double> durations;
  for (const auto& step : steps_) {
    if (!std::ranges::equal(step, steps_.front(), {}, &mtl::CommandTime::label, &mtl::CommandTime::label))
      throw mps::Error("profile: the steps have not run the same commands");
    durations.push_back(1e3 * (step.back().end - step.front().start));
  }
  milliseconds_ = median(durations);
  for (std::size_t i = 0; i < steps_.front().size(); ++i) {
    const mtl::CommandTime& command = steps_.front()[i];
    std::vector<double> times;
    for (const auto& step : steps_) times.push_back(1e3 * (step[i].end - step[i].start));
    const double copying = machine.copyGBps > 0 ? command.bytes / (1e6 * machine.copyGBps) : 0;
    const double computing = machine.matmulGflops > 0 ? command.operations / (1e6 * machine.matmulGflops) : 0;
    commands_.push_back(
        {command.label, 1, median(times), command.bytes, command.operations, std::max(copying, computing)});
  }
}

std::vector<ProfileRow> StepProfile::byKind() const {
  std::vector<ProfileRow> rows;
  double sum = 0;
  for (const ProfileRow& command : commands_) {
    addTo(rows, kindOfCommand(command.name), command);
    sum += command.milliseconds;
  }
  std::ranges::sort(rows, std::greater{}, &ProfileRow::milliseconds);
  rows.push_back({"between commands", 0, std::max(0.0, milliseconds_ - sum)});
  return rows;
}

std::vector<ProfileRow> StepProfile::byLayer() const {
  std::vector<ProfileRow> rows;
  for (const ProfileRow& command : commands_) addTo(rows, layerOfCommand(command.name), command);
  return rows;
}

std::string StepProfile::report() const {
  const std::string title = fmt::format("  {:<34} {:>5} {:>10} {:>8} {:>9} {:>10} {:>8}\n", "", "calls", "ms",
                                        "of step", "GB/s", "GFLOP/s", "floor");
  std::string text = fmt::format("a step: {:.3f} ms\n\nby kind\n{}", milliseconds_, title);
  for (const ProfileRow& row : byKind()) text += line(row, milliseconds_);
  text += "\nby layer\n" + title;
  for (const ProfileRow& row : byLayer()) text += line(row, milliseconds_);
  return text;
}

std::string StepProfile::trace() const {
  constexpr double microseconds = 1e6;
  const double origin = steps_.front().front().start;
  auto events = nlohmann::ordered_json::array();
  for (const auto& step : steps_)
    for (const mtl::CommandTime& command : step)
      events.push_back({{"name", command.label},
                        {"cat", kindOfCommand(command.label)},
                        {"ph", "X"},
                        {"ts", microseconds * (command.start - origin)},
                        {"dur", microseconds * (command.end - command.start)},
                        {"pid", 1},
                        {"tid", 1},
                        {"args", {{"bytes", command.bytes}, {"operations", command.operations}}}});
  return nlohmann::ordered_json{{"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump() + "\n";
}

}  // namespace unmetal
