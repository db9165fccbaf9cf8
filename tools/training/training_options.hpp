#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/data/data.hpp"
#include "tools/networks/networks.hpp"
#include "tools/training/checkpoint.hpp"
#include "train/batches/augmentation.hpp"
#include "train/data/dataset.hpp"
#include "train/ranks/ranks.hpp"

namespace mtl {
class Device;
}

namespace unmetal {

/// Of a training's folder.
inline constexpr const char* checkpointName = "checkpoint.safetensors";

/// What `unmetal train` was asked for.
struct TrainingOptions {
  std::string data = "fashion-mnist";
  DataOptions pictures;  ///< of a folder
  /// Empty or 0: what chooseTraining() says. @{
  std::string network;
  std::uint64_t epochs = 0;
  std::size_t batchSize = 0;
  std::string schedule;
  /// @}
  std::string optimizer = "adam";
  std::optional<double> learningRate;  ///< unset: the optimiser's own
  double warmup = 0;                   ///< epochs in front of the schedule
  std::optional<double> weightDecay;   ///< unset: the optimiser's own
  double clipNorm = 0;                 ///< of all gradients; 0: they are not clipped
  double averageDecay = 0;             ///< of the moving average of the weights; 0: there is none
  std::vector<std::string> frozen;     ///< what the labels of layers begin with that are not trained
  std::string bestBy = "accuracy";     ///< or loss: what makes an epoch the best one
  std::uint64_t patience = 0;          ///< epochs without a better one after which it ends; 0: none
  std::string classWeights = "none";   ///< balanced, or a number for each class
  std::uint64_t seed = 0;
  std::string format = "float32";  ///< of activations, or float16
  bool allowReducedPrecision = false;
  std::filesystem::path out = "unmetal-run";
  std::string graph = "forward";  ///< what is drawn: the layers in graph.svg; or all: graph.dot, too
  bool tensorBoard = false;       ///< whether event files are written
  bool resume = false;
  bool overwrite = false;                ///< whether a training that lies in the folder is replaced
  bool quiet = false;                    ///< whether nothing is printed on the way
  std::filesystem::path initialWeights;  ///< written by PyTorch; empty: the seed's
  double checkpointSeconds = 5;
  std::optional<std::uint64_t> lastStep;  ///< stop here, before the last epoch ends
  /// Of every data set; unset: none, or what a checkpoint says that is resumed from. Decides on pictures.augmentation.
  std::optional<train::Augmentation> augmentation;
  std::string normalization = "none";  ///< of pictures: none, imagenet, or computed of those for training
  /// Asked after each step: whether to write a checkpoint and stop here. Empty: no.
  std::function<bool()> isStopWanted;
  /// Of several ranks, see train::TrainerOptions. @{
  train::detail::Ranks ranks;
  bool synchronizesBatchNormalization = true;
  /// @}
};

/// Whether this rank writes and prints: the first of several, or the only one.
bool isFirstRank(const TrainingOptions& options);
/// The checkpoint to go on from; nothing for a new training.
/// @throws mps::Error when its file is none, or holds a training that is not to be replaced
std::optional<CheckpointFile> checkpointOf(const TrainingOptions& options);
/// With the augmentation that the user asks for, or else that of the training that is resumed.
/// They are of both sets together, of which each has its share of the memory.
DataOptions dataOptions(const TrainingOptions& options, const std::optional<CheckpointFile>& checkpoint);
/// Those for one of the two sets.
DataOptions dataOptions(const TrainingOptions& options, const std::optional<CheckpointFile>& checkpoint,
                        Split split);
/// With what the data decide where the user has not.
TrainingOptions completed(TrainingOptions options, const DataOptions& pictures,
                          const train::Dataset& training);
/// @throws mps::Error for pictures that are not the network's, and a checkpoint of another one
Network networkFor(const std::shared_ptr<mtl::Device>& device, const TrainingOptions& options,
                   const train::Dataset& data, const train::Shape& pictures, double learningRate,
                   double weightDecay, const std::optional<CheckpointFile>& checkpoint);
/// Of the option --class-weights. @throws mps::Error for what is none
std::vector<float> classWeightsOf(const std::string& text, const train::Dataset& training);

}  // namespace unmetal
