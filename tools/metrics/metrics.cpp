#include "tools/metrics/metrics.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mps/weights/atomic_file.hpp"
#include "mps/weights/input_file.hpp"
#include "mps/weights/interrupted_call.hpp"
#include "train/text/fixed_point.hpp"

namespace unmetal {
namespace {

constexpr std::uint64_t largestMetricsFile = std::uint64_t{1} << 30;

/// The number that is the whole text; nothing when it is not one.
template <class Number>
std::optional<Number> parse(std::string_view text) {
  Number number{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return number;
}

constexpr std::string_view header =
    "epoch,step,train_loss,train_accuracy,validation_loss,validation_accuracy,learning_rate,images_per_s,"
    "seconds";
/// Of files of former versions.
constexpr std::string_view shortHeader = "epoch,step,train_loss,validation_accuracy,images_per_s";

std::vector<std::string_view> fieldsOf(std::string_view line) {
  std::vector<std::string_view> fields;
  for (std::size_t comma = line.find(','); comma != std::string_view::npos; comma = line.find(',')) {
    fields.push_back(line.substr(0, comma));
    line.remove_prefix(comma + 1);
  }
  fields.push_back(line);
  return fields;
}

/// The fields of a row by the names of their columns.
class Fields {
 public:
  /// @param columns and fields: as many
  Fields(std::span<const std::string_view> columns, std::span<const std::string_view> fields)
      : columns_(columns), fields_(fields) {}

  /// Empty where there is no such column.
  template <class Number>
  std::optional<Number> optional(std::string_view column) {
    const auto place = std::ranges::find(columns_, column);
    if (place == columns_.end()) return std::nullopt;
    const std::string_view field = fields_[static_cast<std::size_t>(place - columns_.begin())];
    if (field.empty()) return std::nullopt;
    const auto number = parse<Number>(field);
    isRow_ = isRow_ && number.has_value();
    return number;
  }
  template <class Number>
  Number number(std::string_view column) {
    const auto number = optional<Number>(column);
    isRow_ = isRow_ && number.has_value();
    return number.value_or(0);
  }
  [[nodiscard]] bool isRow() const { return isRow_; }

 private:
  std::span<const std::string_view> columns_;
  std::span<const std::string_view> fields_;
  bool isRow_ = true;
};

/// Nothing when the line is no row.
std::optional<MetricsRow> parseRow(std::span<const std::string_view> columns, std::string_view line) {
  const std::vector<std::string_view> texts = fieldsOf(line);
  if (texts.size() != columns.size()) return std::nullopt;
  Fields fields(columns, texts);
  const MetricsRow row{.epoch = fields.number<std::uint64_t>("epoch"),
                       .step = fields.number<std::uint64_t>("step"),
                       .trainLoss = fields.number<float>("train_loss"),
                       .trainAccuracy = fields.optional<float>("train_accuracy"),
                       .validationLoss = fields.optional<float>("validation_loss"),
                       .validationAccuracy = fields.optional<float>("validation_accuracy"),
                       .learningRate = fields.optional<double>("learning_rate"),
                       .imagesPerSecond = fields.number<double>("images_per_s"),
                       .seconds = fields.optional<double>("seconds")};
  return fields.isRow() ? std::optional(row) : std::nullopt;
}

std::string formatFile(const std::vector<MetricsRow>& rows) {
  std::string text = metricsHeader() + "\n";
  for (const MetricsRow& row : rows) text += formatMetricsRow(row) + "\n";
  return text;
}

std::string readText(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = mps::readFile(path, largestMetricsFile);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::string metricsHeader() {
  return std::string(header);
}

std::string formatMetricsRow(const MetricsRow& row) {
  const auto orEmpty = [](const auto& number) { return number ? textOf(*number) : std::string(); };
  return textOf(row.epoch) + "," + textOf(row.step) + "," + textOf(row.trainLoss) + "," +
         orEmpty(row.trainAccuracy) + "," + orEmpty(row.validationLoss) + "," +
         orEmpty(row.validationAccuracy) + "," + orEmpty(row.learningRate) + "," +
         formatFixed(row.imagesPerSecond, 1) + "," + (row.seconds ? formatFixed(*row.seconds, 3) : "");
}

std::vector<MetricsRow> parseMetrics(const std::string& text, const std::string& name) {
  std::vector<MetricsRow> rows;
  std::vector<std::string_view> columns;
  std::size_t lineNumber = 0;
  std::string_view rest = text;
  for (std::size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    ++lineNumber;
    if (lineNumber == 1) {
      if (line != header && line != shortHeader)
        throw mps::Error(name + " is no metrics file: its first line is another");
      columns = fieldsOf(line);
      continue;
    }
    const std::optional<MetricsRow> row = parseRow(columns, line);
    if (!row) throw mps::Error(name + " is damaged: line " + std::to_string(lineNumber) + " is no row");
    if (!rows.empty() && row->step <= rows.back().step) {
      throw mps::Error(name + " is damaged: the step of line " + std::to_string(lineNumber) +
                       " is not above that of the line before");
    }
    rows.push_back(*row);
  }
  if (lineNumber == 0 && !text.empty())
    throw mps::Error(name + " is no metrics file: its first line is another");
  return rows;
}

MetricsLog MetricsLog::create(const std::filesystem::path& path) {
  mps::writeFile(path, formatFile({}));
  return {path, {}};
}

MetricsLog MetricsLog::resume(const std::filesystem::path& path, std::uint64_t lastStep) {
  std::error_code unreadable;
  if (!std::filesystem::exists(path, unreadable)) return create(path);
  const std::string text = readText(path);
  std::vector<MetricsRow> rows = parseMetrics(text, path.string());
  std::erase_if(rows, [&](const MetricsRow& row) { return row.step > lastStep; });
  const std::string kept = formatFile(rows);
  if (kept != text) mps::writeFile(path, kept);
  return {path, std::move(rows)};
}

MetricsLog::MetricsLog(const std::filesystem::path& path, std::vector<MetricsRow> rows)
    : name_(path.string()), rows_(std::move(rows)) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (descriptor_ < 0) fail(errno);
}

MetricsLog::MetricsLog(MetricsLog&& other) noexcept
    : name_(std::move(other.name_)),
      rows_(std::move(other.rows_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

MetricsLog::~MetricsLog() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void MetricsLog::append(const MetricsRow& row) {
  const std::string line = formatMetricsRow(row) + "\n";
  struct stat before {};
  if (::fstat(descriptor_, &before) != 0) fail(errno);
  ssize_t written = 0;
  do {
    written = ::write(descriptor_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written != static_cast<ssize_t>(line.size())) {
    // A part of the line was written when the disk became full under it.
    const int errorNumber = written < 0 ? errno : ENOSPC;
    if (written > 0 && ::ftruncate(descriptor_, before.st_size) != 0) fail(errno);
    fail(errorNumber);
  }
  rows_.push_back(row);
}

void MetricsLog::synchronize() {
  if (mps::repeatWhileInterrupted([this] { return ::fdatasync(descriptor_); }) != 0) fail(errno);
}

void MetricsLog::fail(int errorNumber) const {
  throw mps::Error("cannot write " + name_ + ": " + std::generic_category().message(errorNumber));
}

}  // namespace unmetal
