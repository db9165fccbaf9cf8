#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "train/network/evaluation.hpp"

namespace unmetal {

/// How often pictures of each class were taken for each class.
class ConfusionMatrix {
 public:
  explicit ConfusionMatrix(std::vector<std::string> classNames);

  /// Throws std::out_of_range when one is no class. @param loss of the picture
  void add(std::size_t label, std::size_t prediction, double loss = 0);

  const std::vector<std::string>& classNames() const { return classNames_; }
  std::uint64_t countAt(std::size_t label, std::size_t prediction) const;
  std::uint64_t total() const;
  std::uint64_t correct() const;
  /// correct() / total(), 0 without pictures.
  double accuracy() const;
  /// Mean of the pictures; 0 without any.
  double loss() const;
  /// With the scores of each class.
  train::Evaluation evaluation() const;

  /// A table for people. Up to 30 classes: a row for each true class with its recall, a column for each predicted
  /// class with its precision, both in percent ("-" where there was no such picture), and F1. More classes: the 20 most
  /// frequent mistakes, a row for each.
  std::string table() const;
  /// The same for programs, in one line.
  std::string json() const;

 private:
  std::string wholeTable() const;
  std::string mistakes() const;

  std::vector<std::string> classNames_;
  double lossSum_ = 0;
  std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> counts_;  // of {label, prediction}
};

}  // namespace unmetal
