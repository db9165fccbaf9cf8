#include "mps/distributed/launch.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "mps/core/types/error.hpp"
#include "mps/distributed/mpi_engine.hpp"

/// Which launcher the environment speaks of.
namespace mps::launch_test {
namespace {

using detail::Launch;
using detail::Launcher;

detail::Environment environmentOf(const std::map<std::string, std::string>& variables) {
  return [variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
}

void expectLaunch(const std::map<std::string, std::string>& variables, const Launch& expected) {
  const Launch found = detail::launchOf(environmentOf(variables));
  EXPECT_EQ(found.launcher, expected.launcher);
  EXPECT_EQ(found.rank, expected.rank);
  EXPECT_EQ(found.size, expected.size);
}

TEST(Launch, OfNobodyIsOfOne) {
  expectLaunch({}, {Launcher::None, 0, 1});
  // What an allocation of Slurm sets before srun starts ranks.
  expectLaunch({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}, {Launcher::None, 0, 1});
}

TEST(Launch, IsReadFromEachLauncher) {
  expectLaunch({{"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}}, {Launcher::Mpi, 2, 4});
  expectLaunch({{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}, {Launcher::Mpi, 1, 3});
  expectLaunch({{"PMIX_RANK", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}, {Launcher::Mpi, 1, 2});
  expectLaunch({{"RANK", "5"}, {"WORLD_SIZE", "8"}}, {Launcher::Torchrun, 5, 8});
}

TEST(Launch, SaysWhichRankOfTheHostItIs) {
  const auto launchOf = [](const std::map<std::string, std::string>& variables) {
    return detail::launchOf(environmentOf(variables));
  };
  const Launch ofMpi = launchOf({{"OMPI_COMM_WORLD_RANK", "6"},
                                 {"OMPI_COMM_WORLD_SIZE", "8"},
                                 {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  EXPECT_EQ(ofMpi.localRank, 2);
  EXPECT_EQ(ofMpi.localSize, 4);
  const Launch ofSlurm =
      launchOf({{"PMIX_RANK", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_LOCALID", "1"}});
  EXPECT_EQ(ofSlurm.localRank, 1);
  EXPECT_EQ(ofSlurm.localSize, 1);
}

TEST(Launch, TorchrunInsideOfAJobOfMpiIsTorchruns) {
  std::map<std::string, std::string> variables{
      {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"RANK", "5"}, {"WORLD_SIZE", "8"}};
  expectLaunch(variables, {Launcher::Mpi, 0, 2});
  variables["TORCHELASTIC_RUN_ID"] = "none";
  expectLaunch(variables, {Launcher::Torchrun, 5, 8});
}

std::string errorOf(const std::map<std::string, std::string>& variables) {
  try {
    (void)detail::launchOf(environmentOf(variables));
    return detail::meetingPlaceOf(environmentOf(variables));
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Launch, WhatIsNoNumberIsNamed) {
  EXPECT_EQ(
      errorOf({{"RANK", "0"}, {"WORLD_SIZE", "many"}}),
      "Communicator: environment variable WORLD_SIZE is \"many\", expected a number from 1 to 2147483647");
  EXPECT_EQ(errorOf({{"RANK", "4"}, {"WORLD_SIZE", "4"}}),
            "Communicator: environment variable RANK is \"4\", expected a number from 0 to 3");
  EXPECT_EQ(errorOf({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "65535"}}),
            "Communicator: environment variable MASTER_PORT is \"65535\", expected a number from 1 to 65534");
}

TEST(Launch, RanksMeetAtThePortBehindTheMasters) {
  EXPECT_EQ(errorOf({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}}), "node1:29501");
  EXPECT_EQ(errorOf({{"MASTER_ADDR", "fe80::1"}, {"MASTER_PORT", "29500"}}), "[fe80::1]:29501");
  EXPECT_EQ(errorOf({{"NCCL_COMM_ID", "node2:5"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}}),
            "node2:5");
  EXPECT_NE(errorOf({{"MASTER_ADDR", "node1"}}).find("neither NCCL_COMM_ID nor MASTER_ADDR and MASTER_PORT"),
            std::string::npos);
}

TEST(Launch, TwoRanksOnOneGpuAreASentence) {
  const std::string found =
      "ncclCommInitRank: invalid usage (run with NCCL_DEBUG=WARN for details) (Duplicate GPU detected : rank "
      "1 "
      "and rank 0 both on CUDA device 60)";
  EXPECT_EQ(detail::sentenceOfNccl(found),
            "Communicator: two ranks are on one GPU, give each rank one of its own; NCCL says: " + found);
  const std::string other = "ncclCommInitRank: unhandled system error";
  EXPECT_EQ(detail::sentenceOfNccl(other), other);
}

TEST(Launch, AMissingModuleOfMpiIsASentence) {
  const char* const before = std::getenv("UNMETAL_MPI");
  const std::string kept = before == nullptr ? "" : before;
  setenv("UNMETAL_MPI", "/nowhere/libunmetal_mpi.so", 1);
  std::string message;
  try {
    (void)detail::describeMpi();
  } catch (const Error& error) {
    message = error.what();
  }
  if (before == nullptr)
    unsetenv("UNMETAL_MPI");
  else
    setenv("UNMETAL_MPI", kept.c_str(), 1);
  EXPECT_TRUE(
      message.starts_with("MPI cannot be used: the module cannot be loaded from where UNMETAL_MPI says: "
                          "/nowhere/libunmetal_mpi.so"))
      << message;
}

}  // namespace
}  // namespace mps::launch_test
