#include "mtl/cpu/stream.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>

#if defined(_OPENMP)
#include <omp.h>
#else
#include <thread>
#include <vector>
#endif

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
  FirstException first;
#if defined(_OPENMP)
#pragma omp parallel num_threads(ranges)
  {
    // The runtime may hand out fewer threads than asked for; the ranges stay the same.
    for (int r = omp_get_thread_num(); r < ranges; r += omp_get_num_threads())
      first.guard([&] { callRange(r, ranges, count, body); });
  }
#else
  // Only builds whose tools cannot see into OpenMP (thread sanitizer, clang) come here.
  std::vector<std::thread> workers;
  workers.reserve(static_cast<std::size_t>(ranges - 1));
  for (int r = 1; r < ranges; ++r)
    workers.emplace_back([&, r] { first.guard([&] { callRange(r, ranges, count, body); }); });
  first.guard([&] { callRange(0, ranges, count, body); });
  for (auto& worker : workers) worker.join();
#endif
  first.rethrow();
}

}  // namespace mtl::cpu
