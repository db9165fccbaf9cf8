#include "mps/convolution/convolution_plan_file.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "mps/convolution/convolution_cases.hpp"
#include "mps/core/error.hpp"
#include "mps/weights/atomic_file.hpp"
#include "mtl/back_ends.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
namespace {

ConvolutionPlanFile twoPlans() {
  ConvolutionPlanFile file;
  file.name = "plans.json";
  file.device = "GPU model 7";
  file.library = "cuDNN 9.19.0";
  file.choices["convolution forward 5x5"] = {3, "engine 67", 0.25, 0.5};
  file.choices["convolution data gradient 3x3"] = {0, "engine 1 float16", 1.5, 1.5};
  return file;
}

/// The sentence of the error that a call throws, "" when it throws none.
std::string errorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ConvolutionPlanFile, ReadsWhatItWrote) {
  const ConvolutionPlanFile file = twoPlans();
  const ConvolutionPlanFile read = ConvolutionPlanFile::parse(file.text(), "again.json");
  EXPECT_EQ(read.name, "again.json");
  EXPECT_EQ(read.device, file.device);
  EXPECT_EQ(read.library, file.library);
  EXPECT_EQ(read.choices, file.choices);
}

TEST(ConvolutionPlanFile, RefusesDamagedFilesInOneSentence) {
  const std::string good = twoPlans().text();
  const auto expectRefusal = [](const std::string& text) {
    const std::string error = errorOf([&] { ConvolutionPlanFile::parse(text, "plans.json"); });
    EXPECT_TRUE(error.starts_with("plans.json is no plan file of unmetal tune, or a damaged one: ")) << text;
  };
  for (std::size_t length = 0; length + 2 < good.size(); length += 7) expectRefusal(good.substr(0, length));
  expectRefusal("[]");
  expectRefusal("3");
  const auto changed = [&](const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json json = nlohmann::json::parse(good);
    change(json);
    expectRefusal(json.dump());
  };
  changed([](auto& json) { json["format"] = "unmetal plans 2"; });
  changed([](auto& json) { json.erase("device"); });
  changed([](auto& json) { json.erase("library"); });
  changed([](auto& json) { json.erase("convolutions"); });
  for (const char* key : {"candidate", "engine", "milliseconds", "firstMilliseconds"})
    changed([&](auto& json) { json["convolutions"]["convolution forward 5x5"].erase(key); });
  changed([](auto& json) { json["convolutions"]["convolution forward 5x5"]["candidate"] = -1; });
  changed([](auto& json) { json["convolutions"]["convolution forward 5x5"]["engine"] = 67; });
}

TEST(ConvolutionPlanFile, IsForOneModelAndOneVersion) {
  const ConvolutionPlanFile file = twoPlans();
  EXPECT_NO_THROW(file.requireMadeFor("GPU model 7", "cuDNN 9.19.0"));
  EXPECT_EQ(errorOf([&] { file.requireMadeFor("GPU model 8", "cuDNN 9.19.0"); }),
            "the plan file plans.json was made for GPU model 7 with cuDNN 9.19.0, this is GPU model 8 with "
            "cuDNN 9.19.0: make one with unmetal tune");
  EXPECT_NE(errorOf([&] { file.requireMadeFor("GPU model 7", "cuDNN 9.20.0"); }), "");
}

TEST(ConvolutionPlanFile, IsReadFromAFile) {
  const std::string path = testing::TempDir() + "/convolution_plans.json";
  writeFile(path, twoPlans().text());
  useConvolutionPlans(path);
  const auto inUse = convolutionPlansInUse();
  ASSERT_TRUE(inUse);
  EXPECT_EQ(inUse->choices, twoPlans().choices);
  EXPECT_EQ(errorOf([] { useConvolutionPlans("/no/such/plans.json"); }),
            "cannot read the plan file /no/such/plans.json");
  EXPECT_EQ(convolutionPlansInUse(), inUse);
  useConvolutionPlans({});
  EXPECT_EQ(convolutionPlansInUse(), nullptr);
}

TEST(ConvolutionTuning, OneAtATimeCollectsChoices) {
  EXPECT_EQ(ConvolutionTuning::current(), nullptr);
  {
    ConvolutionTuning tuning;
    EXPECT_EQ(ConvolutionTuning::current(), &tuning);
    EXPECT_EQ(errorOf([] { ConvolutionTuning(); }), "plans are being tuned already");
    EXPECT_EQ(ConvolutionTuning::current(), &tuning);
    ConvolutionPlanFile expected = twoPlans();
    for (const auto& [problem, choice] : expected.choices)
      tuning.add(expected.device, expected.library, problem, choice);
    expected.name.clear();
    EXPECT_EQ(tuning.file().text(), expected.text());
  }
  EXPECT_EQ(ConvolutionTuning::current(), nullptr);
}

/// What cuDNN prepares on a GPU. @return null where it has no plan
std::shared_ptr<const Plan> cudnnPlan(const mtl::Device& device, const ConvolutionProblem& problem) {
  for (const auto& implementation : convolutionBackEnds.of(device))
    if (implementation.name == "cudnn") {
      Preparation preparation = implementation.prepare(problem);
      if (auto* const plan = std::get_if<std::shared_ptr<const Plan>>(&preparation)) return *plan;
    }
  return nullptr;
}

void expectMeasuredPlans(const mtl::Device& gpu) {
  const auto cases = convolutionCases();
  const auto found = std::ranges::find(cases, std::string_view("SecondLayer5x5"), &ConvolutionCase::name);
  for (const auto operation : {ConvolutionOperation::Forward, ConvolutionOperation::DataGradient,
                               ConvolutionOperation::WeightsGradient}) {
    ConvolutionProblem problem =
        found->problem(operation, ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float32);
    problem.deviceName = gpu.name();
    ConvolutionPlanFile file;
    {
      ConvolutionTuning tuning;
      const auto measured = cudnnPlan(gpu, problem);
      ASSERT_TRUE(measured);
      file = tuning.file();
      ASSERT_EQ(file.choices.size(), 1U);
      const auto& [key, choice] = *file.choices.begin();
      EXPECT_EQ(key, problem.describe());
      EXPECT_EQ(choice.engine, measured->describe());
      EXPECT_GT(choice.milliseconds, 0);
      EXPECT_GT(choice.firstMilliseconds, 0);
    }
    const std::string path = testing::TempDir() + "/measured_plans.json";
    const auto prepareWith = [&] {
      writeFile(path, file.text());
      useConvolutionPlans(path);
      return cudnnPlan(gpu, problem);
    };
    ConvolutionChoice& choice = file.choices.begin()->second;
    EXPECT_EQ(prepareWith()->describe(), choice.engine);
    const ConvolutionPlanFile good = file;
    choice.engine = "engine of another library";
    EXPECT_NE(errorOf(prepareWith).find("which cuDNN does not offer"), std::string::npos);
    choice.candidate = 1'000'000;
    EXPECT_NE(errorOf(prepareWith).find("which cuDNN does not offer"), std::string::npos);
    file = good;
    file.device = "another GPU";
    EXPECT_NE(errorOf(prepareWith).find("was made for another GPU"), std::string::npos);
    useConvolutionPlans({});
  }
}

TEST(ConvolutionTuning, GpusTakeWhatWasMeasured) {
  for (const auto& gpu : mtl::cudaDevices()) expectMeasuredPlans(*gpu);
}

}  // namespace
}  // namespace mps::detail
