#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "fuzz/fuzz_target.hpp"
#include "fuzz/tree_mutator.hpp"
#include "mps/batch_normalization/matrix_batch_normalization.hpp"
#include "mps/batch_normalization/matrix_neuron.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/gather/gather.hpp"
#include "mps/graph/coding/graph_coding.hpp"
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
  mps::detail::addGraphDecoders(coder);
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
      unmetal::fuzz::TreeMutator(seed).change(last.of({data, size}));
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
