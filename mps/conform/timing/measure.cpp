#include "mps/conform/timing/measure.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <vector>

#include "mps/conform/run_on_device.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

constexpr int kMostRepetitions = 10'000;

/// Value at a share of the way through sorted numbers, between neighbours in proportion.
double quantile(std::span<const double> sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

/// "512K", "32M" as the kernel writes the size of a cache.
std::size_t cacheSize(const std::string& text) {
  std::size_t digits = 0;
  const std::size_t number = std::stoull(text, &digits);
  const char unit = digits < text.size() ? text[digits] : ' ';
  if (unit == 'K') return number << 10U;
  return unit == 'M' ? number << 20U : number;
}

/// A line "name:   1234 kB" of the process's status.
std::size_t statusBytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (std::size_t kilobytes = 0; word == name + ":" && status >> kilobytes) return kilobytes << 10U;
  return 0;
}

}  // namespace

Timing summarize(std::span<const double> milliseconds) {
  if (milliseconds.empty()) throw Error("a median needs at least one run");
  std::vector<double> sorted(milliseconds.begin(), milliseconds.end());
  std::ranges::sort(sorted);
  const double median = quantile(sorted, 0.5);
  const double spread = median > 0 ? (quantile(sorted, 0.75) - quantile(sorted, 0.25)) / median : 0;
  return {median, spread, static_cast<int>(sorted.size())};
}

int chooseRepetitions(const RepeatedWork& work, double leastMilliseconds) {
  constexpr double kLeastShare = 0.05;
  work(1);
  int repetitions = 1;
  double milliseconds = work(1);
  while (milliseconds < kLeastShare * leastMilliseconds && repetitions < kMostRepetitions)
    milliseconds = work(repetitions = std::min(2 * repetitions, kMostRepetitions));
  if (milliseconds <= 0) return kMostRepetitions;
  const double wanted = std::ceil(repetitions * leastMilliseconds / milliseconds);
  return static_cast<int>(std::clamp(wanted, 1.0, static_cast<double>(kMostRepetitions)));
}

Timing timeRepeated(const RepeatedWork& work, int runs, double leastMilliseconds) {
  return timeInTurns(std::span(&work, 1), runs, leastMilliseconds).front();
}

std::vector<Timing> timeInTurns(std::span<const RepeatedWork> works, int runs, double leastMilliseconds) {
  std::vector<int> repetitions;
  for (const RepeatedWork& work : works) repetitions.push_back(chooseRepetitions(work, leastMilliseconds));
  std::vector<std::vector<double>> milliseconds(works.size());
  for (int run = 0; run < runs; ++run)
    for (std::size_t i = 0; i < works.size(); ++i)
      if (run < kRunsOfSlowWork || milliseconds[i].front() < kSlowMilliseconds)
        milliseconds[i].push_back(works[i](repetitions[i]) / repetitions[i]);
  std::vector<Timing> timings;
  for (const std::vector<double>& ofWork : milliseconds) timings.push_back(summarize(ofWork));
  return timings;
}

CopyWork::CopyWork(std::shared_ptr<mtl::Device> device, std::size_t workingSetBytes)
    : device_(std::move(device)),
      copy_(device_->kind() == mtl::DeviceKind::CUDA ? UNMETAL_CUDA_LIST(copyOnCuda) : copyOnCpu),
      source_(device_->allocate(workingSetBytes / 2)),
      destination_(device_->allocate(workingSetBytes / 2)) {
  source_->fillWithZeros();
}

double CopyWork::run(int repetitions) const {
  const auto copy = [this](mtl::Stream& stream) {
    copy_(stream, destination_->address(), source_->address(), source_->length());
  };
  return runOnDevice(device_, "copy", copy, repetitions);
}

double copyBandwidth(const std::shared_ptr<mtl::Device>& device, std::size_t workingSetBytes) {
  const CopyWork copy(device, workingSetBytes);
  const Timing timing = timeRepeated([&](int repetitions) { return copy.run(repetitions); });
  return static_cast<double>(workingSetBytes) / timing.milliseconds * 1e-6;
}

std::size_t lastLevelCacheBytes() {
  std::size_t largest = 0;
  for (int index = 0;; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
    std::string text;
    if (!(file >> text)) break;
    largest = std::max(largest, cacheSize(text));
  }
  return largest > 0 ? largest : std::size_t{32} << 20U;
}

std::size_t largeWorkingSetBytes(const mtl::Device& device) {
  constexpr std::size_t gpuBytes = std::size_t{512} << 20U;
  return device.kind() == mtl::DeviceKind::CPU ? 4 * lastLevelCacheBytes() : gpuBytes;
}

MachineFigures measureMachine(const std::shared_ptr<mtl::Device>& device) {
  return {.name = device->description(),
          .device = device->name(),
          .threads = device->threadCount(),
          .copyGBps = copyBandwidth(device, largeWorkingSetBytes(*device)),
          .matmulGflops = matmulRate(device)};
}

std::size_t residentBytes() {
  return statusBytes("VmRSS");
}
std::size_t peakResidentBytes() {
  return statusBytes("VmHWM");
}
void resetPeakResidentBytes() {
  std::ofstream("/proc/self/clear_refs") << 5;
}

}  // namespace mps::detail
