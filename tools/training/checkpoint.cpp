#include "tools/training/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <span>
#include <string_view>
#include <tuple>

#include "mps/core/types/error.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "train/data/normalization_file.hpp"
#include "train/text/fixed_point.hpp"

namespace unmetal {
namespace {

constexpr const char* format = "unmetal checkpoint 1";
constexpr const char* settingPrefix = "setting.";
constexpr const char* plansName = "plans";
constexpr const char* arithmeticName = "arithmetic";
constexpr const char* augmentationName = "augment";
constexpr const char* picturesName = "pictures";
constexpr const char* validationName = "validation";
constexpr const char* countersName = "random.counters";

constexpr const char* descriptionName = "network";
constexpr const char* averageStepsName = "average.steps";
constexpr std::array<std::string_view, 9> newSettings{"warmup",  "clip-norm", "freeze",
                                                      "best-by", "patience",  "class-weights",
                                                      "ema",     "skip-bad",  "no-sync-batch-norm"};

constexpr const char* classPrefix = "class.";
constexpr const char* normalizationName = "normalize";

template <class Number>
Number numberOf(const mps::SafetensorsHeader& file, const std::string& key) {
  const std::string& text = file.metadata(key);
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) throw file.error(key + " is no number");
  return value;
}

/// Whether earlier versions wrote checkpoints without this setting.
bool isNewSetting(std::string_view name) {
  return std::ranges::find(newSettings, name) != newSettings.end();
}

/// Whether a tensor is a mean of squares, which is not negative.
bool holdsSquares(std::string_view name) {
  return name.ends_with(".velocity") || name.ends_with(".maximumVelocity") ||
         name.ends_with(".sumOfSquares") || name.ends_with(".running_var");
}

/// Why nothing can be computed from a tensor, e.g. `its tensor "conv1.weight" is not finite`; nothing when all is well.
std::optional<std::string> troubleOf(std::string_view name, mps::DataType type,
                                     std::span<const std::byte> bytes) {
  if (type != mps::DataType::Float32) return std::nullopt;
  const auto sentence = [&](const char* trouble) {
    return "its tensor \"" + std::string(name) + "\" is " + trouble;
  };
  const bool isOfSquares = holdsSquares(name);
  for (std::size_t at = 0; at + sizeof(float) <= bytes.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, &bytes[at], sizeof value);
    if (!std::isfinite(value)) return sentence("not finite");
    if (isOfSquares && value < 0) return sentence("negative");
  }
  return std::nullopt;
}

/// No work of the network may be in flight.
std::vector<mps::SafetensorsTensor> tensorsOf(const Network& network, Checkpoint::Contents contents) {
  const bool isOfTraining = contents == Checkpoint::Contents::Training;
  std::vector<mps::SafetensorsTensor> tensors;
  const auto append = [&](const std::vector<mps::SafetensorsTensor>& more) {
    tensors.insert(tensors.end(), more.begin(), more.end());
  };
  for (const auto& layer : network.layers) append(layer->tensors(isOfTraining));
  if (network.average && isOfTraining) append(network.average->tensors());
  return tensors;
}

}  // namespace

