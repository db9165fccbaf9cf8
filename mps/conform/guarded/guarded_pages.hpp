#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mps::detail {

/// The side of memory on which a page that nobody may touch lies as near as can be.
enum class PageSide : std::uint8_t { Before, After };

/// Host memory between pages that nobody may read or write: who does so is stopped by a signal.
class GuardedPages {
 public:
  /// @param alignment of the first of the bytes: a power of two, at most 4096
  GuardedPages(PageSide side, std::size_t bytes, std::size_t alignment);
  ~GuardedPages();
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;

  /// All that may be touched.
  [[nodiscard]] std::span<std::byte> whole() const { return whole_; }
  /// Where the bytes begin in whole().
  [[nodiscard]] std::size_t offset() const { return offset_; }

 private:
  std::span<std::byte> mapped_;
  std::span<std::byte> whole_;
  std::size_t offset_ = 0;
};

}  // namespace mps::detail
