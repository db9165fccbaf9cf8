#include "mps/core/coding/coder.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

#include "mps/core/coding/coded_data.hpp"
#include "mps/core/coding/core_decoders.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/device.hpp"

namespace mps {
namespace {

using detail::CodedData;
using Value = CodedData::Value;

static_assert(std::endian::native == std::endian::little, "arrays are coded as they lie in memory");

constexpr const char* classKey = "class";
constexpr const char* versionKey = "version";
/// Of the properties of every class. A class that changes its own counts from here.
constexpr std::uint64_t codingVersion = 1;
/// Objects within objects; deeper ones would be a chain that somebody made up.
constexpr std::size_t deepestScopes = 64;

std::string describe(const Value& value) {
  switch (value.type()) {
    case Value::value_t::null:
      return "null";
    case Value::value_t::object:
      return "a map";
    case Value::value_t::array:
      return "a list";
    case Value::value_t::string:
      return "a text";
    case Value::value_t::binary:
      return std::to_string(value.get_binary().size()) + " bytes";
    default:
      return value.dump();
  }
}

template <std::size_t count>
void encodeNumbers(Coder& coder, std::string_view key, const std::array<const char*, count>& names,
                   const std::array<std::uint64_t, count>& numbers) {
  coder.codeGroup(key, [&] {
    for (std::size_t i = 0; i < count; ++i) coder.encode(names[i], numbers[i]);
  });
}

template <std::size_t count>
void decodeNumbers(Coder& coder, std::string_view key, const std::array<const char*, count>& names,
                   const std::array<std::uint64_t*, count>& numbers) {
  coder.codeGroup(key, [&] {
    for (std::size_t i = 0; i < count; ++i) coder.decode(names[i], *numbers[i]);
  });
}

}  // namespace

void SecureCoding::encode(Coder& coder) const {
  coder.refuse("class", "one without className() and encode(coder)", "a class that can be coded");
}

Coder::Coder(std::unique_ptr<CodedData> data, bool decoding, const CodingLimits& limits)
    : data_(std::move(data)), decoding_(decoding), limits_(limits) {
  detail::addCoreDecoders(*this);
}

Coder::~Coder() = default;

void Coder::setDecoder(const std::string& className, Decoder decoder) {
  data_->decoders[className] = std::move(decoder);
}

void Coder::refuse(std::string_view key, std::string_view found, std::string_view expected) const {
  std::string_view name = "Coder";
  for (const CodedData::Scope& scope : data_->scopes)
    if (!scope.className.empty()) name = scope.className;
  throw Error(name, key, found, expected);
}

namespace {

Value& newValue(const Coder& coder, CodedData& data, std::string_view key) {
  if (coder.isDecoding()) coder.refuse(key, "written", "a read: this coder decodes");
  const auto [place, isNew] = data.scope().value->emplace(std::string(key), nullptr);
  if (!isNew) coder.refuse(key, "written already", "a key for each value");
  return *place;
}

Value& readValue(const Coder& coder, CodedData& data, std::string_view key) {
  if (!coder.isDecoding()) coder.refuse(key, "read", "a write: this coder encodes");
  CodedData::Scope& scope = data.scope();
  const auto found = scope.value->find(key);
  if (found == scope.value->end()) coder.refuse(key, "missing", "a value");
  scope.read.push_back(&*found);
  return *found;
}

}  // namespace

void Coder::codeClass(std::string_view className) {
  if (decoding_) {
    data_->scope().read.clear();
    std::string found;
    decode(classKey, found);
    if (found != className) throw Error(className, classKey, found, className);
    data_->scope().className = className;
    const std::uint64_t version = takeUnsigned(versionKey, std::numeric_limits<std::uint64_t>::max());
    if (version != codingVersion)
      refuse(versionKey, std::to_string(version),
             std::to_string(codingVersion) + ", the one that this library reads");
    return;
  }
  data_->scope().className = className;
  encode(classKey, std::string(className));
  putUnsigned(versionKey, codingVersion);
}

void Coder::checkAllRead() const {
  const CodedData::Scope& scope = data_->scope();
  for (auto value = scope.value->cbegin(); value != scope.value->cend(); ++value)
    if (std::ranges::find(scope.read, &*value) == scope.read.end())
      refuse(value.key(), "there", "no such property");
}

bool Coder::contains(std::string_view key) const {
  return data_->scope().value->contains(key);
}

void Coder::putTruth(std::string_view key, bool value) {
  newValue(*this, *data_, key) = value;
}

void Coder::putUnsigned(std::string_view key, std::uint64_t value) {
  newValue(*this, *data_, key) = value;
}

void Coder::putSigned(std::string_view key, std::int64_t value) {
  newValue(*this, *data_, key) = value;
}

void Coder::putFloat(std::string_view key, double value) {
  newValue(*this, *data_, key) = value;
}

void Coder::putBytes(std::string_view key, std::span<const std::byte> bytes) {
  std::vector<std::uint8_t> copy(bytes.size());
  if (!bytes.empty()) std::memcpy(copy.data(), bytes.data(), bytes.size());
  newValue(*this, *data_, key) = Value::binary(std::move(copy));
}

void Coder::putObject(std::string_view key, const std::shared_ptr<const SecureCoding>& object) {
  Value& reference = newValue(*this, *data_, key);
  if (!object) return;
  if (object->className().empty())
    refuse(key, "an object without className() and encode(coder)", "one whose class can be coded");
  const auto [entry, isNew] = data_->numbers.emplace(object.get(), data_->objectMaps.size());
  reference = entry->second;
  if (!isNew) return;
  data_->written.push_back(object);
  data_->objectMaps.push_back(Value::object());
  data_->scopes.push_back({&data_->objectMaps.back(), {}, {}});
  object->encode(*this);
  data_->scopes.pop_back();
}

void Coder::encode(std::string_view key, const std::string& text) {
  newValue(*this, *data_, key) = text;
}

void Coder::encode(std::string_view key, const Offset& offset) {
  codeGroup(key, [&] {
    encode("x", offset.x);
    encode("y", offset.y);
    encode("z", offset.z);
  });
}

void Coder::encode(std::string_view key, const ImageCoordinate& coordinate) {
  encodeNumbers<3>(*this, key, {"x", "y", "channel"}, {coordinate.x, coordinate.y, coordinate.channel});
}

void Coder::encode(std::string_view key, const mtl::Origin& origin) {
  encodeNumbers<3>(*this, key, {"x", "y", "z"}, {origin.x, origin.y, origin.z});
}

void Coder::encode(std::string_view key, const mtl::Size& size) {
  encodeNumbers<3>(*this, key, {"width", "height", "depth"}, {size.width, size.height, size.depth});
}

void Coder::encode(std::string_view key, const mtl::Region& region) {
  codeGroup(key, [&] {
    encode("origin", region.origin);
    encode("size", region.size);
  });
}

bool Coder::takeTruth(std::string_view key) {
  const Value& value = readValue(*this, *data_, key);
  if (!value.is_boolean()) refuse(key, describe(value), "true or false");
  return value.get<bool>();
}

std::uint64_t Coder::takeUnsigned(std::string_view key, std::uint64_t most) {
  const Value& value = readValue(*this, *data_, key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most)
    refuse(key, describe(value), "a number from 0 to " + std::to_string(most));
  return value.get<std::uint64_t>();
}

std::int64_t Coder::takeSigned(std::string_view key) {
  const Value& value = readValue(*this, *data_, key);
  constexpr auto most = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > most))
    refuse(key, describe(value), "an integer of 64 bits");
  return value.get<std::int64_t>();
}

