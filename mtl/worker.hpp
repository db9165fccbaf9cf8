#pragma once

#include <functional>
#include <string>
#include <thread>

namespace mtl {

/// A thread that its owner ends and waits for. Engine-internal. Its owner's lock guards it.
///
/// A fork copies memory and no threads: in the child process a worker that the parent has started does not run.
class Worker {
 public:
  /// Later calls have no effect. @throws Error that begins with `name` when the system gives no thread
  void start(const std::string& name, std::function<void()> loop);
  [[nodiscard]] bool isCurrent() const { return thread_.get_id() == std::this_thread::get_id(); }
  /// Whether a process that this one was forked from has started it.
  [[nodiscard]] bool isOfParent() const;
  /// Waits until the loop has returned. On the worker itself, whose loop may let go of the last owner, and in a child
  /// process, where it does not run, it is left alone.
  void join();

 private:
  std::thread thread_;
  int process_ = 0;  ///< that started it
};

}  // namespace mtl
