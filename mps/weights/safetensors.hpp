#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mps/core/types/types.hpp"

namespace mps {

/// Weights and checkpoints in the safetensors format: eight bytes with the length of a JSON header (little
/// endian), the header with name, type, shape and byte range of every tensor and a map of strings, then the
/// tensors' bytes, dense. Other programs and Python read and write the same files. Tensors of the types BF16 and F64, which
/// we do not write, are Float32 when they are read; what is too large for that is infinite then.
///
/// Files are untrusted: every length is compared with the size of the file before memory is taken, and every
/// function below throws mps::Error with one sentence that names the file and the trouble.

/// One tensor of a file, elements in row-major order; `bytes` belongs to somebody else.
struct SafetensorsTensor {
  std::string name;
  /// Float32, Float16 or an integer type of 8 to 64 bits.
  DataType type = DataType::Invalid;
  /// Empty for a single number.
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> bytes;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

class InputFile;

namespace detail {
struct SafetensorsContents;

/// What a tensor's bytes become when they are read.
enum class SafetensorsConversion : std::uint8_t { None, BFloat16, Float64 };
}  // namespace detail

/// What a file says about its tensors: header and sizes were checked, the tensors' bytes were not read (their spans are
/// empty). A file may be larger than it looks on a disk; this tells at once whether it is what the reader wants:
///
///     const auto header = mps::SafetensorsHeader::read("weights.safetensors");
///     header.tensor("conv1.weight", mps::DataType::Float32, shape);  // throws unless it is there with that shape
///     const auto file = mps::SafetensorsFile::read(header);
class SafetensorsHeader {
 public:
  /// Longest header that is accepted, the limit of the format.
  static constexpr std::uint64_t maximumHeaderLength = 100'000'000;

  static SafetensorsHeader read(const std::filesystem::path& path);

  /// In the order of their bytes in the file.
  const std::vector<SafetensorsTensor>& tensors() const { return tensors_; }
  bool contains(std::string_view name) const { return index_.contains(name); }
  /// Throws when there is no tensor `name`.
  const SafetensorsTensor& tensor(std::string_view name) const;
  /// Throws as well when it has another type or shape.
  const SafetensorsTensor& tensor(std::string_view name, DataType type,
                                  std::span<const std::uint64_t> shape) const;
  /// Bytes of all tensors together.
  std::uint64_t dataLength() const { return dataLength_; }

  const SafetensorsMetadata& metadata() const { return metadata_; }
  /// Throws when there is no entry `key`.
  const std::string& metadata(const std::string& key) const;

  /// An error that names this file: "<file>: <trouble>".
  Error error(const std::string& trouble) const;

 private:
  friend class SafetensorsFile;
  SafetensorsHeader(std::string name, detail::SafetensorsContents contents, std::uint64_t dataLength);

  std::string name_;
  SafetensorsMetadata metadata_;
  std::string checksum_;  ///< empty: the file has none
  std::vector<SafetensorsTensor> tensors_;
  std::vector<detail::SafetensorsConversion> conversions_;  ///< of each tensor
  std::map<std::string, std::size_t, std::less<>> index_;
  std::uint64_t dataLength_ = 0;
  std::shared_ptr<InputFile> file_;  ///< null of one that was read from memory
};

/// A file that was read and checked. It owns the memory that its tensors point into.
class SafetensorsFile : public SafetensorsHeader {
 public:
  static SafetensorsFile read(const std::filesystem::path& path);
  /// The file whose header it is, open since that was read; throws when it has become shorter.
  static SafetensorsFile read(const SafetensorsHeader& header);
  /// Reads from memory; `name` stands for the file's name in errors.
  static SafetensorsFile parse(std::span<const std::byte> bytes, const std::string& name);

  /// The elements of a Float32 or Float16 tensor; throws when the type is neither or the shape is another.
  std::vector<float> floats(std::string_view name, std::span<const std::uint64_t> shape) const;
  /// The value of a UInt64 tensor with one element.
  std::uint64_t unsignedNumber(std::string_view name) const;

 private:
  SafetensorsFile(SafetensorsHeader header, std::unique_ptr<std::byte[]> data);

  std::unique_ptr<std::byte[]> data_;
  std::vector<std::vector<float>> converted_;  ///< tensors of another type in the file
};

/// Writes a file as AtomicFile does: whole or not at all. The same input gives the same bytes: wide element
/// types first, then by name; metadata by key. A checksum of the content goes into the metadata as
/// "unmetal.crc32"; reading a file that has one compares it, so that damaged weights are refused.
///
/// Throws for two tensors of one name, the reserved name "__metadata__", text that is not UTF-8, a type that
/// the format does not have, and bytes whose number is not that of type and shape.
void writeSafetensors(const std::filesystem::path& path, std::vector<SafetensorsTensor> tensors,
                      const SafetensorsMetadata& metadata);

}  // namespace mps