double Coder::takeFloat(std::string_view key, bool isFloat32) {
  const Value& value = readValue(*this, *data_, key);
  if (!value.is_number_float()) refuse(key, describe(value), "a floating-point number");
  const double number = value.get<double>();
  if (isFloat32 && std::isfinite(number) &&
      (std::abs(number) > std::numeric_limits<float>::max() ||
       static_cast<double>(static_cast<float>(number)) != number))
    refuse(key, describe(value), "a float32");
  return number;
}

std::span<const std::byte> Coder::takeBytes(std::string_view key, std::size_t unit) {
  const Value& value = readValue(*this, *data_, key);
  if (!value.is_binary() || value.get_binary().size() % unit != 0)
    refuse(key, describe(value), "a multiple of " + std::to_string(unit) + " bytes");
  return std::as_bytes(std::span<const std::uint8_t>(value.get_binary()));
}

std::shared_ptr<SecureCoding> Coder::takeObject(std::string_view key) {
  const Value& reference = readValue(*this, *data_, key);
  if (reference.is_null()) return nullptr;
  CodedData& data = *data_;
  if (!reference.is_number_unsigned() || reference.get<std::uint64_t>() >= data.objectMaps.size())
    refuse(key, describe(reference),
           "the number of one of " + std::to_string(data.objectMaps.size()) + " objects");
  const auto number = static_cast<std::size_t>(reference.get<std::uint64_t>());
  if (data.decoded[number]) return data.decoded[number];
  if (!data.inProgress.insert(number).second || data.scopes.size() > deepestScopes)
    refuse(key, "an object that refers to itself", "an object of its own");
  Value& map = data.objectMaps[number];
  const auto name = map.find(classKey);
  if (name == map.end() || !name->is_string()) refuse(key, "an object without a class", "the class's name");
  const auto decoder = data.decoders.find(name->get_ref<const std::string&>());
  if (decoder == data.decoders.end())
    refuse(key, "a " + name->get<std::string>(), "a class whose decoder the coder was given (setDecoder)");
  data.scopes.push_back({&map, {}, {}});
  std::shared_ptr<SecureCoding> object = decoder->second(*this, device_);
  if (!object) refuse(key, "nothing", "the object that the decoder makes");
  endMap();
  data.inProgress.erase(number);
  data.decoded[number] = object;
  return object;
}

