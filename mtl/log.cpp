#include "mtl/log.hpp"

#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

#include "mtl/verbose.hpp"

namespace mtl {
namespace {

/// Whether UNMETAL_VERBOSE, a list of words, has "reads".
bool verboseReads() {
  static const bool verbose = [] {
    const char* value = std::getenv("UNMETAL_VERBOSE");
    return value != nullptr && std::string_view(value).find("reads") != std::string_view::npos;
  }();
  return verbose;
}

}  // namespace

void Log::add(Watch& watch) {
  const std::lock_guard lock(mutex_);
  watch.next_ = first_;
  if (first_ != nullptr) first_->previous_ = &watch;
  first_ = &watch;
}

void Log::Watch::end() noexcept {
  const std::shared_ptr<Log> log = std::move(log_);
  if (!log) return;
  const std::lock_guard lock(log->mutex_);
  (previous_ != nullptr ? previous_->next_ : log->first_) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
  log->report(*this);
}

void Log::report(Watch& watch) noexcept {
  if (watch.isReported_ || std::uncaught_exceptions() > 0) return;
  const std::size_t reads = watch.readsLeft_(watch.object_);
  if (reads == 0) return;
  watch.isReported_ = true;
  const bool prints = verboseReads();
  if (!prints && lines_.size() >= most) return;
  try {
    const std::string line = watch.describe_(watch.object_) + " has " + std::to_string(reads) +
                             (reads == 1 ? " read left" : " reads left");
    if (prints) printDispatch(line);
    if (lines_.size() < most) lines_.push_back(line);
  } catch (const std::bad_alloc&) {  // nobody misses a remark
  }
}

void Log::reportUnread() noexcept {
  const std::lock_guard lock(mutex_);
  for (Watch* watch = first_; watch != nullptr; watch = watch->next_) report(*watch);
}

std::vector<std::string> Log::lines() const {
  const std::lock_guard lock(mutex_);
  return lines_;
}

}  // namespace mtl
