#include "mps/distributed/launch.hpp"

#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>

#include "mps/core/types/error.hpp"

namespace mps::detail {
namespace {

int numberOf(const Environment& environment, const char* variable, int least, int most) {
  const std::string text = environment(variable);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most)
    throw Error("Communicator", std::string("environment variable ") + variable, "\"" + text + "\"",
                "a number from " + std::to_string(least) + " to " + std::to_string(most));
  return number;
}

struct Variables {
  Launcher launcher;
  const char* sign;  ///< of this launcher
  const char* rank;
  const char* size;
  const char* localRank;
  const char* localSize;
};
/// In this order: torchrun may itself run in a job of MPI's, and users of MPI set the last two variables for PyTorch.
constexpr std::array<Variables, 5> variablesOfLaunchers{{
    {Launcher::Torchrun, "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {Launcher::Mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {Launcher::Mpi, "PMI_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {Launcher::Mpi, "PMIX_RANK", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""},
    {Launcher::Torchrun, "RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
}};

}  // namespace

Environment processEnvironment() {
  return [](const char* variable) {
    const char* const value = std::getenv(variable);
    return std::string(value == nullptr ? "" : value);
  };
}

Launch launchOf(const Environment& environment) {
  for (const Variables& variables : variablesOfLaunchers) {
    if (environment(variables.sign).empty() || environment(variables.size).empty()) continue;
    const int size = numberOf(environment, variables.size, 1, std::numeric_limits<int>::max());
    Launch launch{variables.launcher, numberOf(environment, variables.rank, 0, size - 1), size};
    if (!environment(variables.localSize).empty())
      launch.localSize = numberOf(environment, variables.localSize, 1, size);
    if (!environment(variables.localRank).empty())
      launch.localRank = numberOf(environment, variables.localRank, 0, size - 1);
    return launch;
  }
  return {};
}

std::string meetingPlaceOf(const Environment& environment) {
  if (std::string place = environment("NCCL_COMM_ID"); !place.empty()) return place;
  const std::string address = environment("MASTER_ADDR");
  if (address.empty() || environment("MASTER_PORT").empty())
    throw Error(
        "Communicator: the ranks cannot meet: neither NCCL_COMM_ID nor MASTER_ADDR and MASTER_PORT are set");
  constexpr int mostPort = 65534;
  const int port = numberOf(environment, "MASTER_PORT", 1, mostPort) + 1;
  const bool isIpv6 = address.find(':') != std::string::npos;
  return (isIpv6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

std::string sentenceOfNccl(const std::string& message) {
  if (message.find("Duplicate GPU") == std::string::npos) return message;
  return "Communicator: two ranks are on one GPU, give each rank one of its own; NCCL says: " + message;
}

}  // namespace mps::detail