Checkpoint Checkpoint::take(const Network& network, mtl::CommandQueue& queue,
                            const TrainingPosition& position, const TrainingSettings& settings,
                            Contents contents) {
  const auto commandBuffer = queue.commandBuffer();
  for (const auto& layer : network.layers) layer->synchronize(commandBuffer);
  if (network.lossScale) network.lossScale->synchronize(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  Checkpoint checkpoint;
  for (const mps::SafetensorsTensor& tensor : tensorsOf(network, contents))
    checkpoint.tensors_.push_back(
        {tensor.name, tensor.type, tensor.shape, {tensor.bytes.begin(), tensor.bytes.end()}});
  if (network.average && contents == Contents::Training)
    checkpoint.metadata_[averageStepsName] = std::to_string(network.average->steps());
  const std::vector<std::uint64_t> counters = network.training->randomCounters();
  Tensor random{countersName, mps::DataType::UInt64, {counters.size()}, {}};
  random.bytes.resize(counters.size() * sizeof(std::uint64_t));
  if (!counters.empty()) std::memcpy(random.bytes.data(), counters.data(), random.bytes.size());
  checkpoint.tensors_.push_back(std::move(random));
  checkpoint.metadata_["format"] = format;
  checkpoint.metadata_["position.epoch"] = std::to_string(position.epoch);
  checkpoint.metadata_["position.batch"] = std::to_string(position.batch);
  checkpoint.metadata_["position.step"] = std::to_string(position.step);
  checkpoint.metadata_["position.best_accuracy"] = textOf(position.bestAccuracy);
  checkpoint.metadata_["position.best_loss"] = textOf(position.bestLoss);
  checkpoint.metadata_["position.epochs_without_best"] = std::to_string(position.epochsWithoutBest);
  if (!network.description.empty()) checkpoint.metadata_[descriptionName] = network.description;
  if (const auto& scale = network.lossScale) {
    checkpoint.metadata_["loss_scale.scale"] = textOf(scale->scale());
    checkpoint.metadata_["loss_scale.finite_steps"] = std::to_string(scale->finiteSteps());
    checkpoint.metadata_["loss_scale.skipped_steps"] = std::to_string(scale->skippedSteps());
  }
  const NetworkOptions& options = network.options;
  checkpoint.metadata_["picture.width"] = std::to_string(options.width);
  checkpoint.metadata_["picture.height"] = std::to_string(options.height);
  checkpoint.metadata_["picture.channels"] = std::to_string(options.channels);
  if (options.normalization) train::detail::addTo(checkpoint.metadata_, *options.normalization);
  checkpoint.metadata_["classes"] = std::to_string(options.classNames.size());
  for (std::size_t i = 0; i < options.classNames.size(); ++i)
    checkpoint.metadata_[classPrefix + std::to_string(i)] = options.classNames[i];
  for (const auto& [name, value] : settings) checkpoint.metadata_[settingPrefix + name] = value;
  return checkpoint;
}

std::uint64_t Checkpoint::sizeOf(const Network& network, Contents contents) {
  std::uint64_t size = 0;
  for (const mps::SafetensorsTensor& tensor : tensorsOf(network, contents)) size += tensor.bytes.size();
  return size;
}

void Checkpoint::write(const std::filesystem::path& path) const {
  for (const Tensor& tensor : tensors_)
    if (const auto trouble = troubleOf(tensor.name, tensor.type, tensor.bytes))
      throw mps::Error("the training has failed before " + path.string() + " was written: " + *trouble +
                       "; give a smaller --lr");
  std::vector<mps::SafetensorsTensor> tensors;
  for (const Tensor& tensor : tensors_)
    tensors.push_back({tensor.name, tensor.type, tensor.shape, tensor.bytes});
  mps::writeSafetensors(path, std::move(tensors), metadata_);
}

CheckpointFile CheckpointFile::read(const std::filesystem::path& path) {
  CheckpointFile checkpoint(mps::SafetensorsHeader::read(path));
  const auto& metadata = checkpoint.file_.metadata();
  if (const auto found = metadata.find("format"); found == metadata.end() || found->second != format)
    throw checkpoint.file_.error("it is no checkpoint of this program");
  for (const auto& [key, value] : metadata)
    if (key.starts_with(settingPrefix)) checkpoint.settings_[key.substr(std::strlen(settingPrefix))] = value;
  checkpoint.position_.epoch = numberOf<std::uint64_t>(checkpoint.file_, "position.epoch");
  checkpoint.position_.batch = numberOf<std::uint64_t>(checkpoint.file_, "position.batch");
  checkpoint.position_.step = numberOf<std::uint64_t>(checkpoint.file_, "position.step");
  checkpoint.position_.bestAccuracy = numberOf<float>(checkpoint.file_, "position.best_accuracy");
  // Earlier versions have written none.
  if (metadata.contains("position.epochs_without_best")) {
    checkpoint.position_.bestLoss = numberOf<float>(checkpoint.file_, "position.best_loss");
    checkpoint.position_.epochsWithoutBest =
        numberOf<std::uint64_t>(checkpoint.file_, "position.epochs_without_best");
  }
  return checkpoint;
}

const std::string& CheckpointFile::setting(const std::string& name) const {
  const auto found = settings_.find(name);
  if (found == settings_.end()) throw file_.error("the setting " + name + " is missing");
  return found->second;
}

std::string CheckpointFile::plans() const {
  const auto found = settings_.find(plansName);
  return found == settings_.end() ? "none" : found->second;
}

std::optional<std::string> CheckpointFile::arithmetic() const {
  const auto found = settings_.find(arithmeticName);
  return found == settings_.end() ? std::nullopt : std::optional(found->second);
}

train::Augmentation CheckpointFile::augmentation() const {
  const auto found = settings_.find(augmentationName);
  if (found == settings_.end()) {
    if (!isPictureFolder(setting("data"))) return {};
    return {.crop = train::Augmentation::usualCrop, .flip = true};
  }
  try {
    return train::parseAugmentation(found->second);
  } catch (const mps::Error&) {
    throw file_.error("the setting " + std::string(augmentationName) + " is wrong");
  }
}

std::optional<std::uint64_t> CheckpointFile::pictures() const {
  if (!settings_.contains(picturesName)) return std::nullopt;
  return numberOf<std::uint64_t>(file_, std::string(settingPrefix) + picturesName);
}

NetworkOptions CheckpointFile::networkOptions() const {
  NetworkOptions options;
  options.name = setting("net");
  if (const auto text = file_.metadata().find(descriptionName); text != file_.metadata().end())
    options.description = text->second;
  options.width = numberOf<std::uint64_t>(file_, "picture.width");
  options.height = numberOf<std::uint64_t>(file_, "picture.height");
  options.channels = numberOf<std::uint64_t>(file_, "picture.channels");
  const std::uint64_t classes = numberOf<std::uint64_t>(file_, "classes");
  // The file is not trusted: its numbers decide how much memory is taken before its tensors are looked at.
  constexpr std::uint64_t largestPicture = 4096;
  const auto isWrong = [](std::uint64_t extent) { return extent == 0 || extent > largestPicture; };
  if (isWrong(options.width) || isWrong(options.height) || isWrong(options.channels) || classes == 0 ||
      classes > train::mostClasses)
    throw file_.error("the size of its pictures or the number of its classes is wrong");
  options.classNames.clear();
  for (std::uint64_t i = 0; i < classes; ++i)
    options.classNames.push_back(file_.metadata(classPrefix + std::to_string(i)));
  if (settings_.contains("batch"))
    options.batchSize = numberOf<std::uint64_t>(file_, std::string(settingPrefix) + "batch");
  options.expectTensor = tensorCheck();
  options.normalization =
      train::detail::normalizationIn(file_, {options.height, options.width, options.channels});
  return options;
}

bool CheckpointFile::isOf(const NetworkOptions& network) const {
  const NetworkOptions ours = networkOptions();
  return std::tie(ours.name, ours.height, ours.width, ours.channels) ==
             std::tie(network.name, network.height, network.width, network.channels) &&
         ours.classNames.size() == network.classNames.size();
}

std::function<void(const std::string&, std::span<const std::uint64_t>)> CheckpointFile::tensorCheck() const {
  return [file = file_](const std::string& tensor, std::span<const std::uint64_t> shape) {
    static_cast<void>(file.tensor(tensor, mps::DataType::Float32, shape));
  };
}

mps::SafetensorsFile CheckpointFile::tensorsFor(const Network& network) const {
  // An optimiser keeps three arrays for each of a layer's at most, which may have an average; counters and such are small.
  constexpr std::uint64_t arraysOfAValue = 5;
  constexpr std::uint64_t countersBytes = std::uint64_t{1} << 20U;
  std::uint64_t most = countersBytes;
  for (const auto& layer : network.layers)
    for (const mps::SafetensorsTensor& tensor : layer->tensors(false))
      most += arraysOfAValue * tensor.bytes.size();
  if (file_.dataLength() > most)
    throw file_.error("its tensors have " + std::to_string(file_.dataLength()) + " bytes, those of " +
                      network.options.name + " have at most " + std::to_string(most));
  return mps::SafetensorsFile::read(file_);
}

DataOptions CheckpointFile::pictureOptions() const {
  const NetworkOptions network = networkOptions();
  DataOptions options;
  options.size = {network.height, network.width, network.channels};
  if (settings_.contains(validationName)) {
    const double share = numberOf<double>(file_, std::string(settingPrefix) + validationName);
    if (!(share > 0 && share < 1)) throw file_.error("the share for validation is wrong");
    options.validation = share;
  }
  return options;
}

void CheckpointFile::restoreWeights(Network& network) const {
  const mps::SafetensorsFile file = tensorsFor(network);
  for (const auto& layer : network.layers) layer->read(file, false);
  if (!file_.metadata().contains(averageStepsName)) return;
  train::detail::WeightAverage average(network.layers, network.inference->device(), 0);
  average.read(file, numberOf<std::uint64_t>(file_, averageStepsName));
  average.useForEvaluation();
}

/// With what versions did that had no such setting.
std::string CheckpointFile::settingOrFormer(const std::string& name) const {
  if (name == augmentationName) return nameOf(augmentation());
  if (name == normalizationName && !hasSetting(name)) return "none";
  return setting(name);
}

void CheckpointFile::checkSettings(const TrainingSettings& settings) const {
  for (const auto& [name, value] : settings) {
    if (name == plansName || name == arithmeticName || name == picturesName) continue;
    if (!hasSetting(name) && isNewSetting(name)) continue;
    const std::string ours = settingOrFormer(name);
    // Pictures that are left out now and were not then are counted: their number would be another one.
    const bool mayDiffer = name == "epochs" || name == "lr" || name == "patience" || name == "skip-bad";
    if (ours != value && !mayDiffer)
      throw file_.error("it was made with --" + name + " " + ours + ", not " + value);
  }
}

void CheckpointFile::checkTensors(const mps::SafetensorsFile& file) const {
  for (const mps::SafetensorsTensor& tensor : file.tensors()) {
    if (const auto trouble = troubleOf(tensor.name, tensor.type, tensor.bytes)) throw file_.error(*trouble);
    if (!tensor.name.ends_with(".step")) continue;
    if (const std::uint64_t step = file.unsignedNumber(tensor.name); step > position_.step)
      throw file_.error("its tensor \"" + tensor.name + "\" is " + std::to_string(step) + ", beyond the " +
                        std::to_string(position_.step) + " steps of the training");
  }
}

void CheckpointFile::restoreTraining(Network& network, const TrainingSettings& settings) const {
  checkSettings(settings);
  if (file_.metadata().contains(classPrefix + std::string("0")))
    if (const auto other = firstOtherClass(networkOptions().classNames, network.options.classNames))
      throw file_.error("its " + *other);
  const mps::SafetensorsFile file = tensorsFor(network);
  checkTensors(file);
  for (const auto& layer : network.layers) layer->read(file, true);
  if (network.average) network.average->read(file, numberOf<std::uint64_t>(file_, averageStepsName));
  const std::vector<std::uint64_t> shape{network.training->randomCounters().size()};
  const mps::SafetensorsTensor& tensor = file.tensor(countersName, mps::DataType::UInt64, shape);
  std::vector<std::uint64_t> counters(shape[0]);
  if (!counters.empty()) std::memcpy(counters.data(), tensor.bytes.data(), tensor.bytes.size());
  network.training->setRandomCounters(counters);
  if (network.lossScale)
    network.lossScale->set(numberOf<float>(file_, "loss_scale.scale"),
                           numberOf<std::uint64_t>(file_, "loss_scale.finite_steps"),
                           numberOf<std::uint64_t>(file_, "loss_scale.skipped_steps"));
}

CheckpointWriter::~CheckpointWriter() {
  if (write_.valid()) write_.wait();
}

bool CheckpointWriter::isBusy() const {
  return write_.valid() && write_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

void CheckpointWriter::begin(Checkpoint checkpoint, std::filesystem::path path) {
  finish();
  write_ = std::async(std::launch::async, [checkpoint = std::move(checkpoint), path = std::move(path)] {
    checkpoint.write(path);
  });
}

void CheckpointWriter::finish() {
  if (write_.valid()) write_.get();
}

}  // namespace unmetal
