#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "mps/core/coding/secure_coding.hpp"
#include "mps/core/types/types.hpp"

namespace mps {

namespace detail {
class CodedData;
}

/// What objects are written to and read from, key by key (NSCoder; docs/decisions.md, D1).
///
/// An object is a map of its class's name, the version of its properties and the properties. All of them are always
/// there: a missing key, one that nobody asks for, a value of another type or out of range, another class or another
/// version throw Error. A shared object (std::shared_ptr) is written once, however many others refer to it, and is one
/// object again when they are read. After an error the coder is not used any more.
///
///     void MyPadding::encode(Coder& coder) const {
///       coder.codeClass(className());
///       coder.encode("rows", rows_);
///     }
class Coder {
 public:
  virtual ~Coder();
  Coder(const Coder&) = delete;
  Coder& operator=(const Coder&) = delete;

  [[nodiscard]] bool isDecoding() const { return decoding_; }

  /// Starts an object: writes the class and its version, or checks them.
  /// @throws Error for another class or version, or when this map is an object already
  void codeClass(std::string_view className);

  /// Writes one property: a truth value, a number, a text, an array of numbers, an enumeration, a value type of the
  /// library with encode(coder), or a shared object, which may be null where decodeOptional reads it.
  template <class T>
  void encode(std::string_view key, const T& value);
  template <class T>
  void encode(std::string_view key, const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    putBytes(key, std::as_bytes(std::span(values)));
  }
  template <class T>
  void encode(std::string_view key, const std::shared_ptr<T>& object) {
    putObject(key, std::shared_ptr<const SecureCoding>(object));
  }
  void encode(std::string_view key, const std::string& text);
  void encode(std::string_view key, const Offset& offset);
  void encode(std::string_view key, const ImageCoordinate& coordinate);
  void encode(std::string_view key, const mtl::Origin& origin);
  void encode(std::string_view key, const mtl::Size& size);
  void encode(std::string_view key, const mtl::Region& region);

