#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

#include "mtl/cpu/thread_pool.hpp"
#include "mtl/stream.hpp"

namespace mtl::cpu {

/// A borrowed callable `void(begin, end)`; unlike std::function it never allocates.
class RangeFunction {
 public:
  template <class Function>
  requires(!std::is_same_v<std::remove_cvref_t<Function>, RangeFunction>)
      RangeFunction(Function&& function)  // NOLINT: implicit, so that a lambda can be passed in place
      : object_(const_cast<void*>(static_cast<const void*>(&function))),
        call_([](void* object, std::int64_t begin, std::int64_t end) {
          (*static_cast<std::remove_reference_t<Function>*>(object))(begin, end);
        }) {}

  void operator()(std::int64_t begin, std::int64_t end) const { call_(object_, begin, end); }

 private:
  void* object_;
  void (*call_)(void*, std::int64_t, std::int64_t);
};

/// The CPU's stream: the executing thread and its workers.
class Stream : public mtl::Stream {
 public:
  /// @param threadCount number of threads that share a loop, at least 1.
  explicit Stream(int threadCount) : threadCount_(threadCount) {}
  ~Stream() override;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  void read(const std::byte* address, std::span<std::byte> bytes) override;
  void copy(const std::byte* from, std::byte* to, std::size_t bytes) override;
  void fill(std::byte* to, std::size_t bytes, std::uint8_t value) override;

  [[nodiscard]] int threadCount() const { return threadCount_; }
  void setThreadCount(int threadCount) { threadCount_ = threadCount; }

  /// Calls body(begin, end) on contiguous ranges that cover [0, count) exactly once and waits for all of
  /// them.
  ///
  /// The split depends on count, grain and threadCount() alone (at most threadCount() ranges of at least
  /// `grain` items, sizes differing by at most one), so a computation that owns its range gives the same bits
  /// every time. An exception thrown by a body is rethrown here. Bodies start no loops on this stream.
  void parallelFor(std::int64_t count, std::int64_t grain, RangeFunction body) const;

  /// Calls body(item, thread) once for each item in [0, count), in any order, and waits for all of them: for items of
  /// some 10 microseconds and more, which need memory of the thread's. Exceptions as in parallelFor.
  /// @param threads that take part, at most threadCount(); `thread` is less than that.
  void forEach(std::int64_t count, int threads, ItemFunction body) const;

  /// Number of ranges that parallelFor(count, grain, ...) will make: the size for per-range partial results.
  [[nodiscard]] int rangeCount(std::int64_t count, std::int64_t grain) const;

 private:
  int threadCount_;
  mutable std::unique_ptr<ThreadPool> pool_;  ///< made with the first loop that several threads share
};

/// The CPU stream behind a plan's stream; the plan was prepared for this back end.
inline Stream& asCpu(mtl::Stream& stream) {
  return static_cast<Stream&>(stream);
}

}  // namespace mtl::cpu
