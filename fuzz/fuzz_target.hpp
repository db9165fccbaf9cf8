#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "mps/core/types/error.hpp"

/// What libFuzzer calls, or the program that replays the corpus. Bytes may be refused with mps::Error; everything else
/// that happens is a finding.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace unmetal::fuzz {

/// Calls read(bytes).
template <class Read>
int readUntrusted(const std::uint8_t* data, std::size_t size, Read read) {
  try {
    read(std::as_bytes(std::span(data, size)));
  } catch (const mps::Error&) {
    // Refused in one sentence.
  }
  return 0;
}

}  // namespace unmetal::fuzz
