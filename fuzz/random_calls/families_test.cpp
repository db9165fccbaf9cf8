#include "fuzz/random_calls/families.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fuzz/random_calls/comparison.hpp"
#include "fuzz/random_calls/runner.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace unmetal::random_calls {
namespace families_test {

/// Calls of a family of one seed, twice: what differs afterwards was planted.
class PlantedDifferences : public testing::TestWithParam<Family> {
 protected:
  [[nodiscard]] Call made(std::uint64_t seed) const {
    Call call(device_, queue_, seed, limits_);
    make(call, GetParam());
    return call;
  }
  [[nodiscard]] static std::vector<std::string> compared(const Call& first, const Call& second) {
    return differences(first, second, Words::Compared);
  }

 private:
  std::shared_ptr<mtl::Device> device_ = mtl::newCPUDevice(1);
  std::shared_ptr<mtl::CommandQueue> queue_ = device_->newCommandQueue();
  Limits limits_{2'000, 1'100};
};

/// Changes all elements, of which each makes up only a part where jumps are allowed.
void spoil(Observation& observation) {
  const std::size_t step = bytesPerElement(observation.format);
  for (std::size_t at = 0; at + step <= observation.after.size(); at += step) {
    std::byte* const element = observation.after.data() + at;
    const double value = valueOf(observation.format, element);
    if (isFloat(observation.format))
      store(observation.format, element, value < 100 ? 3 * value + 1000 : -value);
    else
      *element ^= std::byte{1};
  }
}

TEST_P(PlantedDifferences, AreFoundInEachResultAndSource) {
  constexpr std::uint64_t seeds = 60;
  int results = 0;
  int sources = 0;
  for (std::uint64_t seed = 1; seed <= seeds && results < 12; ++seed) {
    const Call first = made(seed);
    if (!first.error.empty()) continue;
    Call second = made(seed);
    ASSERT_THAT(compared(first, second), testing::IsEmpty()) << "seed " << seed;
    for (Observation& observation : second.observations) {
      // A jump may change one element of each tensor.
      if (observation.after.size() < 2 * bytesPerElement(observation.format)) continue;
      const Bytes right = observation.after;
      spoil(observation);
      EXPECT_THAT(compared(first, second),
                  testing::AllOf(testing::Not(testing::IsEmpty()),
                                 testing::Each(testing::HasSubstr(observation.name))))
          << "seed " << seed << first.description.str();
      observation.after = right;
      ++(observation.role == Role::Source ? sources : results);
    }
  }
  EXPECT_GE(results, 12) << "most calls are refused, or observe nothing";
  const std::string name = GetParam().name;
  const bool hasOwnSources =
      name == "random-numbers" || name == "gather";  // none, or arrays that only they have
  EXPECT_GE(sources, hasOwnSources ? 0 : 1);
}

TEST_P(PlantedDifferences, AreTheOnlyOnes) {
  // What is drawn follows from the seed alone, bit by bit.
  for (std::uint64_t seed = 100; seed < 110; ++seed) {
    const Call first = made(seed);
    const Call second = made(seed);
    EXPECT_EQ(first.description.str(), second.description.str());
    EXPECT_EQ(first.error, second.error);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, PlantedDifferences,
                         testing::ValuesIn(allFamilies().begin(), allFamilies().end()),
                         [](const auto& family) {
                           std::string name = family.param.name;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(Families, AreAllThatTheTableHolds) {
  EXPECT_LE(allFamilies().size(), kMostFamilies);
}

TEST(ImageSizes, ReachAllCountsOfChannels) {
  // Kernels of a GPU treat up to 64 vectors of four channels, up to 256, and more in other ways.
  Call call(nullptr, nullptr, 7, {});
  int few = 0;
  int hundreds = 0;
  int thousands = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::size_t vectors = (call.imageSizes().featureChannels() + 3) / 4;
    ++(vectors <= 64 ? few : (vectors <= 256 ? hundreds : thousands));
  }
  EXPECT_GT(few, 8'000);
  EXPECT_GT(hundreds, 200);
  EXPECT_GT(thousands, 100);
}

}  // namespace families_test
}  // namespace unmetal::random_calls
