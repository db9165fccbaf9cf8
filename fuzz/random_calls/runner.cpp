#include "fuzz/random_calls/runner.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iomanip>
#include <ostream>
#include <typeinfo>
#include <vector>

#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace unmetal::random_calls {
namespace {

constexpr const char* kRunning = ", run";  // as Call::finish marks its stage

/// A sentence about a device, as if it were about the CPU.
std::string withoutDevice(std::string sentence, const mtl::Device& device) {
  for (std::size_t at = 0; (at = sentence.find(device.name(), at)) != std::string::npos; at += 3)
    sentence.replace(at, device.name().size(), "cpu");
  return sentence;
}

/// Notes an exception. What is thrown while results are read counts only where the call itself threw nothing.
void noteException(Call& call, const std::exception& exception) {
  if (!call.error.empty()) return;
  call.error = withoutDevice(exception.what(), *call.device);
  call.errorType = typeid(exception).name();
}

void readResults(Call& call) {
  const CommandBufferPointer commandBuffer = call.begin();
  for (const Observation& observation : call.observations) observation.synchronize(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  for (Observation& observation : call.observations) observation.after = observation.read();
}

/// Neighbouring calls, and the same ones of neighbouring seeds, have nothing in common.
std::uint64_t seedOf(const RunOptions& options, std::uint64_t call) {
  return RandomNumbers(RandomNumbers(options.seed).bits() + call * 0xD1B54A32D192ED03U).bits();
}

}  // namespace

std::uint64_t Progress::findings() const {
  std::uint64_t count = 0;
  for (const Tally& tally : tallies) count += tally.different + tally.lost;
  return count;
}

double steadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void make(Call& call, const Family& family) {
  try {
    family.call(call);
  } catch (const std::exception& exception) {
    noteException(call, exception);
    // The command buffer is dropped: what kernels made for it holds anything.
    if (!call.stage.ends_with(kRunning))
      std::erase_if(call.observations,
                    [](const Observation& observation) { return observation.before.empty(); });
  }
  try {
    readResults(call);
  } catch (const std::exception& exception) {
    noteException(call, exception);
    call.stage += kRunning;
  }
}

std::size_t familyOf(std::uint64_t call, std::span<const Family> families) {
  return call % families.size();
}

Ending makeCalls(const Devices& devices, std::span<const Family> families, const RunOptions& options,
                 std::uint64_t first, Progress& progress, std::ostream& out) {
  const auto firstQueue = devices.first->newCommandQueue();
  const auto secondQueue = devices.second->newCommandQueue();
  const std::uint64_t last = options.only.value_or(std::numeric_limits<std::uint64_t>::max());
  for (std::uint64_t number = std::max(first, options.only.value_or(0)); number <= last; ++number) {
    if (steadySeconds() > options.end || progress.calls >= options.mostCalls) break;
    const std::size_t which = familyOf(number, families);
    const Family& family = families[which];
    if (!options.family.empty() && options.family != family.name) continue;
    progress.call = number;
    progress.began = steadySeconds();
    ++progress.calls;
    Tally& tally = progress.tallies.at(which);
    ++tally.calls;

    const std::uint64_t seed = seedOf(options, number);
    if (options.describesAll) out << "call " << number << ", " << family.name << ':' << std::flush;
    Call one(devices.first, firstQueue, seed, options.limits);
    make(one, family);
    if (options.describesAll)
      out << one.description.str() << (one.error.empty() ? "" : "; throws: " + one.error) << std::endl;
    Call other(devices.second, secondQueue, seed, options.limits);
    make(other, family);

    if (!one.error.empty() && one.errorType == other.errorType) ++tally.refused;
    const std::vector<std::string> found = differences(one, other, options.words);
    if (!found.empty()) ++tally.different;
    for (const std::string& sentence : found)
      out << "DIFFERENCE, " << family.name << ": " << sentence << '\n';
    if (!found.empty())
      out << "  of" << one.description.str() << "\n  again: " << options.command << " --only " << number
          << std::endl;
    if (one.errorType != other.errorType &&
        (one.stage.ends_with(kRunning) || other.stage.ends_with(kRunning))) {
      if (number < last) return Ending::DeviceLost;
    }
  }
  return Ending::Done;
}

void printTallies(const Progress& progress, std::span<const Family> families, std::ostream& out) {
  const auto row = [&out](const auto& name, const auto& calls, const auto& refused, const auto& different,
                          const auto& lost) {
    out << std::left << std::setw(27) << name << std::right << std::setw(9) << calls << std::setw(9)
        << refused << std::setw(11) << different << std::setw(6) << lost << '\n';
  };
  row("family", "calls", "refused", "different", "lost");
  Tally all;
  for (std::size_t i = 0; i < families.size(); ++i) {
    const Tally& tally = progress.tallies.at(i);
    all.different += tally.different;
    all.lost += tally.lost;
    if (tally.calls > 0) row(families[i].name, tally.calls, tally.refused, tally.different, tally.lost);
  }
  out << progress.calls << " calls, " << all.different << " different, " << all.lost << " ended their process"
      << std::endl;
}

}  // namespace unmetal::random_calls
