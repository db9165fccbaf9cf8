#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace unmetal::onnx::detail {

/// One field of a message in the wire format of Protocol Buffers.
struct WireField {
  enum class Type : std::uint8_t { Varint = 0, EightBytes = 1, Length = 2, FourBytes = 5 };

  std::uint32_t number = 0;
  Type type = Type::Varint;
  std::uint64_t integer = 0;    ///< of all types but Length; the bits of a float or a double
  std::string_view bytes = {};  ///< of Length
};

/// Reads a message field by field. Its bytes may come from anywhere; they must outlive what was read.
class WireReader {
 public:
  explicit WireReader(std::string_view message) : rest_(message) {}
  /// Nothing behind the last one. @throws mps::Error for bytes that are no message
  std::optional<WireField> next();
  /// For lists of numbers, which have no fields. @throws mps::Error likewise
  /// @{
  [[nodiscard]] bool isAtEnd() const { return rest_.empty(); }
  std::uint64_t varint();
  /// @}

 private:
  std::uint64_t fixed(unsigned bytes);
  std::string_view take(std::uint64_t count);

  std::string_view rest_;
};

/// Numbers of a repeated field: one, or many where they are packed. @throws mps::Error for another type of field
/// @{
void appendIntegers(const WireField& field, std::vector<std::int64_t>& values);
void appendFloats(const WireField& field, std::vector<float>& values);
void appendDoubles(const WireField& field, std::vector<double>& values);
/// @}
/// A single one. @throws mps::Error for another type of field
/// @{
std::int64_t integerOf(const WireField& field);
float floatOf(const WireField& field);
std::string_view bytesOf(const WireField& field);
/// @}

}  // namespace unmetal::onnx::detail
