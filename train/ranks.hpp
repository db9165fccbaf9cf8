#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace mps {
class Communicator;
}

/// What a training does that several ranks share.
namespace unmetal::train::detail {

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
/// Runs it on each rank. Where it fails on one, it fails on all. @throws mps::Error with the sentence of the first rank that
/// has failed, and which one that is unless all have; on a rank that has failed with this sentence: what it has thrown
void together(const Ranks& ranks, const std::function<void()>& function);
/// The second half of together(), for what has been run. @param own null: it has not failed
void failTogether(const Ranks& ranks, const std::exception_ptr& own);
/// Whether it is true on one of them.
[[nodiscard]] bool isTrueOnAny(const Ranks& ranks, bool own);
/// Sets each value to the sum over the ranks.
void sumOverRanks(const Ranks& ranks, std::span<double> values);
/// @throws mps::Error on all ranks, with the first value that is not the same, and two ranks
void agree(const Ranks& ranks, const std::vector<std::pair<std::string, std::string>>& values);
/// @}

/// What a network has made of the pictures of a data set, whichever ranks have looked at them.
class Answers {
 public:
  explicit Answers(std::size_t pictures) : values_(valuesOfPicture * pictures) {}
  void set(std::size_t picture, std::uint32_t label, std::uint32_t answer, double loss);
  /// All ranks have those of all pictures then.
  void share(const Ranks& ranks) { sumOverRanks(ranks, values_); }
  /// Calls use(label, answer, loss) for each picture, in their order.
  template <class Use>
  void forEach(const Use& use) const {
    for (std::size_t i = 0; i < values_.size(); i += valuesOfPicture)
      use(static_cast<std::uint32_t>(values_[i]), static_cast<std::uint32_t>(values_[i + 1]), values_[i + 2]);
  }

 private:
  static constexpr std::size_t valuesOfPicture = 3;
  std::vector<double> values_;
};

}  // namespace unmetal::train::detail
