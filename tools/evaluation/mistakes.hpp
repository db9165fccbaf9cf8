#pragma once

#include <filesystem>
#include <string>

#include "tools/evaluation/confusion_matrix.hpp"
#include "tools/evaluation/worst_pictures.hpp"
#include "train/data/dataset.hpp"

namespace unmetal {

inline constexpr const char* confusionName = "confusion.svg";
inline constexpr const char* worstName = "worst.svg";

/// Writes both pictures into a folder that is there. @throws mps::Error when one cannot be written
void drawMistakes(const std::filesystem::path& folder, const std::string& title,
                  const ConfusionMatrix& matrix, const WorstPictures& worst, const train::Dataset& data);

}  // namespace unmetal
