#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mtl/cuda/api.hpp"
#include "mtl/cuda/test_fusions.hpp"

/// What cuDNN fuses into the convolutions of ResNet-50: which graphs it has engines for, whether these run and are right,
/// and what they gain. Prints a table.
///
/// On an H200 with the cuDNN of PyTorch 2.11 no graph with sums has an engine that gives the same sums twice, and those without gain
/// less than 1 % of a step: nothing of it is used.
///
/// A few layers are asked for, run and timed. UNMETAL_CUDNN_FUSIONS=all does so with every layer, which takes minutes.
namespace mtl::cuda::cudnn_fusions_test {
namespace {

using testing::FusedConvolution;
using testing::FusedEngine;
using testing::FusedGraph;
using testing::FusedMemory;
using testing::FusedPlan;
using testing::Numbers;
using testing::Sizes;

constexpr std::int64_t kBatch = 256;
constexpr double kBytesPerMicrosecond = 4.2e6;
constexpr std::int64_t kMostWorkspace = std::int64_t{1} << 30U;
constexpr std::size_t kMostPlans = 6;
constexpr std::size_t kMostAttempts = 24;

struct Layer {
  const char* name;
  std::int64_t inputs, outputs, size, kernel, stride;
  int count;            ///< how many of them ResNet-50 has
  int afterNormalised;  ///< of these, how many read what batch normalisation and ReLU alone made
  bool isSampled;       ///< whether it is always run and timed
};
/// The first layer's three channels are filled up to eight, as our back end does.
constexpr Layer kLayers[] = {
    {"7x7s2_8to64_at224", 8, 64, 224, 7, 2, 1, 0, false},
    {"1x1_64to64_at56", 64, 64, 56, 1, 1, 1, 0, false},
    {"3x3_64to64_at56", 64, 64, 56, 3, 1, 3, 3, true},
    {"1x1_64to256_at56", 64, 256, 56, 1, 1, 4, 3, true},
    {"1x1_256to64_at56", 256, 64, 56, 1, 1, 2, 0, false},
    {"1x1_256to128_at56", 256, 128, 56, 1, 1, 1, 0, false},
    {"3x3s2_128to128_at56", 128, 128, 56, 3, 2, 1, 1, true},
    {"1x1s2_256to512_at56", 256, 512, 56, 1, 2, 1, 0, false},
    {"1x1_128to512_at28", 128, 512, 28, 1, 1, 4, 4, false},
    {"1x1_512to128_at28", 512, 128, 28, 1, 1, 3, 0, false},
    {"3x3_128to128_at28", 128, 128, 28, 3, 1, 3, 3, false},
    {"1x1_512to256_at28", 512, 256, 28, 1, 1, 1, 0, false},
    {"3x3s2_256to256_at28", 256, 256, 28, 3, 2, 1, 1, false},
    {"1x1s2_512to1024_at28", 512, 1024, 28, 1, 2, 1, 0, false},
    {"1x1_256to1024_at14", 256, 1024, 14, 1, 1, 6, 6, false},
    {"1x1_1024to256_at14", 1024, 256, 14, 1, 1, 5, 0, false},
    {"3x3_256to256_at14", 256, 256, 14, 3, 1, 5, 5, false},
    {"1x1_1024to512_at14", 1024, 512, 14, 1, 1, 1, 0, false},
    {"3x3s2_512to512_at14", 512, 512, 14, 3, 2, 1, 1, false},
    {"1x1s2_1024to2048_at14", 1024, 2048, 14, 1, 2, 1, 0, false},
    {"1x1_512to2048_at7", 512, 2048, 7, 1, 1, 3, 3, false},
    {"1x1_2048to512_at7", 2048, 512, 7, 1, 1, 2, 0, false},
    {"3x3_512to512_at7", 512, 512, 7, 3, 1, 2, 2, false},
};

/// A layer in a format.
struct Problem {
  Layer layer;
  cudnnDataType_t type;

