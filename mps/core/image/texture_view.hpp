#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "mps/core/image/image.hpp"

namespace mps {

/// What programs touch of an image's MTLTexture: its slices of up to four channels (docs/decisions.md,
/// D16).
///
/// Slice s of image n is array slice n * ceil(C / 4) + s and holds channels 4s .. 4s + 3. A texel has 1, 2 or
/// 4 channels: images of 1 and 2 channels keep 1 and 2, all others 4. Texel channels beyond the image's last
/// read as 0 and are dropped when written. Made of no image (null), it throws Error.
class TextureView {
 public:
  explicit TextureView(std::shared_ptr<Image> image);

  [[nodiscard]] std::size_t width() const { return image_->width(); }
  [[nodiscard]] std::size_t height() const { return image_->height(); }
  [[nodiscard]] std::size_t arrayLength() const;
  [[nodiscard]] PixelFormat pixelFormat() const { return image_->pixelFormat(); }

  /// Writes the pixels of `region` (z ignored) into one array slice.
  /// @param bytesPerRow from one row to the next in `bytes`: at least the bytes of a row and a multiple of those of a
  ///                    channel, or 0 for rows without gaps. The last row needs no more than its own bytes.
  /// @throws Error for a region or slice outside the texture, another bytesPerRow, or a short span; nothing is written.
  void replace(const mtl::Region& region, std::size_t slice, std::span<const std::byte> bytes,
               std::size_t bytesPerRow);
  /// Reads them; bytes between the rows stay as they are. As replace().
  void getBytes(std::span<std::byte> bytes, std::size_t bytesPerRow, const mtl::Region& region,
                std::size_t slice) const;

 private:
  struct Rows;
  [[nodiscard]] Rows rows(std::size_t available, std::size_t bytesPerRow, const mtl::Region& region,
                          std::size_t slice) const;

  std::shared_ptr<Image> image_;
};

}  // namespace mps
