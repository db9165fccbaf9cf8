#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "fuzz/random_calls/runner.hpp"

namespace unmetal::random_calls {

struct UnmapProgress {
  void operator()(Progress* progress) const;
};
/// In memory that child processes share. @throws mps::Error when there is none.
std::unique_ptr<Progress, UnmapProgress> sharedProgress();

/// What a child process answers.
enum class ChildEnding {
  Done = 0,
  StartAgain = 40,   ///< go on behind Progress::call in a new process
  CannotStart = 41,  ///< it has said why
};

/// A call that ended its process, or that was ended because it took too long.
struct LostCall {
  std::uint64_t call = 0;
  std::string how;
};

/// Runs makeCalls(first) in a child process. Where a call ends the process - a crash, a finding of a sanitizer - or takes longer
/// than `longestCall` seconds, says so, and another process goes on behind it. The process that calls this must have used
/// neither a device nor OpenMP: a fork does not copy their threads.
/// @return false when a child process could not start
bool superviseCalls(Progress& progress, double longestCall,
                    const std::function<ChildEnding(std::uint64_t)>& makeCalls,
                    const std::function<void(const LostCall&)>& report);

}  // namespace unmetal::random_calls
