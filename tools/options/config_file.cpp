#include "tools/options/config_file.hpp"

#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "mps/core/types/error.hpp"
#include "mps/weights/input_file.hpp"
#include "tools/options/number_options.hpp"
#include "tools/terminal/suggestion.hpp"

namespace unmetal {
namespace {

constexpr std::uint64_t largestFile = 1 << 20;

std::vector<std::string> namesOf(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames())
      if (name != "help" && name != "config") names.push_back(name);
  return names;
}

std::vector<CLI::ConfigItem> readItems(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = mps::readFile(path, largestFile);
  std::istringstream text(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  try {
    return CLI::ConfigTOML().from_config(text);
  } catch (const CLI::Error& error) {
    throw mps::Error(path.string() + " is no file of options: " + error.what());
  }
}

}  // namespace

void addConfigOption(CLI::App& command, std::filesystem::path& path) {
  command
      .add_option("--config", path,
                  "Read options from a file, a line like `epochs = 20` for each; those of the command line "
                  "go before them")
      ->type_name("FILE")
      ->check(nameOf("a file"));
}

void takeConfig(CLI::App& command, const std::filesystem::path& path) {
  const std::vector<std::string> names = namesOf(command);
  const std::set<std::string> known(names.begin(), names.end());
  std::set<std::string> seen;
  for (const CLI::ConfigItem& item : readItems(path)) {
    if (!item.parents.empty())
      throw mps::Error(path.string() + " has a section [" + item.parents.front() +
                       "]; expected lines like epochs = 20 alone");
    if (!known.contains(item.name))
      throw mps::Error(path.string() + ": " + command.get_name() + " has no option " + item.name +
                       suggestion(item.name, names) + "; unmetal help " + command.get_name() + " lists them");
    // CLI11 gives what stands twice in neighbouring lines as one item.
    if (!seen.insert(item.name).second || item.inputs.size() > 1)
      throw mps::Error(path.string() + " has more than one value for " + item.name);
    CLI::Option* const option = command.get_option("--" + item.name);
    if (option->count() > 0) continue;
    option->add_result(item.inputs.empty() ? std::string() : item.inputs.front());
    option->run_callback();
  }
}

}  // namespace unmetal
