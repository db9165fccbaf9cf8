#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mps/conform/tolerance.hpp"
#include "mps/core/plan/reference_tensor.hpp"
#include "mps/core/types/tensor_shape.hpp"

/// Judges what a kernel stored by its float64 reference, and moves test values in and out of any storage.
namespace mps::detail {

/// Outcome of one comparison.
struct Comparison {
  std::int64_t elements = 0;
  std::int64_t mismatches = 0;
  double worst = 0;    ///< largest error over tolerance; infinite where none was allowed
  std::string report;  ///< empty, or what is wrong: the first mismatches with their coordinates
  [[nodiscard]] bool passed() const { return elements > 0 && mismatches == 0 && report.empty(); }
};

/// Whether an expected result that is almost all zeros is suspicious: any kernel that does nothing would
/// pass.
enum class Zeros {
  /// Of 64 elements or more at least one in 1,000 must differ from 0, or the comparison fails.
  Suspicious,
  /// The case is about zeros, e.g. a window that lies wholly outside its source.
  Expected,
};

/// Compares what a kernel stored (read by readTensor: exact) with the reference.
///
/// NaN must be exactly where the reference has it, infinities where the reference overflows the format or may
/// do so within the tolerance. Nothing compared is a failure. The reference must have been computed from
/// inputs that were already rounded to their storage format.
Comparison compare(const ReferenceTensor& expected, std::span<const double> found,
                   ImageFeatureChannelFormat format, Tier tier, Zeros zeros = Zeros::Suspicious);

/// Converts every element exactly, in the order image, y, x, channel. unorm8 code k gives k / 255.
std::vector<double> readTensor(const TensorShape& shape, const std::byte* memory);

/// Rounds to the shape's format; `values` are in the order image, y, x, channel. Gaps are left alone.
void writeTensor(const TensorShape& shape, std::byte* memory, std::span<const double> values);

enum class RandomKind {
  SmallIntegers,  ///< -4 ... 4
  ZeroOrOne,      ///< representable in every format, so fit for exact tests of unorm sources
  Uniform,        ///< -1 ... 1, multiples of 2^-23
  Positive,       ///< k / 255, k = 0 ... 255: representable in both unorm formats
};

/// The same values for the same seed on every machine.
std::vector<double> randomValues(std::size_t count, std::uint64_t seed, RandomKind kind);

}  // namespace mps::detail
