#include "mps/weights/safetensors.hpp"

#include <unistd.h>
#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "mps/core/types/float16.hpp"
#include "mps/weights/atomic_file.hpp"
#include "mps/weights/crc32.hpp"
#include "mps/weights/input_file.hpp"

namespace mps {
namespace detail {

/// A tensor of a safetensors file and where its bytes lie.
struct SafetensorsHeaderEntry {
  SafetensorsTensor tensor;
  SafetensorsConversion conversion = SafetensorsConversion::None;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

}  // namespace detail

namespace {

using HeaderEntry = detail::SafetensorsHeaderEntry;
using Conversion = detail::SafetensorsConversion;

static_assert(std::endian::native == std::endian::little, "safetensors files are little endian");

constexpr std::string_view metadataName = "__metadata__";
constexpr std::string_view checksumKey = "unmetal.crc32";
constexpr std::size_t lengthBytes = sizeof(std::uint64_t);

constexpr std::array<std::pair<DataType, std::string_view>, 10> typeNames{{
    {DataType::Float32, "F32"},
    {DataType::Float16, "F16"},
    {DataType::Int64, "I64"},
    {DataType::UInt64, "U64"},
    {DataType::Int32, "I32"},
    {DataType::UInt32, "U32"},
    {DataType::Int16, "I16"},
    {DataType::UInt16, "U16"},
    {DataType::Int8, "I8"},
    {DataType::UInt8, "U8"},
}};

std::optional<DataType> typeFromName(std::string_view name) {
  for (const auto& [type, typeName] : typeNames) {
    if (typeName == name) return type;
  }
  return std::nullopt;
}

/// A type that files have and we do not: its tensors become Float32.
struct ConvertedType {
  std::string_view name;
  Conversion conversion;
  std::uint64_t bytes;  ///< of an element
};
constexpr std::array convertedTypes{ConvertedType{"BF16", Conversion::BFloat16, 2},
                                    ConvertedType{"F64", Conversion::Float64, 8}};

/// Null for a type that is not converted.
const ConvertedType* convertedType(Conversion conversion) {
  for (const ConvertedType& type : convertedTypes)
    if (type.conversion == conversion) return &type;
  return nullptr;
}

/// Empty for a type that the format does not have.
std::string_view nameOf(DataType type) {
  for (const auto& [candidate, name] : typeNames) {
    if (candidate == type) return name;
  }
  return {};
}

/// A name out of an untrusted file, fit for one line of an error.
std::string quote(std::string_view text) {
  constexpr std::size_t longest = 80;
  std::string result = "\"";
  for (const char character : text.substr(0, longest)) {
    const bool isControl = static_cast<unsigned char>(character) < 0x20 || character == 0x7F;
    result += isControl ? '?' : character;
  }
  return result + (text.size() > longest ? "...\"" : "\"");
}

std::string describe(std::string_view type, std::span<const std::uint64_t> shape) {
  std::string result(type);
  result += "[";
  for (std::size_t i = 0; i < shape.size(); ++i) result += (i ? ", " : "") + std::to_string(shape[i]);
  return result + "]";
}

/// Bytes of a tensor; nothing when the number does not fit into 64 bits. @param elementBytes of an element
std::optional<std::uint64_t> byteCount(std::uint64_t elementBytes, std::span<const std::uint64_t> shape) {
  if (std::find(shape.begin(), shape.end(), 0U) != shape.end()) return 0;
  std::uint64_t count = elementBytes;
  for (const std::uint64_t extent : shape) {
    if (count > std::numeric_limits<std::uint64_t>::max() / extent) return std::nullopt;
    count *= extent;
  }
  return count;
}
std::optional<std::uint64_t> byteCount(DataType type, std::span<const std::uint64_t> shape) {
  return byteCount(std::uint64_t{sizeInBytes(type)}, shape);
}
/// In the file.
std::optional<std::uint64_t> byteCount(const SafetensorsTensor& tensor, Conversion conversion) {
  const ConvertedType* converted = convertedType(conversion);
  return byteCount(converted != nullptr ? converted->bytes : std::uint64_t{sizeInBytes(tensor.type)},
                   tensor.shape);
}

/// As many values as `values` has. @param bytes of the file, aligned for nothing
void convert(Conversion conversion, const std::byte* bytes, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (conversion == Conversion::BFloat16) {
      std::uint16_t upper = 0;
      std::memcpy(&upper, bytes + i * sizeof upper, sizeof upper);
      values[i] = std::bit_cast<float>(std::uint32_t{upper} << 16U);
    } else {
      double value = 0;
      std::memcpy(&value, bytes + i * sizeof value, sizeof value);
      values[i] = static_cast<float>(value);
    }
  }
}

/// Takes the header apart while it is parsed, so that only what the format allows ever takes memory. A member
/// function that returns false stops the parser; problem() then says why.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsMetadata takeMetadata() { return std::move(metadata_); }
  std::vector<HeaderEntry> takeEntries() { return std::move(entries_); }
  const std::string& problem() const { return problem_; }

