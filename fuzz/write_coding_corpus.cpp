#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "mps/core/coder.hpp"
#include "mps/graph/coded_kernels.hpp"
#include "mps/graph/test_network.hpp"

/// Writes corpus/coding: a kernel of every class and a graph that trains.
int main(int argc, char** argv) {
  using namespace mps;
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  const auto device = mtl::newCPUDevice(1);
  std::vector<std::shared_ptr<Kernel>> kernels;
  for (const test::CodedKernel& one : test::everyKernel(device)) kernels.push_back(one.kernel);
  const test::SmallNetwork network(test::layer(device, 3, 1, 4, "conv"),
                                   test::layer(device, 4, 4, 3, "dense"));
  kernels.push_back(network.trainingGraph(device));
  for (const auto& kernel : kernels) {
    KeyedArchiver archiver;
    archiver.encode("kernel", kernel);
    const std::vector<std::byte> bytes = archiver.encodedData();
    std::ofstream file(std::filesystem::path(argv[1]) / (kernel->className() + ".cbor"), std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  return 0;
}
