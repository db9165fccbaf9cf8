#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "mps/distributed/mpi_engine.hpp"
#include "mps/distributed/test_collectives.hpp"
#include "mtl/error.hpp"

/// Ranks that are processes: mpirun starts this program several times, and each rank runs the same tests.
namespace mps::mpi_test {
namespace {

const std::shared_ptr<Communicator>& own() {
  static const auto communicator =
      Communicator::fromEnvironment(mtl::createSystemDefaultDevice(), CommunicatorEngine::Mpi);
  return communicator;
}

TEST(MpiRanks, KnowTheirPlace) {
  EXPECT_EQ(own()->engineName(), "MPI");
  EXPECT_EQ(std::to_string(own()->size()), std::getenv("OMPI_COMM_WORLD_SIZE"));
  EXPECT_EQ(std::to_string(own()->rank()), std::getenv("OMPI_COMM_WORLD_RANK"));
  EXPECT_NE(detail::describeMpi().find("MPI"), std::string::npos);
}
TEST(MpiRanks, SumBuffers) {
  test::sumsBuffers(own());
}
TEST(MpiRanks, SumFloat16) {
  test::sumsFloat16(own());
}
TEST(MpiRanks, SumVectors) {
  test::sumsVectors(own());
}
TEST(MpiRanks, SumStates) {
  test::sumsStates(own());
}
TEST(MpiRanks, SumImages) {
  test::sumsImages(own());
}
TEST(MpiRanks, SumWhileOthersRun) {
  test::sumsWhileOthersRun(own());
}
TEST(MpiRanks, GatherInTheOrderOfRanks) {
  test::gathersInTheOrderOfRanks(own());
}
TEST(MpiRanks, BroadcastFromEachRank) {
  test::broadcastsFromEachRank(own());
}
TEST(MpiRanks, FindWhatDiffers) {
  test::findsWhatDiffers(own());
}
TEST(MpiRanks, NameValuesThatDiffer) {
  test::namesValuesThatDiffer(own());
}

TEST(MpiRanks, GatherTexts) {
  test::gathersTexts(own());
  const std::string text(static_cast<std::size_t>(own()->rank()), '\0');
  const auto texts = detail::gatherByMpi(text);
  ASSERT_EQ(texts.size(), static_cast<std::size_t>(own()->size()));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) EXPECT_EQ(texts[rank], std::string(rank, '\0'));
}

/// In a run of its own: a rank whose operation never ends leaves MPI as it is, and mpirun reports it.
TEST(MpiRanksThatFail, ARankThatDoesNotComeIsTold) {
  own()->agree("the first operation", "takes longer");
  own()->setTimeout(std::chrono::milliseconds(200));
  if (own()->rank() == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // beyond the roll call
  std::string error;
  try {
    own()->agree("a", "b");
  } catch (const mtl::Error& thrown) {
    error = thrown.what();
  }
  EXPECT_NE(own()->failure(), "");
  EXPECT_EQ(own()->missingRanks(), std::vector<int>{0});
  if (own()->rank() == 0) {
    EXPECT_NE(error.find("this rank came too late"), std::string::npos) << error;
    return;
  }
  EXPECT_NE(error.find("rank 0 ("), std::string::npos) << error;
  EXPECT_NE(error.find(", cpu) of 2 did not come to it within 200 ms"), std::string::npos) << error;
  std::puts(error.c_str());
}

}  // namespace
}  // namespace mps::mpi_test
