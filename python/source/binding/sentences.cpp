#include "python/source/binding/sentences.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace python {
namespace {

constexpr bool isUpper(char c) {
  return c >= 'A' && c <= 'Z';
}
constexpr bool isLower(char c) {
  return c >= 'a' && c <= 'z';
}
constexpr bool isOfName(char c) {
  return isUpper(c) || isLower(c) || (c >= '0' && c <= '9') || c == '_';
}

/// Names that are written like ours and are none.
constexpr std::array<std::string_view, 5> others{"cuDNN", "cuBLAS", "cuBLASLt", "oneDNN", "oneAPI"};

/// Two small letters or more, then a capital: `dL` of a formula is no name.
bool isCamelBack(std::string_view word) {
  const auto capital = std::find_if(word.begin(), word.end(), isUpper);
  return capital != word.end() && capital - word.begin() >= 2 && isLower(word.front()) &&
         word.find('_') == std::string_view::npos && std::ranges::find(others, word) == others.end();
}

/// A word begins at a capital behind a small letter or a digit, and at the last capital of several: GPUStart, kernelX.
/// UInt, PReLU and PyTorch are words.
std::string snakeCase(std::string word) {
  for (const std::string_view whole : {"UInt", "PReLU", "PyTorch"})
    for (std::size_t at = word.find(whole); at != std::string::npos; at = word.find(whole, at + whole.size()))
      std::transform(word.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                     word.begin() + static_cast<std::ptrdiff_t>(at + whole.size()),
                     word.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string snake;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const bool begins =
        i > 0 && isUpper(word[i]) && (!isUpper(word[i - 1]) || (i + 1 < word.size() && isLower(word[i + 1])));
    if (begins) snake += '_';
    snake += static_cast<char>(std::tolower(static_cast<unsigned char>(word[i])));
  }
  return snake;
}

}  // namespace

std::string inPythonsNames(std::string_view sentence) {
  std::string text;
  bool quoted = false;
  for (std::size_t i = 0; i < sentence.size();) {
    if (quoted || !isOfName(sentence[i])) {
      quoted ^= sentence[i] == '"';
      text += sentence[i++];
      continue;
    }
    std::size_t end = i;
    while (end < sentence.size() && isOfName(sentence[end])) ++end;
    const std::string_view word = sentence.substr(i, end - i);
    const bool ofPath = (i > 0 && (sentence[i - 1] == '/' || sentence[i - 1] == '.')) ||
                        (end + 1 < sentence.size() &&
                         (sentence[end] == '/' || (sentence[end] == '.' && isLower(sentence[end + 1]))));
    if (word == "null")
      text += "None";
    else
      text += isCamelBack(word) && !ofPath ? snakeCase(std::string(word)) : word;
    i = end;
  }
  return text;
}

}  // namespace python
