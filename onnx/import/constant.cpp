#include "onnx/import/constant.hpp"

#include <cstring>
#include <limits>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mps/core/types/float16.hpp"

namespace unmetal::onnx::detail {
namespace {

/// TensorProto.DataType.
enum ElementType : std::int64_t {
  Float = 1,
  Uint8 = 2,
  Int8 = 3,
  Int32 = 6,
  Int64 = 7,
  Bool = 9,
  Float16 = 10,
  Double = 11
};

template <class Stored, class Value, class Convert>
std::vector<Value> fromRaw(std::string_view raw, const Convert& convert) {
  if (raw.size() % sizeof(Stored) != 0) throw mps::Error("its data ends in the middle of a number");
  std::vector<Value> values(raw.size() / sizeof(Stored));
  for (std::size_t i = 0; i < values.size(); ++i) {
    Stored stored{};
    std::memcpy(&stored, raw.data() + i * sizeof(Stored), sizeof(Stored));
    values[i] = convert(stored);
  }
  return values;
}

template <class Stored>
Constant::Values rawFloats(std::string_view raw) {
  return fromRaw<Stored, float>(raw, [](Stored value) { return static_cast<float>(value); });
}

template <class Stored>
Constant::Values rawIntegers(std::string_view raw) {
  return fromRaw<Stored, std::int64_t>(raw, [](Stored value) { return static_cast<std::int64_t>(value); });
}

float fromHalf(std::uint16_t bits) {
  return mps::toFloat(mps::Float16{bits});
}

Constant::Values valuesInRaw(std::int64_t type, std::string_view raw) {
  switch (type) {
    case Float:
      return rawFloats<float>(raw);
    case Double:
      return rawFloats<double>(raw);
    case Float16:
      return fromRaw<std::uint16_t, float>(raw, fromHalf);
    case Int32:
      return rawIntegers<std::int32_t>(raw);
    case Int64:
      return rawIntegers<std::int64_t>(raw);
    case Int8:
      return rawIntegers<std::int8_t>(raw);
    default:
      return rawIntegers<std::uint8_t>(raw);
  }
}

Constant::Values valuesInFields(const TensorMessage& tensor) {
  switch (tensor.type) {
    case Float:
      return tensor.floats;
    case Double: {
      std::vector<float> values;
      for (const double value : tensor.doubles) values.push_back(static_cast<float>(value));
      return values;
    }
    case Float16: {
      std::vector<float> values;
      for (const std::int64_t value : tensor.integers)
        values.push_back(fromHalf(static_cast<std::uint16_t>(value)));
      return values;
    }
    default:
      return tensor.integers;
  }
}

bool isTaken(std::int64_t type) {
  for (const std::int64_t taken : {Float, Uint8, Int8, Int32, Int64, Bool, Float16, Double})
    if (type == taken) return true;
  return false;
}

}  // namespace

std::string describeShape(const std::vector<std::int64_t>& shape) {
  if (shape.empty()) return "a single number";
  std::string text;
  for (const std::int64_t extent : shape) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text;
}

std::uint64_t countOf(const std::vector<std::int64_t>& shape) {
  constexpr std::uint64_t most = std::numeric_limits<std::int32_t>::max();
  std::uint64_t count = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 0) throw mps::Error("a shape has the extent " + std::to_string(extent));
    const auto size = static_cast<std::uint64_t>(extent);
    if (size > most || (size != 0 && count > most / size))
      throw mps::Error("a shape has more than " + std::to_string(most) + " elements");
    count *= size;
  }
  return count;
}

Constant::Constant(Integers shape, Values values)
    : shape_(std::move(shape)), values_(std::move(values)), count_(countOf(shape_)) {
  if (stored() != count_ && stored() != 1)
    throw mps::Error("there are " + std::to_string(stored()) + " values for the shape " +
                     describeShape(shape_));
}

Constant Constant::of(const TensorMessage& tensor) {
  const std::string name = "the constant \"" + std::string(tensor.name) + "\"";
  if (tensor.isExternal)
    throw mps::Error(
        name +
        " has its data in another file, expected in the model or, of a constant of the graph, beside it");
  if (!isTaken(tensor.type))
    throw mps::Error(name + " has elements of type " + std::to_string(tensor.type) +
                     " of ONNX, expected float, float16, double or a whole number");
  try {
    Values values = tensor.raw ? valuesInRaw(tensor.type, *tensor.raw) : valuesInFields(tensor);
    Constant constant(tensor.shape, std::move(values));
    if (constant.isUniform())
      throw mps::Error("there is 1 value for the shape " + describeShape(tensor.shape));
    return constant;
  } catch (const mps::Error& error) {
    throw mps::Error(name + ": " + error.what());
  }
}

std::uint64_t Constant::stored() const {
  return std::visit([](const auto& values) { return std::uint64_t{values.size()}; }, values_);
}

void Constant::checkIndex(std::uint64_t index) const {
  if (index >= count_)
    throw mps::Error("a constant of " + describeShape(shape_) + " has fewer numbers than it should");
}

float Constant::number(std::uint64_t index) const {
  checkIndex(index);
  return std::visit([&](const auto& values) { return static_cast<float>(values[isUniform() ? 0 : index]); },
                    values_);
}

std::int64_t Constant::integer(std::uint64_t index) const {
  checkIndex(index);
  const std::uint64_t place = isUniform() ? 0 : index;
  if (const auto* integers = std::get_if<Integers>(&values_)) return (*integers)[place];
  const float value = std::get<std::vector<float>>(values_)[place];
  constexpr float most = 1e9F;
  if (!(value >= -most && value <= most)) throw mps::Error("a number is no whole number of moderate size");
  return static_cast<std::int64_t>(value);
}

std::vector<float> Constant::numbers() const {
  if (const auto* floats = std::get_if<std::vector<float>>(&values_); floats != nullptr && !isUniform())
    return *floats;
  std::vector<float> all(count_);
  for (std::uint64_t i = 0; i < count_; ++i) all[i] = number(i);
  return all;
}

Constant::Integers Constant::integers() const {
  Integers all;
  for (std::uint64_t i = 0; i < count_; ++i) all.push_back(integer(i));
  return all;
}

Constant Constant::withShape(Integers shape) const {
  if (countOf(shape) != count_)
    throw mps::Error("a constant of " + describeShape(shape_) + " is to have the shape " +
                     describeShape(shape));
  return {std::move(shape), values_};
}

}  // namespace unmetal::onnx::detail