  [[nodiscard]] testing::FusedWindow window() const { return {layer.stride, layer.kernel / 2}; }
  [[nodiscard]] Sizes large() const { return {kBatch, layer.inputs, layer.size, layer.size}; }
  [[nodiscard]] Sizes weights() const { return {layer.outputs, layer.inputs, layer.kernel, layer.kernel}; }
  [[nodiscard]] Sizes small() const {
    const std::int64_t size = (layer.size + 2 * (layer.kernel / 2) - layer.kernel) / layer.stride + 1;
    return {kBatch, layer.outputs, size, size};
  }
  [[nodiscard]] const char* format() const { return type == CUDNN_DATA_HALF ? "float16" : "tf32"; }
  [[nodiscard]] double bytesOf(const Sizes& sizes) const {
    return static_cast<double>(testing::elementsOf(sizes)) * (type == CUDNN_DATA_HALF ? 2 : 4);
  }
};

/// The graphs. "normalised" means: source times scale plus bias, then ReLU, without being stored.
enum class Fusion {
  Forward,
  ForwardStatistics,
  NormalisedForward,
  NormalisedForwardStatistics,
  DataGradient,
  DataGradientRelu,  ///< through the ReLU, whose source is stored
  DataGradientSums,  ///< through the ReLU, whose source is normalised anew, to the sums of batch normalisation's gradient
  DataGradientAdded,  ///< plus another gradient
  WeightsGradient,
  NormalisedWeightsGradient,
};
struct Kind {
  Fusion fusion;
  const char* name;
  Fusion plain;
  /// Bytes that separate kernels read and write in addition, in larger and smaller images.
  int largeImages, smallImages;
};
constexpr Kind kKinds[] = {
    {Fusion::Forward, "(e) forward", Fusion::Forward, 0, 0},
    {Fusion::ForwardStatistics, "(a) forward+statistics", Fusion::Forward, 0, 1},
    {Fusion::NormalisedForward, "(b) normalised forward", Fusion::Forward, 2, 0},
    {Fusion::NormalisedForwardStatistics, "(b) normalised forward+statistics", Fusion::Forward, 2, 1},
    {Fusion::DataGradient, "(e) data gradient", Fusion::DataGradient, 0, 0},
    {Fusion::DataGradientRelu, "(c) data gradient+ReLU", Fusion::DataGradient, 2, 0},
    {Fusion::DataGradientSums, "(c) data gradient+ReLU+sums", Fusion::DataGradient, 1, 0},
    {Fusion::DataGradientAdded, "(f) data gradient+other", Fusion::DataGradient, 2, 0},
    {Fusion::WeightsGradient, "(e) weight gradient", Fusion::WeightsGradient, 0, 0},
    // It saves nothing by itself: without it the normalised source must be stored, and (b) saves nothing.
    {Fusion::NormalisedWeightsGradient, "(d) normalised weight gradient", Fusion::WeightsGradient, 0, 0},
};

/// Formats that the documentation leaves open: of scale, bias and the like; of what is not stored; of the statistics' arithmetic.
struct Precision {
  const char* name;
  cudnnDataType_t vectors, between, statistics;
};
constexpr Precision kPrecisions[] = {
    {"fff", CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT},
    {"hff", CUDNN_DATA_HALF, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT},
    {"hhf", CUDNN_DATA_HALF, CUDNN_DATA_HALF, CUDNN_DATA_FLOAT},
    {"hfh", CUDNN_DATA_HALF, CUDNN_DATA_FLOAT, CUDNN_DATA_HALF},
    {"hhh", CUDNN_DATA_HALF, CUDNN_DATA_HALF, CUDNN_DATA_HALF},
};

/// A graph with the tensors whose numbers are compared; 0 where there is none.
struct Built {
  FusedGraph graph;
  std::int64_t summed = 0;   ///< a stored image
  std::int64_t sum = 0;      ///< what the graph says is its sum for each channel
  std::int64_t squares = 0;  ///< and the sum of its squares
};

/// Makes the graphs of one problem.
class Builder {
 public:
  Builder(const Problem& problem, const Precision& precision) : problem_(problem), precision_(precision) {}

