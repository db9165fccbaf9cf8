#pragma once

#include <optional>

#include "mps/weights/safetensors.hpp"
#include "train/data/normalization.hpp"

namespace unmetal::train::detail {

/// As the metadata `picture.mean` and `picture.deviation`, numbers with a space between each two.
void addTo(mps::SafetensorsMetadata& metadata, const Normalization& normalization);

/// Of a file that anybody has written; nothing where it says none. @throws mps::Error, naming the file, for what is no
/// normalisation of these pictures
std::optional<Normalization> normalizationIn(const mps::SafetensorsHeader& file, const Shape& pictures);

}  // namespace unmetal::train::detail
