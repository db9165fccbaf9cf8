#include "python/source/binding/interpreter.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>

namespace python {
namespace {

/// How many are attached. Never destroyed: threads may ask when the process ends.
struct Attendance {
  std::mutex mutex;
  std::condition_variable left;
  std::size_t inside = 0;
  bool isOver = false;
  std::thread::id
      ending;  ///< once it is over: the thread that ends the interpreter, which may always take the lock
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

void leave() {
  const std::lock_guard lock(attendance().mutex);
  --attendance().inside;
  attendance().left.notify_all();
}

bool isEnding() {
  const std::lock_guard lock(attendance().mutex);
  return attendance().isOver && attendance().ending == std::this_thread::get_id();
}

[[noreturn]] void waitForTheProcessToEnd() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

}  // namespace

Attached::Attached() : isInside_(enter()) {
  if (isInside_) lock_.emplace();
}

Attached::~Attached() {
  lock_.reset();
  if (isInside_) leave();
}

LockReleased::~LockReleased() {
  // Whoever has entered gets the lock: the end waits for it, and lets go of the lock meanwhile.
  const bool isInside = enter();
  if (!isInside && !isEnding()) waitForTheProcessToEnd();
  PyEval_RestoreThread(state_);
  if (isInside) leave();
}

void watchForTheEnd() {
  const auto end = [] {
    std::unique_lock lock(attendance().mutex);
    attendance().isOver = true;
    attendance().ending = std::this_thread::get_id();
    attendance().left.wait(lock, [] { return attendance().inside == 0; });
  };
  nanobind::module_::import_("atexit").attr("register")(
      nanobind::cpp_function(end, nanobind::call_guard<LockReleased>()));
}

}  // namespace python
