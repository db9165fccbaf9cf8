#include "tools/options/implementation_option.hpp"

#include <algorithm>
#include <vector>

#include "mps/conform/families.hpp"
#include "mps/core/types/error.hpp"
#include "tools/options/number_options.hpp"
#include "tools/terminal/suggestion.hpp"

namespace unmetal {

void addImplementationOption(CLI::App& command, std::string& name, const std::string& description) {
  command.add_option("--implementation", name, description)
      ->type_name("NAME")
      ->check(nameOf("an implementation"));
}

void checkImplementation(const std::shared_ptr<mtl::Device>& device, const std::string& name) {
  const std::vector<std::string> names = mps::detail::implementationNames(device);
  if (std::ranges::find(names, name) != names.end()) return;
  std::string list;
  for (const std::string& one : names) list += (list.empty() ? "" : ", ") + one;
  throw mps::Error("--implementation " + name + ": there is none of this name" + suggestion(name, names) +
                   "; there are " + list);
}

}  // namespace unmetal
