#pragma once

#include <span>
#include <string>

#include "mps/conform/check_gradients.hpp"

namespace unmetal {

struct NetworkGradientRow {
  std::string network;
  std::string without;  ///< the passes that were left out, as `--without` names them; empty for none
  mps::GradientCheckRow row;
};

/// One line for the terminal; a failed row's report follows on lines of its own.
std::string gradientCheckLine(const NetworkGradientRow& row);

/// A list with an object for each row.
std::string gradientCheckJson(std::span<const NetworkGradientRow> rows);

}  // namespace unmetal
