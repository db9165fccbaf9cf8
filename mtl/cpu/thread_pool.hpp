#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <vector>

#include "mtl/worker.hpp"

namespace mtl::cpu {

/// A borrowed callable `void(item, thread)`; unlike std::function it never allocates.
class ItemFunction {
 public:
  template <class Function>
  requires(!std::is_same_v<std::remove_cvref_t<Function>, ItemFunction>)
      ItemFunction(Function&& function)  // NOLINT: implicit, so that a lambda can be passed in place
      : object_(const_cast<void*>(static_cast<const void*>(&function))),
        call_([](void* object, std::int64_t item, int thread) {
          (*static_cast<std::remove_reference_t<Function>*>(object))(item, thread);
        }) {}

  void operator()(std::int64_t item, int thread) const { call_(object_, item, thread); }

 private:
  friend class ThreadPool;
  using Call = void (*)(void*, std::int64_t, int);
  ItemFunction(void* object, Call call) : object_(object), call_(call) {}

  void* object_;
  Call call_;
};

/// Threads that share the items of a loop. Engine-internal.
///
/// A thread without work looks for it for some 200 microseconds and then sleeps, whatever the environment says: kernels
/// follow each other closely, and other programs on the same processors need them in between. A thread that gets no
/// processor holds nothing up but the items that it has begun: the others take the rest of its share.
class ThreadPool {
 public:
  /// @param threads that work together, the calling one included; at least 1
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const { return static_cast<int>(shares_.size()); }

  /// Calls body(item, thread) once for each item in [0, items) and returns when all calls have returned. Neighbouring
  /// items begin on the same thread, the same one in each loop. Loops of several callers follow each other. The body
  /// must not throw and must not start a loop.
  /// @param items at most kMostItems
  /// @param threads that take part, at most threads(); `thread` is in [0, threads), and 0 is the caller
  void run(std::uint32_t items, std::uint32_t threads, ItemFunction body);
  static constexpr std::uint32_t kMostItems = 0xFFFF;

 private:
  struct alignas(64) Share {
    std::atomic<std::uint64_t> items{0};  ///< Items of this thread that nobody has begun
    std::atomic<std::uint32_t> loop{
        0};  ///< the newest loop in which the thread takes part; it sleeps on this
  };

  void work(std::uint32_t thread);
  void takeItems(std::uint32_t loop, std::uint32_t thread);
  void stop();

  std::mutex mutex_;  ///< of the callers
  std::vector<Share> shares_;
  std::vector<Worker> workers_;
  std::atomic<std::uint32_t> threadsOfLoop_{0};
  std::atomic<void*> object_{nullptr};
  std::atomic<ItemFunction::Call> call_{nullptr};
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};  ///< items of the loop whose call has not returned
  std::uint32_t loop_ = 0;
  std::atomic<bool> stops_{false};
};

}  // namespace mtl::cpu