  Built build(Fusion fusion) {
    switch (fusion) {
      case Fusion::Forward:
      case Fusion::ForwardStatistics:
      case Fusion::NormalisedForward:
      case Fusion::NormalisedForwardStatistics:
        buildForward(fusion);
        break;
      case Fusion::DataGradient:
      case Fusion::DataGradientRelu:
      case Fusion::DataGradientSums:
      case Fusion::DataGradientAdded:
        buildDataGradient(fusion);
        break;
      case Fusion::WeightsGradient:
      case Fusion::NormalisedWeightsGradient:
        buildWeightsGradient(fusion == Fusion::NormalisedWeightsGradient);
        break;
    }
    built_.graph.finish();
    return std::move(built_);
  }

 private:
  std::int64_t image(const Sizes& sizes, Numbers numbers) {
    return built_.graph.tensor(sizes, problem_.type, numbers);
  }
  std::int64_t between(const Sizes& sizes) {
    return built_.graph.tensor(sizes, precision_.between, Numbers::Nothing);
  }
  std::int64_t vectorOf(std::int64_t channels, Numbers numbers) {
    return built_.graph.tensor({1, channels, 1, 1}, precision_.vectors, numbers);
  }
  std::int64_t sumOf(std::int64_t channels) {
    return built_.graph.tensor({1, channels, 1, 1}, CUDNN_DATA_FLOAT, Numbers::Result);
  }
  std::int64_t combined(cudnnPointwiseMode_t mode, std::int64_t x, std::int64_t b) {
    const std::int64_t y = between(built_.graph.at(x).sizes);
    built_.graph.pointwise(mode, x, b, y);
    return y;
  }
  std::int64_t normalised(std::int64_t source) {
    const std::int64_t scale = vectorOf(problem_.layer.inputs, Numbers::Positive);
    const std::int64_t bias = vectorOf(problem_.layer.inputs, Numbers::Weights);
    const std::int64_t scaled = combined(CUDNN_POINTWISE_MUL, source, scale);
    return combined(CUDNN_POINTWISE_RELU_FWD, combined(CUDNN_POINTWISE_ADD, scaled, bias), 0);
  }

  void buildForward(Fusion fusion) {
    const bool isNormalised =
        fusion == Fusion::NormalisedForward || fusion == Fusion::NormalisedForwardStatistics;
    const std::int64_t stored = image(problem_.large(), Numbers::Signed);
    const std::int64_t source = isNormalised ? normalised(stored) : stored;
    const std::int64_t weights = image(problem_.weights(), Numbers::Weights);
    const std::int64_t result = image(problem_.small(), Numbers::Result);
    built_.graph.convolution(FusedConvolution::Forward, problem_.window(), source, weights, result);
    if (fusion == Fusion::Forward || fusion == Fusion::NormalisedForward) return;
    built_.summed = result;
    built_.sum = sumOf(problem_.layer.outputs);
    built_.squares = sumOf(problem_.layer.outputs);
    built_.graph.statistics(result, built_.sum, built_.squares, precision_.statistics);
  }

  void buildDataGradient(Fusion fusion) {
    const std::int64_t gradient = image(problem_.small(), Numbers::Signed);
    const std::int64_t weights = image(problem_.weights(), Numbers::Weights);
    const bool isPlain = fusion == Fusion::DataGradient;
    const std::int64_t first = isPlain ? image(problem_.large(), Numbers::Result) : between(problem_.large());
    built_.graph.convolution(FusedConvolution::DataGradient, problem_.window(), first, weights, gradient);
    if (isPlain) return;
    if (fusion == Fusion::DataGradientSums) return addSums(first);
    const std::int64_t other = image(problem_.large(), Numbers::Signed);
    const std::int64_t result = image(problem_.large(), Numbers::Result);
    if (fusion == Fusion::DataGradientRelu)
      built_.graph.reluGradient(first, other, result);
    else
      built_.graph.pointwise(CUDNN_POINTWISE_ADD, first, other, result);
  }
  void addSums(std::int64_t gradient) {
    const std::int64_t channels = problem_.layer.inputs;
    const FusedGraph::BatchNormalization layer{
        image(problem_.large(), Numbers::Signed), vectorOf(channels, Numbers::Weights),
        vectorOf(channels, Numbers::Positive), vectorOf(channels, Numbers::Positive)};
    const std::int64_t bias = vectorOf(channels, Numbers::Weights);
    std::int64_t source = combined(CUDNN_POINTWISE_SUB, layer.source, layer.mean);
    source = combined(CUDNN_POINTWISE_MUL, source, layer.inverseDeviation);
    source = combined(CUDNN_POINTWISE_MUL, source, layer.scale);
    source = combined(CUDNN_POINTWISE_ADD, source, bias);
    built_.summed = image(problem_.large(), Numbers::Result);
    built_.graph.reluGradient(gradient, source, built_.summed);
    std::array<std::int64_t, 5> results{};
    for (std::int64_t& result : results) result = sumOf(channels);
    built_.sum = results[1];
    built_.graph.batchNormalizationGradient(built_.summed, layer, results);
  }