  bool start_object(std::size_t /*elements*/) override {
    switch (place_) {
      case Place::BeforeHeader:
        place_ = Place::Header;
        return true;
      case Place::MetadataObject:
        place_ = Place::Metadata;
        return true;
      case Place::TensorObject:
        place_ = Place::Tensor;
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool end_object() override {
    switch (place_) {
      case Place::Tensor:
        place_ = Place::Header;
        return finishTensor();
      case Place::Metadata:
        place_ = Place::Header;
        return true;
      default:
        place_ = Place::AfterHeader;
        return true;
    }
  }

  bool key(std::string& text) override {
    if (place_ == Place::Header) return startEntry(text);
    if (place_ == Place::Metadata) {
      key_ = text;
      place_ = Place::MetadataValue;
      return !metadata_.contains(text) || stop("the metadata has " + quote(text) + " twice");
    }
    return startField(text);
  }

  bool string(std::string& text) override {
    if (place_ == Place::MetadataValue) {
      metadata_.emplace(key_, text);
      place_ = Place::Metadata;
      return true;
    }
    if (place_ != Place::Type) return unexpected("a string");
    if (takesConvertedType(text)) return true;
    const std::optional<DataType> type = typeFromName(text);
    if (!type)
      return stop("tensor " + quote(entry().tensor.name) + " has the unsupported type " + quote(text));
    entry().tensor.type = *type;
    place_ = Place::Tensor;
    return true;
  }

  bool start_array(std::size_t /*elements*/) override {
    switch (place_) {
      case Place::Shape:
        place_ = Place::ShapeNumbers;
        return true;
      case Place::Offsets:
        place_ = Place::OffsetNumbers;
        return true;
      default:
        return unexpected("an array");
    }
  }

  bool end_array() override {
    if (place_ == Place::OffsetNumbers && offsetCount_ != 2) return wrongOffsets();
    place_ = Place::Tensor;
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    if (place_ == Place::ShapeNumbers) {
      entry().tensor.shape.push_back(value);
      return true;
    }
    if (place_ != Place::OffsetNumbers) return unexpected("a number");
    if (offsetCount_ == 2) return wrongOffsets();
    (offsetCount_ == 0 ? entry().begin : entry().end) = value;
    ++offsetCount_;
    return true;
  }

  bool number_integer(std::int64_t /*value*/) override { return unexpected("a negative number"); }
  bool number_float(double /*value*/, const std::string& /*text*/) override {
    return unexpected("a number that is not a whole one of 64 bits");
  }
  bool boolean(bool /*value*/) override { return unexpected("a truth value"); }
  bool null() override { return unexpected("a null"); }
  bool binary(nlohmann::json::binary_t& /*bytes*/) override { return unexpected("binary data"); }
  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    return stop("the header is not JSON at its byte " + std::to_string(position));
  }

 private:
  enum class Place {
    BeforeHeader,
    Header,
    MetadataObject,
    Metadata,
    MetadataValue,
    TensorObject,
    Tensor,
    Type,
    Shape,
    ShapeNumbers,
    Offsets,
    OffsetNumbers,
    AfterHeader,
  };

  HeaderEntry& entry() { return entries_.back(); }

  bool takesConvertedType(std::string_view name) {
    const auto found = std::ranges::find(convertedTypes, name, &ConvertedType::name);
    if (found == convertedTypes.end()) return false;
    entry().tensor.type = DataType::Float32;
    entry().conversion = found->conversion;
    place_ = Place::Tensor;
    return true;
  }

  bool startEntry(const std::string& name) {
    if (!names_.insert(name).second) return stop("the header has " + quote(name) + " twice");
    if (name == metadataName) {
      place_ = Place::MetadataObject;
      return true;
    }
    entries_.emplace_back().tensor.name = name;
    hasType_ = hasShape_ = hasOffsets_ = false;
    offsetCount_ = 0;
    place_ = Place::TensorObject;
    return true;
  }

  bool startField(const std::string& field) {
    if (field == "dtype") return startField(Place::Type, hasType_);
    if (field == "shape") return startField(Place::Shape, hasShape_);
    if (field == "data_offsets") return startField(Place::Offsets, hasOffsets_);
    return stop("tensor " + quote(entry().tensor.name) + " has the unknown field " + quote(field));
  }

  bool startField(Place place, bool& seen) {
    if (seen) return stop("tensor " + quote(entry().tensor.name) + " has a field twice");
    seen = true;
    place_ = place;
    return true;
  }

  bool finishTensor() {
    if (hasType_ && hasShape_ && hasOffsets_) return true;
    return stop("tensor " + quote(entry().tensor.name) + " lacks its type, shape or offsets");
  }

  bool wrongOffsets() {
    return stop("tensor " + quote(entry().tensor.name) + " has not exactly two offsets");
  }
  bool unexpected(const std::string& what) {
    const std::string where =
        entries_.empty() ? std::string() : " after the name " + quote(entry().tensor.name);
    return stop("the header has " + what + " where it may not be" + where);
  }
  bool stop(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  Place place_ = Place::BeforeHeader;
  std::string key_;
  bool hasType_ = false;
  bool hasShape_ = false;
  bool hasOffsets_ = false;
  int offsetCount_ = 0;
  std::set<std::string> names_;
  SafetensorsMetadata metadata_;
  std::vector<HeaderEntry> entries_;
  std::string problem_;
};

Error invalid(const std::string& name, const std::string& trouble) {
  return Error(name + " is not a valid safetensors file: " + trouble);
}

/// The first eight bytes: the length of the header, checked against the size of the whole file.
std::uint64_t headerLength(std::span<const std::byte, lengthBytes> bytes, std::uint64_t fileSize,
                           const std::string& name) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), lengthBytes);
  if (length > SafetensorsHeader::maximumHeaderLength) {
    throw invalid(name, "its header would be longer than the format allows");
  }
  if (length > fileSize - lengthBytes) throw invalid(name, "it ends within its header");
  return length;
}

