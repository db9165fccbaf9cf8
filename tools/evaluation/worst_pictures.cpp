#include "tools/evaluation/worst_pictures.hpp"

#include <algorithm>
#include <cmath>

#include "tools/terminal/text.hpp"
#include "train/text/fixed_point.hpp"
#include "train/text/svg.hpp"

namespace unmetal {
namespace {

using train::detail::fadedColor;
using train::detail::pixels;
using train::detail::Point;
using train::detail::SvgWriter;
using train::detail::textColor;

constexpr std::size_t columns = 6;
/// Larger pictures are shown smaller.
constexpr std::size_t mostPixels = 160;

// Sizes in pixels.
constexpr double sheetMargin = 24;
constexpr double sheetHead = 64;
constexpr double shownSide = 132;
constexpr double columnWidth = shownSide + 16;
constexpr double rowHeight = shownSide + 52;
constexpr std::size_t mostCaptionLetters = 20;

std::string base64(std::span<const std::byte> bytes) {
  constexpr const char* digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    unsigned group = 0;
    for (std::size_t j = 0; j < 3; ++j)
      group = group << 8U | (j < count ? std::to_integer<unsigned>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) text += j <= count ? digits[group >> (18 - 6 * j) & 63U] : '=';
  }
  return text;
}

/// "cat 3 %"
std::string caption(const std::string& name, float probability) {
  return shortened(printable(name), mostCaptionLetters) + " " +
         formatFixed(100 * static_cast<double>(probability), 1) + " %";
}

}  // namespace

train::Picture pictureOf(const train::Dataset& data, std::size_t index) {
  // Of 0 to 1 as bytes; of another number of channels than 1 and 3 the first one, grey.
  const train::Shape shape = data.shape();
  std::vector<float> values(shape.count());
  data.load(index, values);
  train::Picture picture{
      shape.height, shape.width, shape.channels == 3 ? std::size_t{3} : std::size_t{1}, {}};
  for (std::size_t pixel = 0; pixel < shape.height * shape.width; ++pixel)
    for (std::size_t channel = 0; channel < picture.channels; ++channel) {
      const float value = values[pixel * shape.channels + channel];
      picture.pixels.push_back(static_cast<std::uint8_t>(
          std::lround(255 * std::clamp(std::isfinite(value) ? value : 0, 0.0F, 1.0F))));
    }
  const double scale =
      static_cast<double>(mostPixels) / static_cast<double>(std::max(shape.height, shape.width));
  if (scale >= 1) return picture;
  const auto scaled = [scale](std::size_t side) {
    return std::max<std::size_t>(1, static_cast<std::size_t>(std::lround(scale * static_cast<double>(side))));
  };
  return train::fitPicture(picture, scaled(shape.height), scaled(shape.width), picture.channels);
}

void WorstPictures::add(std::size_t index, std::uint32_t label, std::span<const float> probabilities) {
  const auto best = std::ranges::max_element(probabilities);
  add({index, label, static_cast<std::uint32_t>(best - probabilities.begin()), probabilities[label], *best});
}

void WorstPictures::add(const Entry& entry) {
  const auto isWorse = [](const Entry& a, const Entry& b) {
    return a.probability != b.probability ? a.probability < b.probability : a.index < b.index;
  };
  if (entries_.size() == most_ && !isWorse(entry, entries_.back())) return;
  entries_.insert(std::ranges::upper_bound(entries_, entry, isWorse), entry);
  if (entries_.size() > most_) entries_.pop_back();
}

std::string drawWorstPictures(const std::string& title, const WorstPictures& worst,
                              const train::Dataset& data) {
  const std::vector<std::string> names = data.classNames();
  const std::size_t rows = (worst.entries().size() + columns - 1) / columns;
  SvgWriter svg;
  svg.begin(2 * sheetMargin + columnWidth * columns,
            sheetHead + rowHeight * static_cast<double>(rows) + sheetMargin, title);
  svg.words({sheetMargin, 30}, "start", 17, textColor, title, {{"font-weight", "bold"}});
  svg.words({sheetMargin, 52}, "start", 12, fadedColor,
            "the pictures whose class got the least probability; below it what they were taken for");
  for (std::size_t i = 0; i < worst.entries().size(); ++i) {
    const WorstPictures::Entry& entry = worst.entries()[i];
    const std::size_t row = i / columns;
    const Point at{sheetMargin + columnWidth * static_cast<double>(i % columns),
                   sheetHead + 8 + rowHeight * static_cast<double>(row)};
    svg.element("image",
                {{"x", pixels(at.first)},
                 {"y", pixels(at.second)},
                 {"width", pixels(shownSide)},
                 {"height", pixels(shownSide)},
                 {"style", "image-rendering:pixelated"},
                 {"href", "data:image/png;base64," + base64(encodePng(pictureOf(data, entry.index)))}});
    const bool isRight = entry.label == entry.prediction;
    svg.words({at.first, at.second + shownSide + 16}, "start", 12, textColor,
              caption(names[entry.label], entry.probability));
    svg.words({at.first, at.second + shownSide + 32}, "start", 12, isRight ? fadedColor : "#c2530a",
              isRight ? "right" : caption(names[entry.prediction], entry.confidence));
  }
  svg.close();
  return svg.text();
}

}  // namespace unmetal
