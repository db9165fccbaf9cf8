#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mps/weights/safetensors.hpp"
#include "tools/data/data.hpp"
#include "tools/networks/networks.hpp"

namespace mtl {
class CommandQueue;
}

namespace unmetal {

/// Where a training stands.
struct TrainingPosition {
  std::uint64_t epoch = 0;              ///< counted from 0
  std::uint64_t batch = 0;              ///< of the epoch, the next one to be learned from
  std::uint64_t step = 0;               ///< steps done since the beginning
  float bestAccuracy = 0;               ///< of the best epoch so far
  float bestLoss = 0;                   ///< of validation, of that epoch
  std::uint64_t epochsWithoutBest = 0;  ///< since then
};

/// What a training was started with, option and value; a resumed one must have the same. Three settings are no options:
/// `plans`, the plan file's ConvolutionPlanFile::title() or "none", may differ, because another GPU needs other plans;
/// so may `arithmetic` (arithmeticOf()); `pictures`, the number of training pictures, is the caller's to compare
/// (CheckpointFile::pictures).
using TrainingSettings = std::vector<std::pair<std::string, std::string>>;

/// A copy of all that a training needs to go on: weights, their averages, optimiser state, random counters, position,
/// settings; and what predictions need: sizes of pictures, names of classes. The same training at the same
/// position gives the same bytes.
class Checkpoint {
 public:
  enum class Contents {
    Training,  ///< all of it
    Weights,   ///< what predictions need: the layers' values
  };
  /// Copies, from a device of its own through the queue; no other work of the network may be in flight.
  static Checkpoint take(const Network& network, mtl::CommandQueue& queue, const TrainingPosition& position,
                         const TrainingSettings& settings, Contents contents = Contents::Training);
  /// Bytes of the tensors, without the file's header.
  [[nodiscard]] static std::uint64_t sizeOf(const Network& network, Contents contents);
  /// Written beside and renamed. @throws mps::Error as well, and writes nothing, when nothing could go on from it: a tensor
  /// is not finite, or what an optimiser or a normalisation keeps of squares is negative
  void write(const std::filesystem::path& path) const;

 private:
  struct Tensor {
    std::string name;
    mps::DataType type;
    std::vector<std::uint64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::vector<Tensor> tensors_;
  mps::SafetensorsMetadata metadata_;
};

/// A checkpoint whose header was read and checked. Its tensors are read when a network of their sizes is there: a file of
/// a kilobyte may name a network of gigabytes, and a small one may lie in a file of gigabytes.
class CheckpointFile {
 public:
  /// @throws mps::Error in one sentence for a missing or damaged file or one of another program.
  static CheckpointFile read(const std::filesystem::path& path);

  /// @throws mps::Error when it is missing
  [[nodiscard]] const std::string& setting(const std::string& name) const;
  [[nodiscard]] bool hasSetting(const std::string& name) const { return settings_.contains(name); }
  /// Name, sizes, classes and, where it is known, batch size of the network, for inference. Building it throws when the
  /// file has not its tensors.
  [[nodiscard]] NetworkOptions networkOptions() const;
  /// Whether name, sizes and number of classes are the same.
  [[nodiscard]] bool isOf(const NetworkOptions& network) const;
  /// For NetworkOptions::expectTensor: throws mps::Error unless the file has that tensor. May outlive this object.
  [[nodiscard]] std::function<void(const std::string&, std::span<const std::uint64_t>)> tensorCheck() const;
  /// How the training read a folder of pictures, in case it did.
  [[nodiscard]] DataOptions pictureOptions() const;
  [[nodiscard]] const TrainingPosition& position() const { return position_; }
  /// Takes the weights alone, for inference: their averages where the training had some.
  void restoreWeights(Network& network) const;
  /// The plan file that the training followed, or "none".
  [[nodiscard]] std::string plans() const;
  /// What the last bits of its numbers depend on, see arithmeticOf(); nothing in files of a version that did not write it.
  [[nodiscard]] std::optional<std::string> arithmetic() const;
  /// How the training changed its pictures. Versions that did not write it changed those of folders alone, in all ways.
  [[nodiscard]] train::Augmentation augmentation() const;
  /// How many training pictures there were; nothing in files of a version that did not write it.
  [[nodiscard]] std::optional<std::uint64_t> pictures() const;
  /// Takes everything. @throws mps::Error naming the first setting or class of the network's that differs, or a tensor with
  /// which no training goes on: see Checkpoint::write(), and no optimiser has done more steps than the training. The
  /// number of epochs and the learning rate may differ.
  void restoreTraining(Network& network, const TrainingSettings& settings) const;

 private:
  explicit CheckpointFile(mps::SafetensorsHeader header) : file_(std::move(header)) {}
  [[nodiscard]] std::string settingOrFormer(const std::string& name) const;
  void checkSettings(const TrainingSettings& settings) const;
  /// @throws mps::Error when it is damaged, or has more tensors than checkpoints of that network have
  [[nodiscard]] mps::SafetensorsFile tensorsFor(const Network& network) const;
  void checkTensors(const mps::SafetensorsFile& file) const;

  mps::SafetensorsHeader file_;
  std::map<std::string, std::string> settings_;
  TrainingPosition position_;
};

/// Writes checkpoints on a thread of its own, one at a time, so that training goes on.
class CheckpointWriter {
 public:
  /// Waits for the last write.
  ~CheckpointWriter();
  /// Whether a write is under way.
  [[nodiscard]] bool isBusy() const;
  /// Begins a write; waits for the one before. @throws mps::Error when that one failed.
  void begin(Checkpoint checkpoint, std::filesystem::path path);
  /// Waits. @throws mps::Error when the write failed.
  void finish();

 private:
  std::future<void> write_;
};

}  // namespace unmetal
