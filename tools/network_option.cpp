#include "tools/network_option.hpp"

#include "mps/core/error.hpp"
#include "tools/networks.hpp"

namespace unmetal {

CLI::Option* addNetworkOption(CLI::App& command, std::string& network) {
  std::string known;
  for (const std::string& name : networkNames()) known += (known.empty() ? "" : ", ") + name;
  CLI::Validator validator;
  validator.operation([](const std::string& name) {
    try {
      checkNetworkName(name);
    } catch (const mps::Error& error) {
      return std::string(error.what());
    }
    return std::string();
  });
  return command
      .add_option("--net", network, "Network: " + known + "; with :N those of 64 channels begin with N")
      ->type_name("NAME")
      ->check(validator);
}

}  // namespace unmetal
