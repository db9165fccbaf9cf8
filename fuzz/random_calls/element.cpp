#include "fuzz/random_calls/element.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "mps/core/types/float16.hpp"

namespace unmetal::random_calls {
namespace {

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
void save(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

template <class T>
T normalized(double value, double most) {
  return static_cast<T>(std::lround(std::clamp(value, 0.0, 1.0) * most));
}

}  // namespace

ElementFormat formatOf(mps::ImageFeatureChannelFormat format) {
  using Format = mps::ImageFeatureChannelFormat;
  if (format == Format::Float32) return ElementFormat::Float32;
  if (format == Format::Float16) return ElementFormat::Float16;
  return format == Format::Unorm8 ? ElementFormat::UInt8 : ElementFormat::UInt16;
}

ElementFormat formatOf(mps::DataType type) {
  switch (type) {
    case mps::DataType::Float32:
      return ElementFormat::Float32;
    case mps::DataType::Float16:
      return ElementFormat::Float16;
    case mps::DataType::UInt32:
    case mps::DataType::Int32:
      return ElementFormat::UInt32;
    case mps::DataType::UInt16:
      return ElementFormat::UInt16;
    default:
      return ElementFormat::UInt8;
  }
}

std::size_t bytesPerElement(ElementFormat format) {
  switch (format) {
    case ElementFormat::Float32:
    case ElementFormat::UInt32:
      return 4;
    case ElementFormat::Float16:
    case ElementFormat::UInt16:
      return 2;
    case ElementFormat::UInt8:
      return 1;
  }
  return 1;
}

double valueOf(ElementFormat format, const std::byte* element) {
  switch (format) {
    case ElementFormat::Float32:
      return load<float>(element);
    case ElementFormat::Float16:
      return mps::toFloat(load<mps::Float16>(element));
    case ElementFormat::UInt32:
      return load<std::uint32_t>(element);
    case ElementFormat::UInt16:
      return load<std::uint16_t>(element);
    case ElementFormat::UInt8:
      return load<std::uint8_t>(element);
  }
  return 0;
}

void store(ElementFormat format, std::byte* element, double value) {
  switch (format) {
    case ElementFormat::Float32:
      return save(element, static_cast<float>(value));
    case ElementFormat::Float16:
      return save(element, mps::toFloat16(static_cast<float>(value)));
    case ElementFormat::UInt32:
      return save(element, static_cast<std::uint32_t>(static_cast<std::int64_t>(value)));
    case ElementFormat::UInt16:
      return save(element, normalized<std::uint16_t>(value, 65535));
    case ElementFormat::UInt8:
      return save(element, normalized<std::uint8_t>(value, 255));
  }
}

void fillWithSentinel(ElementFormat format, Bytes& bytes) {
  const std::size_t step = bytesPerElement(format);
  for (std::size_t at = 0; at + step <= bytes.size(); at += step) {
    std::byte* const element = bytes.data() + at;
    if (step == 4)
      save(element, std::uint32_t{0x7FC5A5A5});
    else if (step == 2)
      save(element, format == ElementFormat::Float16 ? std::uint16_t{0x7E5A} : std::uint16_t{0xA5A5});
    else
      save(element, std::uint8_t{0xA5});
  }
}

}  // namespace unmetal::random_calls
