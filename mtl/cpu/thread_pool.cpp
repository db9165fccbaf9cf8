#include "mtl/cpu/thread_pool.hpp"

#include <chrono>

namespace mtl::cpu {
namespace {

using namespace std::chrono_literals;

/// Longer than a kernel of a small network takes: the next one finds threads that are awake.
constexpr auto kLookingForWork = 200us;

void pauseBriefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Waits until the value is another one than `old`, for a while without sleeping.
void waitForChange(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  constexpr int kLooks = 32;
  const auto end = std::chrono::steady_clock::now() + kLookingForWork;
  do {
    for (int i = 0; i < kLooks; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      pauseBriefly();
    }
  } while (std::chrono::steady_clock::now() < end);
  value.wait(old, std::memory_order_acquire);
}

/// Items [next, end) of a loop, in one number that changes at once.
struct Items {
  std::uint32_t loop;
  std::uint32_t next;
  std::uint32_t end;

  static constexpr Items of(std::uint64_t number) {
    return {static_cast<std::uint32_t>(number >> 32U), static_cast<std::uint32_t>(number >> 16U & 0xFFFFU),
            static_cast<std::uint32_t>(number & 0xFFFFU)};
  }
  [[nodiscard]] constexpr std::uint64_t number() const {
    return std::uint64_t{loop} << 32U | std::uint64_t{next} << 16U | end;
  }
};

}  // namespace

ThreadPool::ThreadPool(int threads)
    : shares_(static_cast<std::size_t>(threads)), workers_(static_cast<std::size_t>(threads) - 1) {
  try {
    for (std::uint32_t thread = 1; thread < shares_.size(); ++thread)
      workers_[thread - 1].start("Device cpu: a thread for loops", [this, thread] { work(thread); });
  } catch (...) {
    stop();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  stops_ = true;
  for (Share& share : shares_) {
    share.loop.fetch_add(1, std::memory_order_release);
    share.loop.notify_all();
  }
  for (Worker& worker : workers_) worker.join();
}

void ThreadPool::run(std::uint32_t items, std::uint32_t threads, ItemFunction body) {
  if (threads <= 1 || items <= 1) {
    for (std::uint32_t item = 0; item < items; ++item) body(item, 0);
    return;
  }
  const std::lock_guard lock(mutex_);
  ++loop_;
  threadsOfLoop_.store(threads, std::memory_order_relaxed);
  object_.store(body.object_, std::memory_order_relaxed);
  call_.store(body.call_, std::memory_order_relaxed);
  unfinished_.store(items, std::memory_order_relaxed);
  for (std::uint32_t thread = 0; thread < threads; ++thread) {
    const auto first = [&](std::uint64_t t) { return static_cast<std::uint32_t>(t * items / threads); };
    shares_[thread].items.store(Items{loop_, first(thread), first(thread + 1)}.number(),
                                std::memory_order_release);
  }
  for (std::uint32_t thread = 1; thread < threads; ++thread) {
    shares_[thread].loop.store(loop_, std::memory_order_release);
    shares_[thread].loop.notify_one();
  }
  takeItems(loop_, 0);
  while (const std::uint32_t left = unfinished_.load(std::memory_order_acquire))
    waitForChange(unfinished_, left);
}

void ThreadPool::work(std::uint32_t thread) {
  std::uint32_t seen = 0;
  while (true) {
    waitForChange(shares_[thread].loop, seen);
    // Before the look at stops_: what stop() adds must be seen with it, or waited for.
    seen = shares_[thread].loop.load(std::memory_order_acquire);
    if (stops_) return;
    takeItems(seen, thread);
  }
}

void ThreadPool::takeItems(std::uint32_t loop, std::uint32_t thread) {
  // A thread that comes late may read what belongs to a later loop. Then no item of its loop is left: as long as one is,
  // the caller waits and changes nothing.
  const std::uint32_t threads = threadsOfLoop_.load(std::memory_order_relaxed);
  const ItemFunction body(object_.load(std::memory_order_relaxed), call_.load(std::memory_order_relaxed));
  for (std::uint32_t i = 0; i < threads; ++i) {
    std::atomic<std::uint64_t>& items = shares_[(thread + i) % threads].items;
    std::uint64_t number = items.load(std::memory_order_acquire);
    std::uint32_t taken = 0;
    while (true) {
      const auto [ofLoop, item, end] = Items::of(number);
      if (ofLoop != loop || item == end) break;
      if (!items.compare_exchange_weak(number, Items{loop, item + 1, end}.number(),
                                       std::memory_order_acq_rel))
        continue;
      body(item, static_cast<int>(thread));
      ++taken;
      number = items.load(std::memory_order_acquire);
    }
    // Not after each item: all threads write this number, which moves from one processor to the other.
    if (taken > 0 && unfinished_.fetch_sub(taken, std::memory_order_acq_rel) == taken)
      unfinished_.notify_one();
  }
}

}  // namespace mtl::cpu