/// Without gaps and overlaps, in the order given, up to the last byte of the file.
void checkLayout(const std::vector<HeaderEntry>& entries, std::uint64_t dataLength, const std::string& name) {
  std::uint64_t position = 0;
  for (const auto& [tensor, conversion, begin, end] : entries) {
    if (begin > end || end > dataLength) {
      throw invalid(name, "tensor " + quote(tensor.name) + " lies outside the file");
    }
    if (begin != position) {
      throw invalid(name, "there is a gap or an overlap before tensor " + quote(tensor.name));
    }
    if (byteCount(tensor, conversion) != end - begin) {
      const ConvertedType* converted = convertedType(conversion);
      throw invalid(name,
                    "tensor " + quote(tensor.name) + " has " + std::to_string(end - begin) +
                        " bytes, which does not fit " +
                        describe(converted != nullptr ? converted->name : nameOf(tensor.type), tensor.shape));
    }
    position = end;
  }
  if (position != dataLength) throw invalid(name, "it has bytes that belong to no tensor");
}

/// A file can claim to be longer than all memory (a sparse one takes no disk), so this is looked at first.
std::unique_ptr<std::byte[]> allocate(std::uint64_t count, const std::string& name) {
  const auto pages = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES));
  if (count > pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE))) {
    throw Error("cannot read " + name + ": there is no memory for its " + std::to_string(count) + " bytes");
  }
  return std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(count));
}

