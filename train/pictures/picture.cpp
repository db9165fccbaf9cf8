#include "train/pictures/picture.hpp"

#include <png.h>
#include <algorithm>
#include <array>
#include <string_view>

#include "mps/core/types/error.hpp"
#include "train/pictures/orientation.hpp"
#include "train/pictures/picture_file.hpp"
#include "train/pictures/resizing.hpp"

namespace unmetal::train {
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

std::vector<std::byte> encodePng(const Picture& picture) {
  PngImage image;
  image->width = static_cast<png_uint_32>(picture.width);
  image->height = static_cast<png_uint_32>(picture.height);
  image->format = picture.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  const auto fail = [&]() -> mps::Error {
    return mps::Error(std::string("the picture cannot be encoded: ") + image->message);
  };
  png_alloc_size_t size = 0;
  if (!::png_image_write_get_memory_size(*image.get(), size, 0, picture.pixels.data(), 0, nullptr))
    throw fail();
  std::vector<std::byte> file(size);
  if (!::png_image_write_to_memory(image.get(), file.data(), &size, 0, picture.pixels.data(), 0, nullptr))
    throw fail();
  file.resize(size);
  return file;
}

Picture parsePicture(std::span<const std::byte> file, const std::string& name,
                     const std::optional<PictureSize>& least) {
  const auto beginsWith = [&](std::initializer_list<unsigned> bytes) {
    return file.size() >= bytes.size() &&
           std::ranges::equal(bytes, file.first(bytes.size()), {}, {}, std::to_integer<unsigned>);
  };
  if (file.empty()) throw mps::Error(name + " is empty");
  if (beginsWith({0xFF, 0xD8, 0xFF})) return parseJpeg(file, name, least);
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

Picture readPicture(const std::filesystem::path& path, std::size_t height, std::size_t width,
                    std::size_t channels) {
  return coverPicture(parsePicture(readPictureFile(path), path.string(), PictureSize{height, width}), height,
                      width, channels);
}

namespace {

Picture fitPart(const detail::PictureView<std::uint8_t>& part, std::size_t height, std::size_t width,
                std::size_t channels) {
  return convertChannels({height, width, part.shape.channels, detail::resized(part, height, width)},
                         channels);
}

}  // namespace

Picture fitPicture(const Picture& picture, std::size_t height, std::size_t width, std::size_t channels) {
  if (picture.height == height && picture.width == width) return convertChannels(picture, channels);
  return fitPart({picture.pixels.data(),
                  {picture.height, picture.width, picture.channels},
                  picture.width * picture.channels},
                 height, width, channels);
}

Picture coverPicture(const Picture& picture, std::size_t height, std::size_t width, std::size_t channels) {
  // The largest part of the wanted proportions.
  const std::size_t wide = std::max<std::size_t>(1, picture.height * width / height);
  const std::size_t high = std::max<std::size_t>(1, picture.width * height / width);
  const Shape part{std::min(picture.height, high), std::min(picture.width, wide), picture.channels};
  const std::size_t top = (picture.height - part.height) / 2;
  const std::size_t left = (picture.width - part.width) / 2;
  const std::uint8_t* const first = &picture.pixels[(top * picture.width + left) * picture.channels];
  return fitPart({first, part, picture.width * picture.channels}, height, width, channels);
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

}  // namespace unmetal::train
