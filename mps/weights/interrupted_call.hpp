#pragma once

#include <cerrno>

namespace mps {

/// What a system function returns that reports errors with -1, called again while a signal interrupts it: an interruption
/// is no failure.
template <class Call>
auto repeatWhileInterrupted(Call&& call) {
  auto result = call();
  while (result == -1 && errno == EINTR) result = call();
  return result;
}

}  // namespace mps
