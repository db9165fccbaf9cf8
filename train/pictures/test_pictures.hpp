#pragma once

#include <cstdio>

#include <jpeglib.h>
#include <png.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "mps/weights/crc32.hpp"
#include "train/pictures/picture.hpp"

/// Picture files for tests.
namespace unmetal::train::testing {

/// A PNG file of 8 bits.
inline std::string pngOf(const Picture& picture) {
  const std::vector<std::byte> file = encodePng(picture);
  return {reinterpret_cast<const char*>(file.data()), file.size()};
}

/// A PNG file of 16 bits, all pixels alike.
inline std::string deepPngOf(std::size_t height, std::size_t width, std::uint16_t linearValue) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = PNG_FORMAT_LINEAR_Y;
  const std::vector<std::uint16_t> pixels(height * width, linearValue);
  png_alloc_size_t size = 0;
  if (!::png_image_write_get_memory_size(image, size, 0, pixels.data(), 0, nullptr))
    throw std::runtime_error(image.message);
  std::string file(size, '\0');
  if (!::png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, nullptr))
    throw std::runtime_error(image.message);
  file.resize(size);
  return file;
}

/// How a JPEG file is written.
struct JpegKind {
  int components = 3;
  J_COLOR_SPACE pixels = JCS_RGB;    ///< of what is given
  J_COLOR_SPACE stored = JCS_YCbCr;  ///< in the file
  bool adobe = false;                ///< with Adobe's marker
  bool progressive = false;
  bool separate = false;  ///< a scan for each component
  bool arithmetic = false;
};

/// A JPEG file of the best quality, without subsampling.
inline std::string jpegOf(std::size_t height, std::size_t width, std::span<const std::uint8_t> pixels,
                          const JpegKind& kind) {
  jpeg_error_mgr errors{};
  jpeg_compress_struct info{};
  info.err = ::jpeg_std_error(&errors);
  ::jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  ::jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = kind.components;
  info.in_color_space = kind.pixels;
  ::jpeg_set_defaults(&info);
  ::jpeg_set_colorspace(&info, kind.stored);
  ::jpeg_set_quality(&info, 100, TRUE);
  for (int i = 0; i < info.num_components; ++i)
    info.comp_info[i].h_samp_factor = info.comp_info[i].v_samp_factor = 1;
  info.write_Adobe_marker = kind.adobe ? TRUE : FALSE;
  info.arith_code = kind.arithmetic ? TRUE : FALSE;
  if (kind.progressive) ::jpeg_simple_progression(&info);
  const jpeg_scan_info scans[] = {{1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
  if (kind.separate) {
    info.scan_info = scans;
    info.num_scans = kind.components;
  }
  ::jpeg_start_compress(&info, TRUE);
  const std::size_t rowBytes = width * static_cast<std::size_t>(kind.components);
  std::vector<std::uint8_t> copy(pixels.begin(), pixels.end());
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = copy.data() + info.next_scanline * rowBytes;
    ::jpeg_write_scanlines(&info, &row, 1);
  }
  ::jpeg_finish_compress(&info);
  ::jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<const char*>(memory), size);
  std::free(memory);
  return file;
}

/// EXIF data with an orientation: a TIFF header and a directory with one entry.
inline std::string exifOf(int orientation, bool isBigEndian) {
  std::string text = isBigEndian ? "MM" : "II";
  const auto append = [&](std::uint32_t number, int bytes) {
    for (int i = 0; i < bytes; ++i)
      text += static_cast<char>(number >> (8 * (isBigEndian ? bytes - 1 - i : i)) & 0xFFU);
  };
  append(42, 2);
  append(8, 4);      // where the directory is
  append(1, 2);      // its entries
  append(0x112, 2);  // the tag of the orientation
  append(3, 2);      // of 16 bits
  append(1, 4);      // one
  append(static_cast<std::uint32_t>(orientation), 2);
  append(0, 2);
  append(0, 4);  // no other directory
  return text;
}

/// A JPEG or PNG file with EXIF data behind its beginning.
inline std::string withExif(const std::string& file, const std::string& exif) {
  const auto bigEndian = [](std::size_t number, int bytes) {
    std::string text;
    for (int i = bytes; i-- > 0;) text += static_cast<char>(number >> (8 * i) & 0xFFU);
    return text;
  };
  if (file.starts_with("\xFF\xD8")) {
    const std::string content = std::string("Exif\0\0", 6) + exif;
    return file.substr(0, 2) + "\xFF\xE1" + bigEndian(content.size() + 2, 2) + content + file.substr(2);
  }
  constexpr std::size_t beginning = 8 + 12 + 13;  // the signature and the first chunk
  const std::string content = "eXIf" + exif;
  return file.substr(0, beginning) + bigEndian(exif.size(), 4) + content +
         bigEndian(mps::crc32(std::as_bytes(std::span(content))), 4) + file.substr(beginning);
}

}  // namespace unmetal::train::testing
