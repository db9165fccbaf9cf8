#include "python/source/interpreter.hpp"

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace python {
namespace {

/// How many are attached. Never destroyed: threads may ask when the process ends.
struct Attendance {
  std::mutex mutex;
  std::condition_variable left;
  std::size_t inside = 0;
  bool isOver = false;
};

Attendance& attendance() {
  static Attendance& only = *new Attendance;
  return only;
}

bool enter() {
  const std::lock_guard lock(attendance().mutex);
  if (attendance().isOver) return false;
  ++attendance().inside;
  return true;
}

}  // namespace

Attached::Attached() : isInside_(enter()) {
  if (isInside_) lock_.emplace();
}

Attached::~Attached() {
  lock_.reset();
  if (!isInside_) return;
  const std::lock_guard lock(attendance().mutex);
  --attendance().inside;
  attendance().left.notify_all();
}

void watchForTheEnd() {
  const auto end = [] {
    std::unique_lock lock(attendance().mutex);
    attendance().isOver = true;
    attendance().left.wait(lock, [] { return attendance().inside == 0; });
  };
  nanobind::module_::import_("atexit").attr("register")(
      nanobind::cpp_function(end, nanobind::call_guard<nanobind::gil_scoped_release>()));
}

}  // namespace python
