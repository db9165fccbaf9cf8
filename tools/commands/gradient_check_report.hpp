#pragma once

#include <span>
#include <string>

#include "mps/conform/check_gradients.hpp"

namespace unmetal {

/// One line for the terminal; a failed row's report follows on lines of its own.
std::string gradientCheckLine(const std::string& network, const mps::GradientCheckRow& row);

struct NetworkGradientRow {
  std::string network;
  mps::GradientCheckRow row;
};
/// A list with an object for each row.
std::string gradientCheckJson(std::span<const NetworkGradientRow> rows);

}  // namespace unmetal
