#pragma once

#include <span>
#include <string>

#include "mps/conform/conform.hpp"

namespace mps::detail {

/// One line, in columns: kernel, direction, format, implementation, tier, cases, elements, worst, "passed" or
/// "FAILED"; the report of a failed row follows on lines of their own.
std::string conformLine(const ConformRow& row);

/// "N passed, N failed".
std::string conformSummary(std::span<const ConformRow> rows);

/// An array of objects with kernel, direction, format, implementation, device, tier, cases, refused,
/// elements, worst, seed, passed, and for failed rows report. An infinite `worst` is written as the largest
/// number.
std::string conformJson(std::span<const ConformRow> rows);

}  // namespace mps::detail
