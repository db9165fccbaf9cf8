#include "mps/convolution/convolution_plan_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>

#include "mps/convolution/check/convolution_cases.hpp"
#include "mps/core/types/digit_groups.hpp"
#include "mps/core/types/error.hpp"
#include "mps/weights/atomic_file.hpp"
#include "mps/weights/test_folder.hpp"
#include "mtl/back_ends.hpp"
#include "mtl/device.hpp"

namespace mps::detail::convolution_plan_file_test {
namespace {

ConvolutionPlanFile threePlans() {
  ConvolutionPlanFile file;
  file.name = "plans.json";
  file.device = "GPU model 7";
  file.libraries["cuDNN"] = {"9.19.0",
                             {{"convolution forward 5x5", {3, "engine 67", 0.25, 0.5}},
                              {"convolution data gradient 3x3", {0, "engine 1 float16", 1.5, 1.5}}}};
  file.libraries["cuBLASLt"] = {"13.1.0",
                                {{"convolution forward 5x5", {7, "algorithm 66 tile 20", 0.125, 0.25}}}};
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
  const ConvolutionPlanFile file = threePlans();
  const ConvolutionPlanFile read = ConvolutionPlanFile::parse(file.text(), "again.json");
  EXPECT_EQ(read.name, "again.json");
  EXPECT_EQ(read.device, file.device);
  EXPECT_EQ(read.libraries, file.libraries);
}

/// Nothing that has no end, and nothing that waits for somebody.
TEST(ConvolutionPlanFile, IsARegularFile) {
  const TestFolder folder;
  const auto pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(errorOf([&] { useConvolutionPlans(pipe); }),
            "cannot read " + pipe.string() + ": it is not a regular file");
  EXPECT_EQ(errorOf([] { useConvolutionPlans("/dev/zero"); }),
            "cannot read /dev/zero: it is not a regular file");
  EXPECT_EQ(errorOf([&] { useConvolutionPlans(folder.path()); }),
            "cannot read " + folder.path().string() + ": Is a directory");
  const auto large = folder / "large.json";
  writeText(large, "{}");
  std::filesystem::resize_file(large, std::uint64_t{1} << 40U);
  EXPECT_TRUE(errorOf([&] { useConvolutionPlans(large); }).starts_with("cannot read " + large.string()));
}

TEST(ConvolutionPlanFile, RefusesDamagedFilesInOneSentence) {
  const std::string good = threePlans().text();
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
  changed([](auto& json) { json["format"] = "unmetal plans 1"; });
  changed([](auto& json) { json.erase("device"); });
  changed([](auto& json) { json.erase("libraries"); });
  changed([](auto& json) { json["libraries"]["cuDNN"].erase("version"); });
  changed([](auto& json) { json["libraries"]["cuDNN"].erase("convolutions"); });
  changed([](auto& json) { json["libraries"]["cuBLASLt"] = "13.1.0"; });
  const auto choiceOf = [](nlohmann::json& json) -> nlohmann::json& {
    return json["libraries"]["cuDNN"]["convolutions"]["convolution forward 5x5"];
  };
  for (const char* key : {"candidate", "engine", "milliseconds", "firstMilliseconds"})
    changed([&](auto& json) { choiceOf(json).erase(key); });
  changed([&](auto& json) { choiceOf(json)["candidate"] = -1; });
  changed([&](auto& json) { choiceOf(json)["engine"] = 67; });
}

TEST(ConvolutionPlanFile, IsForOneModelAndOneVersionOfEachLibrary) {
  const ConvolutionPlanFile file = threePlans();
  const auto choice = [&](const char* device, const char* library, const char* version) {
    return file.choiceOf(device, library, version, "convolution forward 5x5");
  };
  ASSERT_NE(choice("GPU model 7", "cuDNN", "9.19.0"), nullptr);
  EXPECT_EQ(choice("GPU model 7", "cuDNN", "9.19.0")->candidate, 3);
  ASSERT_NE(choice("GPU model 7", "cuBLASLt", "13.1.0"), nullptr);
  EXPECT_EQ(choice("GPU model 7", "cuBLASLt", "13.1.0")->candidate, 7);
  EXPECT_EQ(choice("GPU model 7", "a library that was not measured", "1"), nullptr);
  EXPECT_EQ(file.choiceOf("GPU model 7", "cuDNN", "9.19.0", "convolution forward 7x7"), nullptr);
  EXPECT_EQ(errorOf([&] { choice("GPU model 8", "cuDNN", "9.19.0"); }),
            "the plan file plans.json was made for GPU model 7 with cuDNN 9.19.0, this is GPU model 8 with "
            "cuDNN 9.19.0: make one with unmetal tune");
  EXPECT_NE(errorOf([&] { choice("GPU model 8", "a library that was not measured", "1"); }), "");
  EXPECT_NE(errorOf([&] { choice("GPU model 7", "cuDNN", "9.20.0"); }), "");
  EXPECT_NE(errorOf([&] { choice("GPU model 7", "cuBLASLt", "13.2.0"); }), "");
}

TEST(ConvolutionPlanFile, ItsTitleChangesWithNameAndContent) {
  const ConvolutionPlanFile file = threePlans();
  EXPECT_TRUE(file.title().starts_with("plans.json "));
  EXPECT_EQ(file.title().size(), std::string("plans.json ").size() + 16);
  ConvolutionPlanFile other = file;
  other.name = "/some/folder/plans.json";
  EXPECT_EQ(other.title(), file.title());
  other.libraries["cuDNN"].convolutions["convolution forward 5x5"].candidate = 4;
  EXPECT_NE(other.title(), file.title());
  other = file;
  other.name = "plans2.json";
  EXPECT_NE(other.title(), file.title());
}

TEST(ConvolutionPlanFile, ItsTitleAndTextDoNotFollowTheLocale) {
  const ConvolutionPlanFile file = threePlans();
  const std::string title = file.title();
  const std::string text = file.text();
  const test::DigitGroups groups;
  EXPECT_EQ(file.title(), title);
  EXPECT_EQ(file.text(), text);
  EXPECT_EQ(ConvolutionPlanFile::parse(text, "plans.json").title(), title);
}

TEST(ConvolutionPlanFile, IsReadFromAFile) {
  const std::string path = ::testing::TempDir() + "/convolution_plans.json";
  writeFile(path, threePlans().text());
  useConvolutionPlans(path);
  const auto inUse = convolutionPlansInUse();
  ASSERT_TRUE(inUse);
  EXPECT_EQ(inUse->libraries, threePlans().libraries);
  EXPECT_EQ(errorOf([] { useConvolutionPlans("/no/such/plans.json"); }),
            "cannot read /no/such/plans.json: No such file or directory");
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
    ConvolutionPlanFile expected = threePlans();
    for (const auto& [library, choices] : expected.libraries)
      for (const auto& [problem, choice] : choices.convolutions)
        tuning.add(expected.device, library, choices.version, problem, choice);
    expected.name.clear();
    EXPECT_EQ(tuning.file().text(), expected.text());
  }
  EXPECT_EQ(ConvolutionTuning::current(), nullptr);
}

/// What an implementation prepares on a GPU. @return null where it has no plan
std::shared_ptr<const Plan> planOnGpu(const mtl::Device& device, std::string_view name,
                                      const ConvolutionProblem& problem) {
  for (const auto& implementation : convolutionBackEnds.of(device))
    if (implementation.name == name) {
      Preparation preparation = implementation.prepare(problem);
      if (auto* const plan = std::get_if<std::shared_ptr<const Plan>>(&preparation)) return *plan;
    }
  return nullptr;
}

/// What a plan says of the kernels that it prefers, without what serves unaligned addresses.
std::string preferredOf(const Plan& plan) {
  const std::string description = plan.describe();
  return description.substr(0, description.find(", else "));
}

void expectMeasuredPlans(const mtl::Device& gpu, std::string_view caseName, std::string_view implementation,
                         const std::string& library) {
  const auto cases = convolutionCases();
  const auto found = std::ranges::find(cases, caseName, &ConvolutionCase::name);
  for (const auto operation : {ConvolutionOperation::Forward, ConvolutionOperation::DataGradient,
                               ConvolutionOperation::WeightsGradient}) {
    ConvolutionProblem problem =
        found->problem(operation, ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float32);
    problem.deviceName = gpu.name();
    ConvolutionPlanFile file;
    {
      ConvolutionTuning tuning;
      const auto measured = planOnGpu(gpu, implementation, problem);
      ASSERT_TRUE(measured);
      file = tuning.file();
      ASSERT_EQ(file.libraries.size(), 1U);
      ASSERT_EQ(file.libraries[library].convolutions.size(), 1U);
      const auto& [key, choice] = *file.libraries[library].convolutions.begin();
      EXPECT_EQ(key, problem.describe());
      EXPECT_EQ(choice.engine, preferredOf(*measured));
      EXPECT_GT(choice.milliseconds, 0);
      EXPECT_GT(choice.firstMilliseconds, 0);
    }
    const std::string path = ::testing::TempDir() + "/measured_plans.json";
    const auto prepareWith = [&] {
      writeFile(path, file.text());
      useConvolutionPlans(path);
      return planOnGpu(gpu, implementation, problem);
    };
    ConvolutionChoice& choice = file.libraries[library].convolutions.begin()->second;
    EXPECT_EQ(preferredOf(*prepareWith()), choice.engine);
    choice.engine = "engine of another library";
    EXPECT_NE(errorOf(prepareWith).find("which " + library + " does not offer"), std::string::npos);
    file.device = "another GPU";
    EXPECT_NE(errorOf(prepareWith).find("was made for another GPU"), std::string::npos);
    useConvolutionPlans({});
  }
}

TEST(ConvolutionTuning, GpusTakeWhatWasMeasured) {
  for (const auto& gpu : mtl::cudaDevices()) {
    expectMeasuredPlans(*gpu, "SecondLayer5x5", "cudnn", "cuDNN");
    expectMeasuredPlans(*gpu, "KernelOverImage", "cudnn", "cuDNN");
    expectMeasuredPlans(*gpu, "FarWindowsBesideAColumn", "cudnn", "cuDNN");
    expectMeasuredPlans(*gpu, "FullyConnected", "matmul", "cuBLASLt");
  }
}

}  // namespace
}  // namespace mps::detail::convolution_plan_file_test
