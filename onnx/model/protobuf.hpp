#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unmetal::onnx::detail {

/// One message in the wire format of Protocol Buffers: fields in the order in which they are added. The library's own; why there is
/// no other: docs/onnx.md.
///
///     Message tensor;
///     tensor.addInteger(1, 64);          // int32, int64, enum: a varint
///     tensor.addText(8, "conv1.weight");  // string, bytes
///     graph.addMessage(5, std::move(tensor));
///
/// Long texts are moved, not copied, so that the weights of a network lie in memory once.
class Message {
 public:
  void addInteger(std::uint32_t field, std::int64_t value);
  void addFloat(std::uint32_t field, float value);
  void addDouble(std::uint32_t field, double value);
  /// Of a field that the format's description calls packed.
  void addDoubles(std::uint32_t field, std::span<const double> values);
  void addText(std::uint32_t field, std::string text);
  void addMessage(std::uint32_t field, Message message);

  [[nodiscard]] std::uint64_t size() const { return size_; }
  /// Its bytes, in pieces that follow one another.
  [[nodiscard]] const std::vector<std::string>& pieces() const { return pieces_; }
  [[nodiscard]] std::string text() const;

 private:
  void append(std::string_view bytes);
  void appendVarint(std::uint64_t value);
  void appendBytes(std::uint64_t value, unsigned count);
  void appendTag(std::uint32_t field, std::uint32_t wireType);
  void appendPiece(std::string piece);

  std::vector<std::string> pieces_;
  std::uint64_t size_ = 0;
};

}  // namespace unmetal::onnx::detail
