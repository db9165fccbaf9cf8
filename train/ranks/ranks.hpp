#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/types/error.hpp"

namespace mps {
class Communicator;
}
namespace mtl {
class CommandBuffer;
}

/// What a training does that several ranks share.
namespace unmetal::train::detail {

/// What all ranks have thrown.
class SharedError : public mps::Error {
 public:
  using mps::Error::Error;
};

/// Null for a training of one rank.
using Ranks = std::shared_ptr<mps::Communicator>;
[[nodiscard]] bool areSeveral(const Ranks& ranks);

/// Neighbours in a batch.
struct Part {
  std::size_t first = 0;
  std::size_t count = 0;
};
/// What one of several ranks has of so many pictures: as many as the others, or one more.
[[nodiscard]] Part partOf(std::size_t pictures, std::size_t rank, std::size_t ranks);
/// That of this rank.
[[nodiscard]] Part partOf(std::size_t pictures, const Ranks& ranks);

/// @name All ranks call these, while no work of theirs is in flight, and wait for each other
/// @{
/// Runs it on each rank. Where it fails on one, it fails on all. @throws SharedError, of several ranks, with the sentence of the
/// first rank that has failed, and which one that is unless all have failed with it; of one rank what the function throws
void together(const Ranks& ranks, const std::function<void()>& function);
/// Whether it is true on one of them.
[[nodiscard]] bool isTrueOnAny(const Ranks& ranks, bool own);
/// Sets each value to the sum over the ranks.
void sumOverRanks(const Ranks& ranks, std::span<double> values);
/// @throws SharedError with the first value that is not the same, and two ranks
void agree(const Ranks& ranks, const std::vector<std::pair<std::string, std::string>>& values);
/// @}

/// Waits for a step of a training. @param place of the step, e.g. "step 3", for what goes wrong with several ranks
/// @throws mps::Error when the command buffer has failed
void waitForStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const Ranks& ranks,
                 const std::string& place);

/// What a network has made of a picture.
struct Answer {
  std::uint32_t label = 0;
  std::uint32_t prediction = 0;  ///< the class with the largest probability
  float probability = 0;         ///< of the label
  float confidence = 0;          ///< probability of the prediction

  /// The least probability that float32 holds stands for one that has become 0.
  [[nodiscard]] double loss() const;
};

/// What a network has made of the pictures of a data set, whichever ranks have looked at them.
class Answers {
 public:
  explicit Answers(std::size_t pictures) : values_(valuesOfPicture * pictures) {}
  /// @param probabilities of each class
  void set(std::size_t picture, std::uint32_t label, std::span<const float> probabilities);
  /// All ranks have those of all pictures then.
  void share(const Ranks& ranks) { sumOverRanks(ranks, values_); }
  [[nodiscard]] std::size_t count() const { return values_.size() / valuesOfPicture; }
  [[nodiscard]] Answer at(std::size_t picture) const;

 private:
  static constexpr std::size_t valuesOfPicture = 4;
  std::vector<double> values_;
};

}  // namespace unmetal::train::detail
