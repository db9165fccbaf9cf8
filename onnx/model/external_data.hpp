#pragma once

#include <functional>
#include <string>

#include "onnx/model/model_reading.hpp"

namespace unmetal::onnx::detail {

/// Gives constants whose data is in other files their part of it.
/// @param dataOf the bytes of a file in the model's folder, by its name; they must outlive the model. Called for each constant
/// @throws mps::Error, naming the constant, for a file that is not in the model's folder, and for a part that is not in the file
void attachExternalData(ModelMessage& model,
                        const std::function<std::string_view(const std::string& fileName)>& dataOf);

}  // namespace unmetal::onnx::detail
