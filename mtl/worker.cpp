#include "mtl/worker.hpp"

#include <unistd.h>

#include <system_error>
#include <utility>

#include "mtl/error.hpp"

namespace mtl {

void Worker::start(const std::string& name, std::function<void()> loop) {
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread(std::move(loop));
  } catch (const std::system_error& error) {
    throw Error(name + " cannot be started: " + error.what());
  }
  process_ = getpid();
}

bool Worker::isOfParent() const {
  return thread_.joinable() && process_ != getpid();
}

void Worker::join() {
  if (!thread_.joinable()) return;
  if (isCurrent() || isOfParent())
    thread_.detach();
  else
    thread_.join();
}

}  // namespace mtl
