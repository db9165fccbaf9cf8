#include "mps/convolution/convolution_plan_file.hpp"

#include <atomic>
#include <cstdlib>
#include <iomanip>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mps/core/types/text_stream.hpp"
#include "mps/weights/input_file.hpp"

namespace mps::detail {
namespace {

constexpr const char* kFormat = "unmetal plans 2";

std::shared_ptr<const ConvolutionPlanFile> readPlans(const std::filesystem::path& path) {
  constexpr std::uint64_t mostBytes = std::uint64_t{1} << 26U;  // some 300,000 convolutions
  const std::vector<std::byte> bytes = readFile(path, mostBytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return std::make_shared<const ConvolutionPlanFile>(ConvolutionPlanFile::parse(text, path.string()));
}

ConvolutionChoice readChoice(const nlohmann::json& value) {
  ConvolutionChoice choice;
  choice.candidate = value.at("candidate").get<std::int64_t>();
  choice.engine = value.at("engine").get<std::string>();
  choice.milliseconds = value.at("milliseconds").get<double>();
  choice.firstMilliseconds = value.at("firstMilliseconds").get<double>();
  if (choice.candidate < 0) throw Error("a candidate is below 0");
  return choice;
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
    for (const auto& [library, value] : json.at("libraries").items()) {
      ConvolutionChoices& choices = file.libraries[library];
      choices.version = value.at("version").get<std::string>();
      for (const auto& [problem, choice] : value.at("convolutions").items())
        choices.convolutions.emplace(problem, readChoice(choice));
    }
    return file;
  } catch (const std::exception& error) {
    throw Error(name + " is no plan file of unmetal tune, or a damaged one: " + error.what());
  }
}

std::string ConvolutionPlanFile::text() const {
  nlohmann::json byName = nlohmann::json::object();
  for (const auto& [library, choices] : libraries) {
    nlohmann::json convolutions = nlohmann::json::object();
    for (const auto& [problem, choice] : choices.convolutions)
      convolutions[problem] = {{"candidate", choice.candidate},
                               {"engine", choice.engine},
                               {"milliseconds", choice.milliseconds},
                               {"firstMilliseconds", choice.firstMilliseconds}};
    byName[library] = {{"version", choices.version}, {"convolutions", std::move(convolutions)}};
  }
  const nlohmann::json json = {{"format", kFormat}, {"device", device}, {"libraries", std::move(byName)}};
  return json.dump(2) + "\n";
}

std::string ConvolutionPlanFile::title() const {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : text()) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  TextStream words;
  words << std::filesystem::path(name).filename().string() << ' ' << std::hex << std::setfill('0')
        << std::setw(16) << hash;
  return words.str();
}

const ConvolutionChoice* ConvolutionPlanFile::choiceOf(const std::string& wantedDevice,
                                                       const std::string& library, const std::string& version,
                                                       const std::string& problem) const {
  const auto found = libraries.find(library);
  const bool hasLibrary = found != libraries.end();
  if (device != wantedDevice || (hasLibrary && found->second.version != version))
    throw Error("the plan file " + name + " was made for " + device +
                (hasLibrary ? " with " + library + " " + found->second.version : "") + ", this is " +
                wantedDevice + " with " + library + " " + version + ": make one with unmetal tune");
  if (!hasLibrary) return nullptr;
  const auto choice = found->second.convolutions.find(problem);
  return choice == found->second.convolutions.end() ? nullptr : &choice->second;
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

ConvolutionTuning::ConvolutionTuning(std::function<bool(const std::string&)> wanted)
    : wanted_(std::move(wanted)) {
  ConvolutionTuning* none = nullptr;
  if (!currentTuning.compare_exchange_strong(none, this)) throw Error("plans are being tuned already");
}

ConvolutionTuning::~ConvolutionTuning() {
  currentTuning = nullptr;
}

ConvolutionTuning* ConvolutionTuning::current() {
  return currentTuning;
}

void ConvolutionTuning::add(const std::string& device, const std::string& library, const std::string& version,
                            const std::string& problem, ConvolutionChoice choice) {
  file_.device = device;
  ConvolutionChoices& choices = file_.libraries[library];
  choices.version = version;
  choices.convolutions[problem] = std::move(choice);
}

}  // namespace mps::detail
