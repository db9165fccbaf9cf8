#pragma once

#include <cstdint>
#include <filesystem>
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

/// JSON: {"format": "unmetal plans 1", "device": "NVIDIA H200", "library": "cuDNN 9.19.0",
///        "convolutions": {"convolution forward 5x5 ...": {"candidate": 3, "engine": "engine 67",
///                         "milliseconds": 0.1, "firstMilliseconds": 0.2}, ...}}
struct ConvolutionPlanFile {
  std::string name;  ///< of the file, for errors
  std::string device;
  std::string library;
  std::map<std::string, ConvolutionChoice> choices;  ///< by ConvolutionProblem::describe()

  /// @throws Error in one sentence when the text is no such file.
  static ConvolutionPlanFile parse(std::string_view text, const std::string& name);
  [[nodiscard]] std::string text() const;
  /// @throws Error in one sentence when it was made for another model of GPU or version of the library.
  void requireMadeFor(const std::string& device, const std::string& library) const;
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
  ConvolutionTuning();
  ~ConvolutionTuning();
  ConvolutionTuning(const ConvolutionTuning&) = delete;
  ConvolutionTuning& operator=(const ConvolutionTuning&) = delete;

  /// The one that is alive, or null.
  static ConvolutionTuning* current();

  void add(const std::string& device, const std::string& library, const std::string& problem,
           ConvolutionChoice choice);
  [[nodiscard]] const ConvolutionPlanFile& file() const { return file_; }

 private:
  ConvolutionPlanFile file_;
};

}  // namespace mps::detail
