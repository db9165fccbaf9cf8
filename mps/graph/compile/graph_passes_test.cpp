#include "mps/graph/compile/graph_passes.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/batch_normalization/batch_normalization_node.hpp"
#include "mps/concatenation/concatenation_node.hpp"
#include "mps/conform/check_gradients.hpp"
#include "mps/graph/check/test_network.hpp"
#include "mps/graph/check/test_ranks_network.hpp"
#include "mps/trainable/trainable_batch_normalization.hpp"
#include "mtl/check/test_devices.hpp"

/// Graphs that are compiled without some passes.
namespace mps::graph_passes_test {
namespace {

using detail::GraphPasses;
using detail::kGraphPassNames;
using detail::LeaveOutPasses;
using enum ImageFeatureChannelFormat;

using Weights = std::vector<std::vector<float>>;

/// A network in which every pass has something to do.
class Network {
 public:
  explicit Network(const std::shared_ptr<mtl::Device>& device) : device_(device) {
    const auto convolution = [&](const auto& x, std::size_t in, const char* label) {
      layers_.push_back(test::layer(device, 3, in, 4, label));
      return CNNConvolutionNode::create(x, layers_.back())->resultImage();
    };
    const auto relu = [](const auto& x) { return CNNNeuronReLUNode::create(x)->resultImage(); };
    const auto first = relu(convolution(NNImageNode::create(), 1, "first"));
    const auto pooled = CNNPoolingMaxNode::create(first, 3, 1)->resultImage();
    const auto second = relu(convolution(pooled, 4, "second"));
    const auto normalized =
        CNNBatchNormalizationNode::create(
            convolution(second, 4, "branch"),
            TrainableBatchNormalization::create(device, 4, "normalization", test::sgd(device)))
            ->resultImage();
    const auto block = relu(NNAdditionNode::create(normalized, second)->resultImage());
    const auto both = NNConcatenationNode::create({block, pooled})->resultImage();
    const auto averaged = relu(CNNPoolingAverageNode::create(both, 3, 1)->resultImage());
    const auto bent = CNNNeuronSigmoidNode::create(averaged)->resultImage();
    layers_.push_back(test::layer(device, 8, 8, 3, "dense"));
    const auto scores = CNNFullyConnectedNode::create(bent, layers_.back())->resultImage();
    const auto loss = CNNLossNode::create(
        scores,
        CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum));
    std::vector<std::shared_ptr<NNImageNode>> results;
    for (const auto& terminus : loss->trainingGraph(nullptr)) results.push_back(terminus->resultImage());
    graph_ = NNGraph::create(device, results, std::vector<bool>(results.size(), false));
  }
  [[nodiscard]] NNGraph& graph() const { return *graph_; }
  /// What is computed by which step, after an encode in this format.
  [[nodiscard]] std::string description(ImageFeatureChannelFormat format) const {
    graph_->setFormat(format);
    test::train(*graph_, device_, 1);
    return graph_->debugDescription();
  }
  [[nodiscard]] Weights trained() const {
    test::train(*graph_, device_, 5);
    return test::weightsOf({layers_.begin(), layers_.end()}, device_);
  }

 private:
  std::shared_ptr<mtl::Device> device_;
  std::vector<std::shared_ptr<TrainableConvolution>> layers_;
  std::shared_ptr<NNGraph> graph_;
};

class LeftOutPasses : public ::testing::TestWithParam<std::shared_ptr<mtl::Device>> {
 protected:
  static std::string descriptions() {
    return Network(GetParam()).description(Float32) + Network(GetParam()).description(Float16);
  }
};

TEST_P(LeftOutPasses, ChangeWhatTheGraphRuns) {
  const std::string all = descriptions();
  for (std::size_t pass = 0; pass < kGraphPassNames.size(); ++pass) {
    const LeaveOutPasses scope(GraphPasses().set(pass));
    EXPECT_NE(descriptions(), all) << kGraphPassNames[pass];
  }
  EXPECT_EQ(descriptions(), all);
}

TEST_P(LeftOutPasses, AreThoseOfTheGraphsCreation) {
  const Network made(GetParam());
  const std::string all = Network(GetParam()).description(Float32);
  const LeaveOutPasses scope(GraphPasses().set());
  EXPECT_EQ(made.description(Float32), all);
}

TEST_P(LeftOutPasses, ChangeRoundingAlone) {
  const Weights expected = Network(GetParam()).trained();
  for (std::size_t pass = 0; pass <= kGraphPassNames.size(); ++pass) {
    const bool isAll = pass == kGraphPassNames.size();
    const LeaveOutPasses scope(isAll ? GraphPasses().set() : GraphPasses().set(pass));
    SCOPED_TRACE(isAll ? "all" : std::string(kGraphPassNames[pass]));
    const Network made(GetParam());
    const auto report =
        checkGradients(made.graph(), {test::pictures(GetParam(), 0)}, {test::labels(GetParam(), 0)});
    EXPECT_TRUE(report.passed()) << report.describe();
    test::expectClose(made.trained(), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, LeftOutPasses, ::testing::ValuesIn(mtl::copyAllDevices()),
                         mtl::testing::nameOf);

}  // namespace
}  // namespace mps::graph_passes_test
