#include "tools/picture_options.hpp"

#include "mps/core/types/error.hpp"

namespace unmetal {

void addPictureOptions(CLI::App& command, DataOptions& options) {
  const auto parse = [&options](const std::string& text) {
    const auto size = parsePictureSize(text);
    if (!size || (size->channels != 1 && size->channels != 3))
      throw CLI::ValidationError(
          "--picture-size",
          "give HEIGHTxWIDTHxCHANNELS, sides from 8 to 1024 and 1 or 3 channels, not \"" + text + "\"");
    options.size = *size;
  };
  command
      .add_option_function<std::string>("--picture-size", parse,
                                        "Of a folder: what its pictures are made to fit")
      ->type_name("HxWxC")
      ->default_str("64x64x3");
  command.add_flag("--skip-bad", options.skipBad,
                   "Of a folder: name what cannot be used and go on without it");
}

void addAugmentOption(CLI::App& command, std::optional<train::Augmentation>& wanted) {
  const auto parse = [&wanted](const std::string& text) {
    try {
      wanted = train::parseAugmentation(text);
    } catch (const mps::Error& error) {
      throw CLI::ValidationError("--augment " + text, error.what());
    }
  };
  command
      .add_option_function<std::string>(
          "--augment", parse,
          "What each epoch does to training pictures: none, or joined by + and in this order: crop (a random "
          "part of pictures that are an eighth larger) or crop:SHARE, resized-crop:LEAST, flip (half of them "
          "mirrored), shift:SHARE, rotate:DEGREES, brightness:SHARE, contrast:SHARE, saturation:SHARE, "
          "mixup:NUMBER, smooth:SHARE (of labels)")
      ->type_name("HOW")
      ->default_str("none");
}

}  // namespace unmetal
