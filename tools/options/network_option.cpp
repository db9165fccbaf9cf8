#include "tools/options/network_option.hpp"

#include "mps/core/types/error.hpp"
#include "tools/networks/networks.hpp"

namespace unmetal {

CLI::Validator networkName() {
  CLI::Validator validator;
  validator.operation([](const std::string& name) {
    try {
      checkNetworkName(name);
    } catch (const mps::Error& error) {
      return std::string(error.what());
    }
    return std::string();
  });
  return validator;
}

CLI::Option* addNetworkOption(CLI::App& command, std::string& network) {
  std::string known;
  for (const std::string& name : networkNames()) known += (known.empty() ? "" : ", ") + name;
  return command
      .add_option("--net", network,
                  "Network: " + known +
                      "; with :N all but lenet and mnist-cnn begin with N channels; or FILE.json, a network "
                      "of your own, or FILE.onnx, the layers of a model")
      ->type_name("NAME")
      ->check(networkName());
}

CLI::Option* addPictureSizeOption(CLI::App& command, train::Shape& size) {
  const auto parse = [&size](const std::string& text) {
    const auto parsed = parsePictureSize(text);
    if (!parsed)
      throw CLI::ValidationError("--picture-size",
                                 "give " + std::string(expectedPictureSize) + ", not \"" + text + "\"");
    size = *parsed;
  };
  return command.add_option_function<std::string>("--picture-size", parse, "Of the pictures")
      ->type_name("HxWxC");
}

}  // namespace unmetal
