#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace unmetal {

/// One line of metrics.csv.
struct MetricsRow {
  /// Counted from 1.
  std::uint64_t epoch = 0;
  /// Training steps finished since the beginning of the training.
  std::uint64_t step = 0;
  float trainLoss = 0;
  /// Part of the step's pictures that were classified right before it, 0 to 1. Empty in files of former versions, as
  /// learningRate and seconds are.
  std::optional<float> trainAccuracy = std::nullopt;
  /// Mean cross-entropy of the validation pictures, and the part of them that was classified right, 0 to 1: at an
  /// epoch's end. @{
  std::optional<float> validationLoss = std::nullopt;
  std::optional<float> validationAccuracy = std::nullopt;
  /// @}
  std::optional<double> learningRate = std::nullopt;
  double imagesPerSecond = 0;
  /// Since the training's first step, without interruptions.
  std::optional<double> seconds = std::nullopt;

  bool operator==(const MetricsRow&) const = default;
};

/// The columns, without the line's end:
/// "epoch,step,train_loss,train_accuracy,validation_loss,validation_accuracy,learning_rate,images_per_s,seconds".
std::string metricsHeader();
/// One line without its end. Losses and accuracies have as many digits as it takes to read the same float32
/// back; what was not measured is empty.
std::string formatMetricsRow(const MetricsRow& row);

/// The file metrics.csv of a training. Rows are appended one by one, each with one write, so that the file is
/// readable at any time and a killed run leaves whole rows. Every function throws mps::Error, one sentence
/// that names the file and the trouble; a row that could not be written wholly (full disk) is taken back.
class MetricsLog {
 public:
  /// Begins a new file, in place of an old one.
  static MetricsLog create(const std::filesystem::path& path);
  /// Goes on with the file of an interrupted run whose checkpoint was written after step `lastStep`: rows of
  /// later steps and a row that was cut off at the end are dropped (the file is replaced as a whole). In its
  /// columns but images_per_s and seconds the file then ends as that of an uninterrupted run.
  /// Without a file it begins a new one. Throws as well when the file is no metrics file; nothing is changed
  /// then.
  static MetricsLog resume(const std::filesystem::path& path, std::uint64_t lastStep);

  MetricsLog(MetricsLog&& other) noexcept;
  MetricsLog& operator=(MetricsLog&&) = delete;
  ~MetricsLog();

  void append(const MetricsRow& row);
  /// Brings the rows to the disk; called before a checkpoint is written, the file survives a power failure
  /// too.
  void synchronize();
  /// All rows of the file.
  const std::vector<MetricsRow>& rows() const { return rows_; }

 private:
  MetricsLog(const std::filesystem::path& path, std::vector<MetricsRow> rows);
  [[noreturn]] void fail(int errorNumber) const;

  std::string name_;
  std::vector<MetricsRow> rows_;
  int descriptor_ = -1;
};

/// The rows of a metrics file; a last line without its end is left out. Files of former versions lack columns, whose
/// values are empty then. Throws mps::Error with the number of the first line that is wrong.
std::vector<MetricsRow> parseMetrics(const std::string& text, const std::string& name);

}  // namespace unmetal
