#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "fuzz/fuzz_target.hpp"
#include "mps/batch_normalization/matrix_batch_normalization.hpp"
#include "mps/batch_normalization/matrix_neuron.hpp"
#include "mps/core/coder.hpp"
#include "mps/gather/gather.hpp"
#include "mps/graph/graph_coding.hpp"
#include "mps/graph/nn_graph.hpp"
#include "mps/matrix/matrix.hpp"
#include "mps/matrix/matrix_copy.hpp"
#include "mps/matrix/matrix_fully_connected.hpp"
#include "mps/matrix/matrix_image_copy.hpp"
#include "mps/matrix/matrix_random.hpp"
#include "mps/matrix/matrix_sum.hpp"
#include "mps/optimizer/optimizer.hpp"
#include "mps/softmax/matrix_softmax.hpp"
#include "mps/trainable/trainable_layer.hpp"
#include "mtl/device.hpp"

/// Coded kernels of every class and graphs: a map with one object "kernel".
namespace {

using nlohmann::json;
using Bytes = std::vector<std::byte>;

/// There with libFuzzer alone.
extern "C" __attribute__((weak)) std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size,
                                                              std::size_t most);

template <class KernelType>
void add(mps::Coder& coder, const char* className) {
  coder.setDecoder(className, [](mps::Coder& data, const std::shared_ptr<mtl::Device>& device) {
    return KernelType::decode(data, device);
  });
}

std::shared_ptr<mps::Kernel> decoded(std::span<const std::byte> bytes) {
  static const auto device = mtl::newCPUDevice(1);
  mps::KeyedUnarchiver coder(bytes, device);
  mps::detail::addKernelDecoders(coder);
  mps::addTrainableDecoders(coder);
  add<mps::NNGraph>(coder, "NNGraph");
  add<mps::MatrixMultiplication>(coder, "MatrixMultiplication");
  add<mps::MatrixVectorMultiplication>(coder, "MatrixVectorMultiplication");
  add<mps::ImageCopyToMatrix>(coder, "ImageCopyToMatrix");
  add<mps::MatrixCopyToImage>(coder, "MatrixCopyToImage");
  add<mps::MatrixRandomPhilox>(coder, "MatrixRandomPhilox");
  add<mps::MatrixRandomMTGP32>(coder, "MatrixRandomMTGP32");
  add<mps::MatrixSum>(coder, "MatrixSum");
  add<mps::MatrixCopy>(coder, "MatrixCopy");
  add<mps::MatrixFullyConnected>(coder, "MatrixFullyConnected");
  add<mps::MatrixFullyConnectedGradient>(coder, "MatrixFullyConnectedGradient");
  add<mps::MatrixNeuron>(coder, "MatrixNeuron");
  add<mps::MatrixNeuronGradient>(coder, "MatrixNeuronGradient");
  add<mps::MatrixSoftMax>(coder, "MatrixSoftMax");
  add<mps::MatrixSoftMaxGradient>(coder, "MatrixSoftMaxGradient");
  add<mps::MatrixLogSoftMax>(coder, "MatrixLogSoftMax");
  add<mps::MatrixLogSoftMaxGradient>(coder, "MatrixLogSoftMaxGradient");
  add<mps::MatrixBatchNormalization>(coder, "MatrixBatchNormalization");
  add<mps::MatrixBatchNormalizationGradient>(coder, "MatrixBatchNormalizationGradient");
  add<mps::NDArrayGather>(coder, "NDArrayGather");
  add<mps::NDArrayGatherGradient>(coder, "NDArrayGatherGradient");
  add<mps::NNOptimizerStochasticGradientDescent>(coder, "NNOptimizerStochasticGradientDescent");
  add<mps::NNOptimizerRMSProp>(coder, "NNOptimizerRMSProp");
  add<mps::NNOptimizerAdam>(coder, "NNOptimizerAdam");
  std::shared_ptr<mps::Kernel> kernel;
  coder.decode("kernel", kernel);
  coder.checkAllRead();
  return kernel;
}

