#include "tools/ranks/ranks.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <thread>

#include "mps/core/types/error.hpp"
#include "mps/distributed/communicator.hpp"
#include "mps/distributed/launch.hpp"
#include "mtl/cpu/processors.hpp"
#include "mtl/device.hpp"
#include "tools/options/number_options.hpp"
#include "tools/ranks/rank_processes.hpp"
#include "tools/terminal/exit_status.hpp"

namespace unmetal {
namespace {

using mps::detail::Launch;

/// How long ranks leave the word to a lower one, whose end makes launchers end them: on another host it takes seconds.
constexpr std::chrono::seconds silence(6);

/// Ranks that a launcher has not bound to processors of their own share those that there are.
int threadsOfRank(const Launch& launch) {
  if (launch.localSize == 1 || std::getenv("OMP_NUM_THREADS") != nullptr) return 0;
  cpu_set_t own{};
  const bool isBound =
      ::sched_getaffinity(0, sizeof own, &own) == 0 && CPU_COUNT(&own) < ::sysconf(_SC_NPROCESSORS_ONLN);
  return isBound ? 0 : std::max(1, mtl::cpu::defaultThreadCount() / launch.localSize);
}

DeviceOptions deviceOfRank(DeviceOptions device, const RankOptions& options, const Launch& launch) {
  if (!options.devices.empty()) {
    const std::vector<std::string> names = deviceNames(options.devices);
    if (names.size() != static_cast<std::size_t>(launch.localSize))
      throw mps::Error("--devices " + options.devices + ": give a device for each of the " +
                       std::to_string(launch.localSize) + " ranks of this host");
    device.name = names[static_cast<std::size_t>(launch.localRank)];
  } else if (device.name == "cuda" && launch.size > 1) {
    device.name += ":" + std::to_string(launch.localRank);
  }
  if (device.threads == 0 && device.name == "cpu") device.threads = threadsOfRank(launch);
  return device;
}

/// Whether this rank is the lowest that is there. One that came too late knows of itself alone.
bool speaksFirst(int rank, const std::vector<int>& missing) {
  if (std::ranges::find(missing, rank) != missing.end()) return false;
  for (int lower = 0; lower < rank; ++lower)
    if (std::ranges::find(missing, lower) == missing.end()) return false;
  return true;
}

/// The others may have the same to say, and may wait for this rank: its end must wait for none of them.
/// @param waitedInVain for a rank; where nobody knows for which, it may be this one, and those that do know speak before
[[noreturn]] void endAlone(mps::Communicator& communicator, const std::string& message, bool waitedInVain) {
  communicator.giveUp();
  const int rank = communicator.rank();
  const std::vector<int> missing = communicator.missingRanks();
  if (waitedInVain && missing.empty()) std::this_thread::sleep_for(silence);
  const bool isFirst = speaksFirst(rank, missing);
  if (!isFirst) std::this_thread::sleep_for(silence);
  printError((isFirst ? "" : "rank " + std::to_string(rank) + ": ") + message);
  exitProgram(waitedInVain ? kExitRankMissing : kExitError);
}

void runOneOfSeveral(const RankOptions& options, const std::shared_ptr<mtl::Device>& device,
                     const std::string& hint, const RankWork& work) {
  const auto communicator = mps::Communicator::fromEnvironment(device);
  communicator->setTimeout(
      std::chrono::milliseconds(static_cast<std::int64_t>(1000 * options.timeoutSeconds)));
  try {
    work(device, communicator);
  } catch (const CLI::RuntimeError&) {
    throw;  // it has said all there is to say
  } catch (const train::detail::SharedError& error) {
    if (communicator->rank() == 0) throw;
    exitProgram(kExitError);
  } catch (const std::exception& error) {
    const bool waitedInVain = !communicator->failure().empty();
    endAlone(*communicator, error.what() + (waitedInVain ? hint : ""), waitedInVain);
  }
}

}  // namespace

void addRankOptions(CLI::App& command, RankOptions& options) {
  command
      .add_option("--devices", options.devices,
                  "Compute on several GPUs, a process for each, which this one starts: cuda:all, or names "
                  "with commas between; under mpirun, srun and torchrun the devices of the ranks of a host")
      ->type_name("NAMES")
      ->check(nameOf("devices"));
  command
      .add_option("--collective-timeout", options.timeoutSeconds,
                  "How long ranks wait for one that does not come; the first time five times as long")
      ->type_name("SECONDS")
      ->check(number(0.001, 1e6))
      ->capture_default_str();
}

std::vector<std::string> deviceNames(const std::string& text) {
  std::vector<std::string> names;
  if (text == "cuda:all") {
    for (const auto& device : mtl::copyAllDevices())
      if (device->kind() != mtl::DeviceKind::CPU) names.push_back(device->name());
    if (names.empty()) static_cast<void>(mtl::deviceNamed("cuda"));  // says why
    return names;
  }
  for (std::size_t first = 0; first <= text.size();) {
    const std::size_t end = std::min(text.find(',', first), text.size());
    const std::string name = text.substr(first, end - first);
    if (name.empty()) throw mps::Error("--devices " + text + ": a name is empty");
    if (name != "cpu" && std::ranges::find(names, name) != names.end())
      throw mps::Error("--devices " + text + ": " + name +
                       " is there twice, give each rank a device of its own");
    names.push_back(name);
    first = end + 1;
  }
  return names;
}

bool isOneOfSeveral(const RankOptions& options) {
  return mps::detail::launchOf(mps::detail::processEnvironment()).size > 1 ||
         (!options.devices.empty() && deviceNames(options.devices).size() > 1);
}

void runAsRank(const DeviceOptions& device, const RankOptions& options, const std::string& hint,
               const RankWork& work) {
  const Launch launch = mps::detail::launchOf(mps::detail::processEnvironment());
  if (launch.size > 1)
    return runOneOfSeveral(options, openDevice(deviceOfRank(device, options, launch), launch.rank == 0), hint,
                           work);
  if (options.devices.empty()) return work(openDevice(device), nullptr);
  const std::vector<std::string> names = deviceNames(options.devices);
  if (names.size() == 1) {
    DeviceOptions own = device;
    own.name = names.front();
    return work(openDevice(own), nullptr);
  }
  if (std::ranges::find(names, "cpu") != names.end())
    throw mps::Error("--devices " + options.devices +
                     ": ranks on the CPU are started by MPI, here with mpirun -np " +
                     std::to_string(names.size()) + " unmetal and this command without --devices");
  for (const std::string& name : names) static_cast<void>(mtl::deviceNamed(name));
  const int status = runProcesses(
      rankProcesses(names.size()),
      std::chrono::milliseconds(static_cast<std::int64_t>(1000 * (options.timeoutSeconds + 30))));
  if (status != 0) exitProgram(status);
}

}  // namespace unmetal
