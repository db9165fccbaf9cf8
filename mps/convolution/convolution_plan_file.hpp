#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

/// What `unmetal tune` measured: which of a library's candidates is the fastest for a convolution on one model of GPU
/// with one version of the library. Without a plan file the first candidate in the library's order is taken, so that
/// results do not depend on what else a machine does.
namespace mps::detail {

/// A candidate, by its place in the library's order.
struct ConvolutionChoice {
  std::int64_t candidate = 0;
  std::string engine;  ///< what the candidate says of itself, as a check
  double milliseconds = 0;
  double firstMilliseconds = 0;  ///< of the one that is taken without a plan file

  bool operator==(const ConvolutionChoice&) const = default;
};

/// What the candidates of one library are.
struct ConvolutionChoices {
  std::string version;                                    ///< of the library, e.g. "9.19.0"
  std::map<std::string, ConvolutionChoice> convolutions;  ///< by ConvolutionProblem::describe()

  bool operator==(const ConvolutionChoices&) const = default;
};

/// JSON: {"format": "unmetal plans 2", "device": "NVIDIA H200",
///        "libraries": {"cuDNN": {"version": "9.19.0",
///                                "convolutions": {"convolution forward 5x5 ...":
///                                                     {"candidate": 3, "engine": "engine 67",
///                                                      "milliseconds": 0.1, "firstMilliseconds": 0.2}, ...}},
///                      "cuBLASLt": {...}}}
struct ConvolutionPlanFile {
  std::string name;  ///< of the file, for errors
  std::string device;
  std::map<std::string, ConvolutionChoices> libraries;  ///< by name

  /// @throws Error in one sentence when the text is no such file.
  static ConvolutionPlanFile parse(std::string_view text, const std::string& name);
  [[nodiscard]] std::string text() const;
  /// Its file's name and a number that changes with what it says, for checkpoints: "plans.json 9f86d081884c7d65".
  [[nodiscard]] std::string title() const;
  /// What it says about a problem, or null. @throws Error in one sentence when it was made for another model of GPU, or
  /// for another version of the library.
  [[nodiscard]] const ConvolutionChoice* choiceOf(const std::string& device, const std::string& library,
                                                  const std::string& version,
                                                  const std::string& problem) const;
};

/// Plans that are prepared from now on follow this file, instead of the one that UNMETAL_PLANS names.
/// @param path empty: none, but the one that UNMETAL_PLANS names
/// @throws Error when it cannot be read.
void useConvolutionPlans(const std::filesystem::path& path);
/// The file in use, or null. @throws Error, every time, when the one that UNMETAL_PLANS names cannot be read.
std::shared_ptr<const ConvolutionPlanFile> convolutionPlansInUse();

/// While one is alive, preparing a convolution measures all candidates, and takes the fastest.
class ConvolutionTuning {
 public:
  /// @param wanted which problems, by ConvolutionProblem::describe(), are measured; empty: all
  explicit ConvolutionTuning(std::function<bool(const std::string& problem)> wanted = {});
  ~ConvolutionTuning();
  ConvolutionTuning(const ConvolutionTuning&) = delete;
  ConvolutionTuning& operator=(const ConvolutionTuning&) = delete;

  /// The one that is alive, or null.
  static ConvolutionTuning* current();

  [[nodiscard]] bool wants(const std::string& problem) const { return !wanted_ || wanted_(problem); }
  void add(const std::string& device, const std::string& library, const std::string& version,
           const std::string& problem, ConvolutionChoice choice);
  [[nodiscard]] const ConvolutionPlanFile& file() const { return file_; }

 private:
  std::function<bool(const std::string&)> wanted_;
  ConvolutionPlanFile file_;
};

}  // namespace mps::detail
