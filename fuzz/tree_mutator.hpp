#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

namespace unmetal::fuzz {

/// Changes one value of a tree of values, so that what is around it stays whole.
class TreeMutator {
 public:
  explicit TreeMutator(unsigned seed) : random_(seed) {}

  void change(nlohmann::json& tree) {
    const std::vector<nlohmann::json*> all = valuesOf(tree);
    nlohmann::json& value = *all[below(all.size())];
    switch (below(8)) {
      case 0:
        value = nlohmann::json(*all[below(all.size())]);  // another value of the tree
        break;
      case 1:
        value = number();
        break;
      default:
        changeInKind(value);
    }
  }

  /// All values of a tree, itself first.
  static std::vector<nlohmann::json*> valuesOf(nlohmann::json& tree) {
    std::vector<nlohmann::json*> all;
    collect(tree, all);
    return all;
  }

 private:
  std::size_t below(std::size_t count) { return random_() % count; }

  static void collect(nlohmann::json& value, std::vector<nlohmann::json*>& all) {
    all.push_back(&value);
    if (!value.is_structured()) return;
    for (nlohmann::json& part : value) collect(part, all);
  }

  std::uint64_t number() {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t edges[] = {0,   1, 2, 3, 255, 65536, std::uint64_t{1} << 31U, std::uint64_t{1} << 62U,
                                   most};
    return edges[below(std::size(edges))];
  }

  void changeInKind(nlohmann::json& value) {
    if (value.is_boolean()) {
      value = !value.get<bool>();
    } else if (value.is_number_float()) {
      const double edges[] = {0.0,
                              -1.0,
                              0.5,
                              3e38,
                              1e300,
                              std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()};
      value = edges[below(std::size(edges))];
    } else if (value.is_number()) {
      value = below(2) == 0 ? number() : value.get<std::uint64_t>() + below(3) - 1;
    } else if (value.is_binary()) {
      auto& bytes = value.get_binary();
      if (below(4) == 0) bytes.resize(below(2 * bytes.size() + 9));
      if (!bytes.empty()) bytes[below(bytes.size())] = static_cast<std::uint8_t>(random_());
    } else if (value.is_object() && !value.empty()) {
      value.erase(std::next(value.begin(), static_cast<std::ptrdiff_t>(below(value.size()))));
    } else if (value.is_array() && !value.empty()) {
      const std::size_t item = below(value.size());
      if (below(2) == 0)
        value.erase(item);
      else
        value.push_back(nlohmann::json(value[item]));
    } else {
      value = number();
    }
  }

  std::mt19937 random_;
};

}  // namespace unmetal::fuzz
