#pragma once

#include <cstddef>
#include <cstdint>

namespace mps::detail {

/// A size as the signed number that geometry computes with.
[[nodiscard]] constexpr std::int64_t asSigned(std::size_t value) {
  return static_cast<std::int64_t>(value);
}

}  // namespace mps::detail
