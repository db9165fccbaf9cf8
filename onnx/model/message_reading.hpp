#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// For tests: reads the wire format of Protocol Buffers.
namespace unmetal::onnx::detail {

struct Field {
  std::uint32_t number = 0;
  std::uint64_t integer = 0;   ///< of a varint, or four bytes
  std::string_view text = {};  ///< or the bytes of a double
};

class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : rest_(bytes) {}

  std::vector<Field> fields() {
    std::vector<Field> found;
    while (!rest_.empty()) found.push_back(next());
    return found;
  }

 private:
  Field next() {
    const std::uint64_t tag = varint();
    Field field{static_cast<std::uint32_t>(tag >> 3U)};
    switch (tag & 7U) {
      case 0:
        field.integer = varint();
        return field;
      case 1:
        field.text = take(sizeof(double));
        return field;
      case 2:
        field.text = take(varint());
        return field;
      case 5:
        for (unsigned shift = 0; shift < 32; shift += 8) field.integer |= std::uint64_t{byte()} << shift;
        return field;
      default:
        throw std::runtime_error("unknown type of field");
    }
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const std::uint64_t part = byte();
      value |= (part & 0x7FU) << shift;
      if (part < 0x80) return value;
    }
  }
  std::uint8_t byte() { return static_cast<std::uint8_t>(take(1)[0]); }
  std::string_view take(std::size_t count) {
    const std::string_view taken = rest_.substr(0, count);
    if (taken.size() != count) throw std::runtime_error("the message ends too early");
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
};

/// The texts of all fields with that number.
inline std::vector<std::string_view> textsOf(std::string_view message, std::uint32_t number) {
  std::vector<std::string_view> texts;
  for (const Field& field : MessageReader(message).fields())
    if (field.number == number) texts.push_back(field.text);
  return texts;
}

}  // namespace unmetal::onnx::detail
