#include "mps/core/image/texture_view.hpp"

#include <algorithm>
#include <vector>

#include "mps/core/types/error.hpp"

namespace mps {

TextureView::TextureView(std::shared_ptr<Image> image) : image_(std::move(image)) {
  if (!image_) throw Error("TextureView", "image", "null", "an image");
}

std::size_t TextureView::arrayLength() const {
  return image_->numberOfImages() * ((image_->featureChannels() + 3) / 4);
}

/// Where one slice's texels lie in the user's memory and which channels of the image they are.
struct TextureView::Rows {
  std::size_t texelBytes, rowBytes, image, firstChannel, channels;
};

TextureView::Rows TextureView::rows(std::size_t available, std::size_t bytesPerRow, const mtl::Region& region,
                                    std::size_t slice) const {
  if (slice >= arrayLength())
    throw Error("TextureView", "slice", std::to_string(slice), "less than " + std::to_string(arrayLength()));
  const auto inside = [](std::size_t origin, std::size_t size, std::size_t limit) {
    return size > 0 && origin < limit && size <= limit - origin;
  };
  if (!inside(region.origin.x, region.size.width, width()) ||
      !inside(region.origin.y, region.size.height, height()))
    throw Error("TextureView", "region",
                std::to_string(region.size.width) + "x" + std::to_string(region.size.height) + " at " +
                    std::to_string(region.origin.x) + ", " + std::to_string(region.origin.y),
                "within " + image_->describe());
  const std::size_t slicesPerImage = (image_->featureChannels() + 3) / 4;
  Rows rows{};
  rows.texelBytes = image_->pixelSize();
  const std::size_t row = region.size.width * rows.texelBytes;
  const std::size_t channelBytes = bytesPerChannel(image_->featureChannelFormat());
  if (bytesPerRow != 0 && (bytesPerRow < row || bytesPerRow % channelBytes != 0))
    throw Error("TextureView", "bytesPerRow", std::to_string(bytesPerRow),
                "0, or a multiple of " + std::to_string(channelBytes) + " from " + std::to_string(row) +
                    " on, the bytes of " + std::to_string(region.size.width) +
                    (region.size.width == 1 ? " texel" : " texels"));
  rows.rowBytes = bytesPerRow == 0 ? row : bytesPerRow;
  rows.image = slice / slicesPerImage;
  rows.firstChannel = slice % slicesPerImage * 4;
  rows.channels = std::min<std::size_t>(4, image_->featureChannels() - rows.firstChannel);
  const std::size_t otherRows = region.size.height - 1;
  if (available < row || (otherRows > 0 && rows.rowBytes > (available - row) / otherRows))
    throw Error("TextureView", "bytes", std::to_string(available) + " bytes",
                "at least " + std::to_string(row) +
                    (otherRows == 0
                         ? std::string(", 1 row")
                         : " and " + std::to_string(otherRows) + " times " + std::to_string(rows.rowBytes) +
                               ", " + std::to_string(region.size.height) + " rows"));
  return rows;
}

void TextureView::replace(const mtl::Region& region, std::size_t slice, std::span<const std::byte> bytes,
                          std::size_t bytesPerRow) {
  const Rows r = rows(bytes.size(), bytesPerRow, region, slice);
  image_->writeBytes(bytes, DataLayout::HeightxWidthxFeatureChannels, {r.texelBytes, r.rowBytes, 0},
                     {{region.origin.x, region.origin.y, 0}, {region.size.width, region.size.height, 1}},
                     {r.firstChannel, r.channels}, r.image);
}

void TextureView::getBytes(std::span<std::byte> bytes, std::size_t bytesPerRow, const mtl::Region& region,
                           std::size_t slice) const {
  const Rows r = rows(bytes.size(), bytesPerRow, region, slice);
  for (std::size_t y = 0; y < region.size.height; ++y)
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(y * r.rowBytes), region.size.width * r.texelBytes,
                std::byte{0});
  image_->readBytes(bytes, DataLayout::HeightxWidthxFeatureChannels, {r.texelBytes, r.rowBytes, 0},
                    {{region.origin.x, region.origin.y, 0}, {region.size.width, region.size.height, 1}},
                    {r.firstChannel, r.channels}, r.image);
}

}  // namespace mps
