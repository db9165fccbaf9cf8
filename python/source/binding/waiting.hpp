#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <memory>

#include "mtl/command_queue.hpp"
#include "mtl/submission.hpp"
#include "python/source/binding/interpreter.hpp"

namespace python {

/// Waits in slices, between which Python's signal handlers run: Ctrl-C ends a wait.
/// @param waitFor waits for at most so long; what it returns is true when the wait is over
template <class WaitFor>
auto waitInSlices(WaitFor waitFor) {
  constexpr std::chrono::milliseconds slice(100);
  const auto next = [&] {
    const LockReleased released;
    return waitFor(slice);
  };
  while (true) {
    if (auto result = next()) return result;
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
  }
}

/// A place in a queue, as soon as it has room for one.
inline std::shared_ptr<mtl::Submission> newSubmission(mtl::CommandQueue& queue) {
  return waitInSlices([&](std::chrono::milliseconds most) { return queue.newSubmission(most); });
}

}  // namespace python
