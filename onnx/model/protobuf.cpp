#include "onnx/model/protobuf.hpp"

#include <bit>
#include <utility>

namespace unmetal::onnx::detail {
namespace {

constexpr std::uint32_t varintType = 0;
constexpr std::uint32_t eightBytesType = 1;
constexpr std::uint32_t lengthType = 2;
constexpr std::uint32_t fourBytesType = 5;
/// A shorter one is appended to the piece before it.
constexpr std::size_t longPiece = 1024;

}  // namespace

void Message::addInteger(std::uint32_t field, std::int64_t value) {
  appendTag(field, varintType);
  appendVarint(static_cast<std::uint64_t>(value));
}

void Message::addFloat(std::uint32_t field, float value) {
  appendTag(field, fourBytesType);
  appendBytes(std::bit_cast<std::uint32_t>(value), sizeof(float));
}

void Message::addDouble(std::uint32_t field, double value) {
  appendTag(field, eightBytesType);
  appendBytes(std::bit_cast<std::uint64_t>(value), sizeof(double));
}

void Message::addDoubles(std::uint32_t field, std::span<const double> values) {
  appendTag(field, lengthType);
  appendVarint(values.size_bytes());
  for (const double value : values) appendBytes(std::bit_cast<std::uint64_t>(value), sizeof(double));
}

void Message::addText(std::uint32_t field, std::string text) {
  appendTag(field, lengthType);
  appendVarint(text.size());
  appendPiece(std::move(text));
}

void Message::addMessage(std::uint32_t field, Message message) {
  appendTag(field, lengthType);
  appendVarint(message.size_);
  for (std::string& piece : message.pieces_) appendPiece(std::move(piece));
}

std::string Message::text() const {
  std::string text;
  for (const std::string& piece : pieces_) text += piece;
  return text;
}

void Message::append(std::string_view bytes) {
  if (pieces_.empty()) pieces_.emplace_back();
  pieces_.back() += bytes;
  size_ += bytes.size();
}

void Message::appendVarint(std::uint64_t value) {
  constexpr std::uint64_t more = 0x80;
  for (; value >= more; value >>= 7U) {
    const char byte = static_cast<char>((value & (more - 1)) | more);
    append({&byte, 1});
  }
  const char last = static_cast<char>(value);
  append({&last, 1});
}

/// The lowest one first.
void Message::appendBytes(std::uint64_t value, unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    const char byte = static_cast<char>((value >> (8 * i)) & 0xFFU);
    append({&byte, 1});
  }
}

void Message::appendTag(std::uint32_t field, std::uint32_t wireType) {
  appendVarint(std::uint64_t{field} << 3U | wireType);
}

void Message::appendPiece(std::string piece) {
  if (piece.size() < longPiece) return append(piece);
  size_ += piece.size();
  pieces_.push_back(std::move(piece));
  pieces_.emplace_back();
}

}  // namespace unmetal::onnx::detail
