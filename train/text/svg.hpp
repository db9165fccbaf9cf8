#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Pictures as SVG documents, an element a line. The same calls give the same text.
namespace unmetal::train::detail {

/// x to the right and y downwards, in pixels.
using Point = std::pair<double, double>;

inline constexpr const char* textColor = "#24292f";
inline constexpr const char* fadedColor = "#57606a";

/// With one decimal.
std::string pixels(double value);

class SvgWriter {
 public:
  using Attributes = std::vector<std::pair<std::string_view, std::string>>;

  /// The document, on a white ground. @param title what programs that show it call it
  void begin(double width, double height, std::string_view title);
  /// An element with others inside, to the matching close().
  void open(std::string_view name, const Attributes& attributes);
  void close();
  void element(std::string_view name, const Attributes& attributes);
  void element(std::string_view name, const Attributes& attributes, std::string_view content);

  void line(Point from, Point to, const std::string& color, double width);
  void rectangle(Point corner, Point size, const Attributes& more = {});
  /// @param anchor "start", "middle" or "end": which part of the text stands at `at`
  void words(Point at, std::string_view anchor, double size, const std::string& color,
             std::string_view content, Attributes more = {});

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  void tag(std::string_view name, const Attributes& attributes);

  std::string text_;
  std::vector<std::string> open_;
};

}  // namespace unmetal::train::detail
