#include "tools/data/dataset.hpp"

#include "mps/core/error.hpp"
#include "tools/data/fashion_mnist.hpp"
#include "tools/data/synthetic.hpp"

namespace unmetal {

Dataset loadDataset(std::string_view specification, Split split) {
  constexpr std::string_view fashionMnist = "fashion-mnist";
  constexpr std::string_view fashionMnistIn = "fashion-mnist:";
  if (specification == "synthetic") return makeSyntheticDataset(split);
  if (specification == fashionMnist) return loadFashionMnist(fashionMnistFolder, split);
  if (specification.starts_with(fashionMnistIn) && specification != fashionMnistIn) {
    return loadFashionMnist(specification.substr(fashionMnistIn.size()), split);
  }
  throw mps::Error("the data set \"" + std::string(specification) +
                   "\" is not known, expected fashion-mnist, fashion-mnist:FOLDER or synthetic");
}

}  // namespace unmetal