/// CRC-32 over names, types, shapes, bytes and metadata, in the order of names: it does not depend on how
/// the header was written.
class ContentChecksum {
 public:
  std::string of(const std::vector<SafetensorsTensor>& tensors, const SafetensorsMetadata& metadata) {
    for (const auto& [key, value] : metadata) {
      addText(key);
      addText(value);
    }
    std::vector<const SafetensorsTensor*> byName;
    for (const SafetensorsTensor& tensor : tensors) byName.push_back(&tensor);
    std::sort(byName.begin(), byName.end(), [](auto* a, auto* b) { return a->name < b->name; });
    for (const SafetensorsTensor* tensor : byName) {
      addText(tensor->name);
      addText(nameOf(tensor->type));
      addNumber(tensor->shape.size());
      for (const std::uint64_t extent : tensor->shape) addNumber(extent);
      addBytes(tensor->bytes);
    }
    std::array<char, 9> text{};
    std::snprintf(text.data(), text.size(), "%08x", value_);
    return text.data();
  }

 private:
  void addBytes(std::span<const std::byte> bytes) { value_ = crc32(bytes, value_); }
  void addNumber(std::uint64_t number) { addBytes(std::as_bytes(std::span(&number, 1))); }
  void addText(std::string_view text) {
    addNumber(text.size());
    addBytes(std::as_bytes(std::span(text)));
  }

  std::uint32_t value_ = 0;
};

void checkForWriting(const std::vector<SafetensorsTensor>& tensors, const std::string& name) {
  std::set<std::string_view> names{metadataName};
  for (const SafetensorsTensor& tensor : tensors) {
    const auto refuse = [&](const std::string& trouble) {
      throw Error("cannot write " + name + ": tensor " + quote(tensor.name) + " " + trouble);
    };
    if (!names.insert(tensor.name).second) refuse("has a name that is taken");
    if (nameOf(tensor.type).empty()) refuse("has a type that the format does not have");
    if (byteCount(tensor.type, tensor.shape) != tensor.bytes.size()) {
      refuse("has " + std::to_string(tensor.bytes.size()) + " bytes, which does not fit " +
             describe(nameOf(tensor.type), tensor.shape));
    }
  }
}

/// Wide types first, so that every tensor is aligned for its type when the data is.
void sortForWriting(std::vector<SafetensorsTensor>& tensors) {
  const auto key = [](const SafetensorsTensor& tensor) {
    const auto isType = [&](const auto& entry) { return entry.first == tensor.type; };
    const auto rank = std::find_if(typeNames.begin(), typeNames.end(), isType) - typeNames.begin();
    return std::tuple(-static_cast<std::int64_t>(sizeInBytes(tensor.type)), rank,
                      std::string_view(tensor.name));
  };
  std::sort(tensors.begin(), tensors.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
}

std::string headerText(const std::vector<SafetensorsTensor>& tensors, const SafetensorsMetadata& metadata,
                       const std::string& name) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  header[std::string(metadataName)] = metadata;
  std::uint64_t position = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    const std::uint64_t end = position + tensor.bytes.size();
    header[tensor.name] = {
        {"dtype", nameOf(tensor.type)}, {"shape", tensor.shape}, {"data_offsets", {position, end}}};
    position = end;
  }
  try {
    std::string text = header.dump();
    // Spaces bring the data to a multiple of the widest element.
    text.resize((text.size() + lengthBytes - 1) / lengthBytes * lengthBytes, ' ');
    return text;
  } catch (const nlohmann::json::type_error&) {
    throw Error("cannot write " + name + ": a name or the metadata is not UTF-8 text");
  }
}

}  // namespace

