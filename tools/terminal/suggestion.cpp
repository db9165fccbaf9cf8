#include "tools/terminal/suggestion.hpp"

#include <algorithm>
#include <vector>

namespace unmetal {

std::size_t editDistance(std::string_view left, std::string_view right) {
  // The distances between the beginnings of both words: rows of the last two lengths of `left`, and of this one.
  std::vector<std::size_t> beforeLast;
  std::vector<std::size_t> last(right.size() + 1);
  for (std::size_t j = 0; j <= right.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= left.size(); ++i) {
    std::vector<std::size_t> row(right.size() + 1);
    row[0] = i;
    for (std::size_t j = 1; j <= right.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (left[i - 1] == right[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool areExchanged = i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1];
      if (areExchanged) row[j] = std::min(row[j], beforeLast[j - 2] + 1);
    }
    beforeLast = std::move(last);
    last = std::move(row);
  }
  return last.back();
}

std::string suggestion(std::string_view mistyped, std::span<const std::string> known) {
  constexpr std::size_t longest = 64;  // longer ones are no typing errors, and cost time
  if (mistyped.empty() || mistyped.size() > longest) return "";
  // One letter in three may be wrong.
  std::size_t least = std::max<std::size_t>(1, mistyped.size() / 3) + 1;
  const std::string* nearest = nullptr;
  for (const std::string& word : known) {
    const std::size_t distance = editDistance(mistyped, word);
    if (distance == 0) return "";  // it is not the word that is wrong
    if (distance >= least) continue;
    least = distance;
    nearest = &word;
  }
  return nearest == nullptr ? "" : "; did you mean " + *nearest + "?";
}

}  // namespace unmetal
