#include "mps/conform/guarded/guarded_pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

namespace mps::detail {
namespace {

/// A kernel that runs past the end of an operand seldom jumps farther at once; it costs addresses, not memory.
constexpr std::size_t kForbiddenBytes = std::size_t{1} << 20U;

std::size_t roundUp(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

GuardedPages::GuardedPages(PageSide side, std::size_t bytes, std::size_t alignment) {
  const std::size_t inner = roundUp(bytes, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  const std::size_t length = inner + 2 * kForbiddenBytes;
  void* const address = mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  mapped_ = {static_cast<std::byte*>(address), length};
  whole_ = mapped_.subspan(kForbiddenBytes, inner);
  if (inner > 0 && mprotect(whole_.data(), inner, PROT_READ | PROT_WRITE) != 0) {
    munmap(address, length);
    throw std::bad_alloc();
  }
  if (side == PageSide::After) offset_ = (inner - bytes) / alignment * alignment;
}

GuardedPages::~GuardedPages() {
  munmap(mapped_.data(), mapped_.size());
}

}  // namespace mps::detail
