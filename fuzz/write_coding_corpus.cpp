#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/graph/check/test_network.hpp"

namespace {

/// As few steps and values as a graph that trains can have: most changes of a large one repeat each other.
std::shared_ptr<mps::NNGraph> smallGraph(const std::shared_ptr<mtl::Device>& device) {
  using namespace mps;
  const auto convolution =
      CNNConvolutionNode::create(NNImageNode::create(), test::layer(device, 1, 1, 2, "conv"));
  const auto loss = CNNLossNode::create(
      convolution->resultImage(),
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum));
  std::vector<std::shared_ptr<NNImageNode>> results;
  for (const auto& terminus : loss->trainingGraph(nullptr)) results.push_back(terminus->resultImage());
  return NNGraph::create(device, results, std::vector<bool>(results.size(), false));
}

}  // namespace

/// Writes corpus/coding: a kernel of every class and a graph that trains.
int main(int argc, char** argv) {
  using namespace mps;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const auto device = mtl::newCPUDevice(1);
  std::vector<std::shared_ptr<Kernel>> kernels;
  for (const test::KernelSample& one : test::everyKernel(device)) kernels.push_back(one.kernel);
  kernels.push_back(smallGraph(device));
  for (const auto& kernel : kernels) {
    KeyedArchiver archiver;
    archiver.encode("kernel", kernel);
    const std::vector<std::byte> bytes = archiver.encodedData();
    std::ofstream file(std::filesystem::path(argv[1]) / (kernel->className() + ".cbor"), std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  return 0;
}
