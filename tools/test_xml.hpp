#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace unmetal {

/// Follows a document of elements, attributes and text, and says what is not well-formed in it; empty when
/// all is.
inline std::string troubleInXml(std::string_view text) {
  std::vector<std::string> open;
  std::size_t roots = 0;
  while (!text.empty()) {
    const std::size_t tag = text.find('<');
    const std::string_view words = text.substr(0, tag);
    if (open.empty() && words.find_first_not_of(" \n") != std::string_view::npos)
      return "text outside the root";
    for (std::size_t i = words.find('&'); i != std::string_view::npos; i = words.find('&', i + 1)) {
      const std::string_view entity = words.substr(i, words.find(';', i) - i + 1);
      if (entity != "&amp;" && entity != "&lt;" && entity != "&gt;" && entity != "&quot;")
        return "a bare ampersand";
    }
    if (tag == std::string_view::npos) break;
    text.remove_prefix(tag + 1);
    const bool isEnd = text.starts_with('/');
    if (isEnd) text.remove_prefix(1);
    const std::string name(text.substr(0, text.find_first_of(" />\n")));
    if (name.empty()) return "a tag without a name";
    text.remove_prefix(name.size());
    while (text.starts_with(' ')) {
      const std::size_t equals = text.find("=\"");
      if (equals == std::string_view::npos) return "an attribute without a value in " + name;
      const std::size_t end = text.find('"', equals + 2);
      if (end == std::string_view::npos) return "a value without an end in " + name;
      if (text.substr(1, equals - 1).find_first_of(" <>&\"") != std::string_view::npos)
        return "a wrong attribute";
      if (text.substr(equals, end - equals).find('<') != std::string_view::npos)
        return "a bracket in a value";
      text.remove_prefix(end + 1);
    }
    const bool isEmpty = text.starts_with('/');
    if (isEmpty) text.remove_prefix(1);
    if (!text.starts_with('>')) return "a tag without an end: " + name;
    text.remove_prefix(1);
    if (isEnd) {
      if (open.empty() || open.back() != name) return "an end without a beginning: " + name;
      open.pop_back();
    } else {
      if (open.empty() && ++roots > 1) return "two roots";
      if (!isEmpty) open.push_back(name);
    }
  }
  if (!open.empty()) return "no end of " + open.back();
  return roots == 1 ? "" : "no root";
}

}  // namespace unmetal
