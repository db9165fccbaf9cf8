#pragma once

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <string>

namespace mtl {

/// A thread that its owner ends and waits for. Engine-internal. Its owner's lock guards it.
///
/// A fork copies memory and no threads: in the child process a worker that the parent has started does not run.
///
/// Its stack does not follow a small limit of the process (ulimit -s): kernels run on it, which would write beyond its end.
class Worker {
 public:
  /// What a thread's stack has at least.
  static constexpr std::size_t leastStackBytes = std::size_t{2} << 20;

  Worker() = default;
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Later calls have no effect. @throws Error that begins with `name` when the system gives no thread
  void start(const std::string& name, std::function<void()> loop);
  [[nodiscard]] bool isCurrent() const;
  /// Whether a process that this one was forked from has started it.
  [[nodiscard]] bool isOfParent() const;
  /// Waits until the loop has returned. On the worker itself, whose loop may let go of the last owner, and in a child
  /// process, where it does not run, it is left alone.
  void join();

 private:
  pthread_t thread_{};
  bool isStarted_ = false;  ///< and not joined
  int process_ = 0;         ///< that started it
};

}  // namespace mtl
