#include "train/text/utf8.hpp"

#include <nlohmann/json.hpp>

namespace unmetal::train::detail {

bool isUtf8(std::string_view text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
  } catch (const nlohmann::json::exception&) {
    return false;
  }
  return true;
}

}  // namespace unmetal::train::detail
