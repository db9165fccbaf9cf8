#include "mps/core/coding/coded_data.hpp"

#include <cstdint>
#include <limits>
#include <utility>

#include "mps/core/types/error.hpp"

namespace mps::detail {
namespace {

using Value = CodedData::Value;

constexpr std::size_t deepestNesting = 16;
constexpr std::size_t mostValues = std::size_t{1} << 20U;
constexpr const char* objectsKey = "$objects";

/// What the reader cannot be given, or nothing: text or bytes in chunks (RFC 8949, section 3.2.3), because it calls itself
/// for a chunk that comes in chunks, as deep as the bytes say, before it tells anybody, and integers below -2^63, because
/// it makes another number of them. What is encoded here never holds either. Heads of values follow one another, however
/// they are nested; at what is no CBOR the reader stops, too.
const char* unreadable(std::span<const std::byte> bytes) {
  constexpr unsigned kNegative = 1;  // the number is -1 less the argument
  constexpr unsigned kBytes = 2;
  constexpr unsigned kText = 3;
  constexpr unsigned kOneByte = 24;  // 24 to 27: the argument is in the 1, 2, 4 or 8 bytes behind the head
  constexpr unsigned kEightBytes = 27;
  constexpr unsigned kUnknownLength = 31;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto head = std::to_integer<unsigned>(bytes[at++]);
    const unsigned kind = head >> 5U;
    const unsigned information = head & 31U;
    const bool isString = kind == kBytes || kind == kText;
    if (isString && information == kUnknownLength) return "text or bytes in chunks";
    std::uint64_t argument = information;
    if (information >= kOneByte && information <= kEightBytes) {
      const std::size_t size = std::size_t{1} << (information - kOneByte);
      if (size > bytes.size() - at) return nullptr;
      argument = 0;
      for (const std::byte byte : bytes.subspan(at, size))
        argument = argument << 8U | std::to_integer<std::uint64_t>(byte);
      at += size;
    }
    if (kind == kNegative && argument > std::uint64_t{std::numeric_limits<std::int64_t>::max()})
      return "an integer below -2^63";
    if (!isString) continue;
    if (argument > bytes.size() - at) return nullptr;
    at += static_cast<std::size_t>(argument);
  }
  return nullptr;
}

/// Builds the tree while the bytes are read, and stops at the first thing that is out of bounds: the reader calls itself
/// for what is nested.
class TreeBuilder final : public nlohmann::json_sax<Value> {
 public:
  TreeBuilder() noexcept(false) = default;  // as the constructor of JSON's null is, whatever it promises
  TreeBuilder(const TreeBuilder&) = delete;
  TreeBuilder& operator=(const TreeBuilder&) = delete;
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t /*count*/) override { return open(Value::object()); }
  bool start_array(std::size_t /*count*/) override { return open(Value::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    const auto [place, isNew] = open_.back()->emplace(value, nullptr);
    if (!isNew) return fail("the key \"" + value + "\" twice in a map");
    place_ = &*place;
    return true;
  }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*exception*/) override {
    if (failure_.empty()) failure_ = "no CBOR at byte " + std::to_string(position);
    return false;
  }

  [[nodiscard]] const std::string& failure() const { return failure_; }
  Value take() { return std::move(root_); }

 private:
  bool fail(std::string what) {
    failure_ = std::move(what);
    return false;
  }
  /// Where the next value goes: the root, the end of a list, or behind a key.
  Value* put(Value value) {
    if (++count_ > mostValues) {
      fail("more than " + std::to_string(mostValues) + " values");
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    *place_ = std::move(value);
    return place_;
  }
  template <class T>
  bool add(T&& value) {
    return put(Value(std::forward<T>(value))) != nullptr;
  }
  bool open(Value empty) {
    if (open_.size() >= deepestNesting) return fail("nested deeper than " + std::to_string(deepestNesting));
    Value* const value = put(std::move(empty));
    if (value == nullptr) return false;
    open_.push_back(value);
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Value root_;
  std::vector<Value*> open_;
  Value* place_ = nullptr;
  std::size_t count_ = 0;
  std::string failure_;
};

}  // namespace

CodedData::CodedData() : root_(Value::object()) {
  scopes.push_back({&root_, {}, {}});
}

CodedData::CodedData(std::span<const std::byte> bytes) {
  constexpr const char* expected = "CBOR of a coded object";
  if (const char* what = unreadable(bytes)) throw Error("KeyedUnarchiver", "bytes", what, expected);
  TreeBuilder builder;
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  if (!Value::sax_parse(first, first + bytes.size(), &builder, Value::input_format_t::cbor))
    throw Error("KeyedUnarchiver", "bytes", builder.failure(), expected);
  root_ = builder.take();
  if (!root_.is_object()) throw Error("KeyedUnarchiver", "bytes", "CBOR of another kind", "a CBOR map");
  scopes.push_back({&root_, {}, {}});
  if (const auto objects = root_.find(objectsKey); objects != root_.end()) {
    if (!objects->is_array()) throw Error("KeyedUnarchiver", objectsKey, "no array", "an array of maps");
    for (Value& map : *objects) {
      if (!map.is_object()) throw Error("KeyedUnarchiver", objectsKey, "not all maps", "an array of maps");
      objectMaps.push_back(std::move(map));
    }
    root_.erase(objects);
  }
  decoded.resize(objectMaps.size());
}

std::vector<std::byte> CodedData::bytes() const {
  Value all = root_;
  if (!objectMaps.empty()) all[objectsKey] = objectMaps;
  const std::vector<std::uint8_t> cbor = Value::to_cbor(all);
  const auto bytes = std::as_bytes(std::span(cbor));
  return {bytes.begin(), bytes.end()};
}

}  // namespace mps::detail
