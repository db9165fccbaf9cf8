#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/options/device_options.hpp"
#include "train/ranks/ranks.hpp"

namespace CLI {  // NOLINT: the library's name
class App;
}
namespace mtl {
class Device;
}

namespace unmetal {

/// What commands that several ranks share ask for.
struct RankOptions {
  std::string devices;  ///< one for each rank of this host, with commas between; empty: --device
  double timeoutSeconds = 60;
};

/// Adds --devices and --collective-timeout.
void addRankOptions(CLI::App& command, RankOptions& options);

/// What a rank does. @param ranks null where there is one
using RankWork =
    std::function<void(const std::shared_ptr<mtl::Device>& device, const train::detail::Ranks& ranks)>;

/// Does the work as the rank that a launcher has made this process, on its device; or, where nothing has launched several and
/// --devices names some, starts this program once more for each of them and waits for their end.
///
/// Errors that all ranks have are printed by rank 0. Where ranks do not come to a collective, the lowest of the others prints who
/// is missing, and each ends with kExitRankMissing.
/// @param hint for that sentence: how to go on
void runAsRank(const DeviceOptions& device, const RankOptions& options, const std::string& hint,
               const RankWork& work);

/// Whether runAsRank() has several ranks: a launcher has started them, or --devices names some.
bool isOneOfSeveral(const RankOptions& options);

/// "cuda:all" or names with commas between, e.g. "cuda:0,cuda:1". @throws mps::Error for an empty name or one that is there twice
std::vector<std::string> deviceNames(const std::string& text);

}  // namespace unmetal
