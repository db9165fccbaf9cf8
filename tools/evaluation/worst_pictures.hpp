#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "train/data/dataset.hpp"
#include "train/pictures/picture.hpp"

namespace unmetal {

/// The pictures whose own class got the least probability.
class WorstPictures {
 public:
  struct Entry {
    std::size_t index = 0;  ///< in the data set
    std::uint32_t label = 0;
    std::uint32_t prediction = 0;
    float probability = 0;  ///< of the label
    float confidence = 0;   ///< probability of the prediction
  };

  explicit WorstPictures(std::size_t most = 24) : most_(most) {}

  void add(const Entry& entry);
  /// @param probabilities of each class
  void add(std::size_t index, std::uint32_t label, std::span<const float> probabilities);
  /// The worst first; of equal ones that with the smaller index.
  [[nodiscard]] const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::size_t most_;
  std::vector<Entry> entries_;
};

/// A picture of a data set for people, of three channels or of one, at most 160 pixels wide and high.
train::Picture pictureOf(const train::Dataset& data, std::size_t index);

/// A sheet of them as an SVG document with the pictures inside: what each is, and what it was taken for.
/// @param data whose pictures they are
std::string drawWorstPictures(const std::string& title, const WorstPictures& worst,
                              const train::Dataset& data);

}  // namespace unmetal
