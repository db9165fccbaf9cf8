#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace unmetal::train {

/// The content of an IDX file, the format of MNIST and its successors: an array of bytes, last index fastest.
struct IdxArray {
  std::vector<std::uint64_t> shape;
  std::vector<std::uint8_t> values;
};

/// Reads an IDX file of unsigned bytes with 1 to 4 dimensions, plain or compressed by gzip (told by its first
/// bytes). The file is untrusted: what its dimensions ask for is compared with what the file can hold before
/// memory is taken. Throws mps::Error with one sentence that begins with `name` for a file of another kind or
/// element type, too short, too long, or damaged (gzip has a checksum).
IdxArray parseIdx(std::span<const std::byte> file, const std::string& name);

/// parseIdx() for a file; throws mps::Error as well when it cannot be read.
IdxArray readIdx(const std::filesystem::path& path);

}  // namespace unmetal::train
