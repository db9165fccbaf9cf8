#include "mtl/cpu/processors.hpp"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

namespace mtl::cpu {
namespace {

/// The positive number that a text begins with, as OpenMP reads its variables; nothing where there is none.
std::optional<int> leadingNumber(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 1) return std::nullopt;
  return number;
}

std::string contentOf(const std::filesystem::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void keepLeast(std::optional<int>& least, double quota, double period) {
  if (quota <= 0 || period <= 0) return;
  const int processors = static_cast<int>(std::clamp(std::ceil(quota / period), 1.0, 1e6));
  least = std::min(least.value_or(processors), processors);
}

/// "QUOTA PERIOD" or "max PERIOD".
void readVersion2(std::optional<int>& least, const std::filesystem::path& group) {
  std::istringstream text(contentOf(group / "cpu.max"));
  text.imbue(std::locale::classic());
  double quota = 0;
  double period = 0;
  if (text >> quota >> period) keepLeast(least, quota, period);
}

void readVersion1(std::optional<int>& least, const std::filesystem::path& group) {
  const auto number = [&](const char* file) { return leadingNumber(contentOf(group / file)).value_or(0); };
  keepLeast(least, number("cpu.cfs_quota_us"), number("cpu.cfs_period_us"));  // no limit: -1
}

int affinityProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

}  // namespace

int threadCountFor(const ThreadLimits& limits) {
  const int processors = std::min(limits.affinity, limits.controlGroup.value_or(limits.affinity));
  const int wanted = leadingNumber(limits.ompNumThreads).value_or(processors);
  return std::max(1, std::min(wanted, leadingNumber(limits.ompThreadLimit).value_or(wanted)));
}

std::optional<int> controlGroupProcessors(std::string_view membership, const std::filesystem::path& root) {
  std::optional<int> least;
  std::istringstream lines{std::string(membership)};
  for (std::string line;
       std::getline(lines, line);) {  // ID:CONTROLLERS:PATH, without controllers in version 2
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool isVersion2 = controllers == ",,";
    if (!isVersion2 && controllers.find(",cpu,") == std::string::npos) continue;
    std::filesystem::path mounted = isVersion2 ? root : root / "cpu";
    std::filesystem::path group = mounted / std::filesystem::path(line.substr(second + 1)).relative_path();
    // In a container the path may be that of the host, of which only the root is there.
    for (;; group = group.parent_path()) {
      isVersion2 ? readVersion2(least, group) : readVersion1(least, group);
      if (group == mounted || !group.has_relative_path()) break;
    }
  }
  return least;
}

int defaultThreadCount() {
  return threadCountFor(
      {.affinity = affinityProcessors(),
       .controlGroup = controlGroupProcessors(contentOf("/proc/self/cgroup"), "/sys/fs/cgroup"),
       .ompNumThreads = environment("OMP_NUM_THREADS"),
       .ompThreadLimit = environment("OMP_THREAD_LIMIT")});
}

}  // namespace mtl::cpu