Bytes encoded(const std::shared_ptr<mps::Kernel>& kernel) {
  mps::KeyedArchiver coder;
  coder.encode("kernel", kernel);
  return coder.encodedData();
}

/// The tree that bytes were made of last; of others, the one that they hold. libFuzzer changes an input several times
/// in turn. @throws mps::Error when they hold none
class LastTree {
 public:
  LastTree() noexcept(false) = default;  // as the constructor of JSON's null is, whatever it promises
  LastTree(const LastTree&) = delete;
  LastTree& operator=(const LastTree&) = delete;
  json& of(std::span<const std::uint8_t> bytes) {
    if (std::ranges::equal(bytes, bytes_)) return tree_;
    bytes_.clear();
    const mps::KeyedUnarchiver whole(std::as_bytes(bytes));
    tree_ = json::from_cbor(bytes.begin(), bytes.end());
    bytes_.assign(bytes.begin(), bytes.end());
    return tree_;
  }
  /// What the tree that was changed has become.
  const std::vector<std::uint8_t>& encode() {
    bytes_ = json::to_cbor(tree_);
    return bytes_;
  }

 private:
  std::vector<std::uint8_t> bytes_;
  json tree_;
};

/// Changes one value of a tree of values, so that what is around it stays whole.
class TreeMutator {
 public:
  explicit TreeMutator(unsigned seed) : random_(seed) {}

  void change(json& tree) {
    std::vector<json*> all;
    collect(tree, all);
    json& value = *all[below(all.size())];
    switch (below(8)) {
      case 0:
        value = json(*all[below(all.size())]);  // another value of the tree
        break;
      case 1:
        value = number();
        break;
      default:
        changeInKind(value);
    }
  }

 private:
  std::size_t below(std::size_t count) { return random_() % count; }

  static void collect(json& value, std::vector<json*>& all) {
    all.push_back(&value);
    if (!value.is_structured()) return;
    for (json& part : value) collect(part, all);
  }

  std::uint64_t number() {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t edges[] = {0,   1, 2, 3, 255, 65536, std::uint64_t{1} << 31U, std::uint64_t{1} << 62U,
                                   most};
    return edges[below(std::size(edges))];
  }

  void changeInKind(json& value) {
    if (value.is_boolean()) {
      value = !value.get<bool>();
    } else if (value.is_number_float()) {
      const double edges[] = {0.0,
                              -1.0,
                              0.5,
                              3e38,
                              1e300,
                              std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()};
      value = edges[below(std::size(edges))];
    } else if (value.is_number()) {
      value = below(2) == 0 ? number() : value.get<std::uint64_t>() + below(3) - 1;
    } else if (value.is_binary()) {
      auto& bytes = value.get_binary();
      if (below(4) == 0) bytes.resize(below(2 * bytes.size() + 9));
      if (!bytes.empty()) bytes[below(bytes.size())] = static_cast<std::uint8_t>(random_());
    } else if (value.is_object() && !value.empty()) {
      value.erase(std::next(value.begin(), static_cast<std::ptrdiff_t>(below(value.size()))));
    } else if (value.is_array() && !value.empty()) {
      const std::size_t item = below(value.size());
      if (below(2) == 0)
        value.erase(item);
      else
        value.push_back(json(value[item]));
    } else {
      value = number();
    }
  }

  std::mt19937 random_;
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return unmetal::fuzz::readUntrusted(data, size, [](std::span<const std::byte> bytes) {
    const Bytes once = encoded(decoded(bytes));
    if (std::ranges::equal(once, bytes)) return;  // the same bytes again would become the same again
    if (encoded(decoded(once)) != once) std::abort();
  });
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most,
                                               unsigned seed) {
  try {
    if (seed % 4 != 0) {
      static LastTree last;
      TreeMutator(seed).change(last.of({data, size}));
      const std::vector<std::uint8_t>& changed = last.encode();
      if (changed.size() <= most) {
        std::ranges::copy(changed, data);
        return changed.size();
      }
    }
  } catch (const mps::Error&) {
    // Bytes, then.
  }
  return LLVMFuzzerMutate(data, size, most);
}
