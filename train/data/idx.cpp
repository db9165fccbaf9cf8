#include "train/data/idx.hpp"

#include <zlib.h>
#include <algorithm>
#include <array>
#include <limits>
#include <new>

#include "mps/core/types/error.hpp"
#include "mps/weights/input_file.hpp"

namespace unmetal::train {
namespace {

constexpr std::uint64_t largestFile = std::uint64_t{1} << 32;
constexpr std::uint8_t unsignedByteType = 0x08;
constexpr std::uint8_t mostDimensions = 4;

mps::Error invalid(const std::string& name, const std::string& trouble) {
  return mps::Error(name + " is not a valid IDX file: " + trouble);
}

/// What comes out of an uncompressed file.
class PlainSource {
 public:
  explicit PlainSource(std::span<const std::byte> bytes, const std::string& name)
      : bytes_(bytes), name_(name) {}

  std::uint64_t mostBytes() const { return bytes_.size(); }

  void read(std::span<std::uint8_t> destination) {
    if (destination.size() > bytes_.size()) throw invalid(name_, "it is too short");
    std::ranges::transform(bytes_.first(destination.size()), destination.begin(),
                           std::to_integer<std::uint8_t>);
    bytes_ = bytes_.subspan(destination.size());
  }

  void expectEnd() {
    if (!bytes_.empty()) throw invalid(name_, "it has bytes after its end");
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& name_;
};

/// What comes out of a file compressed by gzip.
class GzipSource {
 public:
  GzipSource(std::span<const std::byte> bytes, const std::string& name)
      : fileSize_(bytes.size()), bytes_(bytes), name_(name) {
    constexpr int gzipWithLargestWindow = 16 + MAX_WBITS;
    if (::inflateInit2(&stream_, gzipWithLargestWindow) != Z_OK) throw std::bad_alloc();
  }
  ~GzipSource() { ::inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  /// The deflate format cannot make more than 1032 bytes out of one.
  std::uint64_t mostBytes() const { return fileSize_ * 1032; }

  void read(std::span<std::uint8_t> destination) {
    while (!destination.empty()) {
      const std::size_t count = inflateSome(destination);
      if (count == 0) throw invalid(name_, "it is too short");
      destination = destination.subspan(count);
    }
  }

  /// Reads the checksum too.
  void expectEnd() {
    std::array<std::uint8_t, 1> more{};
    if (inflateSome(more) != 0 || !bytes_.empty()) throw invalid(name_, "it has bytes after its end");
  }

 private:
  /// Fills as much of `destination` as there is; 0 at the end.
  std::size_t inflateSome(std::span<std::uint8_t> destination) {
    if (ended_) return 0;
    constexpr std::size_t mostAtOnce = std::numeric_limits<uInt>::max();
    const std::size_t available = std::min(bytes_.size(), mostAtOnce);
    const std::size_t wanted = std::min(destination.size(), mostAtOnce);
    // zlib only reads what next_in points to, but its type does not say so.
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes_.data()));
    stream_.avail_in = static_cast<uInt>(available);
    stream_.next_out = destination.data();
    stream_.avail_out = static_cast<uInt>(wanted);
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_BUF_ERROR) throw invalid(name_, "it is too short");
    if (result == Z_MEM_ERROR) throw std::bad_alloc();
    if (result != Z_OK && result != Z_STREAM_END) throw invalid(name_, "its compressed data is damaged");
    bytes_ = bytes_.subspan(available - stream_.avail_in);
    ended_ = result == Z_STREAM_END;
    const std::size_t count = wanted - stream_.avail_out;
    if (count == 0 && !ended_) throw invalid(name_, "it is too short");
    return count;
  }

  std::uint64_t fileSize_;
  std::span<const std::byte> bytes_;
  const std::string& name_;
  z_stream stream_{};
  bool ended_ = false;
};

std::string describe(const std::vector<std::uint64_t>& shape) {
  std::string result;
  for (const std::uint64_t extent : shape) result += (result.empty() ? "" : " x ") + std::to_string(extent);
  return result;
}

template <class Source>
std::vector<std::uint64_t> readShape(Source& source, const std::string& name) {
  std::array<std::uint8_t, 4> magic{};
  source.read(magic);
  if (magic[0] != 0 || magic[1] != 0) throw invalid(name, "it does not begin as one");
  if (magic[2] != unsignedByteType) throw invalid(name, "its elements are not unsigned bytes");
  if (magic[3] == 0 || magic[3] > mostDimensions) {
    throw invalid(name, "it has " + std::to_string(magic[3]) + " dimensions, expected 1 to 4");
  }
  std::vector<std::uint64_t> shape;
  for (std::uint8_t i = 0; i < magic[3]; ++i) {
    std::array<std::uint8_t, 4> extent{};
    source.read(extent);
    shape.push_back(std::uint64_t{extent[0]} << 24 | std::uint64_t{extent[1]} << 16 |
                    std::uint64_t{extent[2]} << 8 | extent[3]);
  }
  return shape;
}

template <class Source>
IdxArray readArray(Source& source, const std::string& name) {
  IdxArray array{readShape(source, name), {}};
  std::uint64_t count = 1;
  if (std::ranges::count(array.shape, 0U) != 0) {
    throw invalid(name, "it is an empty array of " + describe(array.shape));
  }
  for (const std::uint64_t extent : array.shape) {
    if (count > source.mostBytes() / extent) {
      throw invalid(name, "it is too short for its " + describe(array.shape) + " elements");
    }
    count *= extent;
  }
  array.values.resize(static_cast<std::size_t>(count));
  source.read(array.values);
  source.expectEnd();
  return array;
}

}  // namespace

IdxArray parseIdx(std::span<const std::byte> file, const std::string& name) {
  const bool isGzip = file.size() >= 2 && file[0] == std::byte{0x1F} && file[1] == std::byte{0x8B};
  if (isGzip) {
    GzipSource source(file, name);
    return readArray(source, name);
  }
  PlainSource source(file, name);
  return readArray(source, name);
}

IdxArray readIdx(const std::filesystem::path& path) {
  return parseIdx(mps::readFile(path, largestFile), path.string());
}

}  // namespace unmetal::train
