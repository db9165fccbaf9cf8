#pragma once

#include <string>

#include "tools/evaluation/confusion_matrix.hpp"

namespace unmetal {

/// The matrix as an SVG document: a row for each class, a column for what it was taken for, darker where it is a larger part
/// of the row. Of more than 40 classes those with the most mistakes are shown. The same input gives the same text.
std::string drawConfusion(const std::string& title, const ConfusionMatrix& matrix);

}  // namespace unmetal
