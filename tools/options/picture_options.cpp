#include "tools/options/picture_options.hpp"

#include "mps/core/types/error.hpp"
#include "tools/options/number_options.hpp"

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

void addLoadingOptions(CLI::App& command, DataOptions& options) {
  constexpr std::size_t mostThreads = 1024;
  command
      .add_option("--loader-threads", options.threads,
                  "Threads that read, decode and augment pictures; the result does not depend on it")
      ->type_name("N")
      ->check(wholeNumber(1, mostThreads))
      ->default_str("as many as there are processors");
  const auto parse = [&options](const std::string& text) {
    options.memory = parseMemorySize(text);
    if (!options.memory)
      throw CLI::ValidationError(
          "--memory-budget",
          "give a number of bytes, or one with K, M, G or T behind it, e.g. 512M, not \"" + text + "\"");
  };
  command
      .add_option_function<std::string>("--memory-budget", parse,
                                        "Of a folder: memory for all decoded pictures; what does not fit is "
                                        "decoded again in each epoch")
      ->type_name("SIZE")
      ->default_str("half of the machine's, at most 2G");
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
