#include <nanobind/ndarray.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/types/error.hpp"
#include "python/source/binding/bind.hpp"
#include "python/source/layers/data_source.hpp"
#include "python/source/train/train.hpp"
#include "unmetal_train.hpp"

namespace python {

namespace train = unmetal::train;
using train::MemoryDataset;

Extents extentsOf(const train::Shape& shape) {
  return {shape.height, shape.width, shape.channels};
}

train::Shape shapeOf(const Extents& extents) {
  return {std::get<0>(extents), std::get<1>(extents), std::get<2>(extents)};
}

train::Shape shapeOf(const GivenArray& array, const char* owner) {
  if (array.ndim() != 3 && array.ndim() != 4)
    throw mps::Error(owner, "pictures", std::to_string(array.ndim()) + "-dimensional",
                     "3 dimensions (picture, row, column), or 4 with channels");
  return {array.shape(1), array.shape(2), array.ndim() == 4 ? array.shape(3) : 1};
}

namespace {

template <class T>
std::vector<T> valuesOf(const GivenArray& array) {
  const auto* begin = static_cast<const T*>(array.data());
  return {begin, begin + array.size()};
}

[[noreturn]] void throwType(const char* owner, const char* argument, const char* expected) {
  throw mps::Error(owner, argument, "an array of another type", expected);
}

}  // namespace

std::vector<float> pixelsOf(const GivenArray& array, const char* owner) {
  if (array.dtype() == nb::dtype<float>()) return valuesOf<float>(array);
  if (array.dtype() != nb::dtype<std::uint8_t>()) throwType(owner, "pictures", "uint8 or float32");
  std::vector<float> pixels;
  for (const std::uint8_t value : valuesOf<std::uint8_t>(array))
    pixels.push_back(static_cast<float>(value) / 255.0F);
  return pixels;
}

namespace {

template <class T>
std::vector<std::uint32_t> checkedLabels(const GivenArray& array) {
  std::vector<std::uint32_t> labels;
  for (const T label : valuesOf<T>(array)) {
    if (std::cmp_less(label, 0) || std::cmp_greater(label, std::numeric_limits<std::uint32_t>::max()))
      throw mps::Error("Dataset", "label of picture " + std::to_string(labels.size()), std::to_string(label),
                       "0 or more, below the number of classes");
    labels.push_back(static_cast<std::uint32_t>(label));
  }
  return labels;
}

std::vector<std::uint32_t> labelsOf(const GivenArray& array) {
  if (array.ndim() != 1)
    throw mps::Error("Dataset", "labels", std::to_string(array.ndim()) + "-dimensional", "1 dimension");
  const nb::dlpack::dtype type = array.dtype();
  if (type == nb::dtype<std::uint8_t>()) return checkedLabels<std::uint8_t>(array);
  if (type == nb::dtype<std::int8_t>()) return checkedLabels<std::int8_t>(array);
  if (type == nb::dtype<std::uint16_t>()) return checkedLabels<std::uint16_t>(array);
  if (type == nb::dtype<std::int16_t>()) return checkedLabels<std::int16_t>(array);
  if (type == nb::dtype<std::uint32_t>()) return checkedLabels<std::uint32_t>(array);
  if (type == nb::dtype<std::int32_t>()) return checkedLabels<std::int32_t>(array);
  if (type == nb::dtype<std::uint64_t>()) return checkedLabels<std::uint64_t>(array);
  if (type == nb::dtype<std::int64_t>()) return checkedLabels<std::int64_t>(array);
  throwType("Dataset", "labels", "whole numbers");
}

MemoryDataset datasetOf(const GivenArray& pictures, const GivenArray& labels,
                        const std::vector<std::string>& classNames) {
  const train::Shape shape = shapeOf(pictures, "Dataset");
  if (pictures.dtype() == nb::dtype<std::uint8_t>())
    return {shape, valuesOf<std::uint8_t>(pictures), labelsOf(labels), classNames};
  if (pictures.dtype() == nb::dtype<float>())
    return {shape, valuesOf<float>(pictures), labelsOf(labels), classNames};
  throwType("Dataset", "pictures", "uint8 or float32");
}

/// A data set written in Python, whose shape, length and names are asked for once.
class PythonDataset final : public train::Dataset {
 public:
  [[nodiscard]] train::Shape shape() const override { return facts().shape; }
  [[nodiscard]] std::size_t size() const override { return facts().size; }
  [[nodiscard]] std::size_t classCount() const override { return facts().classNames.size(); }
  [[nodiscard]] std::vector<std::string> classNames() const override { return facts().classNames; }
  std::uint32_t load(std::size_t index, std::span<float> pixels) const override {
    const train::Shape expected = shape();
    const Locked locked;
    const auto loaded = converted<std::pair<GivenArray, std::int64_t>>(
        required<Dataset>(*this, "load")(index), "what load() returns", "(array, class)");
    const GivenArray& array = loaded.first;
    const std::int64_t label = loaded.second;
    const auto extent = [&](std::size_t axis) { return axis < array.ndim() ? array.shape(axis) : 1; };
    const train::Shape found{extent(0), extent(1), extent(2)};
    if (array.ndim() < 2 || array.ndim() > 3 || found != expected)
      throw mps::Error("AnyDataset", "shape of picture " + std::to_string(index), describe(found),
                       describe(expected));
    if (label < 0 || std::cmp_greater_equal(label, classCount()))
      throw mps::Error("AnyDataset", "class of picture " + std::to_string(index), std::to_string(label),
                       "0 to " + std::to_string(classCount() - 1));
    std::ranges::copy(pixelsOf(array, "AnyDataset"), pixels.begin());
    return static_cast<std::uint32_t>(label);
  }

