#include "tools/picture.hpp"

#include <png.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "mps/core/error.hpp"
#include "tools/orientation.hpp"
#include "tools/picture_file.hpp"

namespace unmetal {
namespace {

/// libpng's structure for one picture, freed in the end.
class PngImage {
 public:
  PngImage() { image_.version = PNG_IMAGE_VERSION; }
  ~PngImage() { ::png_image_free(&image_); }
  PngImage(const PngImage&) = delete;
  PngImage& operator=(const PngImage&) = delete;
  png_image* operator->() { return &image_; }
  png_image* get() { return &image_; }

 private:
  png_image image_{};
};

/// Mixes pixels whose last channel is opacity with black, and takes that channel away.
std::vector<std::uint8_t> onBlack(std::span<const std::uint8_t> pixels, std::size_t channels) {
  std::vector<std::uint8_t> result;
  result.reserve(pixels.size() / (channels + 1) * channels);
  for (std::size_t i = 0; i < pixels.size(); i += channels + 1) {
    const unsigned opacity = pixels[i + channels];
    for (std::size_t channel = 0; channel < channels; ++channel) {
      result.push_back(static_cast<std::uint8_t>((pixels[i + channel] * opacity + 127) / 255));
    }
  }
  return result;
}

Picture convertChannels(const Picture& picture, std::size_t channels) {
  if (picture.channels == channels) return picture;
  Picture result{picture.height, picture.width, channels, {}};
  result.pixels.reserve(picture.height * picture.width * channels);
  for (std::size_t i = 0; i < picture.pixels.size(); i += picture.channels) {
    const std::uint8_t* pixel = &picture.pixels[i];
    if (channels == 3) {
      result.pixels.insert(result.pixels.end(), 3, pixel[0]);
    } else {
      const unsigned thousandths = 299U * pixel[0] + 587U * pixel[1] + 114U * pixel[2];
      result.pixels.push_back(static_cast<std::uint8_t>((thousandths + 500) / 1000));
    }
  }
  return result;
}

/// One source pixel's part in a destination pixel, along one axis.
struct Share {
  std::size_t source;
  double weight;
};

/// The shares of a destination pixel; their weights add up to 1.
std::vector<Share> sharesOf(std::size_t destination, std::size_t sourceExtent,
                            std::size_t destinationExtent) {
  const double scale = static_cast<double>(sourceExtent) / static_cast<double>(destinationExtent);
  const std::size_t last = sourceExtent - 1;
  if (scale <= 1) {
    const double centre = (static_cast<double>(destination) + 0.5) * scale - 0.5;
    const double clamped = std::clamp(centre, 0.0, static_cast<double>(last));
    const auto left = static_cast<std::size_t>(clamped);
    const double fraction = clamped - static_cast<double>(left);
    return {{left, 1 - fraction}, {std::min(left + 1, last), fraction}};
  }
  const double begin = static_cast<double>(destination) * scale;
  const double end = begin + scale;
  std::vector<Share> shares;
  for (auto source = static_cast<std::size_t>(begin); source <= last; ++source) {
    const auto position = static_cast<double>(source);
    const double covered = std::min(end, position + 1) - std::max(begin, position);
    if (covered <= 0) break;
    shares.push_back({source, covered / scale});
  }
  return shares;
}

std::vector<std::vector<Share>> allShares(std::size_t sourceExtent, std::size_t destinationExtent) {
  std::vector<std::vector<Share>> result;
  for (std::size_t i = 0; i < destinationExtent; ++i) {
    result.push_back(sharesOf(i, sourceExtent, destinationExtent));
  }
  return result;
}

/// Mixed rows for one destination row, not rounded yet.
std::vector<double> mixRows(const Picture& picture, const std::vector<Share>& rows) {
  const std::size_t rowSize = picture.width * picture.channels;
  std::vector<double> mixed(rowSize);
  for (const auto& [row, weight] : rows) {
    const std::uint8_t* source = &picture.pixels[row * rowSize];
    for (std::size_t i = 0; i < rowSize; ++i) mixed[i] += weight * source[i];
  }
  return mixed;
}

Picture resize(const Picture& picture, std::size_t height, std::size_t width) {
  const std::vector<std::vector<Share>> rows = allShares(picture.height, height);
  const std::vector<std::vector<Share>> columns = allShares(picture.width, width);
  Picture result{height, width, picture.channels, {}};
  result.pixels.reserve(height * width * picture.channels);
  for (std::size_t y = 0; y < height; ++y) {
    const std::vector<double> row = mixRows(picture, rows[y]);
    for (std::size_t x = 0; x < width; ++x) {
      for (std::size_t channel = 0; channel < picture.channels; ++channel) {
        double sum = 0;
        for (const auto& [column, weight] : columns[x])
          sum += weight * row[column * picture.channels + channel];
        result.pixels.push_back(static_cast<std::uint8_t>(std::clamp(std::lround(sum), 0L, 255L)));
      }
    }
  }
  return result;
}

}  // namespace

Picture parsePng(std::span<const std::byte> file, const std::string& name) {
  PngImage image;
  const auto fail = [&]() -> mps::Error {
    return mps::Error(name + " is not a valid PNG picture: " + image->message);
  };
  if (!::png_image_begin_read_from_memory(image.get(), file.data(), file.size())) throw fail();
  detail::checkPictureSize(name, image->width, image->height, file.size());
  // Numbers of 16 bits are taken to be on the same scale as those of 8 bits, not proportional to light.
  image->flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  image->format &= PNG_FORMAT_FLAG_COLOR | PNG_FORMAT_FLAG_ALPHA;
  const bool hasOpacity = (image->format & PNG_FORMAT_FLAG_ALPHA) != 0;
  const std::size_t channels = (image->format & PNG_FORMAT_FLAG_COLOR) != 0 ? 3 : 1;
  std::vector<std::uint8_t> pixels(PNG_IMAGE_SIZE(*image.get()));
  if (!::png_image_finish_read(image.get(), nullptr, pixels.data(), 0, nullptr)) throw fail();
  if (hasOpacity) pixels = onBlack(pixels, channels);
  return upright({image->height, image->width, channels, std::move(pixels)}, orientationOf(exifOfPng(file)));
}

Picture parsePicture(std::span<const std::byte> file, const std::string& name) {
  const auto beginsWith = [&](std::initializer_list<unsigned> bytes) {
    return file.size() >= bytes.size() &&
           std::ranges::equal(bytes, file.first(bytes.size()), {}, {}, std::to_integer<unsigned>);
  };
  if (file.empty()) throw mps::Error(name + " is empty");
  if (beginsWith({0xFF, 0xD8, 0xFF})) return parseJpeg(file, name);
  if (beginsWith({0x89, 'P', 'N', 'G'})) return parsePng(file, name);
  const auto hasAt = [&](std::size_t position, std::string_view letters) {
    return file.size() >= position + letters.size() &&
           std::ranges::equal(letters, file.subspan(position, letters.size()), {},
                              [](char letter) { return static_cast<std::byte>(letter); });
  };
  const char* kind = nullptr;
  if (hasAt(0, "GIF8")) kind = "GIF";
  if (hasAt(0, "RIFF") && hasAt(8, "WEBP")) kind = "WebP";
  if (hasAt(0, "BM")) kind = "BMP";
  if (hasAt(0, "II*") || hasAt(0, std::string_view("MM\0*", 4))) kind = "TIFF";
  if (hasAt(4, "ftyphei") || hasAt(4, "ftypmif1")) kind = "HEIC";
  if (hasAt(4, "ftypavif")) kind = "AVIF";
  if (kind != nullptr)
    throw mps::Error(name + " is a " + kind +
                     " picture, of a kind that cannot be read, only PNG and JPEG can");
  throw mps::Error(name + " is no PNG or JPEG picture");
}

Picture readPicture(const std::filesystem::path& path) {
  return parsePicture(readPictureFile(path), path.string());
}

Picture fitPicture(const Picture& picture, std::size_t height, std::size_t width, std::size_t channels) {
  Picture converted = convertChannels(picture, channels);
  if (converted.height == height && converted.width == width) return converted;
  return resize(converted, height, width);
}

Picture coverPicture(const Picture& picture, std::size_t height, std::size_t width, std::size_t channels) {
  // The largest part of the wanted proportions.
  const std::size_t wide = std::max<std::size_t>(1, picture.height * width / height);
  const std::size_t high = std::max<std::size_t>(1, picture.width * height / width);
  Picture part{std::min(picture.height, high), std::min(picture.width, wide), picture.channels, {}};
  const std::size_t top = (picture.height - part.height) / 2;
  const std::size_t left = (picture.width - part.width) / 2;
  const std::size_t rowBytes = part.width * picture.channels;
  part.pixels.reserve(part.height * rowBytes);
  for (std::size_t row = 0; row < part.height; ++row) {
    const std::uint8_t* source = &picture.pixels[((top + row) * picture.width + left) * picture.channels];
    part.pixels.insert(part.pixels.end(), source, source + rowBytes);
  }
  return fitPicture(part, height, width, channels);
}

void detail::checkPictureSize(const std::string& name, std::uint64_t width, std::uint64_t height,
                              std::uint64_t fileBytes) {
  const std::string size =
      name + " has " + std::to_string(width) + " x " + std::to_string(height) + " pixels";
  if (height > 0 && width > mostPicturePixels / height)
    throw mps::Error(size + ", more than the " + std::to_string(mostPicturePixels) + " that are allowed");
  if ((width * height + mostPixelsPerByte - 1) / mostPixelsPerByte > fileBytes)
    throw mps::Error(size + " in " + std::to_string(fileBytes) + " bytes, more than " +
                     std::to_string(mostPixelsPerByte) + " for each byte");
}

}  // namespace unmetal
