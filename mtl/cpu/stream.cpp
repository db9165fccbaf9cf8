#include "mtl/cpu/stream.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>

namespace mtl::cpu {
namespace {

/// Bytes of a copy that are worth a thread.
constexpr std::int64_t leastShare = std::int64_t{1} << 18U;

/// Keeps the first exception of a team of threads.
class FirstException {
 public:
  template <class Function>
  void guard(Function&& function) {
    try {
      function();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!exception_) exception_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr exception_;
};

/// Range r of `ranges` equal shares of [0, count).
void callRange(std::int64_t r, std::int64_t ranges, std::int64_t count, const RangeFunction& body) {
  const std::int64_t share = count / ranges;
  const std::int64_t larger = count % ranges;
  const std::int64_t begin = r * share + std::min(r, larger);
  body(begin, begin + share + (r < larger ? 1 : 0));
}

}  // namespace

Stream::~Stream() = default;

void Stream::read(const std::byte* address, std::span<std::byte> bytes) {
  std::copy_n(address, bytes.size(), bytes.begin());
}

void Stream::copy(const std::byte* from, std::byte* to, std::size_t bytes) {
  parallelFor(static_cast<std::int64_t>(bytes), leastShare, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

void Stream::fill(std::byte* to, std::size_t bytes, std::uint8_t value) {
  parallelFor(static_cast<std::int64_t>(bytes), leastShare, [&](std::int64_t begin, std::int64_t end) {
    std::memset(to + begin, value, static_cast<std::size_t>(end - begin));
  });
}

int Stream::rangeCount(std::int64_t count, std::int64_t grain) const {
  if (count <= 0) return 0;
  const std::int64_t useful = std::max<std::int64_t>(1, count / std::max<std::int64_t>(1, grain));
  return static_cast<int>(std::min<std::int64_t>(useful, threadCount_));
}

void Stream::parallelFor(std::int64_t count, std::int64_t grain, RangeFunction body) const {
  const int ranges = rangeCount(count, grain);
  if (ranges == 0) return;
  if (ranges == 1) {
    body(0, count);
    return;
  }
  forEach(ranges, ranges, [&](std::int64_t range, int /*thread*/) { callRange(range, ranges, count, body); });
}

void Stream::forEach(std::int64_t count, int threads, ItemFunction body) const {
  const auto team =
      static_cast<std::uint32_t>(std::min<std::int64_t>(std::min(threads, threadCount_), count));
  if (team > 1 && (!pool_ || pool_->threads() < threadCount_)) {
    pool_.reset();
    pool_ = std::make_unique<ThreadPool>(threadCount_);
  }
  FirstException first;
  for (std::int64_t begin = 0; begin < count; begin += ThreadPool::kMostItems) {
    const auto items =
        static_cast<std::uint32_t>(std::min<std::int64_t>(count - begin, ThreadPool::kMostItems));
    const auto guarded = [&](std::int64_t item, int thread) {
      first.guard([&] { body(begin + item, thread); });
    };
    if (team > 1)
      pool_->run(items, team, guarded);
    else
      for (std::uint32_t item = 0; item < items; ++item) guarded(item, 0);
  }
  first.rethrow();
}

}  // namespace mtl::cpu
