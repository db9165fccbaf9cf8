#include "mps/conform/timing/bench.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "mps/conform/text.hpp"
#include "mps/core/plan/no_implementation.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
namespace {

BenchRow rowOf(const BenchKey& key) {
  BenchRow row;
  row.kernel = key.kernel;
  row.direction = name(key.direction);
  row.format = mps::name(key.format);
  row.shape = key.shape;
  row.batch = key.batch;
  return row;
}

void addOnce(std::vector<std::string>& names, std::string_view name) {
  if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
}

/// The implementations to force one after the other: from the asked one on, or all of them. Lists of one entry, such as those
/// of row sums, are left out where there are longer ones.
std::vector<std::string> namesToTime(const std::vector<ImplementationChoice>& choices,
                                     const std::string& asked) {
  std::vector<std::string> names;
  if (asked.empty()) return names;
  const bool isAll = asked == kAllImplementations;
  const bool anyHasSeveral = std::ranges::any_of(
      choices, [](const ImplementationChoice& choice) { return choice.names.size() > 1; });
  for (const ImplementationChoice& choice : choices) {
    if (isAll && anyHasSeveral && choice.names.size() == 1) continue;
    const auto first =
        isAll ? choice.names.begin() : std::ranges::find(choice.names, std::string_view(asked));
    for (auto one = first; one != choice.names.end(); ++one) addOnce(names, *one);
  }
  return names;
}

/// "rows, onednn"
std::string namesTaken(const std::vector<ImplementationChoice>& choices) {
  std::vector<std::string> names;
  for (const ImplementationChoice& choice : choices) addOnce(names, choice.taken);
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// Of the message of a NoImplementation: the refusal.
std::string lastLine(std::string_view message) {
  const std::size_t end = message.rfind("\n  ");
  return std::string(end == std::string_view::npos ? message : message.substr(end + 3));
}

}  // namespace

std::string BenchKey::describe() const {
  return kernel + " " + name(direction) + " " + mps::name(format) + " " + shape + " batch " +
         std::to_string(batch);
}

Bench::Bench(BenchOptions options) : options_(std::move(options)) {
  if (!options_.device) throw Error("Bench", "device", "null", "a device");
  machine_ = options_.machine ? *options_.machine : measureMachine(options_.device);
}

bool Bench::isSelected(const std::string& key) const {
  return hasWords(key, options_.filter);
}

bool Bench::filterHas(const std::string& words) const {
  return containsIgnoringCase(options_.filter, words);
}

void Bench::family(void (*benchFamily)(Bench&)) {
  try {
    benchFamily(*this);
  } catch (const NoImplementation& error) {
    if (device()->kind() == mtl::DeviceKind::CPU) throw;
    missing_.emplace_back(error.what());
  }
}

std::int64_t Bench::batchFor(std::size_t bytesPerImage) const {
  const std::size_t wanted =
      options_.workingSetBytes > 0 ? options_.workingSetBytes : largeWorkingSetBytes(*device());
  return static_cast<std::int64_t>((wanted + bytesPerImage - 1) / std::max<std::size_t>(1, bytesPerImage));
}

void Bench::kernel(const BenchKey& key, const BenchWork& work,
                   const std::function<void(const std::shared_ptr<mtl::CommandBuffer>&)>& encode) {
  if (!isSelected(key.describe())) return;
  const auto queue = device()->newCommandQueue();
  const RepeatedWork repeated = [&](int repetitions) {
    const auto commandBuffer = queue->commandBuffer();
    for (int i = 0; i < repetitions; ++i) encode(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    return (commandBuffer->GPUEndTime() - commandBuffer->GPUStartTime()) * 1e3;
  };
  const std::vector<ImplementationChoice> choices = [&] {
    const ChoiceRecord record;
    repeated(1);
    return record.choices();
  }();
  const std::string& asked = options_.implementation;
  const std::vector<std::string> names = namesToTime(choices, asked);
  if (!asked.empty() && asked != kAllImplementations && names.empty()) return;
  const std::vector<std::string> accepted =
      names.empty() ? std::vector<std::string>{""} : accepting(key, names, repeated);
  if (!accepted.empty()) time(key, work, repeated, accepted, namesTaken(choices));
}

std::vector<std::string> Bench::accepting(const BenchKey& key, const std::vector<std::string>& names,
                                          const RepeatedWork& repeated) {
  const bool isAll = options_.implementation == kAllImplementations;
  std::vector<std::string> accepted;
  for (const std::string& name : names) {
    try {
      const ForceImplementation force(name);
      repeated(1);
      accepted.push_back(name);
      if (!isAll && accepted.size() == 2) break;
    } catch (const NoImplementation& error) {
      const bool isAsked = name == names.front();
      if (!isAll && !isAsked) continue;
      BenchRow row = rowOf(key);
      row.implementation = name;
      row.refusal = lastLine(error.what());
      add(std::move(row));
      if (!isAll) break;
    }
  }
  return accepted;
}

void Bench::time(const BenchKey& key, const BenchWork& work, const RepeatedWork& repeated,
                 const std::vector<std::string>& names, const std::string& chosen) {
  if (!(work.bytes > 0))
    throw Error("Bench", "bytes", std::to_string(work.bytes), "the bytes that must move");
  const CopyWork copy(device(), static_cast<std::size_t>(work.bytes));
  const bool isCpu = device()->kind() == mtl::DeviceKind::CPU;
  std::vector<RepeatedWork> works;
  for (const std::string& name : names)
    works.emplace_back([&repeated, &name](int repetitions) {
      const ForceImplementation force(name, true);
      return repeated(repetitions);
    });
  works.emplace_back([&copy](int repetitions) { return copy.run(repetitions); });
  const std::vector<Timing> timings =
      timeInTurns(works, options_.runs, isCpu ? kLeastMillisecondsPerRun : kLeastMillisecondsPerRunOnGpu);
  for (std::size_t i = 0; i < names.size(); ++i) {
    BenchRow row = rowOf(key);
    row.implementation = names[i].empty() ? chosen : names[i];
    row.milliseconds = timings[i].milliseconds;
    row.spread = timings[i].spread;
    row.bytes = work.bytes;
    row.flops = work.flops;
    row.floorMilliseconds = std::max(timings.back().milliseconds, matmulMilliseconds(work.flops));
    if (i + 1 < names.size()) row.nextOverThis = timings[i + 1].milliseconds / timings[i].milliseconds;
    add(std::move(row));
  }
}

double Bench::matmulMilliseconds(double flops) const {
  return machine_.matmulGflops > 0 ? flops / machine_.matmulGflops * 1e-6 : 0;
}

void Bench::add(BenchRow row) {
  row.device = device()->name();
  if (!row.refusal.empty()) {
    rows_.push_back(std::move(row));
    if (options_.rowFinished) options_.rowFinished(rows_.back());
    return;
  }
  if (row.floorMilliseconds == 0)
    row.floorMilliseconds = std::max(row.bytes / machine_.copyGBps * 1e-6, matmulMilliseconds(row.flops));
  if (row.milliseconds > 0) row.fractionOfFloor = row.floorMilliseconds / row.milliseconds;
  rows_.push_back(std::move(row));
  if (options_.rowFinished) options_.rowFinished(rows_.back());
}

}  // namespace mps::detail
