#include "tools/checkpoint.hpp"

#include <charconv>
#include <chrono>
#include <cstring>

#include "mps/core/error.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"

namespace unmetal {
namespace {

constexpr const char* format = "unmetal checkpoint 1";
constexpr const char* settingPrefix = "setting.";
constexpr const char* plansName = "plans";
constexpr const char* picturesName = "pictures";
constexpr const char* validationName = "validation";
constexpr const char* countersName = "random.counters";

constexpr const char* classPrefix = "class.";
constexpr std::uint64_t mostClasses = 4096;

template <class Number>
Number numberOf(const mps::SafetensorsFile& file, const std::string& key) {
  const std::string& text = file.metadata(key);
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) throw file.error(key + " is no number");
  return value;
}

std::string textOf(float value) {
  char text[32];
  const auto result = std::to_chars(std::begin(text), std::end(text), value);
  return {text, result.ptr};
}

}  // namespace

Checkpoint Checkpoint::take(const Network& network, mtl::CommandQueue& queue,
                            const TrainingPosition& position, const TrainingSettings& settings) {
  const auto commandBuffer = queue.commandBuffer();
  for (const auto& layer : network.layers) layer->synchronize(commandBuffer);
  if (network.lossScale) network.lossScale->synchronize(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  Checkpoint checkpoint;
  for (const auto& layer : network.layers)
    for (const mps::SafetensorsTensor& tensor : layer->tensors(true))
      checkpoint.tensors_.push_back(
          {tensor.name, tensor.type, tensor.shape, {tensor.bytes.begin(), tensor.bytes.end()}});
  const std::vector<std::uint64_t> counters = network.training->randomCounters();
  Tensor random{countersName, mps::DataType::UInt64, {counters.size()}, {}};
  random.bytes.resize(counters.size() * sizeof(std::uint64_t));
  if (!counters.empty()) std::memcpy(random.bytes.data(), counters.data(), random.bytes.size());
  checkpoint.tensors_.push_back(std::move(random));
  checkpoint.metadata_ = {{"format", format},
                          {"position.epoch", std::to_string(position.epoch)},
                          {"position.batch", std::to_string(position.batch)},
                          {"position.step", std::to_string(position.step)},
                          {"position.best_accuracy", textOf(position.bestAccuracy)}};
  if (const auto& scale = network.lossScale) {
    checkpoint.metadata_["loss_scale.scale"] = textOf(scale->scale());
    checkpoint.metadata_["loss_scale.finite_steps"] = std::to_string(scale->finiteSteps());
    checkpoint.metadata_["loss_scale.skipped_steps"] = std::to_string(scale->skippedSteps());
  }
  const NetworkOptions& options = network.options;
  checkpoint.metadata_["picture.width"] = std::to_string(options.width);
  checkpoint.metadata_["picture.height"] = std::to_string(options.height);
  checkpoint.metadata_["picture.channels"] = std::to_string(options.channels);
  checkpoint.metadata_["classes"] = std::to_string(options.classNames.size());
  for (std::size_t i = 0; i < options.classNames.size(); ++i)
    checkpoint.metadata_[classPrefix + std::to_string(i)] = options.classNames[i];
  for (const auto& [name, value] : settings) checkpoint.metadata_[settingPrefix + name] = value;
  return checkpoint;
}

std::uint64_t Checkpoint::sizeOf(const Network& network) {
  std::uint64_t size = 0;
  for (const auto& layer : network.layers)
    for (const mps::SafetensorsTensor& tensor : layer->tensors(true)) size += tensor.bytes.size();
  return size;
}

void Checkpoint::write(const std::filesystem::path& path) const {
  std::vector<mps::SafetensorsTensor> tensors;
  for (const Tensor& tensor : tensors_)
    tensors.push_back({tensor.name, tensor.type, tensor.shape, tensor.bytes});
  mps::writeSafetensors(path, std::move(tensors), metadata_);
}

CheckpointFile CheckpointFile::read(const std::filesystem::path& path) {
  CheckpointFile checkpoint(mps::SafetensorsFile::read(path));
  const auto& metadata = checkpoint.file_.metadata();
  if (const auto found = metadata.find("format"); found == metadata.end() || found->second != format)
    throw checkpoint.file_.error("it is no checkpoint of this program");
  for (const auto& [key, value] : metadata)
    if (key.starts_with(settingPrefix)) checkpoint.settings_[key.substr(std::strlen(settingPrefix))] = value;
  checkpoint.position_.epoch = numberOf<std::uint64_t>(checkpoint.file_, "position.epoch");
  checkpoint.position_.batch = numberOf<std::uint64_t>(checkpoint.file_, "position.batch");
  checkpoint.position_.step = numberOf<std::uint64_t>(checkpoint.file_, "position.step");
  checkpoint.position_.bestAccuracy = numberOf<float>(checkpoint.file_, "position.best_accuracy");
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

std::optional<std::uint64_t> CheckpointFile::pictures() const {
  if (!settings_.contains(picturesName)) return std::nullopt;
  return numberOf<std::uint64_t>(file_, std::string(settingPrefix) + picturesName);
}

NetworkOptions CheckpointFile::networkOptions() const {
  NetworkOptions options;
  options.name = setting("net");
  options.width = numberOf<std::uint64_t>(file_, "picture.width");
  options.height = numberOf<std::uint64_t>(file_, "picture.height");
  options.channels = numberOf<std::uint64_t>(file_, "picture.channels");
  const std::uint64_t classes = numberOf<std::uint64_t>(file_, "classes");
  // The file is not trusted: its numbers decide how much memory is taken before its tensors are looked at.
  constexpr std::uint64_t largestPicture = 4096;
  const auto isWrong = [](std::uint64_t extent) { return extent == 0 || extent > largestPicture; };
  if (isWrong(options.width) || isWrong(options.height) || isWrong(options.channels) || classes == 0 ||
      classes > mostClasses)
    throw file_.error("the size of its pictures or the number of its classes is wrong");
  options.classNames.clear();
  for (std::uint64_t i = 0; i < classes; ++i)
    options.classNames.push_back(file_.metadata(classPrefix + std::to_string(i)));
  if (settings_.contains("batch"))
    options.batchSize = numberOf<std::uint64_t>(file_, std::string(settingPrefix) + "batch");
  return options;
}

PictureFolderOptions CheckpointFile::pictureOptions() const {
  const NetworkOptions network = networkOptions();
  PictureFolderOptions options;
  options.size = {network.height, network.width, network.channels};
  if (settings_.contains(validationName)) {
    const double share = numberOf<double>(file_, std::string(settingPrefix) + validationName);
    if (!(share > 0 && share < 1)) throw file_.error("the share for validation is wrong");
    options.validation = share;
  }
  return options;
}

void CheckpointFile::restoreWeights(Network& network) const {
  for (const auto& layer : network.layers) layer->read(file_, false);
}

void CheckpointFile::restoreTraining(Network& network, const TrainingSettings& settings) const {
  for (const auto& [name, value] : settings)
    if (name != plansName && name != picturesName && setting(name) != value &&
        !(name == "epochs" && setting("lr-schedule") == "constant"))
      throw file_.error("it was made with --" + name + " " + setting(name) + ", not " + value);
  if (file_.metadata().contains(classPrefix + std::string("0")))
    if (const auto other = firstOtherClass(networkOptions().classNames, network.options.classNames))
      throw file_.error("its " + *other);
  for (const auto& layer : network.layers) layer->read(file_, true);
  const std::vector<std::uint64_t> shape{network.training->randomCounters().size()};
  const mps::SafetensorsTensor& tensor = file_.tensor(countersName, mps::DataType::UInt64, shape);
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