  /// Reads one property into `value`; enumerations by decodeEnumeration. @throws Error when it is missing, of another
  /// type or out of range
  template <class T>
  void decode(std::string_view key, T& value);
  template <class T>
  void decode(std::string_view key, std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::span<const std::byte> bytes = takeBytes(key, sizeof(T));
    values.resize(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  /// The object is made on the device that the coder's objects are made on. @throws Error also for null
  template <class T>
  void decode(std::string_view key, std::shared_ptr<T>& object) {
    decodeOptional(key, object);
    if (!object) refuse(key, "null", "an object");
  }
  template <class T>
  void decodeOptional(std::string_view key, std::shared_ptr<T>& object) {
    const std::shared_ptr<SecureCoding> decoded = takeObject(key);
    object = std::dynamic_pointer_cast<T>(decoded);
    if (decoded && !object) refuse(key, decoded->className(), "an object of another kind");
  }
  void decode(std::string_view key, std::string& text);
  void decode(std::string_view key, Offset& offset);
  void decode(std::string_view key, ImageCoordinate& coordinate);
  void decode(std::string_view key, mtl::Origin& origin);
  void decode(std::string_view key, mtl::Size& size);
  void decode(std::string_view key, mtl::Region& region);

  /// Writes or reads, as the coder does: a class that lists its properties once can be coded both ways.
  template <class T>
  void code(std::string_view key, T& value) {
    if (decoding_)
      decode(key, value);
    else
      encode(key, value);
  }
  template <class T>
  void codeOptional(std::string_view key, std::shared_ptr<T>& object) {
    if (decoding_)
      decodeOptional(key, object);
    else
      encode(key, object);
  }
  /// A size of a kernel over images. @throws Error when one is read that is above limits().size
  void codeSize(std::string_view key, std::size_t& size);
  void codeSize(std::string_view key, ImageCoordinate& sizes);
  /// The greatest number is no size but stands for all that there is.
  void codeSizeOrAll(std::string_view key, std::size_t& size);
  void codeSizeOrAll(std::string_view key, mtl::Region& region);
  /// @param last the greatest value that there is
  template <class Enumeration>
  void codeEnumeration(std::string_view key, Enumeration& value, Enumeration last) {
    auto number = static_cast<std::uint64_t>(value);
    if (decoding_)
      value = static_cast<Enumeration>(takeUnsigned(key, static_cast<std::uint64_t>(last)));
    else
      putUnsigned(key, number);
  }
  /// @param all the bits that there are
  template <class Enumeration>
  void codeBits(std::string_view key, Enumeration& value, Enumeration all) {
    codeEnumeration(key, value, all);
    if ((static_cast<std::uint64_t>(value) & ~static_cast<std::uint64_t>(all)) != 0)
      refuse(key, std::to_string(static_cast<std::uint64_t>(value)),
             "bits of " + std::to_string(static_cast<std::uint64_t>(all)));
  }
  /// A map of its own: codeFields() codes what is in it.
  void codeGroup(std::string_view key, const std::function<void()>& codeFields);
  /// As many maps as there are items; when reading, `items` gets as many as were written.
  template <class T, class CodeItem>
  void codeList(std::string_view key, std::vector<T>& items, CodeItem codeItem) {
    items.resize(beginList(key, items.size()));
    for (std::size_t i = 0; i < items.size(); ++i) {
      beginItem(i);
      codeItem(items[i]);
      endMap();
    }
    endList();
  }

  /// Whether the map at hand has the key, for what is not always written.
  [[nodiscard]] bool contains(std::string_view key) const;
  /// @throws Error, naming the class at hand
  [[noreturn]] void refuse(std::string_view key, std::string_view found, std::string_view expected) const;
  /// @throws Error when the data has a key that nobody has asked for
  void checkAllRead() const;

  /// Makes an object of a class from the map at hand; the device is that of the object around it.
  using Decoder =
      std::function<std::shared_ptr<SecureCoding>(Coder& coder, const std::shared_ptr<mtl::Device>& device)>;
  /// For shared objects of that class. Those of the library's padding policies, image allocators and fixed data sources
  /// are there already; replaces an earlier one.
  void setDecoder(const std::string& className, Decoder decoder);

  /// @name The library's own
  /// @{
  /// The device for decoded objects, chosen by the first object; null before.
  [[nodiscard]] const std::shared_ptr<mtl::Device>& device() const { return device_; }
  void setDevice(std::shared_ptr<mtl::Device> device) { device_ = std::move(device); }
  /// What decoded objects are held to.
  [[nodiscard]] const CodingLimits& limits() const { return limits_; }
  /// @}

 protected:
  explicit Coder(std::unique_ptr<detail::CodedData> data, bool decoding, const CodingLimits& limits = {});
  [[nodiscard]] const detail::CodedData& data() const { return *data_; }

 private:
  void putTruth(std::string_view key, bool value);
  void putUnsigned(std::string_view key, std::uint64_t value);
  void putSigned(std::string_view key, std::int64_t value);
  void putFloat(std::string_view key, double value);
  void putBytes(std::string_view key, std::span<const std::byte> bytes);
  void putObject(std::string_view key, const std::shared_ptr<const SecureCoding>& object);
  [[nodiscard]] bool takeTruth(std::string_view key);
  [[nodiscard]] std::uint64_t takeUnsigned(std::string_view key, std::uint64_t most);
  [[nodiscard]] std::int64_t takeSigned(std::string_view key);
  [[nodiscard]] double takeFloat(std::string_view key, bool isFloat32);
  /// @param unit what the number of bytes must be a multiple of
  [[nodiscard]] std::span<const std::byte> takeBytes(std::string_view key, std::size_t unit);
  [[nodiscard]] std::shared_ptr<SecureCoding> takeObject(std::string_view key);
  void checkSize(std::string_view key, std::uint64_t size) const;
  void beginMap(std::string_view key);
  void endMap();
  std::size_t beginList(std::string_view key, std::size_t count);
  void beginItem(std::size_t index);
  void endList();

  std::unique_ptr<detail::CodedData> data_;
  bool decoding_;
  CodingLimits limits_;
  std::shared_ptr<mtl::Device> device_;
};

template <class T>
void Coder::encode(std::string_view key, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    putTruth(key, value);
  } else if constexpr (std::is_unsigned_v<T>) {
    putUnsigned(key, value);
  } else if constexpr (std::is_integral_v<T>) {
    putSigned(key, value);
  } else if constexpr (std::is_floating_point_v<T>) {
    putFloat(key, static_cast<double>(value));
  } else {
    beginMap(key);
    value.encode(*this);
    endMap();
  }
}

template <class T>
void Coder::decode(std::string_view key, T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    value = takeTruth(key);
  } else if constexpr (std::is_unsigned_v<T>) {
    value = static_cast<T>(takeUnsigned(key, std::numeric_limits<T>::max()));
  } else if constexpr (std::is_integral_v<T>) {
    static_assert(sizeof(T) == sizeof(std::int64_t));
    value = takeSigned(key);
  } else if constexpr (std::is_floating_point_v<T>) {
    value = static_cast<T>(takeFloat(key, std::is_same_v<T, float>));
  } else {
    beginMap(key);
    value = T::decode(*this);
    endMap();
  }
}

/// Writes objects as CBOR (NSKeyedArchiver; RFC 8949).
///
///     mps::KeyedArchiver archiver;
///     kernel->encode(archiver);
///     const std::vector<std::byte> bytes = archiver.encodedData();
///
/// Numbers keep their value exactly, infinities, NaN and -0 too (which NaN it was is lost); arrays of numbers keep their
/// bits. The device is not written.
class KeyedArchiver : public Coder {
 public:
  KeyedArchiver();
  [[nodiscard]] std::vector<std::byte> encodedData() const;
};

/// Reads what KeyedArchiver has written (MPSKeyedUnarchiver, NSKeyedUnarchiver).
///
///     mps::KeyedUnarchiver unarchiver(bytes, device);
///     const auto kernel = mps::CNNPoolingMax::decode(unarchiver);
///
/// The bytes need not be trusted: nothing of them is executed, memory is taken in proportion to their number alone, and
/// whatever is wrong with them throws Error, here or in the decode. What is decoded is held to CodingLimits, at its encodes,
/// too:
///
///     mps::CodingLimits limits;
///     limits.bytes = 16 << 20;  // no encode takes more than 16 MiB for an image
///     mps::KeyedUnarchiver unarchiver(bytes, device, limits);
class KeyedUnarchiver : public Coder, public DeviceProvider {
 public:
  /// @param device for decodes that name none; null: the system's default device
  /// @throws Error when the bytes are no CBOR map, hold more than 2^20 values, text or bytes in chunks, an integer below
  ///         -2^63, nest more than 16 deep, name a key twice, or go on behind their end
  explicit KeyedUnarchiver(std::span<const std::byte> bytes, std::shared_ptr<mtl::Device> device = nullptr,
                           const CodingLimits& limits = {});
  [[nodiscard]] std::shared_ptr<mtl::Device> mpsMTLDevice() const override { return providedDevice_; }

 private:
  std::shared_ptr<mtl::Device> providedDevice_;
};

}  // namespace mps
