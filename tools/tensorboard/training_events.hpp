#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "mps/trainable/trainable_layer.hpp"
#include "tools/evaluation/confusion_matrix.hpp"
#include "tools/evaluation/worst_pictures.hpp"
#include "tools/metrics/metrics.hpp"
#include "tools/tensorboard/event_file.hpp"
#include "tools/tensorboard/gradients.hpp"
#include "train/data/dataset.hpp"
#include "train/network/layers.hpp"

namespace mtl {
class Device;
}

namespace unmetal {

/// What TensorBoard shows of a training: `tensorboard --logdir FOLDER`, also while it runs and after it was killed. A training
/// that goes on begins another file, events.out.tfevents.<step>, which says that what earlier ones have of later steps no
/// longer counts. Every function throws mps::Error that names the file and the trouble.
class TrainingEvents {
 public:
  /// Whether a training in the folder has some.
  static bool areIn(const std::filesystem::path& folder);
  /// Those of an earlier training, not those of other programs.
  static void removeFrom(const std::filesystem::path& folder);
  /// @param step done so far
  TrainingEvents(const std::filesystem::path& folder, std::uint64_t step,
                 std::span<const train::Layer> layers);

  /// The columns of metrics.csv as scalars, what was not measured left out.
  void append(const MetricsRow& row);
  /// A histogram of each tensor of the layers. No work on them may be in flight.
  void appendWeights(std::uint64_t step, std::span<const std::shared_ptr<mps::TrainableLayer>> layers,
                     const std::shared_ptr<mtl::Device>& device);
  /// A histogram of each, "gradient/conv1.weight".
  void appendGradients(std::uint64_t step, std::span<const Gradient> gradients);
  /// Pictures of them. @param data whose pictures `worst` names
  void appendMistakes(std::uint64_t step, const ConfusionMatrix& matrix, const WorstPictures& worst,
                      const train::Dataset& data);

 private:
  EventFile file_;
};

/// Rows are true classes, columns predictions; the darker, the larger the share of its row. What is right is blue.
train::Picture confusionPicture(const ConfusionMatrix& matrix);

}  // namespace unmetal
