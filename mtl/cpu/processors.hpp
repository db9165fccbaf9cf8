#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

/// How many threads fit this process. Engine-internal.
namespace mtl::cpu {

/// What defaultThreadCount() looks at.
struct ThreadLimits {
  int affinity = 1;                 ///< processors that the process may run on
  std::optional<int> controlGroup;  ///< processors' time of its control groups (cgroups), rounded up
  std::string_view ompNumThreads;   ///< environment variables, empty where they are not set
  std::string_view ompThreadLimit;
};

/// OMP_NUM_THREADS (of a list the first number) where it is a positive number, otherwise the fewer of the processors
/// and of the control groups' time; at most OMP_THREAD_LIMIT, at least 1.
int threadCountFor(const ThreadLimits& limits);

/// The least CPU time that a process's control groups and their parents get, in processors rounded up; nothing where
/// they set no limit. Version 2 (cpu.max) and 1 (cpu.cfs_quota_us).
/// @param membership the content of /proc/self/cgroup
/// @param root where control groups are mounted, /sys/fs/cgroup
std::optional<int> controlGroupProcessors(std::string_view membership, const std::filesystem::path& root);

/// threadCountFor() of this process. Containers set control groups, job systems the affinity.
int defaultThreadCount();

}  // namespace mtl::cpu
