#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "onnx/model/model_reading.hpp"

namespace unmetal::onnx::detail {

/// Numbers that a model holds, or that operators make of such. One that has the same number everywhere holds it once.
class Constant {
 public:
  using Integers = std::vector<std::int64_t>;
  using Values = std::variant<std::vector<float>, Integers>;

  /// @param values as many as the shape says, or one that is everywhere @throws mps::Error for another number of them, and
  /// for a shape of more than 2^31 - 1 elements
  Constant(Integers shape, Values values);
  /// Of a file. @throws mps::Error for types that are not taken, data in other files and wrong numbers of values
  static Constant of(const TensorMessage& tensor);

  [[nodiscard]] const Integers& shape() const { return shape_; }
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] const Values& values() const { return values_; }
  [[nodiscard]] bool isInteger() const { return std::holds_alternative<Integers>(values_); }
  /// Whether one number stands for all of several.
  [[nodiscard]] bool isUniform() const { return stored() == 1 && count_ != 1; }
  /// How many numbers it holds.
  [[nodiscard]] std::uint64_t stored() const;
  /// @throws mps::Error when there are fewer
  [[nodiscard]] float number(std::uint64_t index) const;
  [[nodiscard]] std::int64_t integer(std::uint64_t index) const;
  /// All of them.
  [[nodiscard]] std::vector<float> numbers() const;
  [[nodiscard]] Integers integers() const;
  /// The same numbers. @throws mps::Error for a shape of another number of elements
  [[nodiscard]] Constant withShape(Integers shape) const;

 private:
  void checkIndex(std::uint64_t index) const;

  Integers shape_;
  Values values_;
  std::uint64_t count_;
};

/// "2x3"; "a single number" of none.
std::string describeShape(const std::vector<std::int64_t>& shape);
/// @throws mps::Error for a negative extent, and for more than 2^31 - 1 elements
std::uint64_t countOf(const std::vector<std::int64_t>& shape);

}  // namespace unmetal::onnx::detail
