#include "mps/convolution/convolution_plan_file.hpp"

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "mps/core/error.hpp"

namespace mps::detail {
namespace {

constexpr const char* kFormat = "unmetal plans 1";

std::shared_ptr<const ConvolutionPlanFile> readPlans(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  if (!stream || !text) throw Error("cannot read the plan file " + path.string());
  return std::make_shared<const ConvolutionPlanFile>(ConvolutionPlanFile::parse(text.str(), path.string()));
}

std::mutex& plansMutex() {
  static std::mutex mutex;
  return mutex;
}
/// Set by useConvolutionPlans(), or from the environment.
std::shared_ptr<const ConvolutionPlanFile>& plansInUse() {
  static std::shared_ptr<const ConvolutionPlanFile> plans;
  return plans;
}

std::atomic<ConvolutionTuning*> currentTuning = nullptr;

}  // namespace

ConvolutionPlanFile ConvolutionPlanFile::parse(std::string_view text, const std::string& name) {
  try {
    const auto json = nlohmann::json::parse(text);
    if (json.at("format").get<std::string>() != kFormat) throw Error("it is of another format");
    ConvolutionPlanFile file;
    file.name = name;
    file.device = json.at("device").get<std::string>();
    file.library = json.at("library").get<std::string>();
    for (const auto& [problem, value] : json.at("convolutions").items()) {
      ConvolutionChoice choice;
      choice.candidate = value.at("candidate").get<std::int64_t>();
      choice.engine = value.at("engine").get<std::string>();
      choice.milliseconds = value.at("milliseconds").get<double>();
      choice.firstMilliseconds = value.at("firstMilliseconds").get<double>();
      if (choice.candidate < 0) throw Error("a candidate is below 0");
      file.choices.emplace(problem, std::move(choice));
    }
    return file;
  } catch (const std::exception& error) {
    throw Error(name + " is no plan file of unmetal tune, or a damaged one: " + error.what());
  }
}

std::string ConvolutionPlanFile::text() const {
  nlohmann::json convolutions = nlohmann::json::object();
  for (const auto& [problem, choice] : choices)
    convolutions[problem] = {{"candidate", choice.candidate},
                             {"engine", choice.engine},
                             {"milliseconds", choice.milliseconds},
                             {"firstMilliseconds", choice.firstMilliseconds}};
  const nlohmann::json json = {
      {"format", kFormat}, {"device", device}, {"library", library}, {"convolutions", convolutions}};
  return json.dump(2) + "\n";
}

void ConvolutionPlanFile::requireMadeFor(const std::string& wantedDevice,
                                         const std::string& wantedLibrary) const {
  if (device == wantedDevice && library == wantedLibrary) return;
  throw Error("the plan file " + name + " was made for " + device + " with " + library + ", this is " +
              wantedDevice + " with " + wantedLibrary + ": make one with unmetal tune");
}

void useConvolutionPlans(const std::filesystem::path& path) {
  auto plans = path.empty() ? nullptr : readPlans(path);
  const std::lock_guard lock(plansMutex());
  plansInUse() = std::move(plans);
}

std::shared_ptr<const ConvolutionPlanFile> convolutionPlansInUse() {
  const std::lock_guard lock(plansMutex());
  auto& plans = plansInUse();
  if (!plans)
    if (const char* const path = std::getenv("UNMETAL_PLANS"); path != nullptr && *path != '\0')
      plans = readPlans(path);
  return plans;
}

ConvolutionTuning::ConvolutionTuning() {
  ConvolutionTuning* none = nullptr;
  if (!currentTuning.compare_exchange_strong(none, this)) throw Error("plans are being tuned already");
}

ConvolutionTuning::~ConvolutionTuning() {
  currentTuning = nullptr;
}

ConvolutionTuning* ConvolutionTuning::current() {
  return currentTuning;
}

void ConvolutionTuning::add(const std::string& device, const std::string& library, const std::string& problem,
                            ConvolutionChoice choice) {
  file_.device = device;
  file_.library = library;
  file_.choices[problem] = std::move(choice);
}

}  // namespace mps::detail
