#include "mtl/process_end.hpp"

#include <pthread.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <thread>

namespace mtl {
namespace {

// None of these is ever destroyed: their destructors are trivial.
std::atomic<bool> hasEnded{false};
/// Guards of each kind.
std::array<std::atomic<int>, 2> counts{};
/// Of them, those of this thread.
thread_local std::array<int, 2> own{};

constexpr std::size_t indexOf(ProcessEnd::Guard::Kind kind) {
  return static_cast<std::size_t>(kind);
}

bool isAlone(ProcessEnd::Guard::Kind kind) {
  return counts[indexOf(kind)].load() <= own[indexOf(kind)];
}

/// Whoever begins a guard after the mark sees it; the others are waited for.
void begin() noexcept {
  using Kind = ProcessEnd::Guard::Kind;
  hasEnded.store(true);
  constexpr auto pause = std::chrono::milliseconds(1);
  while (!isAlone(Kind::Work)) std::this_thread::sleep_for(pause);
  const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (!isAlone(Kind::Handler) && std::chrono::steady_clock::now() < latest)
    std::this_thread::sleep_for(pause);
}

/// A child has the forking thread alone.
void forgetOtherThreads() noexcept {
  for (std::size_t kind = 0; kind < counts.size(); ++kind) counts[kind].store(own[kind]);
}

/// Ends with the thread that it was made on. When that is the main one, the process ends, too, and this comes first.
struct EndOfThread {
  ~EndOfThread() {
    if (gettid() == getpid()) begin();
  }
  void use() const noexcept {}
};
thread_local EndOfThread endOfLoadingThread;

/// Runs when the program, or the library, is loaded.
[[maybe_unused]] const bool isWatchedFromTheStart = [] {
  endOfLoadingThread.use();
  pthread_atfork(nullptr, nullptr, &forgetOtherThreads);
  return true;
}();

}  // namespace

bool ProcessEnd::hasBegun() noexcept {
  return hasEnded.load();
}

void ProcessEnd::watch() noexcept {
  static std::atomic<int> registrations{0};
  if (registrations.fetch_add(1) < most) static_cast<void>(std::atexit(&begin));
}

ProcessEnd::Guard::Guard(Kind kind) noexcept : kind_(kind) {
  counts[indexOf(kind)].fetch_add(1);
  ++own[indexOf(kind)];
}

ProcessEnd::Guard::~Guard() {
  --own[indexOf(kind_)];
  counts[indexOf(kind_)].fetch_sub(1);
}

}  // namespace mtl
