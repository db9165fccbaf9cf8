#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "fuzz/random_calls/call.hpp"
#include "fuzz/random_calls/comparison.hpp"
#include "fuzz/random_calls/families.hpp"

namespace unmetal::random_calls {

/// What became of the calls of a family.
struct Tally {
  std::uint64_t calls = 0;
  std::uint64_t refused = 0;  ///< both devices threw the same
  std::uint64_t different = 0;
  std::uint64_t lost = 0;  ///< ended their process, or hung
};

inline constexpr std::size_t kMostFamilies = 64;

/// What a process that makes calls tells the one that watches it, through memory that both see.
struct Progress {
  std::atomic<std::uint64_t> call = 0;   ///< number of the call that is made now
  std::atomic<std::uint64_t> calls = 0;  ///< made so far
  std::atomic<double> began = 0;         ///< when that call began, in seconds of the steady clock
  std::array<Tally, kMostFamilies> tallies{};

  [[nodiscard]] std::uint64_t findings() const;
};

struct RunOptions {
  std::uint64_t seed = 1;
  double end =
      std::numeric_limits<double>::infinity();  ///< no call begins after it; seconds of the steady clock
  std::uint64_t mostCalls = std::numeric_limits<std::uint64_t>::max();
  std::string family;                 ///< of all: empty
  std::optional<std::uint64_t> only;  ///< number of the only call
  Words words = Words::Compared;
  Limits limits;
  bool describesAll = false;  ///< prints each call before it is made
  std::string command;        ///< what repeats a call when " --only N" follows
};

struct Devices {
  std::shared_ptr<mtl::Device> first;
  std::shared_ptr<mtl::Device> second;
};

double steadySeconds();

/// Makes a call and reads what it has left. What it throws becomes part of the call.
void make(Call& call, const Family& family);

/// The family that makes call number `call`: they take turns.
std::size_t familyOf(std::uint64_t call, std::span<const Family> families);

enum class Ending {
  Done,
  DeviceLost,  ///< a command failed on one device alone; a GPU may refuse all that follows in this process
};

/// Makes the same calls on both devices, from number `first` on, compares and prints what differs.
Ending makeCalls(const Devices& devices, std::span<const Family> families, const RunOptions& options,
                 std::uint64_t first, Progress& progress, std::ostream& out);

/// A line for each family and one for all.
void printTallies(const Progress& progress, std::span<const Family> families, std::ostream& out);

}  // namespace unmetal::random_calls
