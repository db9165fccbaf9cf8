#include "mps/conform/timing/kernel_bench.hpp"
#include "mps/neuron/neuron.hpp"

namespace mps::detail {
namespace {

/// What a graph makes of the gradient of a ReLU at which two gradients meet.
void benchGradientOfSum(Bench& bench, ImageFeatureChannelFormat format) {
  const auto relu = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU);
  const auto forward = CNNNeuron::create(bench.device(), relu);
  const auto gradient = CNNNeuronGradient::create(bench.device(), relu);
  static_cast<NeuronGradientKernel&>(*gradient).setUsesResult(true);
  ImageKernel& ofGraph = *gradient;
  const ImageDescriptor image(format, 56, 56, 64);
  const std::int64_t batch = bench.batchFor(4 * bytesOf(image));
  const BenchKey key{gradient->className(), Direction::Gradient, format, "56x56x64 ReLU of a sum", batch};
  if (!bench.isSelected(key.describe())) return;
  const auto count = static_cast<std::size_t>(batch);
  std::vector<ImageBatch> sources;  // two gradients around the result
  for (int i = 0; i < 3; ++i) sources.push_back(benchImages(bench.device(), image, count));
  const ImageBatch source = benchImages(bench.device(), image, count);
  const ImageBatch results = ImageBatch::create(bench.device(), image, count);
  const StateBatch states = forward->resultStateBatch(results);
  const auto commandBuffer = bench.device()->newCommandQueue()->commandBuffer();
  forward->encodeBatch(commandBuffer, source, states, results);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  bench.kernel(key, {.bytes = 4 * static_cast<double>(batch) * static_cast<double>(bytesOf(image))},
               [&](const auto& buffer) {
                 ofGraph.encodeGraphStep(buffer, {sources, {&states, 1}, {}, results, false});
               });
}

}  // namespace

void benchNeuron(Bench& bench) {
  const auto addShape = [&](const std::string& shape, std::size_t size, std::int64_t batch,
                            const NNNeuronDescriptor& neuron, bool hasSides) {
    // A byte of sides for four values, in place of the source.
    benchPair(bench, {.forward = CNNNeuron::create(bench.device(), neuron),
                      .gradient = CNNNeuronGradient::create(bench.device(), neuron),
                      .shape = shape,
                      .source = {ImageFeatureChannelFormat::Float32, size, size, 64},
                      .gradientReads = hasSides ? BenchPair::Input::Nothing : BenchPair::Input::Source,
                      .savedBytesPerValue = hasSides ? 0.25 : 0,
                      .batch = batch});
  };
  const auto add = [&](const char* name, const NNNeuronDescriptor& neuron, bool hasSides = false) {
    addShape(std::string("56x56x64 ") + name, 56, 0, neuron, hasSides);
  };
  const auto relu = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::ReLU);
  const auto sigmoid = NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::Sigmoid);
  add("ReLU", relu, true);
  add("Sigmoid", sigmoid);
  add("TanH", NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::TanH, 1.0F, 1.0F));
  add("GeLU", NNNeuronDescriptor::cnnNeuronDescriptor(CNNNeuronType::GeLU));
  add("PReLU", NNNeuronDescriptor::cnnNeuronPReLUDescriptor(std::vector<float>(64, 0.25F)), true);
  addShape("112x112x64 ReLU", 112, kLargeImageBatch, relu, true);
  addShape("112x112x64 Sigmoid", 112, kLargeImageBatch, sigmoid, false);
  for (const auto format : {ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float16})
    benchGradientOfSum(bench, format);
}

}  // namespace mps::detail
