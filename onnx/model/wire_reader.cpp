#include "onnx/model/wire_reader.hpp"

#include <bit>

#include "mps/core/types/error.hpp"

namespace unmetal::onnx::detail {
namespace {

using Type = WireField::Type;

constexpr unsigned bitsOfByte = 8;

void expect(const WireField& field, Type type) {
  if (field.type != type)
    throw mps::Error("field " + std::to_string(field.number) +
                     " of a message has another type than it should");
}

/// The lowest byte first.
std::uint64_t bitsIn(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    value |= std::uint64_t{static_cast<std::uint8_t>(bytes[i])} << (bitsOfByte * i);
  return value;
}

float floatFrom(std::uint64_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
}

/// Numbers of so many bytes each, one after the other.
template <class Append>
void forPacked(std::string_view bytes, std::size_t size, const Append& append) {
  if (bytes.size() % size != 0) throw mps::Error("a list of numbers ends in the middle of one");
  for (std::size_t i = 0; i < bytes.size(); i += size) append(bitsIn(bytes.substr(i, size)));
}

}  // namespace

std::optional<WireField> WireReader::next() {
  constexpr unsigned typeBits = 3;
  if (rest_.empty()) return std::nullopt;
  const std::uint64_t tag = varint();
  WireField field;
  field.number = static_cast<std::uint32_t>(tag >> typeBits);
  field.type = static_cast<Type>(tag & 7U);
  switch (field.type) {
    case Type::Varint:
      field.integer = varint();
      return field;
    case Type::EightBytes:
      field.integer = fixed(sizeof(double));
      return field;
    case Type::FourBytes:
      field.integer = fixed(sizeof(float));
      return field;
    case Type::Length:
      field.bytes = take(varint());
      return field;
  }
  throw mps::Error("a field of a message has a type that there is not");
}

std::uint64_t WireReader::varint() {
  constexpr unsigned partBits = 7;
  constexpr std::uint64_t more = 0x80;
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += partBits) {
    const std::uint64_t part = fixed(1);
    value |= (part & (more - 1)) << shift;
    if (part < more) return value;
  }
  throw mps::Error("a number in a message has more than ten bytes");
}

std::uint64_t WireReader::fixed(unsigned bytes) {
  return bitsIn(take(bytes));
}

std::string_view WireReader::take(std::uint64_t count) {
  if (count > rest_.size()) throw mps::Error("a message ends in the middle of a field");
  const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(count));
  rest_.remove_prefix(taken.size());
  return taken;
}

void appendIntegers(const WireField& field, std::vector<std::int64_t>& values) {
  if (field.type == Type::Varint) return values.push_back(integerOf(field));
  WireReader numbers(bytesOf(field));
  while (!numbers.isAtEnd()) values.push_back(static_cast<std::int64_t>(numbers.varint()));
}

void appendFloats(const WireField& field, std::vector<float>& values) {
  if (field.type == Type::FourBytes) return values.push_back(floatOf(field));
  forPacked(bytesOf(field), sizeof(float), [&](std::uint64_t bits) { values.push_back(floatFrom(bits)); });
}

void appendDoubles(const WireField& field, std::vector<double>& values) {
  if (field.type == Type::EightBytes) return values.push_back(std::bit_cast<double>(field.integer));
  forPacked(bytesOf(field), sizeof(double),
            [&](std::uint64_t bits) { values.push_back(std::bit_cast<double>(bits)); });
}

std::int64_t integerOf(const WireField& field) {
  expect(field, Type::Varint);
  return static_cast<std::int64_t>(field.integer);
}

float floatOf(const WireField& field) {
  expect(field, Type::FourBytes);
  return floatFrom(field.integer);
}

std::string_view bytesOf(const WireField& field) {
  expect(field, Type::Length);
  return field.bytes;
}

}  // namespace unmetal::onnx::detail
