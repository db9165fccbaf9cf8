#include "tools/training/training_options.hpp"

#include <charconv>
#include <string_view>
#include <system_error>

#include "mps/core/types/error.hpp"
#include "mps/distributed/communicator.hpp"
#include "mtl/device.hpp"
#include "tools/networks/initial_weights.hpp"
#include "tools/training/training_choice.hpp"
#include "train/data/normalization.hpp"
#include "train/training/class_weights.hpp"
#include "train/training/optimizers.hpp"
#include "train/training/trainer.hpp"

namespace unmetal {
namespace {

/// @param checkpoint the one to go on from, which has computed it @throws mps::Error for pictures of other channels
std::optional<train::Normalization> normalizationOf(const TrainingOptions& options,
                                                    const train::Dataset& data,
                                                    const std::optional<CheckpointFile>& checkpoint) {
  if (options.normalization == "none") return std::nullopt;
  if (options.normalization == "computed") {
    auto computed = checkpoint ? checkpoint->networkOptions().normalization : std::nullopt;
    return computed ? computed : train::Normalization::of(data);
  }
  auto imagenet = train::Normalization::imagenet();
  checkNormalization(imagenet, data.shape());
  return imagenet;
}

/// Whether a file may be replaced by a new training's: a checkpoint from before the first step holds nothing that is lost.
bool isReplaceable(const std::filesystem::path& checkpoint) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(checkpoint, ignored))
    return true;  // what else is there cannot be written
  try {
    return CheckpointFile::read(checkpoint).position().step == 0;
  } catch (const mps::Error&) {
    return false;
  }
}

}  // namespace

bool isFirstRank(const TrainingOptions& options) {
  return !train::detail::areSeveral(options.ranks) || options.ranks->rank() == 0;
}

Network networkFor(const std::shared_ptr<mtl::Device>& device, const TrainingOptions& options,
                   const train::Dataset& data, const train::Shape& pictures, double learningRate,
                   double weightDecay, const std::optional<CheckpointFile>& checkpoint) {
  NetworkOptions network;
  network.name = options.network;
  network.width = pictures.width;
  network.height = pictures.height;
  network.channels = pictures.channels;
  network.classNames = data.classNames();
  network.normalization = normalizationOf(options, data, checkpoint);
  network.batchSize = options.batchSize;
  network.seed = options.seed;
  network.frozen = options.frozen;
  network.format = options.format == "float16" ? mps::ImageFeatureChannelFormat::Float16
                                               : mps::ImageFeatureChannelFormat::Float32;
  network.allowReducedPrecision = options.allowReducedPrecision;
  network.optimizer = train::makeOptimizer(device, options.optimizer, learningRate, weightDecay);
  network.adamForm = train::adamFormOf(options.optimizer);
  // A file that is not this network's is refused before the network takes memory.
  if (options.resume) {
    const CheckpointFile file = CheckpointFile::read(options.out / checkpointName);
    // Where it is of another network, the setting that differs is what to say.
    if (file.isOf(network)) {
      network.expectTensor = file.tensorCheck();
      network.description = file.networkOptions().description;
    }
  } else if (!options.initialWeights.empty() && !isModelFile(options.initialWeights.string())) {
    network.expectTensor = InitialWeights(options.initialWeights).tensorCheck();
  }
  return buildNetwork(device, network);
}

std::optional<CheckpointFile> checkpointOf(const TrainingOptions& options) {
  if (options.resume) return CheckpointFile::read(options.out / checkpointName);
  if (isFirstRank(options) && !options.overwrite && !isReplaceable(options.out / checkpointName))
    throw mps::Error("the folder " + options.out.string() +
                     " holds a training already: --resume goes on with it, --overwrite replaces it; or give "
                     "another --out");
  return std::nullopt;
}

DataOptions dataOptions(const TrainingOptions& options, const std::optional<CheckpointFile>& checkpoint) {
  DataOptions pictures = options.pictures;
  const train::Augmentation unset = checkpoint ? checkpoint->augmentation() : train::Augmentation{};
  pictures.augmentation = options.augmentation.value_or(unset);
  return pictures;
}

DataOptions dataOptions(const TrainingOptions& options, const std::optional<CheckpointFile>& checkpoint,
                        Split split) {
  // Validation sees its pictures as often as training does, but there are fewer of them.
  constexpr std::uint64_t parts = 5;
  DataOptions pictures = dataOptions(options, checkpoint);
  if (pictures.memory) {
    const std::uint64_t validation = *pictures.memory / parts;
    pictures.memory = split == Split::Test ? validation : *pictures.memory - validation;
  }
  return pictures;
}

TrainingOptions completed(TrainingOptions options, const DataOptions& pictures,
                          const train::Dataset& training) {
  options.pictures = pictures;
  const TrainingChoice choice = chooseTraining(isPictureFolder(options.data), training.size());
  if (options.network.empty()) options.network = choice.network;
  if (options.epochs == 0) options.epochs = choice.epochs;
  if (options.batchSize == 0) options.batchSize = choice.batchSize;
  if (options.schedule.empty()) options.schedule = choice.schedule;
  // Numbers for the network, course and optimiser that were chosen; with others they may be no good.
  const bool isChosen = options.network == choice.network && options.schedule == choice.schedule &&
                        options.optimizer == TrainingOptions().optimizer;
  if (!options.learningRate && isChosen) options.learningRate = choice.learningRate;
  if (!options.weightDecay && isChosen) options.weightDecay = choice.weightDecay;
  return options;
}

std::vector<float> classWeightsOf(const std::string& text, const train::Dataset& training) {
  const std::size_t classes = training.classCount();
  if (text == "none") return {};
  if (text == "balanced") return train::balancedClassWeights(training);
  std::vector<float> weights;
  std::string_view rest = text;
  while (true) {
    const std::string_view number = rest.substr(0, rest.find(','));
    float weight = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), weight);
    if (error != std::errc{} || end != number.data() + number.size())
      throw mps::Error("--class-weights " + text + ": give none, balanced, or " + std::to_string(classes) +
                       " numbers with commas between");
    weights.push_back(weight);
    if (number.size() == rest.size()) break;
    rest.remove_prefix(number.size() + 1);
  }
  try {
    train::detail::checkClassWeights(weights, classes);
  } catch (const mps::Error& error) {
    throw mps::Error("--class-weights " + text + ": " + error.what());
  }
  return weights;
}

}  // namespace unmetal