/// What a header says.
struct detail::SafetensorsContents {
  static SafetensorsContents parse(std::string_view text, std::uint64_t dataLength, const std::string& name) {
    if (!text.starts_with('{')) throw invalid(name, "its header does not begin as JSON");
    HeaderReader reader;
    if (!nlohmann::json::sax_parse(text.begin(), text.end(), &reader)) throw invalid(name, reader.problem());
    SafetensorsContents contents{reader.takeMetadata(), reader.takeEntries()};
    std::sort(contents.entries.begin(), contents.entries.end(),
              [](const HeaderEntry& a, const HeaderEntry& b) {
                return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
              });
    checkLayout(contents.entries, dataLength, name);
    return contents;
  }

  SafetensorsMetadata metadata;
  std::vector<HeaderEntry> entries;
};

SafetensorsHeader::SafetensorsHeader(std::string name, detail::SafetensorsContents contents,
                                     std::uint64_t dataLength)
    : name_(std::move(name)), metadata_(std::move(contents.metadata)), dataLength_(dataLength) {
  tensors_.reserve(contents.entries.size());
  for (HeaderEntry& entry : contents.entries) {
    index_.emplace(entry.tensor.name, tensors_.size());
    tensors_.push_back(std::move(entry.tensor));
    conversions_.push_back(entry.conversion);
  }
  if (const auto checksum = metadata_.extract(std::string(checksumKey)); !checksum.empty())
    checksum_ = checksum.mapped();
}

SafetensorsHeader SafetensorsHeader::read(const std::filesystem::path& path) {
  const std::string name = path.string();
  auto file = std::make_shared<InputFile>(path);
  if (file->size() < lengthBytes) throw invalid(name, "it is too short");
  std::array<std::byte, lengthBytes> prefix{};
  file->read(prefix);
  const std::uint64_t length = headerLength(prefix, file->size(), name);
  std::string text(static_cast<std::size_t>(length), '\0');
  file->read(std::as_writable_bytes(std::span(text)));
  const std::uint64_t dataLength = file->size() - lengthBytes - length;
  SafetensorsHeader header(name, detail::SafetensorsContents::parse(text, dataLength, name), dataLength);
  header.file_ = std::move(file);
  return header;
}

const SafetensorsTensor& SafetensorsHeader::tensor(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) throw error("it has no tensor " + quote(name));
  return tensors_[found->second];
}

const SafetensorsTensor& SafetensorsHeader::tensor(std::string_view name, DataType type,
                                                   std::span<const std::uint64_t> shape) const {
  const SafetensorsTensor& found = tensor(name);
  if (found.type != type || !std::ranges::equal(found.shape, shape)) {
    throw error("tensor " + quote(name) + " is " + describe(nameOf(found.type), found.shape) + ", expected " +
                describe(nameOf(type), shape));
  }
  return found;
}

const std::string& SafetensorsHeader::metadata(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found == metadata_.end()) throw error("its metadata has no entry " + quote(key));
  return found->second;
}

Error SafetensorsHeader::error(const std::string& trouble) const {
  return Error("cannot use " + name_ + ": " + trouble);
}