 private:
  struct Facts {
    train::Shape shape;
    std::size_t size;
    std::vector<std::string> classNames;
  };
  /// Threads of the library ask often, and would wait for the lock.
  const Facts& facts() const {
    if (const Facts* const known = known_.load()) return *known;
    const Locked locked;
    Facts found{
        shapeOf(converted<Extents>(required<Dataset>(*this, "shape"), "shape", "(height, width, channels)")),
        converted<std::size_t>(required<Dataset>(*this, "__len__")(), "what __len__() returns",
                               "a number of pictures"),
        converted<std::vector<std::string>>(required<Dataset>(*this, "class_names"), "class_names",
                                            "a list of names")};
    if (known_.load() == nullptr) {
      facts_ = std::make_unique<Facts>(std::move(found));
      known_ = facts_.get();
    }
    return *facts_;
  }

  mutable std::unique_ptr<const Facts> facts_;
  mutable std::atomic<const Facts*> known_ = nullptr;
};

/// What a data set says of itself. Where its class is Python's, nobody has defined what is asked for here.
template <class Get>
auto asked(const char* name, Get get) {
  return [name, get](const train::Dataset& self) {
    if (isOf<PythonDataset>(self)) throwNotDefined(name);
    return get(self);
  };
}

void bindAnyDataset(nb::module_& module) {
  nb::enum_<train::Split>(module, "Split", "Parts of a data set.")
      .value("Training", train::Split::Training)
      .value("Test", train::Split::Test);
  nb::class_<train::Dataset, PythonDataset> dataset(
      module, "AnyDataset",
      "Pictures of one shape with a class each. Derive from it for pictures of your own:\n\n"
      "    class Bars(train.AnyDataset):\n"
      "        shape = (16, 16, 1)\n"
      "        class_names = [\"lies\", \"stands\"]\n"
      "        def __len__(self):\n"
      "            return 1000\n"
      "        def load(self, index):\n"
      "            picture = np.zeros(self.shape, np.float32)\n"
      "            picture[:, 5] = index % 2\n"
      "            return picture, index % 2\n\n"
      "shape, length and names are asked for once. Several threads load pictures, one at a time, and each "
      "again in "
      "each epoch.");
  dataset.def(nb::init<>());
  dataset.def("__len__", asked("__len__", [](const train::Dataset& self) { return self.size(); }));
  readOnly(dataset, "shape",
           asked("shape", [](const train::Dataset& self) { return extentsOf(self.shape()); }),
           "(height, width, channels) of each picture.");
  readOnly(dataset, "class_names",
           asked("class_names", [](const train::Dataset& self) { return self.classNames(); }),
           "Of all classes.");
  dataset.def(
      "load",
      [](const train::Dataset& self, std::int64_t index) {
        if (isOf<PythonDataset>(self)) throwNotDefined("load");
        const train::Shape shape = self.shape();
        auto* pixels = new std::vector<float>(shape.count());
        const nb::capsule owner(
            pixels, [](void* pointer) noexcept { delete static_cast<std::vector<float>*>(pointer); });
        const std::uint32_t label = self.load(indexOf(index, self.size()), *pixels);
        return std::pair(Floats(pixels->data(), {shape.height, shape.width, shape.channels}, owner), label);
      },
      "index"_a,
      "A picture as float32, and its class. A class of your own may return uint8, too, of which 255 is 1.0. "
      "Raises NotImplementedError where it does not define it.");
}

void bindPictureFolder(nb::module_& module) {
  nb::class_<train::PictureFolder, train::Dataset> folder(
      module, "PictureFolder",
      "PNG and JPEG files, a folder for each class; or folders train and val, validation or test, with those "
      "inside. Pictures are scaled to cover the size, and what sticks out is cut off.");
  folder.def(
      "__init__",
      [](train::PictureFolder* self, const std::filesystem::path& path, train::Split split,
         const Extents& size, double validation, bool skipBad, std::optional<std::uint64_t> memory,
         std::size_t threads) {
        const LockReleased released;
        new (self) train::PictureFolder(path, split,
                                        {.size = shapeOf(size),
                                         .validation = validation,
                                         .skipBad = skipBad,
                                         .memory = memory,
                                         .threads = threads,
                                         .skipBadName = "skip_bad"});
      },
      "folder"_a, "split"_a, nb::kw_only(), "size"_a = Extents(64, 64, 3), "validation"_a = 0.2,
      "skip_bad"_a = false, "memory"_a.none() = nb::none(), "threads"_a = 0,
      "size: (height, width, channels), 1 or 3 channels. validation: the share of each class that Split.Test "
      "has. skip_bad: what cannot be used is left out, not an error. memory: bytes of decoded pictures that "
      "are "
      "kept, half of the machine's but at most 2 GiB unless given; the others are decoded again in each "
      "epoch. threads: that decode pictures now; 0: as many as there are processors.");
  readOnly(
      folder, "left_out", [](const train::PictureFolder& self) { return self.leftOut(); },
      "A sentence for each thing that was left out.");
  folder.def(
      "file",
      [](const train::PictureFolder& self, std::int64_t index) {
        return self.file(indexOf(index, self.size()));
      },
      "index"_a, "The file of a picture.");
}

}  // namespace

void bindDatasets(nb::module_& module) {
  bindAnyDataset(module);
  nb::class_<MemoryDataset, train::Dataset> dataset(module, "Dataset",
                                                    "Pictures in memory, with a class each.");
  dataset.def(
      "__init__",
      [](MemoryDataset* self, const GivenArray& pictures, const GivenArray& labels,
         const std::vector<std::string>& classNames) {
        new (self) MemoryDataset(datasetOf(pictures, labels, classNames));
      },
      "pictures"_a, "labels"_a, "class_names"_a = std::vector<std::string>{},
      "Copies arrays [picture][row][column][channel], or without channels, of uint8 (255 is 1.0) or float32, "
      "and their "
      "classes from 0. Without class_names there are as many classes as the labels have.");
  nb::class_<train::SyntheticDataset, MemoryDataset> synthetic(
      module, "SyntheticDataset",
      "Generated pictures in 10 classes, which a network learns within a few steps: for tests and "
      "benchmarks.");
  synthetic.def(
      "__init__",
      [](train::SyntheticDataset* self, train::Split split, const Extents& shape) {
        new (self) train::SyntheticDataset(split, shapeOf(shape));
      },
      "split"_a, "shape"_a = Extents(28, 28, 1), "shape: (height, width, channels), sides from 4 to 16384.");
  bindPictureFolder(module);
  module.def(
      "fashion_mnist",
      [](train::Split split, const std::filesystem::path& folder) {
        return train::fashionMnist(split, folder);
      },
      "split"_a, "folder"_a = std::filesystem::path(train::fashionMnistFolder),
      "Fashion-MNIST: 60,000 training and 10,000 test pictures of clothes, 28 x 28 x 1, 10 classes, from the "
      "files of "
      "Debian's package dataset-fashion-mnist; or MNIST from a folder.");
  module.def(
      "cifar10", &train::cifar10, "split"_a, "folder"_a,
      "CIFAR-10: 50,000 training and 10,000 test pictures, 32 x 32 x 3, 10 classes, from the files of its "
      "binary version.");
  module.def("read_idx_dataset", &train::readIdxDataset, "images"_a, "labels"_a,
             "class_names"_a = std::vector<std::string>{},
             "Pictures and labels in two files of the IDX format, plain or compressed by gzip.");
}

}  // namespace python
