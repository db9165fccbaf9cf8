#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace unmetal {

/// How often pictures of each class were taken for each class.
class ConfusionMatrix {
 public:
  explicit ConfusionMatrix(std::vector<std::string> classNames);

  /// Throws std::out_of_range when one is no class.
  void add(std::size_t label, std::size_t prediction);

  std::uint64_t total() const;
  std::uint64_t correct() const;
  /// correct() / total(), 0 without pictures.
  double accuracy() const;

  /// A table for people: a row for each true class with its recall, a column for each predicted class with
  /// its precision, both in percent ("-" where there was no such picture).
  std::string table() const;

 private:
  std::uint64_t countAt(std::size_t label, std::size_t prediction) const;

  std::vector<std::string> classNames_;
  std::vector<std::uint64_t> counts_;  // label x prediction
};

}  // namespace unmetal
