#include <gtest/gtest.h>
#include <oneapi/dnnl/dnnl.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mps/convolution/check/convolution_cases_setting.hpp"
#include "mps/convolution/convolution_windows.hpp"
#include "mps/core/cpu/non_temporal_stores.hpp"

namespace mps::detail::convolution_plan_test {
namespace {

/// Every implementation against the reference, twice with different scratch contents. Addresses that libraries do
/// not take have a test of their own.
void checkAll(const ConvolutionProblem& problem, Tier tier, bool accumulate, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << problem.describe() << ", tier " << name(tier) << ", seed " << seed);
  for (const Place& place : places()) {
    Setting setting(problem, tier, seed, place);
    const Expected expected = setting.expected(problem, accumulate);
    int accepted = 0;
    for (const auto& implementation : convolutionBackEnds.of(*place.device)) {
      SCOPED_TRACE(place.device->name() + " " + std::string(implementation.name));
      if (!place.isCpu() && !place.isAligned && implementation.name != "direct") continue;
      const auto plan = planOf(implementation, problem, place);
      if (!plan) continue;
      ++accepted;
      EXPECT_EQ(plan->canAccumulate(), problem.accumulate);
      const Results found = setting.run(*plan, accumulate);
      EXPECT_EQ(setting.compareWith(expected, found, tier), "") << plan->describe();
      EXPECT_TRUE(sameBits(found, setting.run(*plan, accumulate, std::byte{0x3F})))
          << plan->describe() << " depends on scratch contents";
    }
    EXPECT_GE(accepted, 1);
  }
}

class ConvolutionPlanCase : public testing::TestWithParam<ConvolutionCase> {
 protected:
  ConvolutionProblem problem(ConvolutionOperation operation, Format source, Format result) const {
    ConvolutionProblem problem = GetParam().problem(operation, source, result);
    problem.threadCount = kThreads;
    return problem;
  }
};

TEST_P(ConvolutionPlanCase, EveryImplementationMatchesTheReference) {
  std::uint64_t seed = 100;
  for (const ConvolutionOperation operation : kOperations) {
    const ConvolutionProblem floats = problem(operation, Format::Float32, Format::Float32);
    checkAll(floats, Tier::Bounded, false, ++seed);
    if (isExact(floats.neuron)) checkAll(floats, Tier::Exact, false, ++seed);
    checkAll(problem(operation, Format::Float16, Format::Float16), Tier::Bounded, false, ++seed);
  }
}

TEST_P(ConvolutionPlanCase, AccumulatesOrNotWhenPrepared) {
  std::uint64_t seed = 200;
  for (const ConvolutionOperation operation : kOperations) {
    ConvolutionProblem one = problem(operation, Format::Float32, Format::Float32);
    one.accumulate = true;
    const Tier tier = isExact(one.neuron) ? Tier::Exact : Tier::Bounded;
    checkAll(one, tier, true, ++seed);
    checkAll(one, tier, false, ++seed);
  }
}

double dot(const Values& a, const Values& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// <A x, y> = <x, A^T y> = <W, dW> without rounding, for each implementation that takes all three.
TEST_P(ConvolutionPlanCase, GradientsAreAdjoint) {
  constexpr std::uint64_t kSeed = 300;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  const auto without = [&](ConvolutionOperation operation) {
    ConvolutionProblem one = problem(operation, Format::Float32, Format::Float32);
    one.hasBias = false;
    one.neuron = {};
    return one;
  };
  const ConvolutionProblem forward = without(ConvolutionOperation::Forward);
  const ConvolutionProblem data = without(ConvolutionOperation::DataGradient);
  const ConvolutionProblem parameters = without(ConvolutionOperation::WeightsGradient);
  for (const Place& place : places()) {
    // The same seed gives the same source, gradient and weights to all three.
    Setting forwardSetting(forward, Tier::Exact, kSeed, place);
    Setting dataSetting(data, Tier::Exact, kSeed, place);
    Setting parametersSetting(parameters, Tier::Exact, kSeed, place);
    int complete = 0;
    for (const auto& implementation : convolutionBackEnds.of(*place.device)) {
      SCOPED_TRACE(place.device->name() + " " + std::string(implementation.name));
      const auto forwardPlan = planOf(implementation, forward, place);
      const auto dataPlan = planOf(implementation, data, place);
      const auto parametersPlan = planOf(implementation, parameters, place);
      if (!forwardPlan || !dataPlan || !parametersPlan) continue;
      ++complete;
      const double expected =
          dot(forwardSetting.run(*forwardPlan, false).image, dataSetting.gradient().read());
      EXPECT_EQ(dot(dataSetting.run(*dataPlan, false).image, forwardSetting.source().read()), expected);
      EXPECT_EQ(dot(parametersSetting.run(*parametersPlan, false).weights, forwardSetting.weights().read()),
                expected);
    }
    EXPECT_GE(complete, 1);
  }
}

/// NaN and infinities reach what the sums say, and nothing else.
TEST_P(ConvolutionPlanCase, NonFiniteValuesSpreadAsTheSumsSay) {
  for (const ConvolutionOperation operation : kOperations)
    for (const Place& place : places()) {
      const ConvolutionProblem one = problem(operation, Format::Float32, Format::Float32);
      Setting setting(one, Tier::Exact, 400, place);
      TestTensor& input =
          operation == ConvolutionOperation::DataGradient ? setting.gradient() : setting.source();
      Values values = input.read();
      if (values.empty()) continue;
      values[values.size() / 3] = std::numeric_limits<double>::quiet_NaN();
      values[values.size() * 2 / 3] = std::numeric_limits<double>::infinity();
      values.back() = -std::numeric_limits<double>::infinity();
      input.write(values);
      const Expected expected = setting.expected(one, false);
      for (const auto& implementation : convolutionBackEnds.of(*place.device)) {
        SCOPED_TRACE(testing::Message() << one.describe() << " " << implementation.name);
        const auto plan = planOf(implementation, one, place);
        if (!plan) continue;
        EXPECT_EQ(setting.compareWith(expected, setting.run(*plan, false), Tier::Bounded), "")
            << plan->describe();
      }
    }
}

/// A read or write outside of an operand ends the process.
TEST_P(ConvolutionPlanCase, TouchesNothingOutsideItsOperands) {
  int runs = 0;
  for (const ConvolutionOperation operation : kOperations)
    for (const Format format : {Format::Float32, Format::Float16})
      for (const PageSide side : {PageSide::Before, PageSide::After}) {
        const ConvolutionProblem one = problem(operation, format, format);
        Setting setting(one, Tier::Exact, 1, {.pages = side});
        for (const auto& implementation : convolutionImplementationsCpu())
          if (const auto plan = planOf(implementation, one)) {
            setting.run(*plan, false);
            ++runs;
          }
      }
  EXPECT_GE(runs, 12);
}

INSTANTIATE_TEST_SUITE_P(Convolution, ConvolutionPlanCase, testing::ValuesIn(ordinaryCases()),
                         [](const auto& info) { return std::string(info.param.name); });

/// Conversions are the same code for all geometries, so a few cases see every pair of formats.
TEST(ConvolutionPlan, EveryFormatMatchesTheReference) {
  struct Formats {
    Format source;
    Format result;
  };
  constexpr Formats kFormats[] = {{Format::Unorm8, Format::Float32},  {Format::Unorm16, Format::Float16},
                                  {Format::Float16, Format::Float32}, {Format::Float32, Format::Float16},
                                  {Format::Float32, Format::Unorm8},  {Format::Float16, Format::Unorm16}};
  std::uint64_t seed = 500;
  for (const std::string_view name :
       {"Channels3To5", "Channels16To17", "Clamp3x3", "DepthWise", "FullyConnectedEven",
        "FullyConnectedStrided", "PReLU", "Strided", "Transposed", "RepeatedImage"})
    for (const ConvolutionOperation operation : kOperations)
      for (const Formats& formats : kFormats) {
        ConvolutionProblem problem = caseNamed(name).problem(operation, formats.source, formats.result);
        problem.threadCount = kThreads;
        // The normalised formats are for sources and for results, not for gradients.
        const bool storesResult = operation == (problem.transposed ? ConvolutionOperation::DataGradient
                                                                   : ConvolutionOperation::Forward);
        if (isUnorm(formats.result) && !storesResult) continue;
        checkAll(problem, Tier::Bounded, false, ++seed);
        checkAll(problem, Tier::Exact, false, ++seed);
      }
}

TEST(ConvolutionPlan, DepthwisePastTheCaches) {
  const NonTemporalFrom always(0);
  for (const ConvolutionOperation operation : kOperations) {
    ConvolutionProblem problem =
        caseNamed("ManyPixelsDepthwise").problem(operation, Format::Float32, Format::Float32);
    problem.threadCount = kThreads;
    checkAll(problem, Tier::Bounded, false, 1);
  }
}

/// Batches whose copies would not fit into the caches are converted a few images at a time.
TEST(ConvolutionPlan, ConvertsLargeBatchesInSlices) {
  for (const std::string_view name : {"ManyImages", "ManyImagesPointwise", "ManyImagesTransposed"})
    for (const ConvolutionOperation operation :
         {ConvolutionOperation::Forward, ConvolutionOperation::DataGradient}) {
      ConvolutionProblem problem = caseNamed(name).problem(operation, Format::Float16, Format::Float16);
      problem.threadCount = kThreads;
      const ChosenPlan chosen = preparePlan(convolutionImplementationsCpu(), problem);
      EXPECT_NE(chosen.plan->describe().find(" parts"), std::string::npos) << problem.describe();
      const std::int64_t copies =
          (problem.source.elements() + problem.gradient.elements() + problem.destination.elements()) *
          static_cast<std::int64_t>(sizeof(float));
      EXPECT_LT(static_cast<std::int64_t>(chosen.plan->scratchBytes()), copies);
      checkAll(problem, Tier::Exact, false, 1);
    }
}

TEST(ConvolutionPlan, NoImagesLeaveZeroGradients) {
  for (const Place& place : places()) {
    const auto implementations = convolutionBackEnds.of(*place.device);
    ConvolutionProblem problem =
        caseNamed("NoImages")
            .problem(ConvolutionOperation::WeightsGradient, Format::Float32, Format::Float32);
    problem.accumulate = true;
    const ChosenPlan chosen = preparePlan(implementations, problem);
    Setting setting(problem, Tier::Exact, 1, place);
    for (const bool accumulate : {false, true}) {
      const Results found = setting.run(*chosen.plan, accumulate);
      const Expected expected = setting.expected(problem, accumulate);
      EXPECT_EQ(found.weights, expected.weights->values);
      EXPECT_EQ(found.bias, expected.bias->values);
    }
    for (const ConvolutionOperation operation :
         {ConvolutionOperation::Forward, ConvolutionOperation::DataGradient}) {
      const ConvolutionProblem one =
          caseNamed("NoImages").problem(operation, Format::Float32, Format::Float32);
      Setting empty(one, Tier::Exact, 1, place);
      EXPECT_TRUE(empty.run(*preparePlan(implementations, one).plan, false).image.empty());
    }
  }
}

/// What compares also results that are nothing but zeros.
void expectValues(const Expected& expected, const Results& found) {
  const auto valuesOf = [](const std::optional<ReferenceTensor>& tensor) {
    return tensor ? tensor->values : Values();
  };
  EXPECT_EQ(found.image, valuesOf(expected.image));
  EXPECT_EQ(found.weights, valuesOf(expected.weights));
  EXPECT_EQ(found.bias, valuesOf(expected.bias));
}

/// Behind an empty clip rectangle there is no window, or, transposed, no pixel that windows read.
TEST(ConvolutionPlan, ImagesWithoutPixelsGiveSumsOfNothing) {
  std::uint64_t seed = 800;
  for (const std::string_view name :
       {"FirstLayer5x5", "StrideOverKernel", "Pointwise", "Clamp3x3", "Groups2", "DepthWise",
        "DepthWiseStrideOverKernel", "FullyConnected", "Channels64To64", "Transposed", "TransposedUncovered"})
    for (const bool bothSides : {false, true}) {
      ConvolutionCase one = caseNamed(name);
      const auto empty = [&](WindowAxis& axis) {
        (one.transposed ? axis.sourceSize : axis.destinationSize) = 0;
      };
      empty(one.x);
      if (bothSides) empty(one.y);
      for (const ConvolutionOperation operation : kOperations)
        for (const Place& place : places()) {
          ConvolutionProblem problem = one.problem(operation, Format::Float32, Format::Float32);
          problem.threadCount = kThreads;
          problem.accumulate = problem.neuron.neuronType() == CNNNeuronType::None;
          for (const auto& implementation : convolutionBackEnds.of(*place.device)) {
            SCOPED_TRACE(problem.describe() + " " + std::string(implementation.name));
            const auto plan = planOf(implementation, problem, place);
            EXPECT_EQ(plan != nullptr, implementation.name == "direct");
            if (!plan) continue;
            Setting setting(problem, Tier::Exact, ++seed, place);
            for (const bool accumulate : {false, true})
              if (!accumulate || problem.accumulate)
                expectValues(setting.expected(problem, accumulate), setting.run(*plan, accumulate));
          }
        }
    }
}

/// Windows whose taps are far apart, or far outside, are not copied into an array without padding.
TEST(ConvolutionPlan, CopiesAreOfASizeThatGoesWithTheTensors) {
  constexpr std::int64_t kFar = (std::int64_t{1} << 31U) - 1;
  const ConvolutionCase dilated{.name = "DilatedFar",
                                .y = {4, 4, 3, 1, 1 << 20, 0},
                                .x = {4, 4, 3, 1, 1 << 20, 0},
                                .inputs = 16,
                                .outputs = 8,
                                .edgeMode = ImageEdgeMode::Clamp};
  ConvolutionCase strided = dilated;
  strided.y = {4, 2, 3, 1 << 24, 1, 0};
  strided.x = {4, 2, 3, 1 << 24, 1, 0};
  ConvolutionCase farRight = dilated;
  farRight.y = {4, 4, 3, 1, 1, 1};
  farRight.x = {4, 4, 3, 1, 1, kFar};
  ConvolutionCase farLeft = farRight;
  farLeft.x.offset = -kFar;
  const std::pair<const ConvolutionCase&, bool> cases[] = {
      {dilated, false}, {strided, false}, {farRight, true}, {farLeft, true}};
  std::uint64_t seed = 900;
  for (const auto& [one, copies] : cases)
    for (const std::int64_t inputs : {2, 16})
      for (const ImageEdgeMode edgeMode : {ImageEdgeMode::Clamp, ImageEdgeMode::Zero})
        for (const ConvolutionOperation operation : kOperations) {
          ConvolutionCase other = one;
          other.inputs = inputs;
          other.edgeMode = edgeMode;
          ConvolutionProblem problem = other.problem(operation, Format::Float32, Format::Float32);
          problem.threadCount = kThreads;
          EXPECT_EQ(canCopyCovered(problem), copies) << problem.describe();
          for (const Place& place : places()) {
            Setting setting(problem, Tier::Exact, ++seed, place);
            const Expected expected = setting.expected(problem, false);
            for (const auto& implementation : convolutionBackEnds.of(*place.device)) {
              SCOPED_TRACE(problem.describe() + " " + std::string(implementation.name));
              const auto plan = planOf(implementation, problem, place);
              if (plan) expectValues(expected, setting.run(*plan, false));
            }
          }
        }
}

/// NVIDIA's libraries take addresses that are multiples of 16; for others a plan has another way.
TEST(ConvolutionPlan, AnyAddressWillDo) {
  std::uint64_t seed = 600;
  for (const Place& place : places())
    for (const std::string_view name :
         {"SecondLayer5x5", "SameStride2TopLeft", "FullyConnectedEven", "Clamp3x3", "Pointwise"})
      for (const ConvolutionOperation operation : kOperations)
        for (const Format format : {Format::Float32, Format::Float16})
          for (const auto& implementation : convolutionBackEnds.of(*place.device)) {
            const ConvolutionProblem problem = caseNamed(name).problem(operation, format, format);
            const auto plan = planOf(implementation, problem, place);
            if (!plan) continue;
            SCOPED_TRACE(problem.describe() + " " + std::string(implementation.name));
            Setting setting(problem, Tier::Exact, ++seed, place);
            EXPECT_EQ(
                setting.compareWith(setting.expected(problem, false), setting.run(*plan, false), Tier::Exact),
                "");
          }
}

/// A build with CUDA on a machine without a GPU: libraries say what is missing, and nothing is thrown.
TEST(ConvolutionPlan, LibrariesRefuseWithoutAGpu) {
  const BackEnds<ConvolutionProblem> backEnds = convolutionBackEnds;
  if (backEnds.cuda == nullptr || !mtl::cudaDevices().empty()) return;
  for (const std::string_view name : {"SecondLayer5x5", "FullyConnectedEven"})
    for (const auto& implementation : backEnds.cuda()) {
      const Preparation preparation = implementation.prepare(
          caseNamed(name).problem(ConvolutionOperation::Forward, Format::Float32, Format::Float32));
      const auto* const refusal = std::get_if<Refusal>(&preparation);
      EXPECT_EQ(refusal == nullptr, implementation.name == "direct");
      EXPECT_TRUE(refusal == nullptr || !refusal->reason.empty());
    }
}

/// What is chosen first. On other processors oneDNN may have no kernels and refuse.
#if defined(__x86_64__)
TEST(ConvolutionPlan, OneDnnTakesEveryCase) {
  for (const ConvolutionCase& convolution : ordinaryCases())
    for (const ConvolutionOperation operation : kOperations) {
      const ConvolutionProblem problem = convolution.problem(operation, Format::Float32, Format::Float32);
      const ChosenPlan chosen = preparePlan(convolutionImplementationsCpu(), problem);
      // Gradients of so large a window of so few channels have only reference code: that of the source without AVX-512.
      const bool hasAvx512 = dnnl::get_effective_cpu_isa() >= dnnl::cpu_isa::avx512_core;
      if (convolution.name == "Over256Taps" &&
          (operation == ConvolutionOperation::WeightsGradient ||
           (operation == ConvolutionOperation::DataGradient && !hasAvx512)))
        continue;
      EXPECT_NE(chosen.implementation, "direct") << problem.describe();
      EXPECT_FALSE(chosen.plan->describe().empty());
      const bool isMatrix = convolution.name.starts_with("FullyConnected");
      EXPECT_TRUE(!isMatrix || chosen.implementation == "matmul") << problem.describe();
    }
}
#endif

/// oneDNN's fastest weights gradient of a 1x1 kernel with strides overruns its scratch memory when the source channels
/// do not fill a vector; others take it. With more channels it is safe and stays.
#if defined(__x86_64__)
std::string describeProjectionOf(std::int64_t channels, std::int64_t stride) {
  const ConvolutionCase projection{.name = "Projection",
                                   .images = 2,
                                   .y = sameWindow(24, 1, stride),
                                   .x = sameWindow(24, 1, stride),
                                   .inputs = channels,
                                   .outputs = 16};
  ConvolutionProblem problem =
      projection.problem(ConvolutionOperation::WeightsGradient, Format::Float32, Format::Float32);
  problem.threadCount = kThreads;
  const ForceImplementation force("onednn");
  return preparePlan(convolutionImplementationsCpu(), problem).plan->describe();
}

TEST(ConvolutionPlan, StridedPointwiseWeightsGradientsOfFewChannelsTakeAnotherKernel) {
  const auto& describe = describeProjectionOf;
  for (std::int64_t channels = 1; channels < 8; ++channels)
    for (const std::int64_t stride : {2, 3})
      EXPECT_EQ(describe(channels, stride).find("jit_1x1"), std::string::npos) << channels;
  for (std::int64_t channels = 8; channels < 16; ++channels)
    EXPECT_EQ(describe(channels, 2).find("jit_1x1:avx512"), std::string::npos) << channels;
  // A projection of ResNet-50 keeps what it has without strides.
  const auto isPointwise = [](const std::string& name) { return name.find("jit_1x1") != std::string::npos; };
  for (const std::int64_t channels : {16, 17, 64, 256})
    EXPECT_EQ(isPointwise(describe(channels, 2)), isPointwise(describe(channels, 1))) << channels;
}

/// The dispatch log says why, where oneDNN would take that kernel: on processors where it does so without strides.
TEST(ConvolutionPlan, AWeightsGradientThatOverrunsIsDeclinedWithASentence) {
  if (describeProjectionOf(16, 1).find("jit_1x1") == std::string::npos) return;
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // a process of its own, which reads the variable anew
  setenv("UNMETAL_VERBOSE", "dispatch", 1);
  const auto expectPrinted = [](std::int64_t channels, std::int64_t stride, const char* expected) {
    EXPECT_EXIT(
        {
          static_cast<void>(describeProjectionOf(channels, stride));
          std::exit(0);
        },
        testing::ExitedWithCode(0), expected);
  };
  expectPrinted(3, 2,
                "unmetal: oneDNN's jit_1x1:\\S+ is not taken: its 1x1 weights gradient with strides "
                "overruns its scratch memory when the source channels do not fill a vector\n");
  expectPrinted(3, 1, "^(unmetal: convolution [^\n]*\n)+$");
  expectPrinted(16, 2, "^(unmetal: convolution [^\n]*\n)+$");
  unsetenv("UNMETAL_VERBOSE");
}
#endif

TEST(ConvolutionPlan, DirectTakesEveryCase) {
  const ForceImplementation force("direct");
  for (const ConvolutionCase& convolution : convolutionCases())
    for (const ConvolutionOperation operation : kOperations) {
      const ConvolutionProblem problem = convolution.problem(operation, Format::Float16, Format::Float32);
      for (const Place& place : places())
        EXPECT_EQ(preparePlan(convolutionBackEnds.of(*place.device), problem).implementation, "direct");
    }
}

/// Dense float32 tensors are computed on where they are.
TEST(ConvolutionPlan, DenseFloatsTakeNoScratchForImages) {
  ConvolutionCase convolution = caseNamed("Channels64To64");
  convolution.images = 1;  // so small that it is not divided
  for (const ConvolutionOperation operation : kOperations)
    for (const auto& implementation : convolutionImplementationsCpu()) {
      const auto scratch = [&](Format format) {
        const auto plan = planOf(implementation, convolution.problem(operation, format, format));
        return plan ? static_cast<std::int64_t>(plan->scratchBytes()) : 0;
      };
      const ConvolutionProblem problem = convolution.problem(operation, Format::Float16, Format::Float16);
      if (scratch(Format::Float32) == 0) continue;
      // Two of the three tensors take part, each as large as the other.
      const std::int64_t images = 2 * 5 * 6 * 64 * static_cast<std::int64_t>(sizeof(float));
      EXPECT_EQ(scratch(Format::Float16) - scratch(Format::Float32), images)
          << problem.describe() << " " << implementation.name;
    }
}

TEST(ConvolutionPlan, ThreadCountOneIsRightToo) {
  for (const std::string_view name : {"SecondLayer5x5", "FullyConnected", "SameStride2TopLeft"})
    for (const ConvolutionOperation operation : kOperations) {
      ConvolutionProblem problem = caseNamed(name).problem(operation, Format::Float32, Format::Float32);
      problem.threadCount = 1;
      checkAll(problem, Tier::Bounded, false, 1);
    }
}

/// run() is const and may be called from several streams at once.
TEST(ConvolutionPlan, RunsFromSeveralThreadsAtOnce) {
  for (const ConvolutionOperation operation : kOperations)
    for (const auto& implementation : convolutionImplementationsCpu()) {
      ConvolutionProblem problem =
          caseNamed("SecondLayer5x5").problem(operation, Format::Float16, Format::Float32);
      problem.threadCount = kThreads;
      const auto plan = planOf(implementation, problem);
      if (!plan) continue;
      Setting alone(problem, Tier::Bounded, 7);
      const Results expected = alone.run(*plan, false);
      std::vector<Results> found(3);
      std::vector<std::thread> threads;
      for (Results& result : found)
        threads.emplace_back([&] {
          Setting setting(problem, Tier::Bounded, 7);
          for (int i = 0; i < 5; ++i) result = setting.run(*plan, false);
        });
      for (std::thread& thread : threads) thread.join();
      for (const Results& result : found)
        EXPECT_TRUE(sameBits(expected, result)) << problem.describe() << " " << implementation.name;
    }
}

/// A second plan of the same problem gives the same bits.
TEST(ConvolutionPlan, NewPlansGiveTheSameBits) {
  for (const std::string_view name : {"SecondLayer5x5", "FullyConnected", "SameStride2TopLeft", "DepthWise"})
    for (const ConvolutionOperation operation : kOperations)
      for (const Place& place : places())
        for (const auto& implementation : convolutionBackEnds.of(*place.device)) {
          ConvolutionProblem problem = caseNamed(name).problem(operation, Format::Float32, Format::Float32);
          problem.threadCount = kThreads;
          const auto first = planOf(implementation, problem, place);
          if (!first) continue;
          Setting setting(problem, Tier::Bounded, 8, place);
          EXPECT_TRUE(sameBits(setting.run(*first, false),
                               setting.run(*planOf(implementation, problem, place), false)));
        }
}

/// Inputs that are small integers lose nothing when they are rounded to TF32 or float16.
TEST(ConvolutionPlan, ReducedPrecisionKeepsSmallIntegers) {
  std::uint64_t seed = 700;
  for (const ConvolutionCase& convolution : ordinaryCases())
    for (const ConvolutionOperation operation : kOperations)
      for (const Format format : {Format::Float32, Format::Float16}) {
        ConvolutionProblem problem = convolution.problem(operation, format, format);
        problem.threadCount = kThreads;
        problem.allowReducedPrecision = true;
        problem.accumulate = format == Format::Float32;
        if (isExact(problem.neuron)) checkAll(problem, Tier::Exact, false, ++seed);
      }
}

/// More rows of a gradient than what the blocks of a GPU take at once.
TEST(ConvolutionPlan, ReducedPrecisionOfManyRows) {
  for (const std::int64_t kernelWidth : {3, 5}) {
    const ConvolutionCase many{.name = "ManyRows",
                               .images = 25,
                               .y = sameWindow(14, 5),
                               .x = sameWindow(14, kernelWidth),
                               .inputs = 32,
                               .outputs = 64};
    ConvolutionProblem problem =
        many.problem(ConvolutionOperation::WeightsGradient, Format::Float32, Format::Float32);
    problem.threadCount = kThreads;
    problem.allowReducedPrecision = true;
    problem.accumulate = true;
    for (const bool accumulate : {false, true}) checkAll(problem, Tier::Exact, accumulate, 750);
  }
}

TEST(ConvolutionPlan, ReducedPrecisionIsCloseInTheNorm) {
  std::uint64_t seed = 800;
  for (const std::string_view name : {"FirstLayer5x5", "SecondLayer5x5", "SameStride2TopLeft", "Channels3To5",
                                      "FullyConnected", "Clamp3x3", "DepthWise", "ReLU", "Sigmoid", "PReLU"})
    for (const ConvolutionOperation operation : kOperations)
      for (const Format format : {Format::Float32, Format::Float16}) {
        ConvolutionProblem problem = caseNamed(name).problem(operation, format, format);
        problem.threadCount = kThreads;
        problem.allowReducedPrecision = true;
        checkAll(problem, Tier::Norm, false, ++seed);
      }
}

/// Sources of another format than the result, among them those of few channels, which are filled up.
TEST(ConvolutionPlan, ReducedPrecisionOfConvertedSources) {
  std::uint64_t seed = 900;
  for (const std::string_view name :
       {"SameStride2TopLeft", "FirstLayer11x11Stride4", "Channels3To5", "Channels5To4", "Channels16To17",
        "OffsetBeyondSource", "KernelOverImage", "Clamp3x3", "ClampDilatedStride", "Strided"})
    for (const ConvolutionOperation operation :
         {ConvolutionOperation::Forward, ConvolutionOperation::WeightsGradient})
      for (const Format source : {Format::Unorm8, Format::Unorm16, Format::Float32}) {
        ConvolutionProblem problem = caseNamed(name).problem(operation, source, Format::Float16);
        problem.threadCount = kThreads;
        problem.allowReducedPrecision = true;
        checkAll(problem, Tier::Exact, false, ++seed);
        checkAll(problem, Tier::Norm, false, ++seed);
      }
}

TEST(ConvolutionProblem, EveryFieldCountsInEqualityAndHash) {
  const ConvolutionProblem base =
      caseNamed("ReLU").problem(ConvolutionOperation::Forward, Format::Float32, Format::Float32);
  EXPECT_EQ(base, ConvolutionProblem(base));
  EXPECT_EQ(base.hash(), ConvolutionProblem(base).hash());
  using Change = void (*)(ConvolutionProblem&);
  const Change changes[] = {
      [](ConvolutionProblem& p) { p.operation = ConvolutionOperation::DataGradient; },
      [](ConvolutionProblem& p) { ++p.x.offset; },
      [](ConvolutionProblem& p) { ++p.y.offset; },
      [](ConvolutionProblem& p) { ++p.groups; },
      [](ConvolutionProblem& p) { ++p.inputFeatureChannels; },
      [](ConvolutionProblem& p) { ++p.outputFeatureChannels; },
      [](ConvolutionProblem& p) { p.edgeMode = ImageEdgeMode::Clamp; },
      [](ConvolutionProblem& p) { p.transposed = true; },
      [](ConvolutionProblem& p) { p.hasBias = false; },
      [](ConvolutionProblem& p) { p.allowReducedPrecision = true; },
      [](ConvolutionProblem& p) { p.accumulate = true; },
      [](ConvolutionProblem& p) { ++p.threadCount; },
      [](ConvolutionProblem& p) { p.deviceName = "cuda:1"; },
      [](ConvolutionProblem& p) { p.neuron = {}; },
      [](ConvolutionProblem& p) { ++p.source.rowStride; },
      [](ConvolutionProblem& p) { ++p.destination.rowStride; },
      [](ConvolutionProblem& p) { ++p.gradient.rowStride; },
  };
  for (const Change change : changes) {
    ConvolutionProblem changed = base;
    change(changed);
    EXPECT_NE(changed, base) << changed.describe();
    EXPECT_NE(changed.hash(), base.hash()) << changed.describe();
  }
  EXPECT_EQ(base.describe(),
            "convolution forward 3x3 stride 1x1 offset (0,0) bias ReLU a=0, source 3x7x6x5 float32, "
            "destination 3x7x6x17 float32");
}

/// A reference that believes another number must disagree with the kernels: no field is without effect.
TEST(ConvolutionPlan, EveryFieldChangesTheResult) {
  const ConvolutionCase grouped{.name = "Sensitive",
                                .images = 2,
                                .y = {9, 5, 3, 2, 2, 2},
                                .x = {10, 4, 2, 2, 3, 2},
                                .inputs = 8,
                                .outputs = 8,
                                .groups = 2,
                                .neuron = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU)};
  ConvolutionCase depthWise = grouped;
  depthWise.groups = 8;
  struct Change {
    const char* field;
    void (*apply)(ConvolutionProblem&);
    bool forwardOnly = false;
    bool changesGroups = false;
  };
  // Sizes shrink, so that the changed reference stays within the operands.
  const Change changes[] = {
      {"x.sourceSize", [](ConvolutionProblem& p) { --p.x.sourceSize; }},
      {"y.sourceSize", [](ConvolutionProblem& p) { --p.y.sourceSize; }},
      {"x.destinationSize", [](ConvolutionProblem& p) { --p.x.destinationSize; }},
      {"y.destinationSize", [](ConvolutionProblem& p) { --p.y.destinationSize; }},
      {"x.kernelSize", [](ConvolutionProblem& p) { --p.x.kernelSize; }},
      {"y.kernelSize", [](ConvolutionProblem& p) { --p.y.kernelSize; }},
      {"x.stride", [](ConvolutionProblem& p) { --p.x.stride; }},
      {"y.stride", [](ConvolutionProblem& p) { --p.y.stride; }},
      {"x.dilation", [](ConvolutionProblem& p) { --p.x.dilation; }},
      {"y.dilation", [](ConvolutionProblem& p) { --p.y.dilation; }},
      {"x.offset", [](ConvolutionProblem& p) { ++p.x.offset; }},
      {"y.offset", [](ConvolutionProblem& p) { --p.y.offset; }},
      {"groups", [](ConvolutionProblem& p) { p.groups = 4; }, false, true},
      {"inputFeatureChannels", [](ConvolutionProblem& p) { p.inputFeatureChannels = 4; }, false, true},
      {"outputFeatureChannels", [](ConvolutionProblem& p) { p.outputFeatureChannels = 4; }, false, true},
      {"edgeMode", [](ConvolutionProblem& p) { p.edgeMode = ImageEdgeMode::Clamp; }},
      {"transposed", [](ConvolutionProblem& p) { p.transposed = true; }},
      {"hasBias", [](ConvolutionProblem& p) { p.hasBias = !p.hasBias; }, true},
      {"neuron", [](ConvolutionProblem& p) { p.neuron.setA(0.5F); }, true},
  };
  constexpr std::uint64_t kSeed = 900;
  for (const Place& place : places())
    for (const ConvolutionCase& base : {grouped, depthWise})
      for (const ConvolutionOperation operation : kOperations) {
        ConvolutionProblem problem = base.problem(operation, Format::Float32, Format::Float32);
        problem.threadCount = kThreads;
        Setting setting(problem, Tier::Exact, kSeed, place);
        for (const auto& implementation : convolutionBackEnds.of(*place.device)) {
          const auto plan = planOf(implementation, problem, place);
          if (!plan) continue;
          const Results found = setting.run(*plan, false);
          EXPECT_EQ(setting.compareWith(setting.expected(problem, false), found, Tier::Exact), "");
          for (const Change& change : changes) {
            if (change.forwardOnly && operation != ConvolutionOperation::Forward) continue;
            // The weights of a depth-wise convolution suffice for no other.
            if (change.changesGroups && base.groups == base.inputs) continue;
            ConvolutionProblem believed = problem;
            change.apply(believed);
            EXPECT_NE(setting.compareWith(setting.expected(believed, false), found, Tier::Bounded), "")
                << change.field << ", " << name(operation) << ", " << implementation.name << ", groups "
                << base.groups << ", seed " << kSeed;
          }
        }
      }
}

}  // namespace
}  // namespace mps::detail::convolution_plan_test