  void buildWeightsGradient(bool isNormalised) {
    const std::int64_t stored = image(problem_.large(), Numbers::Signed);
    const std::int64_t source = isNormalised ? normalised(stored) : stored;
    const std::int64_t gradient = image(problem_.small(), Numbers::Signed);
    const std::int64_t result = image(problem_.weights(), Numbers::Result);
    built_.graph.convolution(FusedConvolution::WeightsGradient, problem_.window(), source, result, gradient);
  }

  const Problem& problem_;
  const Precision& precision_;
  Built built_;
};

/// What cuDNN offers for a graph, and the best of it.
struct Offer {
  std::string precision = "-";
  std::string why;
  std::size_t offered = 0;
  std::size_t deterministic = 0;
  std::size_t planned = 0;
  std::size_t changing = 0;           ///< plans whose sums have other bits in a second run
  std::optional<FusedEngine> engine;  ///< the fastest one's
  std::int64_t workspace = 0;
  double microseconds = 0;
  /// Largest error of a sum, in roundings of a float16 of the sum of the absolute values.
  double worstSum = 0;
};

/// The suggestions of both modes; those that could be used come first.
std::vector<CudnnDescriptor> suggestionsFor(const FusedGraph& graph, std::string& why) {
  std::vector<CudnnDescriptor> found = graph.suggestions(CUDNN_HEUR_MODE_A, why);
  for (CudnnDescriptor& suggestion : graph.suggestions(CUDNN_HEUR_MODE_FALLBACK, why))
    found.push_back(std::move(suggestion));
  return found;
}

bool isUsable(const FusedEngine& engine) {
  return engine.isDeterministic && engine.isBounded;
}

/// Plans of the usable suggestions; of all when no usable one has a plan.
std::vector<FusedPlan> plansFrom(const std::vector<CudnnDescriptor>& suggestions, std::string& why) {
  std::vector<FusedPlan> plans;
  for (const bool wantsUsable : {true, false}) {
    std::size_t attempts = 0;
    for (const CudnnDescriptor& suggestion : suggestions) {
      if (isUsable(testing::engineOf(suggestion)) != wantsUsable) continue;
      if (plans.size() == kMostPlans || ++attempts > kMostAttempts) break;
      try {
        FusedPlan plan = testing::planOf(suggestion);
        if (plan.workspace <= kMostWorkspace) plans.push_back(std::move(plan));
      } catch (const CudnnError& error) {
        why = error.what();
      }
    }
    if (!plans.empty()) break;
  }
  return plans;
}

/// The sums of the last eight channels against those of the stored image, in roundings.
/// @param power 1: of the numbers, 2: of their squares
double worstSum(const FusedMemory& memory, const Built& built, int power) {
  const std::int64_t first = built.graph.at(built.summed).sizes[1] - 8;
  const std::vector<float> sums = memory.eightChannels(power == 1 ? built.sum : built.squares, first);
  const std::vector<float> image = memory.eightChannels(built.summed, first);
  double worst = 0;
  for (std::size_t channel = 0; channel < sums.size(); ++channel) {
    double sum = 0;
    double magnitude = 0;
    for (std::size_t i = channel; i < image.size(); i += sums.size()) {
      const double term = power == 1 ? image[i] : static_cast<double>(image[i]) * image[i];
      sum += term;
      magnitude += std::abs(term);
    }
    // A NaN is no number that is small.
    const double error = std::abs(sums[channel] - sum) / (power * 0x1p-11 * magnitude);
    if (!(error <= worst)) worst = std::isnan(error) ? HUGE_VAL : error;
  }
  return worst;
}

/// Runs a plan, compares its sums, and keeps it when it is the fastest so far.
void tryPlan(const FusedPlan& plan, const FusedMemory& memory, const Built& built, Offer& offer) {
  memory.run(plan);
  if (built.sum != 0) {
    const std::vector<float> sums = memory.eightChannels(built.sum, 0);
    double worst = worstSum(memory, built, 1);
    if (built.squares != 0) worst = std::max(worst, worstSum(memory, built, 2));
    EXPECT_LE(worst, 1) << "engine " << plan.engine.index;
    offer.worstSum = std::max(offer.worstSum, worst);
    memory.run(plan);
    // Engines that say that they are deterministic add their sums in any order, all the same.
    if (memory.eightChannels(built.sum, 0) != sums) {
      ++offer.changing;
      return;
    }
  }
  const double microseconds = memory.microseconds(plan);
  if (offer.engine && microseconds >= offer.microseconds) return;
  offer.engine = plan.engine;
  offer.workspace = plan.workspace;
  offer.microseconds = microseconds;
}

/// @return whether cuDNN has a plan
bool offers(Fusion fusion, const Problem& problem, const Precision& precision, Offer& offer) {
  offer.precision = precision.name;
  std::vector<CudnnDescriptor> suggestions;
  std::optional<Built> built;
  try {
    built = Builder(problem, precision).build(fusion);
    suggestions = suggestionsFor(built->graph, offer.why);
  } catch (const CudnnError& error) {
    offer.why = error.what();
  }
  offer.offered = suggestions.size();
  offer.deterministic = static_cast<std::size_t>(std::ranges::count_if(
      suggestions, [](const CudnnDescriptor& one) { return testing::engineOf(one).isDeterministic; }));
  if (suggestions.empty()) return false;
  const std::vector<FusedPlan> plans = plansFrom(suggestions, offer.why);
  offer.planned = plans.size();
  if (plans.empty()) return false;
  const FusedMemory memory(built->graph,
                           std::ranges::max_element(plans, {}, &FusedPlan::workspace)->workspace);
  for (const FusedPlan& plan : plans) {
    try {
      tryPlan(plan, memory, *built, offer);
    } catch (const Error& error) {
      ADD_FAILURE() << "engine " << plan.engine.index << ": " << error.what();
    }
  }
  return true;
}

Offer offerFor(Fusion fusion, const Problem& problem) {
  Offer offer;
  const std::span all(kPrecisions);
  for (const Precision& precision : problem.type == CUDNN_DATA_FLOAT ? all.first(1) : all) {
    offer = Offer();
    if (offers(fusion, problem, precision, offer)) return offer;
  }
  return offer;
}

/// Nothing is computed before the first layer.
bool isAsked(const Kind& kind, const Layer& layer) {
  const bool isFirst = layer.kernel == 7;
  return !isFirst || (kind.largeImages == 0 && kind.plain != Fusion::DataGradient &&
                      kind.fusion != Fusion::NormalisedWeightsGradient);
}

/// For how many layers of a step a fusion would serve.
int countOf(const Kind& kind, const Layer& layer) {
  if (kind.fusion == Fusion::ForwardStatistics) return layer.count;
  if (kind.fusion != Fusion::DataGradientAdded) return layer.afterNormalised;
  return layer.kernel == 1 && layer.outputs <= layer.inputs ? layer.count : 0;  // of a block's first one
}

bool runsAll() {
  const char* const value = std::getenv("UNMETAL_CUDNN_FUSIONS");
  return value != nullptr && std::string_view(value) == "all";
}

/// Microseconds that the fusions of a kind save in a step, by format and kind, where they save any.
std::map<std::pair<std::string, std::string>, double>& gains() {
  static std::map<std::pair<std::string, std::string>, double> all;
  return all;
}

void printRow(const Problem& problem, const Kind& kind, const Offer& offer, const Offer& plain) {
  std::printf("%-21s %-7s %-33s %3s %4zu %4zu", problem.layer.name, problem.format(), kind.name,
              offer.precision.c_str(), offer.offered, offer.deterministic);
  if (offer.engine) {
    const double saved = kind.largeImages * problem.bytesOf(problem.large()) +
                         kind.smallImages * problem.bytesOf(problem.small());
    const double gain = plain.microseconds + saved / kBytesPerMicrosecond - offer.microseconds;
    if (kind.fusion != kind.plain && plain.engine && isUsable(*offer.engine))
      gains()[{problem.format(), kind.name}] += std::max(0.0, gain) * countOf(kind, problem.layer);
    std::printf(" %4zu %4zu %6lld%s %7.1f %8.1f %8.1f %7.1f %7.1f %8.1f %7.3f", offer.planned, offer.changing,
                static_cast<long long>(offer.engine->index), isUsable(*offer.engine) ? " " : "*",
                static_cast<double>(offer.workspace) / 1e6, offer.microseconds, plain.microseconds,
                saved / 1e6, saved / kBytesPerMicrosecond, gain, offer.worstSum);
  } else {
    std::printf(" %4zu %4zu   %s", offer.planned, offer.changing, offer.why.c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
}

class CudnnFusions : public ::testing::TestWithParam<Problem> {
 protected:
  static void SetUpTestSuite() {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    std::printf(
        "%s, cuDNN %s, batch %lld. precision: of vectors, of what is not stored, of statistics; float32 or "
        "half.\n"
        "vary: plans whose sums differ in a second run. *: not deterministic, or not bounded. worst: error "
        "of a sum in roundings of a float16.\n",
        properties.name, Cudnn::library().version().c_str(), static_cast<long long>(kBatch));
    std::printf("%-21s %-7s %-33s %3s %4s %4s %4s %4s %6s  %7s %8s %8s %7s %7s %8s %7s\n", "layer", "format",
                "graph", "pre", "have", "det", "plan", "vary", "engine", "work MB", "best us", "plain us",
                "save MB", "save us", "gain us", "worst");
  }
  static void TearDownTestSuite() {
    for (const auto& [what, microseconds] : gains())
      std::printf("in a step %-7s %-33s saves %8.1f us where it saves any\n", what.first.c_str(),
                  what.second.c_str(), microseconds);
  }
  void SetUp() override { check(cudaSetDevice(0), "cudaSetDevice"); }
};

TEST_P(CudnnFusions, WhatIsOfferedRuns) {
  const Problem& problem = GetParam();
  std::map<Fusion, Offer> plain;
  for (const Kind& kind : kKinds) {
    if (!isAsked(kind, problem.layer)) continue;
    SCOPED_TRACE(kind.name);
    const Offer offer = offerFor(kind.fusion, problem);
    if (kind.fusion == kind.plain) {
      EXPECT_GT(offer.deterministic, 0U);
      EXPECT_TRUE(offer.engine) << offer.why;
      plain[kind.fusion] = offer;
    }
    printRow(problem, kind, offer, plain[kind.plain]);
  }
}

std::vector<Problem> problems() {
  std::vector<Problem> all;
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return all;
  for (const cudnnDataType_t type : {CUDNN_DATA_HALF, CUDNN_DATA_FLOAT})
    for (const Layer& layer : kLayers)
      if (layer.isSampled || runsAll()) all.push_back({layer, type});
  return all;
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CudnnFusions);
INSTANTIATE_TEST_SUITE_P(ResNet50, CudnnFusions, ::testing::ValuesIn(problems()), [](const auto& info) {
  return std::string(info.param.layer.name) + "_" + info.param.format();
});

}  // namespace
}  // namespace mtl::cuda::cudnn_fusions_test
