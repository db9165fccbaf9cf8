#include "tools/tensorboard/training_events.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "mps/weights/safetensors.hpp"
#include "tools/tensorboard/event_messages.hpp"
#include "train/network/weight_values.hpp"

namespace unmetal {
namespace {

constexpr std::string_view eventFilePrefix = "events.out.tfevents.";
constexpr std::size_t stepDigits = 12;

/// In the order of numbers names are in the order of their letters.
std::string withZeros(std::uint64_t number, std::size_t digits) {
  const std::string text = std::to_string(number);
  return std::string(digits - std::min(digits, text.size()), '0') + text;
}

std::filesystem::path eventFile(const std::filesystem::path& folder, std::uint64_t step) {
  return folder / (std::string(eventFilePrefix) + withZeros(step, stepDigits));
}

/// Those of other programs have the time and the machine in their names.
bool isOurs(const std::string& name) {
  if (!name.starts_with(eventFilePrefix)) return false;
  const std::string_view step = std::string_view(name).substr(eventFilePrefix.size());
  return step.size() == stepDigits && step.find_first_not_of("0123456789") == std::string_view::npos;
}

std::vector<std::filesystem::path> eventFiles(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable))
    if (isOurs(entry.path().filename().string())) files.push_back(entry.path());
  return files;
}

double secondsSince1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::vector<float> floatsOf(const mps::SafetensorsTensor& tensor) {
  if (tensor.type != mps::DataType::Float32) return {};
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

/// White for 0, the color for 1.
void addPixel(std::vector<std::uint8_t>& pixels, double share, const std::array<double, 3>& color) {
  for (const double channel : color)
    pixels.push_back(static_cast<std::uint8_t>(255 - share * (255 - channel)));
}

}  // namespace

bool TrainingEvents::areIn(const std::filesystem::path& folder) {
  return !eventFiles(folder).empty();
}

void TrainingEvents::removeFrom(const std::filesystem::path& folder) {
  for (const std::filesystem::path& file : eventFiles(folder)) std::filesystem::remove(file);
}

TrainingEvents::TrainingEvents(const std::filesystem::path& folder, std::uint64_t step,
                               std::span<const train::Layer> layers)
    : file_(eventFile(folder, step)) {
  const double now = secondsSince1970();
  file_.append(versionEvent(now).text());
  file_.append(step == 0 ? graphEvent(now, layers).text() : restartEvent(now, step + 1).text());
}

void TrainingEvents::append(const MetricsRow& row) {
  Summary summary;
  const auto add = [&](const char* tag, const auto& value) {
    if (value) summary.addScalar(tag, static_cast<float>(*value));
  };
  summary.addScalar("loss/train", row.trainLoss);
  add("loss/validation", row.validationLoss);
  add("accuracy/train", row.trainAccuracy);
  add("accuracy/validation", row.validationAccuracy);
  add("training/learning_rate", row.learningRate);
  add("training/images_per_s", std::optional(row.imagesPerSecond));
  add("training/seconds", row.seconds);
  add("training/epoch", std::optional(row.epoch));
  file_.append(summaryEvent(secondsSince1970(), row.step, std::move(summary)).text());
}

void TrainingEvents::appendWeights(std::uint64_t step,
                                   std::span<const std::shared_ptr<mps::TrainableLayer>> layers,
                                   const std::shared_ptr<mtl::Device>& device) {
  train::detail::synchronize(layers, device);
  Summary summary;
  for (const auto& layer : layers)
    for (const mps::SafetensorsTensor& tensor : layer->tensors(false))
      summary.addHistogram(tensor.name, floatsOf(tensor));
  file_.append(summaryEvent(secondsSince1970(), step, std::move(summary)).text());
}

void TrainingEvents::appendGradients(std::uint64_t step, std::span<const Gradient> gradients) {
  Summary summary;
  for (const Gradient& gradient : gradients)
    summary.addHistogram("gradient/" + gradient.name, gradient.values);
  file_.append(summaryEvent(secondsSince1970(), step, std::move(summary)).text());
}

void TrainingEvents::appendMistakes(std::uint64_t step, const ConfusionMatrix& matrix,
                                    const WorstPictures& worst, const train::Dataset& data) {
  Summary summary;
  summary.addImage("confusion", confusionPicture(matrix));
  for (std::size_t i = 0; i < worst.entries().size(); ++i)
    summary.addImage("worst/" + withZeros(i + 1, 2), pictureOf(data, worst.entries()[i].index));
  file_.append(summaryEvent(secondsSince1970(), step, std::move(summary)).text());
}

train::Picture confusionPicture(const ConfusionMatrix& matrix) {
  constexpr std::size_t wantedSide = 320;
  constexpr std::array<double, 3> right{31, 95, 168};
  constexpr std::array<double, 3> wrong{194, 83, 10};
  const std::size_t classes = matrix.classNames().size();
  const std::size_t cell = std::max<std::size_t>(1, wantedSide / classes);
  train::Picture picture{classes * cell, classes * cell, 3, {}};
  for (std::size_t row = 0; row < picture.height; ++row) {
    const std::size_t label = row / cell;
    std::uint64_t sum = 0;
    for (std::size_t other = 0; other < classes; ++other) sum += matrix.countAt(label, other);
    for (std::size_t column = 0; column < picture.width; ++column) {
      const std::size_t prediction = column / cell;
      const auto count = static_cast<double>(matrix.countAt(label, prediction));
      addPixel(picture.pixels, sum == 0 ? 0 : count / static_cast<double>(sum),
               label == prediction ? right : wrong);
    }
  }
  return picture;
}

}  // namespace unmetal
