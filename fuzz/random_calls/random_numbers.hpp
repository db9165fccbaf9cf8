#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace unmetal::random_calls {

/// SplitMix64: a seed gives the same numbers with every compiler and on every machine.
class RandomNumbers {
 public:
  explicit RandomNumbers(std::uint64_t seed) : state_(seed) {}

  std::uint64_t bits() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30U)) * 0xBF58476D1CE4E5B9U;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94D049BB133111EBU;
    return mixed ^ (mixed >> 31U);
  }
  /// Both ends included.
  std::int64_t integer(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(most - least + 1));
  }
  std::size_t size(std::size_t least, std::size_t most) { return least + bits() % (most - least + 1); }
  /// From least to below most.
  double real(double least, double most) {
    return least + (most - least) * static_cast<double>(bits() >> 11U) * 0x1p-53;
  }
  float real32(double least, double most) { return static_cast<float>(real(least, most)); }
  bool chance(double probability) { return real(0, 1) < probability; }
  template <class T>
  T oneOf(std::initializer_list<T> values) {
    return *(values.begin() + integer(0, static_cast<std::int64_t>(values.size()) - 1));
  }

 private:
  std::uint64_t state_;
};

}  // namespace unmetal::random_calls