SafetensorsFile::SafetensorsFile(SafetensorsHeader header, std::unique_ptr<std::byte[]> data)
    : SafetensorsHeader(std::move(header)), data_(std::move(data)) {
  std::size_t position = 0;  // the layout has no gaps
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    SafetensorsTensor& tensor = tensors_[i];
    const std::byte* const begin = data_.get() + position;
    position += static_cast<std::size_t>(byteCount(tensor, conversions_[i]).value_or(0));
    const auto bytes = static_cast<std::size_t>(byteCount(tensor.type, tensor.shape).value_or(0));
    tensor.bytes = {begin, bytes};
    if (conversions_[i] == Conversion::None) continue;
    std::vector<float>& values = converted_.emplace_back(bytes / sizeof(float));
    convert(conversions_[i], begin, values);
    tensor.bytes = std::as_bytes(std::span(values));
  }
  if (!checksum_.empty() && checksum_ != ContentChecksum().of(tensors_, metadata_)) {
    throw error("it is damaged, its checksum does not fit its content");
  }
}

SafetensorsFile SafetensorsFile::read(const std::filesystem::path& path) {
  return read(SafetensorsHeader::read(path));
}

SafetensorsFile SafetensorsFile::read(const SafetensorsHeader& header) {
  const std::uint64_t length = header.dataLength();
  std::unique_ptr<std::byte[]> data = allocate(length, header.name_);
  if (!header.file_) throw header.error("it was read from memory");
  header.file_->readAt(header.file_->size() - length, {data.get(), static_cast<std::size_t>(length)});
  return {header, std::move(data)};
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, const std::string& name) {
  if (bytes.size() < lengthBytes) throw invalid(name, "it is too short");
  const auto length = static_cast<std::size_t>(headerLength(bytes.first<lengthBytes>(), bytes.size(), name));
  const std::span<const std::byte> text = bytes.subspan(lengthBytes, length);
  const std::span<const std::byte> content = bytes.subspan(lengthBytes + length);
  SafetensorsHeader header(
      name,
      detail::SafetensorsContents::parse({reinterpret_cast<const char*>(text.data()), text.size()},
                                         content.size(), name),
      content.size());
  std::unique_ptr<std::byte[]> data = allocate(content.size(), name);
  std::copy(content.begin(), content.end(), data.get());
  return {std::move(header), std::move(data)};
}

std::vector<float> SafetensorsFile::floats(std::string_view name,
                                           std::span<const std::uint64_t> shape) const {
  const bool isHalf = tensor(name).type == DataType::Float16;
  const SafetensorsTensor& found = tensor(name, isHalf ? DataType::Float16 : DataType::Float32, shape);
  // Copied, because another program's file may hold the elements at any address.
  std::vector<float> values(found.bytes.size() / sizeInBytes(found.type));
  if (!isHalf) {
    std::ranges::copy(found.bytes, std::as_writable_bytes(std::span(values)).begin());
    return values;
  }
  std::vector<Float16> numbers(values.size());
  std::ranges::copy(found.bytes, std::as_writable_bytes(std::span(numbers)).begin());
  std::ranges::transform(numbers, values.begin(), [](Float16 half) { return toFloat(half); });
  return values;
}

std::uint64_t SafetensorsFile::unsignedNumber(std::string_view name) const {
  std::uint64_t value = 0;
  std::memcpy(&value, tensor(name, DataType::UInt64, {}).bytes.data(), sizeof(value));
  return value;
}

void writeSafetensors(const std::filesystem::path& path, std::vector<SafetensorsTensor> tensors,
                      const SafetensorsMetadata& metadata) {
  const std::string name = path.string();
  checkForWriting(tensors, name);
  sortForWriting(tensors);
  SafetensorsMetadata extended = metadata;
  extended.erase(std::string(checksumKey));
  const std::string checksum = ContentChecksum().of(tensors, extended);
  extended.emplace(checksumKey, checksum);
  const std::string header = headerText(tensors, extended, name);
  const std::uint64_t length = header.size();

  AtomicFile file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(header);
  for (const SafetensorsTensor& tensor : tensors) file.write(tensor.bytes);
  file.commit();
}

}  // namespace mps
