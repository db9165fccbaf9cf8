#pragma once

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <iostream>
#include <random>
#include <string>
#include <vector>

/// What tests share that draw their problems at random.
///
/// Variables of the environment say what is drawn:
///
///     UNMETAL_PROPERTY_SEED      the seed
///     UNMETAL_PROPERTY_SECONDS   goes on for so long, instead of a fixed number of problems
///     UNMETAL_PROPERTY_PROBLEM   the number of the only problem
///     UNMETAL_PROPERTY_THREADS   the most threads, 16 without it
namespace mps::detail::property_testing {

/// What to draw from: the same for the same seed and problem, with every compiler.
class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t problem) : bits_(seed * 0x9E3779B97F4A7C15U + problem) {}

  /// Both ends included.
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(bits_() % static_cast<std::uint64_t>(most - least + 1));
  }
  /// True once in `times`.
  bool oneIn(std::int64_t times) { return between(1, times) == 1; }
  template <class T>
  T of(std::initializer_list<T> values) {
    return *(values.begin() + between(0, static_cast<std::int64_t>(values.size()) - 1));
  }
  std::uint64_t seed() { return bits_() >> 16U; }

 private:
  std::mt19937_64 bits_;
};

/// What a process was doing says its last words, should it touch guarded memory or hang: the lines of all Doing objects that
/// live. They are also in the message of a failed expectation.
class LastWords {
 public:
  LastWords() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      struct sigaction action = {};
      action.sa_handler = say;
      sigaction(kSignals[i], &action, &before_[i]);
    }
  }
  ~LastWords() {
    alarm(0);
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;

 private:
  friend class Doing;
  static constexpr std::array<int, 3> kSignals{SIGSEGV, SIGBUS, SIGALRM};
  static constexpr unsigned kSecondsUntilItHangs = 300;

  static void say(int signal) {
    if (write(STDERR_FILENO, text.data(), length) < 0) length = 0;
    std::signal(signal, SIG_DFL);
    raise(signal);
  }

  static inline std::array<char, 4096> text;
  static inline std::size_t length = 0;
  std::array<struct sigaction, kSignals.size()> before_;
};

/// A line of LastWords while it lives.
class Doing {
 public:
  explicit Doing(const std::string& words)
      : trace_(__FILE__, __LINE__, words), lengthBefore_(LastWords::length) {
    auto& line = LastWords::text;
    const std::size_t length = std::min(words.size(), line.size() - lengthBefore_ - 1);
    std::copy_n(words.begin(), length, line.begin() + static_cast<std::ptrdiff_t>(lengthBefore_));
    line[lengthBefore_ + length] = '\n';
    LastWords::length = std::min(lengthBefore_ + length + 1, line.size() - 1);
    alarm(LastWords::kSecondsUntilItHangs);
  }
  ~Doing() { LastWords::length = lengthBefore_; }
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;

 private:
  ::testing::ScopedTrace trace_;
  std::size_t lengthBefore_;
};

inline std::uint64_t variable(const char* name, std::uint64_t otherwise) {
  const char* const value = std::getenv(name);
  return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

inline int drawThreads(Draw& draw) {
  return std::min(draw.of({1, 2, 3, 8, 16}), static_cast<int>(variable("UNMETAL_PROPERTY_THREADS", 16)));
}

/// One of those that vectors may have here. @param targets of vectorTargets()
inline std::int64_t drawTarget(Draw& draw, const std::vector<std::int64_t>& targets) {
  return targets[static_cast<std::size_t>(draw.between(0, static_cast<std::int64_t>(targets.size()) - 1))];
}

/// Where the environment says nothing.
struct Problems {
  std::uint64_t count, seed;
};

/// Draws problems until one fails. @param check void(Draw&): draws one and checks it
template <class Check>
void forRandomProblems(const Problems& problems, Check check) {
  const std::uint64_t seed = variable("UNMETAL_PROPERTY_SEED", problems.seed);
  const std::uint64_t seconds = variable("UNMETAL_PROPERTY_SECONDS", 0);
  const char* const only = std::getenv("UNMETAL_PROPERTY_PROBLEM");
  const std::uint64_t first = only != nullptr ? variable("UNMETAL_PROPERTY_PROBLEM", 0) : 0;
  const LastWords lastWords;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  std::uint64_t problem = first;
  do {
    const Doing doing("UNMETAL_PROPERTY_SEED=" + std::to_string(seed) +
                      " UNMETAL_PROPERTY_PROBLEM=" + std::to_string(problem));
    Draw draw(seed, problem);
    check(draw);
    ++problem;
  } while (!::testing::Test::HasFailure() && only == nullptr &&
           (seconds > 0 ? std::chrono::steady_clock::now() < end : problem < problems.count));
  std::cout << problem - first << " problems of seed " << seed << "\n";
}

}  // namespace mps::detail::property_testing
