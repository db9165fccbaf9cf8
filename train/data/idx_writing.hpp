#pragma once

#include <zlib.h>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// What tests need to make data sets of their own.
namespace unmetal::train::detail {

/// An IDX file of unsigned bytes; `values` need not fit the shape.
inline std::string idxOf(const std::vector<std::uint32_t>& shape, std::string_view values) {
  std::string file{'\0', '\0', '\x08', static_cast<char>(shape.size())};
  for (const std::uint32_t extent : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) file += static_cast<char>((extent >> shift) & 0xFF);
  }
  return file.append(values);
}

/// The same content as gzip compresses it.
inline std::string gzipOf(std::string_view content) {
  z_stream stream{};
  constexpr int gzipWithLargestWindow = 16 + MAX_WBITS;
  if (::deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, gzipWithLargestWindow, 8, Z_DEFAULT_STRATEGY) !=
      Z_OK) {
    throw std::runtime_error("cannot compress");
  }
  std::string file(::deflateBound(&stream, content.size()), '\0');
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(file.data());
  stream.avail_out = static_cast<uInt>(file.size());
  const int result = ::deflate(&stream, Z_FINISH);
  file.resize(stream.total_out);
  ::deflateEnd(&stream);
  if (result != Z_STREAM_END) throw std::runtime_error("cannot compress");
  return file;
}

}  // namespace unmetal::train::detail
