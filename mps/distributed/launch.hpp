#pragma once

#include <functional>
#include <string>

/// What the environment says about how this process was launched. The library's own.
namespace mps::detail {

enum class Launcher {
  None,
  Mpi,       ///< mpirun, or srun with MPI
  Torchrun,  ///< or whatever else sets RANK and WORLD_SIZE
};

struct Launch {
  Launcher launcher = Launcher::None;
  int rank = 0;
  int size = 1;
  int localRank = 0;  ///< among those of this host
  int localSize = 1;  ///< ranks of this host; 1 where the launcher does not say it
};

/// The value of a variable; empty when it is not set.
using Environment = std::function<std::string(const char*)>;
Environment processEnvironment();

/// @throws Error that names a variable whose value is no number, and for a rank that is not below the size
Launch launchOf(const Environment& environment);

/// Where the ranks of NCCL meet without MPI: NCCL_COMM_ID, or the port after MASTER_PORT on MASTER_ADDR.
/// @throws Error that names what is missing
std::string meetingPlaceOf(const Environment& environment);

/// What NCCL says when ranks cannot be joined, behind what is wrong with the launch where that is known.
std::string sentenceOfNccl(const std::string& message);

}  // namespace mps::detail