void Coder::decode(std::string_view key, std::string& text) {
  const Value& value = readValue(*this, *data_, key);
  if (!value.is_string()) refuse(key, describe(value), "a text");
  text = value.get<std::string>();
}

void Coder::decode(std::string_view key, Offset& offset) {
  codeGroup(key, [&] {
    decode("x", offset.x);
    decode("y", offset.y);
    decode("z", offset.z);
  });
}

void Coder::decode(std::string_view key, ImageCoordinate& coordinate) {
  decodeNumbers<3>(*this, key, {"x", "y", "channel"}, {&coordinate.x, &coordinate.y, &coordinate.channel});
}

void Coder::decode(std::string_view key, mtl::Origin& origin) {
  decodeNumbers<3>(*this, key, {"x", "y", "z"}, {&origin.x, &origin.y, &origin.z});
}

void Coder::decode(std::string_view key, mtl::Size& size) {
  decodeNumbers<3>(*this, key, {"width", "height", "depth"}, {&size.width, &size.height, &size.depth});
}

void Coder::decode(std::string_view key, mtl::Region& region) {
  codeGroup(key, [&] {
    decode("origin", region.origin);
    decode("size", region.size);
  });
}

void Coder::checkSize(std::string_view key, std::uint64_t size) const {
  if (decoding_ && size > limits_.size)
    refuse(key, std::to_string(size), "at most " + std::to_string(limits_.size) + " (CodingLimits::size)");
}

void Coder::codeSize(std::string_view key, std::size_t& size) {
  code(key, size);
  checkSize(key, size);
}

void Coder::codeSize(std::string_view key, ImageCoordinate& sizes) {
  code(key, sizes);
  for (const std::size_t size : {sizes.x, sizes.y, sizes.channel}) checkSize(key, size);
}

void Coder::codeSizeOrAll(std::string_view key, std::size_t& size) {
  code(key, size);
  if (size != std::numeric_limits<std::size_t>::max()) checkSize(key, size);
}

void Coder::codeSizeOrAll(std::string_view key, mtl::Region& region) {
  code(key, region);
  for (const std::size_t origin : {region.origin.x, region.origin.y, region.origin.z}) checkSize(key, origin);
  for (const std::size_t size : {region.size.width, region.size.height, region.size.depth})
    if (size != std::numeric_limits<std::size_t>::max()) checkSize(key, size);
}

void Coder::codeGroup(std::string_view key, const std::function<void()>& codeFields) {
  beginMap(key);
  codeFields();
  endMap();
}

void Coder::beginMap(std::string_view key) {
  Value& value = decoding_ ? readValue(*this, *data_, key) : newValue(*this, *data_, key) = Value::object();
  if (!value.is_object()) refuse(key, describe(value), "a map");
  data_->scopes.push_back({&value, {}, {}});
}

void Coder::endMap() {
  if (decoding_) checkAllRead();
  data_->scopes.pop_back();
}

std::size_t Coder::beginList(std::string_view key, std::size_t count) {
  Value& value = decoding_ ? readValue(*this, *data_, key)
                           : newValue(*this, *data_, key) = Value::array_t(count, Value::object());
  if (!value.is_array()) refuse(key, describe(value), "a list");
  for (const Value& item : value)
    if (!item.is_object()) refuse(key, "a list that holds " + describe(item), "a list of maps");
  data_->scopes.push_back({&value, {}, {}});
  return value.size();
}

void Coder::beginItem(std::size_t index) {
  Value& item = (*data_->scope().value)[index];
  data_->scopes.push_back({&item, {}, {}});
}

void Coder::endList() {
  data_->scopes.pop_back();
}

KeyedArchiver::KeyedArchiver() : Coder(std::make_unique<CodedData>(), false) {}

std::vector<std::byte> KeyedArchiver::encodedData() const {
  return data().bytes();
}

KeyedUnarchiver::KeyedUnarchiver(std::span<const std::byte> bytes, std::shared_ptr<mtl::Device> device,
                                 const CodingLimits& limits)
    : Coder(std::make_unique<CodedData>(bytes), true, limits), providedDevice_(std::move(device)) {}

namespace detail {

std::shared_ptr<mtl::Device> deviceToDecodeOn(const Coder& coder,
                                              const std::shared_ptr<mtl::Device>& device) {
  if (device) return device;
  if (coder.device()) return coder.device();
  if (const auto* provider = dynamic_cast<const DeviceProvider*>(&coder))
    if (auto provided = provider->mpsMTLDevice()) return provided;
  return mtl::createSystemDefaultDevice();
}

void checkDecodes(const Coder& coder, std::string_view className) {
  if (!coder.isDecoding())
    throw Error(className, "coder", "one that encodes", "one that decodes, such as a KeyedUnarchiver");
}

}  // namespace detail
}  // namespace mps
