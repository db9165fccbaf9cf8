#include "train/text/svg.hpp"

#include "train/text/fixed_point.hpp"

namespace unmetal::train::detail {
namespace {

/// Bytes of the character of UTF-8 that the text begins with; 0 where it begins with none.
std::size_t characterLength(std::string_view text) {
  const auto byteAt = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byteAt(0);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xC2 ? 0
                             : first < 0xE0 ? 2
                             : first < 0xF0 ? 3
                             : first < 0xF5 ? 4
                                            : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byteAt(i) & 0xC0U) != 0x80U) return 0;
  // Longer forms than needed, surrogates, and what is beyond Unicode.
  const bool isWrong = (first == 0xE0 && byteAt(1) < 0xA0) || (first == 0xED && byteAt(1) > 0x9F) ||
                       (first == 0xF0 && byteAt(1) < 0x90) || (first == 0xF4 && byteAt(1) > 0x8F);
  return isWrong ? 0 : length;
}

/// Text as it stands in XML; control characters, which XML does not have, become spaces, bytes that are no UTF-8 question marks.
std::string escaped(std::string_view text) {
  std::string result;
  for (; !text.empty();) {
    const std::size_t length = characterLength(text);
    const char character = length == 0 ? '?' : text.front();
    if (length > 1) {
      result += text.substr(0, length);
      text.remove_prefix(length);
      continue;
    }
    text.remove_prefix(1);
    switch (character) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += static_cast<unsigned char>(character) < 0x20 ? ' ' : character;
    }
  }
  return result;
}

}  // namespace

std::string pixels(double value) {
  return formatFixed(value, 1);
}

void SvgWriter::begin(double width, double height, std::string_view title) {
  open("svg", {{"xmlns", "http://www.w3.org/2000/svg"},
               {"width", pixels(width)},
               {"height", pixels(height)},
               {"viewBox", "0 0 " + pixels(width) + " " + pixels(height)},
               {"font-family", "Helvetica, Arial, 'DejaVu Sans', sans-serif"}});
  element("title", {}, title);
  element("rect", {{"width", pixels(width)}, {"height", pixels(height)}, {"fill", "#ffffff"}});
}

void SvgWriter::open(std::string_view name, const Attributes& attributes) {
  tag(name, attributes);
  text_ += ">\n";
  open_.emplace_back(name);
}

void SvgWriter::close() {
  text_ += "</" + open_.back() + ">\n";
  open_.pop_back();
}

void SvgWriter::element(std::string_view name, const Attributes& attributes) {
  tag(name, attributes);
  text_ += "/>\n";
}

void SvgWriter::element(std::string_view name, const Attributes& attributes, std::string_view content) {
  tag(name, attributes);
  text_ += ">" + escaped(content) + "</" + std::string(name) + ">\n";
}

void SvgWriter::line(Point from, Point to, const std::string& color, double width) {
  element("line", {{"x1", pixels(from.first)},
                   {"y1", pixels(from.second)},
                   {"x2", pixels(to.first)},
                   {"y2", pixels(to.second)},
                   {"stroke", color},
                   {"stroke-width", pixels(width)}});
}

void SvgWriter::rectangle(Point corner, Point size, const Attributes& more) {
  Attributes attributes{{"x", pixels(corner.first)},
                        {"y", pixels(corner.second)},
                        {"width", pixels(size.first)},
                        {"height", pixels(size.second)}};
  attributes.insert(attributes.end(), more.begin(), more.end());
  element("rect", attributes);
}

void SvgWriter::words(Point at, std::string_view anchor, double size, const std::string& color,
                      std::string_view content, Attributes more) {
  more.insert(more.begin(), {{"x", pixels(at.first)},
                             {"y", pixels(at.second)},
                             {"text-anchor", std::string(anchor)},
                             {"font-size", pixels(size)},
                             {"fill", color}});
  element("text", more, content);
}

void SvgWriter::tag(std::string_view name, const Attributes& attributes) {
  text_ += std::string(2 * open_.size(), ' ') + "<" + std::string(name);
  for (const auto& [key, value] : attributes) text_ += " " + std::string(key) + "=\"" + escaped(value) + "\"";
}

}  // namespace unmetal::train::detail
