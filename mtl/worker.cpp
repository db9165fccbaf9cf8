#include "mtl/worker.hpp"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <system_error>
#include <utility>

#include "mtl/error.hpp"

namespace mtl {
namespace {

using Loop = std::function<void()>;

void* run(void* argument) noexcept {
  const std::unique_ptr<Loop> loop(static_cast<Loop*>(argument));
  (*loop)();
  return nullptr;
}

/// What new threads of the process get, with a larger stack where theirs is small.
class Attributes {
 public:
  Attributes() {
    ::pthread_getattr_default_np(&attributes_);
    std::size_t bytes = 0;
    ::pthread_attr_getstacksize(&attributes_, &bytes);
    ::pthread_attr_setstacksize(&attributes_, std::max(bytes, Worker::leastStackBytes));
  }
  ~Attributes() { ::pthread_attr_destroy(&attributes_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  [[nodiscard]] const pthread_attr_t* get() const { return &attributes_; }

 private:
  pthread_attr_t attributes_{};
};

}  // namespace

Worker::~Worker() {
  // As std::thread: whoever forgets to join has a thread that uses what is gone.
  if (isStarted_) std::terminate();
}

void Worker::start(const std::string& name, std::function<void()> loop) {
  if (isStarted_) return;
  auto argument = std::make_unique<Loop>(std::move(loop));
  const Attributes attributes;
  if (const int error = ::pthread_create(&thread_, attributes.get(), run, argument.get()); error != 0)
    throw Error(name + " cannot be started: " + std::generic_category().message(error));
  static_cast<void>(argument.release());
  isStarted_ = true;
  process_ = getpid();
}

bool Worker::isCurrent() const {
  return isStarted_ && ::pthread_equal(thread_, ::pthread_self()) != 0;
}

bool Worker::isOfParent() const {
  return isStarted_ && process_ != getpid();
}

void Worker::join() {
  if (!isStarted_) return;
  // What a parent has started is no thread of this process.
  if (isCurrent())
    ::pthread_detach(thread_);
  else if (!isOfParent())
    ::pthread_join(thread_, nullptr);
  isStarted_ = false;
}

}  // namespace mtl
