#include <zlib.h>

#include <vector>

#include "fuzz/fuzz_target.hpp"
#include "train/pictures/picture.hpp"

namespace {

void parse(std::span<const std::byte> bytes) {
  const unmetal::train::Picture picture = unmetal::train::parsePicture(bytes, "input");
  if (picture.pixels.size() != picture.height * picture.width * picture.channels) std::abort();
  if (picture.pixels.size() > 4096) return;
  for (const std::size_t channels : {1U, 3U})
    if (unmetal::train::coverPicture(picture, 5, 7, channels).pixels.size() != 35 * channels) std::abort();
}

std::uint32_t bigEndian(const std::byte* bytes) {
  std::uint32_t number = 0;
  for (int i = 0; i < 4; ++i) number = number << 8U | std::to_integer<std::uint32_t>(bytes[i]);
  return number;
}

/// Sets the checksum of each chunk of a PNG file: otherwise nearly every changed one would end at the first.
std::vector<std::byte> withChecksums(std::span<const std::byte> file) {
  std::vector<std::byte> bytes(file.begin(), file.end());
  std::size_t chunk = 8;
  while (chunk + 12 <= bytes.size()) {
    const std::size_t length = bigEndian(&bytes[chunk]);
    if (length > bytes.size() - chunk - 12) break;
    auto checksum =
        ::crc32(0, reinterpret_cast<const Bytef*>(&bytes[chunk + 4]), static_cast<uInt>(length + 4));
    for (std::size_t i = 4; i-- > 0; checksum >>= 8U)
      bytes[chunk + 8 + length + i] = static_cast<std::byte>(checksum & 0xFFU);
    chunk += 12 + length;
  }
  return bytes;
}

}  // namespace

/// PNG and JPEG, and what training makes of small ones.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  unmetal::fuzz::readUntrusted(data, size, parse);
  return unmetal::fuzz::readUntrusted(data, size,
                                      [](std::span<const std::byte> bytes) { parse(withChecksums(bytes)); });
}
