#include "mtl/content.hpp"

#include <algorithm>
#include <iterator>

namespace mtl {
namespace {

/// The first run that ends behind a byte.
template <class Runs>
auto endingBehind(Runs& runs, std::size_t begin) {
  const auto next = runs.upper_bound(begin);
  if (next == runs.begin()) return next;
  const auto before = std::prev(next);
  return before->second.end > begin ? before : next;
}

}  // namespace

ByteRegion ByteRegion::repeated(std::size_t count, std::size_t stride) const {
  ByteRegion region = *this;
  if (count == 1) return region;
  if (region.used_ == 0 && stride == length_)
    region.length_ *= count;
  else
    region.repeats_.at(region.used_++) = {count, stride};
  return region;
}

std::string InvalidBytes::failure(const ByteRegion& region) const {
  std::string message;
  if (runs_.empty()) return message;
  region.forEachRun([&](std::size_t begin, std::size_t end) {
    if (const auto run = endingBehind(runs_, begin); run != runs_.end() && std::max(begin, run->first) < end)
      message = *run->second.message;
    return message.empty();
  });
  return message;
}

void InvalidBytes::add(const ByteRegion& region, const std::string& message) {
  const auto shared = std::make_shared<const std::string>(message);
  region.forEachRun([&](std::size_t begin, std::size_t end) {
    addRun(begin, end, shared);
    return true;
  });
}

void InvalidBytes::remove(const ByteRegion& region) {
  region.forEachRun([&](std::size_t begin, std::size_t end) {
    removeRun(begin, end);
    return !runs_.empty();
  });
}

void InvalidBytes::addRun(std::size_t begin, std::size_t end,
                          const std::shared_ptr<const std::string>& message) {
  while (begin < end) {
    const auto next = endingBehind(runs_, begin);
    const std::size_t gapEnd = next == runs_.end() ? end : std::min(end, next->first);
    const std::size_t behind = next == runs_.end() ? end : next->second.end;
    if (begin < gapEnd) {
      const auto before = next == runs_.begin() ? runs_.end() : std::prev(next);
      if (before != runs_.end() && before->second.end == begin && before->second.message == message)
        before->second.end = gapEnd;
      else
        runs_.emplace(begin, Run{gapEnd, message});
    }
    begin = behind;
  }
}

void InvalidBytes::removeRun(std::size_t begin, std::size_t end) {
  auto run = endingBehind(runs_, begin);
  while (run != runs_.end() && std::max(begin, run->first) < end) {
    const auto [runBegin, rest] = *run;
    run = runs_.erase(run);
    if (runBegin < begin) runs_.emplace(runBegin, Run{begin, rest.message});
    if (rest.end > end) runs_.emplace(end, Run{rest.end, rest.message});
  }
}

std::string Content::failure(const ByteRegion& region) const {
  const std::lock_guard lock(mutex_);
  return invalid_.failure(region);
}

void Content::setFailure(const ByteRegion& region, const std::string& message) {
  const std::lock_guard lock(mutex_);
  invalid_.add(region, message);
}

void Content::clearFailure(const ByteRegion& region) {
  const std::lock_guard lock(mutex_);
  if (!invalid_.empty()) invalid_.remove(region);
}

InvalidBytes Content::invalidBytes() const {
  const std::lock_guard lock(mutex_);
  return invalid_;
}

}  // namespace mtl
