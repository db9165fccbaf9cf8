#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <string_view>

#include <jpeglib.h>

#include <jerror.h>  // whose numbers depend on what the other defines

#include "mps/core/types/error.hpp"
#include "train/pictures/orientation.hpp"
#include "train/pictures/picture.hpp"

namespace unmetal::train {
namespace {

/// A progressive file may refine the same pixels again and again: a few bytes that take minutes.
constexpr int mostScans = 200;
constexpr int exifMarker = JPEG_APP0 + 1;

/// libjpeg reports errors by a jump. The functions that are jumped out of hold nothing that needs a destructor.
class JpegReader {
 public:
  JpegReader() {
    info_.err = ::jpeg_std_error(&errors_);
    errors_.error_exit = fail;
    errors_.emit_message = warn;
    info_.client_data = this;
    ::jpeg_create_decompress(&info_);
    progress_.progress_monitor = countScans;
    info_.progress = &progress_;
  }
  ~JpegReader() { ::jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  /// False when there was an error, as in what follows.
  bool readHeader(std::span<const std::byte> file) {
    if (setjmp(escape_) != 0) return false;
    ::jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file.data()),
                   static_cast<unsigned long>(file.size()));
    constexpr unsigned wholeMarker = 0xFFFF;
    ::jpeg_save_markers(&info_, exifMarker, wholeMarker);
    ::jpeg_read_header(&info_, TRUE);
    if (info_.jpeg_color_space == JCS_GRAYSCALE)
      info_.out_color_space = JCS_GRAYSCALE;
    else if (info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK)
      info_.out_color_space = JCS_CMYK;
    else
      info_.out_color_space = JCS_RGB;
    ::jpeg_calc_output_dimensions(&info_);
    return true;
  }
  /// What follows has a half, a quarter or an eighth of the sides, as long as both stay twice as long as these.
  void reduceTo(const PictureSize& least) {
    for (const unsigned divisor : {8U, 4U, 2U}) {
      if (height() < 2 * divisor * least.height || width() < 2 * divisor * least.width) continue;
      info_.scale_denom = divisor;
      ::jpeg_calc_output_dimensions(&info_);
      return;
    }
  }
  bool readPixels(std::uint8_t* pixels) {
    if (setjmp(escape_) != 0) return false;
    ::jpeg_start_decompress(&info_);
    const std::size_t rowBytes = width() * channels();
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels + info_.output_scanline * rowBytes;
      ::jpeg_read_scanlines(&info_, &row, 1);
    }
    ::jpeg_finish_decompress(&info_);
    return true;
  }

  [[nodiscard]] std::size_t width() const { return info_.output_width; }
  [[nodiscard]] std::size_t height() const { return info_.output_height; }
  [[nodiscard]] std::size_t channels() const { return static_cast<std::size_t>(info_.output_components); }
  /// Adobe's programs store the paper that is left, not the ink.
  [[nodiscard]] bool isInverted() const { return info_.saw_Adobe_marker != 0; }
  /// 1 to 8, see upright().
  [[nodiscard]] int orientation() const {
    constexpr std::string_view title("Exif\0\0", 6);
    for (jpeg_saved_marker_ptr marker = info_.marker_list; marker != nullptr; marker = marker->next) {
      const std::span content(marker->data, marker->data_length);
      if (marker->marker != exifMarker || content.size() < title.size()) continue;
      if (std::ranges::equal(content.first(title.size()), title, {}, {},
                             [](char c) { return static_cast<JOCTET>(c); }))
        return orientationOf(std::as_bytes(content.subspan(title.size())));
    }
    return 1;
  }
  [[nodiscard]] const char* message() const { return message_; }

 private:
  static JpegReader& of(j_common_ptr info) { return *static_cast<JpegReader*>(info->client_data); }
  [[noreturn]] static void fail(j_common_ptr info) {
    info->err->format_message(info, of(info).message_);
    std::longjmp(of(info).escape_, 1);
  }
  /// Warnings after which libjpeg makes pixels up.
  static void warn(j_common_ptr info, int level) {
    if (level >= 0) return;
    switch (info->err->msg_code) {
      case JWRN_ARITH_BAD_CODE:
      case JWRN_BOGUS_PROGRESSION:
      case JWRN_HIT_MARKER:
      case JWRN_HUFF_BAD_CODE:
      case JWRN_JPEG_EOF:
      case JWRN_MUST_RESYNC:
        fail(info);
      default:
        break;
    }
  }
  static void countScans(j_common_ptr info) {
    JpegReader& reader = of(info);
    if (reader.info_.input_scan_number <= mostScans) return;
    std::snprintf(reader.message_, sizeof reader.message_, "it has more than %d scans", mostScans);
    std::longjmp(reader.escape_, 1);
  }

  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf escape_{};
  char message_[JMSG_LENGTH_MAX] = {};
};

std::vector<std::uint8_t> withoutInks(std::span<const std::uint8_t> inks, bool inverted) {
  std::vector<std::uint8_t> pixels;
  pixels.reserve(inks.size() / 4 * 3);
  for (std::size_t i = 0; i < inks.size(); i += 4)
    for (std::size_t colour = 0; colour < 3; ++colour) {
      const unsigned left = inverted ? inks[i + colour] : 255U - inks[i + colour];
      const unsigned light = inverted ? inks[i + 3] : 255U - inks[i + 3];
      pixels.push_back(static_cast<std::uint8_t>((left * light + 127) / 255));
    }
  return pixels;
}

}  // namespace

Picture parseJpeg(std::span<const std::byte> file, const std::string& name,
                  const std::optional<PictureSize>& least) {
  JpegReader reader;
  const auto failure = [&] { return mps::Error(name + " is not a valid JPEG picture: " + reader.message()); };
  if (!reader.readHeader(file)) throw failure();
  const int orientation = reader.orientation();  // before libjpeg lets go of it with the last row
  detail::checkPictureSize(name, reader.width(), reader.height(), file.size());
  constexpr int firstOnItsSide = 5;
  if (least && orientation < firstOnItsSide) reader.reduceTo(*least);
  if (least && orientation >= firstOnItsSide) reader.reduceTo({least->width, least->height});
  std::vector<std::uint8_t> pixels(reader.height() * reader.width() * reader.channels());
  if (!reader.readPixels(pixels.data())) throw failure();
  const bool isPrint = reader.channels() == 4;
  if (isPrint) pixels = withoutInks(pixels, reader.isInverted());
  return upright({reader.height(), reader.width(), isPrint ? 3 : reader.channels(), std::move(pixels)},
                 orientation);
}

}  // namespace unmetal::train
