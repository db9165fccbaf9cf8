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

#include "tools/picture.hpp"

/// Picture files for tests.
namespace unmetal::testing {

/// A PNG file of 8 bits.
inline std::string pngOf(const Picture& picture) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width);
  image.height = static_cast<png_uint_32>(picture.height);
  image.format = picture.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t size = 0;
  if (!::png_image_write_get_memory_size(image, size, 0, picture.pixels.data(), 0, nullptr))
    throw std::runtime_error(image.message);
  std::string file(size, '\0');
  if (!::png_image_write_to_memory(&image, file.data(), &size, 0, picture.pixels.data(), 0, nullptr))
    throw std::runtime_error(image.message);
  file.resize(size);
  return file;
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

}  // namespace unmetal::testing
