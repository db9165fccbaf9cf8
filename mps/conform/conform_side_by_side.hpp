#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "mps/conform/conform.hpp"

namespace mps::detail {

/// Calls `families` on each of `jobs` threads, with a Conform of its own; each row is done by the first one that is free.
/// On a GPU that is faster than processes side by side, between which it changes slowly; on a CPU the references of
/// some rows are computed while the kernels of another run. `rowFinished` is called by one thread at a time.
/// @return the rows in the order of `families`, whatever the number of jobs
/// @throws what a thread throws, when all have ended.
std::vector<ConformRow> conformSideBySide(const ConformOptions& options, std::int64_t jobs,
                                          const std::function<void(Conform&)>& families);

}  // namespace mps::detail
