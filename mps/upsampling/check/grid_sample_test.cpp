#include "mps/upsampling/grid_sample.hpp"

#include "mps/conform/testing/plan_testing.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "mps/core/coding/coder.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/upsampling/check/grid_sample_cases.hpp"

/// Plans against the reference, and the public class against examples computed by hand.
namespace mps::grid_sample_test {
namespace {

using detail::gridSampleBackEnds;
using detail::GridSampleCase;
using detail::GridSampleProblem;
using testing::counted;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using enum ImageFeatureChannelFormat;
namespace plans = detail::plan_testing;

constexpr std::uint64_t kSeed = 20261122;

/// Eighths between -1.5 and 1.5, or random ones, some of them no numbers.
std::vector<double> gridValues(const GridSampleProblem& problem, plans::Values values) {
  std::vector<double> grid =
      plans::makeValues(problem.grid.elements(), values, problem.grid.format, kSeed + 7, 0.02);
  for (double& value : grid)
    if (values == plans::Values::Integers && !plans::isCode(problem.grid.format)) value *= 0.375;
  return grid;
}

struct Inputs {
  detail::ReferenceTensor source;
  detail::ReferenceTensor grid;
};

/// Runs a plan and gives what it stored; nothing where the implementation refuses. @param inputs receives what it read
std::vector<double> runPlan(const plans::Entry& entry, const GridSampleProblem& problem, plans::Values values,
                            Inputs& inputs, int threads = plans::kThreads) {
  const plans::WithTarget target(entry);
  const auto plan = plans::preparedBy(entry, gridSampleBackEnds, problem);
  if (!plan) return {};
  detail::TestTensor source(entry.device, problem.source, 1);
  detail::TestTensor grid(entry.device, problem.grid, 2);
  detail::TestTensor result(entry.device, problem.destination, 3);
  source.write(plans::makeValues(problem.source.elements(), values, problem.source.format, kSeed, 0.02));
  grid.write(gridValues(problem, values));
  detail::Operands operands;
  operands.source = source.address();
  operands.secondary = grid.address();
  operands.destination = result.address();
  if (entry.isCpu()) {
    mtl::cpu::Stream stream(threads);
    plan->run(stream, operands);
  } else {
    detail::runOnDevice(entry.device, "plan", [&](mtl::Stream& stream) { plan->run(stream, operands); });
  }
  EXPECT_TRUE(source.isUnchanged() && grid.isUnchanged()) << "an input was written";
  EXPECT_TRUE(result.surroundingsIntact()) << "memory around the result was written";
  inputs = {source.reference(), grid.reference()};
  return result.read();
}

TEST(GridSamplePlans, AgreeWithTheReference) {
  for (const plans::Entry& entry : plans::entriesOf(gridSampleBackEnds))
    for (const bool usesGridAsCoordinates : {true, false})
      for (const ImageEdgeMode edgeMode : {ImageEdgeMode::Zero, ImageEdgeMode::Clamp})
        for (const auto& [source, result] :
             {std::pair{Float32, Float32}, {Float16, Float16}, {Unorm8, Float32}, {Unorm16, Float16}})
          for (const auto values : {plans::Values::Integers, plans::Values::Random, plans::Values::NonFinite})
            for (const GridSampleCase& item : detail::gridSampleCases()) {
              const GridSampleProblem problem = item.problem(usesGridAsCoordinates, edgeMode, source, result);
              SCOPED_TRACE(entry.name() + " " + problem.describe() + ", seed " + std::to_string(kSeed));
              Inputs inputs;
              const std::vector<double> found = runPlan(entry, problem, values, inputs);
              ASSERT_TRUE(!found.empty() || !entry.isCpu());
              if (found.empty()) continue;
              const bool isExact = values == plans::Values::Integers;
              const detail::Comparison comparison = detail::compare(
                  detail::gridSampleReference(problem, inputs.source, inputs.grid), found, result,
                  isExact ? detail::Tier::Exact : detail::Tier::Bounded, detail::Zeros::Expected);
              EXPECT_TRUE(comparison.passed()) << comparison.report;
            }
}

TEST(GridSamplePlans, GiveTheSameBitsWithAnyNumberOfThreads) {
  const GridSampleProblem problem =
      detail::gridSampleCases()[6].problem(true, ImageEdgeMode::Zero, Float32, Float32);
  Inputs inputs;
  const plans::Entry entry = plans::entriesOf(gridSampleBackEnds).front();
  EXPECT_EQ(runPlan(entry, problem, plans::Values::Random, inputs, 1),
            runPlan(entry, problem, plans::Values::Random, inputs, 7));
}

const std::vector<std::function<void(GridSampleProblem&)>> kChanges = {
    [](GridSampleProblem& p) { p.usesGridAsCoordinates = !p.usesGridAsCoordinates; },
    [](GridSampleProblem& p) { p.edgeMode = ImageEdgeMode::Clamp; },
    [](GridSampleProblem& p) { ++p.offsetX; }, [](GridSampleProblem& p) { --p.offsetY; }};

/// Can these tests fail? A kernel that overlooks a field is noticed.
TEST(GridSamplePlans, EachFieldCounts) {
  const plans::Entry entry = plans::entriesOf(gridSampleBackEnds).front();
  for (const bool usesGridAsCoordinates : {true, false})
    for (const auto& change : kChanges) {
      GridSampleProblem problem =
          detail::gridSampleCases()[1].problem(usesGridAsCoordinates, ImageEdgeMode::Zero, Float32, Float32);
      Inputs inputs;
      const std::vector<double> found = runPlan(entry, problem, plans::Values::Integers, inputs);
      change(problem);
      EXPECT_FALSE(detail::compare(detail::gridSampleReference(problem, inputs.source, inputs.grid), found,
                                   Float32, detail::Tier::Bounded, detail::Zeros::Expected)
                       .passed());
    }
}

TEST(GridSampleProblemTest, HashAndEqualitySeeEachField) {
  std::vector<std::function<void(GridSampleProblem&)>> changes = kChanges;
  changes.emplace_back([](GridSampleProblem& p) { ++p.source.rowStride; });
  changes.emplace_back([](GridSampleProblem& p) { ++p.grid.pixelStride; });
  changes.emplace_back([](GridSampleProblem& p) { p.destination.format = Float16; });
  const GridSampleProblem problem =
      detail::gridSampleCases()[1].problem(true, ImageEdgeMode::Zero, Float32, Float32);
  for (const auto& change : changes) {
    GridSampleProblem other = problem;
    change(other);
    EXPECT_NE(other, problem);
    EXPECT_NE(other.hash(), problem.hash());
  }
}

class GridSample : public testing::DeviceTest {
 protected:
  Values sampled(const std::shared_ptr<NNGridSample>& kernel, const Values& grid) {
    const auto buffer = commands();
    const auto result = kernel->encode(buffer, row_, image(sizeOf(grid.size() / 2, 1, 2), grid));
    run(buffer);
    EXPECT_EQ(result->descriptor(), sizeOf(grid.size() / 2, 1, 1));
    return valuesOf(*result);
  }
  std::shared_ptr<NNGridSample> kernel() {
    auto made = NNGridSample::create(device_);
    made->setDestinationImageAllocator(Image::defaultAllocator());
    return made;
  }
  std::shared_ptr<Image> row_ = image(sizeOf(5, 1, 1), {8, 16, 24, 32, 48});
};

/// px = (grid + 1) / 2 * (W - 1).
TEST_F(GridSample, TheGridHoldsPositionsFromMinusOneToOne) {
  EXPECT_TRUE(kernel()->useGridValueAsInputCoordinate());
  EXPECT_EQ(sampled(kernel(), {-1, 0, 1, 0, 0, 0, 0.25, 0}), (Values{8, 48, 24, 28}));
}

/// px = x + grid.
TEST_F(GridSample, OrDisplacements) {
  const auto made = kernel();
  made->setUseGridValueAsInputCoordinate(false);
  EXPECT_EQ(sampled(made, {0, 0, 2, 0, -0.5F, 0, 0, 0.5F, -4, 0}), (Values{8, 32, 20, 16, 8}));
}

TEST_F(GridSample, OutsideIsZeroOrTheEdge) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const Values grid{-1.25F, 0, 1.25F, 0, 9, 0, -infinity, 0, infinity, 0, nan, 0, 1e30F, 0, 1.75F, 0};
  const auto made = kernel();
  EXPECT_EQ(sampled(made, grid), (Values{4, 24, 0, 0, 0, 0, 0, 0}));
  made->setPrimaryEdgeMode(ImageEdgeMode::Clamp);
  EXPECT_EQ(sampled(made, grid), (Values{8, 48, 48, 8, 48, 8, 48, 48}));
}

TEST_F(GridSample, TheSecondChannelIsForRows) {
  const auto made = kernel();
  const auto buffer = commands();
  const auto result = made->encode(buffer, image(sizeOf(2, 3, 2), counted(12)),
                                   image(sizeOf(1, 2, 3), {-1, 0, 77, 0, 0.5F, 77}));
  run(buffer);
  EXPECT_EQ(valuesOf(*result), (Values{5, 6, 8, 9}));
}

TEST_F(GridSample, ClipsOffsetsAndRangesOfChannels) {
  const auto made = kernel();
  made->setUseGridValueAsInputCoordinate(false);
  made->setPrimaryOffset({1, 0, 0});
  made->setSecondaryOffset({1, 0, 0});
  made->setSecondarySourceFeatureChannelOffset(4);
  made->setDestinationFeatureChannelOffset(4);
  made->setClipRect({{1, 1, 0}, {2, 1, 1}});
  const auto grid = image(sizeOf(3, 1, 6), {9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 1, 0, 9, 9, 9, 9, 0.5F, 0});
  const auto result = poisoned(sizeOf(3, 2, 5));
  const auto buffer = commands();
  made->encode(buffer, row_, grid, result);
  run(buffer);
  Values expected(30, poison);
  expected[15 + 5 + 4] = 24;
  expected[15 + 10 + 4] = 28;
  EXPECT_EQ(valuesOf(*result), expected);
  EXPECT_EQ(made->primaryOffset(), (Offset{1, 0, 0}));
}

TEST_F(GridSample, OffsetsStayWhenTheDestinationIsReturned) {
  const auto made = kernel();
  made->setPrimaryOffset({1, 0, 0});
  EXPECT_EQ(sampled(made, {-1, 0, 0, 0}), (Values{16, 32}));
  EXPECT_EQ(made->primaryOffset(), (Offset{1, 0, 0}));
}

TEST_F(GridSample, KeepsWhatItIsGiven) {
  const auto made = kernel();
  made->setUseGridValueAsInputCoordinate(false);
  KeyedArchiver archiver;
  made->encode(archiver);
  KeyedUnarchiver unarchiver(archiver.encodedData());
  for (const auto& one : {made->copy(), NNGridSample::decode(unarchiver, device_)}) {
    EXPECT_EQ(one->className(), "NNGridSample");
    EXPECT_FALSE(one->useGridValueAsInputCoordinate());
  }
}

TEST_F(GridSample, WrongUseIsNamed) {
  const auto made = kernel();
  const auto buffer = commands();
  const auto grid = image(sizeOf(2, 1, 2), {0, 0, 0, 0});
  const auto refused = [&](const std::shared_ptr<Image>& source, const std::shared_ptr<Image>& positions,
                           const std::shared_ptr<Image>& result) {
    return errorOf([&] { made->encode(buffer, source, positions, result); });
  };
  EXPECT_TRUE(names(refused(row_, image(sizeOf(2, 1, 1)), poisoned(sizeOf(2, 1, 1))),
                    {"NNGridSample", "secondaryImage", "1 feature channels", "at least 2"}));
  EXPECT_TRUE(names(refused(row_, grid, poisoned(sizeOf(3, 1, 1))), {"secondaryImage", "2x1", "3x1"}));
  EXPECT_TRUE(names(refused(image(sizeOf(2, 2, 3)), grid, poisoned(sizeOf(2, 1, 2))),
                    {"destinationImage", "2 feature channels", "at least 3"}));
  made->setSecondaryOffset({-1, 0, 0});
  EXPECT_TRUE(names(refused(row_, grid, poisoned(sizeOf(2, 1, 1))), {"secondaryImage", "-1, 0"}));
  made->setSecondaryOffset({});
  made->setPrimarySourceFeatureChannelMaxCount(0);
  EXPECT_TRUE(names(refused(row_, grid, poisoned(sizeOf(2, 1, 1))), {"primaryImage", "at least 1"}));
  made->setPrimarySourceFeatureChannelMaxCount(1);
  made->setPrimaryEdgeMode(ImageEdgeMode::Mirror);
  EXPECT_TRUE(names(refused(row_, grid, poisoned(sizeOf(2, 1, 1))), {"primaryEdgeMode", "Zero or Clamp"}));
}

}  // namespace
}  // namespace mps::grid_sample_test
