#include <string>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mps/weights/input_file.hpp"
#include "train/data/dataset.hpp"

namespace unmetal::train {
namespace {

constexpr std::size_t side = 32;
constexpr std::size_t colours = 3;
constexpr std::size_t planeBytes = side * side;
constexpr std::size_t recordBytes = 1 + colours * planeBytes;
constexpr std::uint64_t largestBatchFile = std::uint64_t{1} << 30;

/// Appends the records of a file: a class, then the red, the green and the blue plane.
void appendFile(const std::filesystem::path& path, std::size_t classes, std::vector<std::uint8_t>& pixels,
                std::vector<std::uint32_t>& labels) {
  const std::vector<std::byte> file = mps::readFile(path, largestBatchFile);
  if (file.empty() || file.size() % recordBytes != 0)
    throw mps::Error(path.string() + " has " + std::to_string(file.size()) +
                     " bytes, expected a multiple of " + std::to_string(recordBytes) +
                     ", one class and 32x32x3 bytes for each picture");
  for (std::size_t first = 0; first < file.size(); first += recordBytes) {
    const auto label = std::to_integer<std::uint32_t>(file[first]);
    if (label >= classes)
      throw mps::Error(path.string() + " has the label " + std::to_string(label) + ", expected 0 to " +
                       std::to_string(classes - 1));
    labels.push_back(label);
    for (std::size_t pixel = 0; pixel < planeBytes; ++pixel)
      for (std::size_t colour = 0; colour < colours; ++colour)
        pixels.push_back(std::to_integer<std::uint8_t>(file[first + 1 + colour * planeBytes + pixel]));
  }
}

}  // namespace

MemoryDataset cifar10(Split split, const std::filesystem::path& folder) {
  std::vector<std::string> names{"airplane", "automobile", "bird",  "cat",  "deer",
                                 "dog",      "frog",       "horse", "ship", "truck"};
  std::vector<std::string> files{"test_batch.bin"};
  if (split == Split::Training)
    files = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
             "data_batch_5.bin"};
  std::vector<std::uint8_t> pixels;
  std::vector<std::uint32_t> labels;
  for (const std::string& file : files) appendFile(folder / file, names.size(), pixels, labels);
  return {{side, side, colours}, std::move(pixels), std::move(labels), std::move(names)};
}

}  // namespace unmetal::train
