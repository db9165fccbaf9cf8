#include "mps/convolution/convolution_weights.hpp"

#include <cstdint>
#include <cstring>
#include <vector>

#include "mps/core/coding/coded_floats.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/layer/loaded_source.hpp"
#include "mps/core/types/error.hpp"
#include "mps/core/types/float16.hpp"
#include "mtl/buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

bool hasBiasTerms(const std::string& kernel, CNNConvolutionDataSource& source) {
  bool found = false;
  readLoaded(kernel, "weights", source, [&] { found = !source.biasTerms().empty(); });
  return found;
}

std::vector<float> decode8Bit(const std::string& kernel, const CNNConvolutionDataSource& source,
                              const CNNConvolutionDescriptor& descriptor, std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size());
  const std::size_t perChannel = descriptor.weightsPerOutputChannel();
  if (source.weightsQuantizationType() == CNNWeightsQuantizationType::Linear) {
    const auto ranges = source.rangesForUInt8Kernel();
    if (ranges.size() != descriptor.outputFeatureChannels())
      throw Error(kernel, "rangesForUInt8Kernel", std::to_string(ranges.size()) + " ranges",
                  std::to_string(descriptor.outputFeatureChannels()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto& [least, most] = ranges[i / perChannel];
      values[i] = static_cast<float>(std::to_integer<int>(bytes[i])) / 255.0F * (most - least) + least;
    }
    return values;
  }
  const auto table = source.lookupTableForUInt8Kernel();
  if (source.weightsQuantizationType() != CNNWeightsQuantizationType::LookupTable || table.size() != 256)
    throw Error(kernel, "weightsQuantizationType", "none, or a lookup table of another size than 256",
                "ranges or a table for UInt8 weights");
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = table[std::to_integer<std::size_t>(bytes[i])];
  return values;
}

std::vector<float> decode(const std::string& kernel, const CNNConvolutionDataSource& source,
                          const CNNConvolutionDescriptor& descriptor) {
  if (source.weightsLayout() != CNNConvolutionWeightsLayout::OHWI)
    throw Error(kernel, "weightsLayout", std::to_string(static_cast<std::uint32_t>(source.weightsLayout())),
                "OHWI");
  const auto bytes = source.weights();
  const std::size_t count = descriptor.weightCount();
  const std::size_t size = sizeInBytes(source.dataType());
  if (bytes.size() != count * size)
    throw Error(kernel, "weights", std::to_string(bytes.size()) + " bytes",
                std::to_string(count * size) + " for " + descriptor.describe());
  switch (source.dataType()) {
    case DataType::Float32: {
      std::vector<float> values(count);
      std::memcpy(values.data(), bytes.data(), bytes.size());
      return values;
    }
    case DataType::Float16: {
      std::vector<float> values(count);
      for (std::size_t i = 0; i < count; ++i) {
        Float16 half;
        std::memcpy(&half.bits, bytes.data() + 2 * i, 2);
        values[i] = toFloat(half);
      }
      return values;
    }
    case DataType::UInt8:
      return decode8Bit(kernel, source, descriptor, bytes);
    default:
      throw Error(kernel, "dataType", name(source.dataType()), "Float32, Float16 or UInt8");
  }
}

void checkCounts(const std::string& kernel, const char* argument,
                 const CNNConvolutionWeightsAndBiasesState& state,
                 const CNNConvolutionDescriptor& descriptor) {
  const std::size_t channels = descriptor.outputFeatureChannels();
  if (state.weightCount() != descriptor.weightCount() ||
      (state.biasCount() != 0 && state.biasCount() != channels))
    throw Error(
        kernel, argument,
        std::to_string(state.weightCount()) + " weights and " + std::to_string(state.biasCount()) + " biases",
        std::to_string(descriptor.weightCount()) + " and " + std::to_string(channels) + " (or none)");
}

std::shared_ptr<mtl::Memory> upload(mtl::Device& device, std::span<const float> values) {
  auto memory = device.allocate(values.size_bytes());
  std::memcpy(memory->contents(), values.data(), values.size_bytes());
  memory->didModifyRange(0, values.size_bytes());
  return memory;
}

}  // namespace

std::shared_ptr<const ConvolutionWeights> ConvolutionWeights::read(
    const std::string& kernel, const std::shared_ptr<mtl::Device>& device, CNNConvolutionDataSource& source,
    const CNNConvolutionDescriptor& descriptor) {
  auto result = std::make_shared<ConvolutionWeights>();
  if (const auto live = source.deviceWeightsAndBiases(device)) {
    checkCounts(kernel, "deviceWeightsAndBiases", *live, descriptor);
    result->weights_ = live->weights()->memory();
    result->weightsOffset_ = live->weightsOffset();
    result->shared_ = true;
    // docs/decisions.md, D26
    const bool isUnused = live->mayHaveUnusedBiases() && !hasBiasTerms(kernel, source);
    const auto biases = live->biases();
    if (!biases || isUnused) return result;
    result->biases_ = biases->memory();
    result->biasesOffset_ = live->biasesOffset();
    return result;
  }
  std::vector<float> weights, biases;
  const std::size_t channels = descriptor.outputFeatureChannels();
  readLoaded(kernel, "weights", source, [&] {
    weights = decode(kernel, source, descriptor);
    const auto terms = source.biasTerms();
    if (!terms.empty() && terms.size() != channels)
      throw Error(kernel, "biasTerms", std::to_string(terms.size()) + " values",
                  std::to_string(channels) + " or none");
    biases.assign(terms.begin(), terms.end());
  });
  if (const auto& folding = descriptor.folding()) {
    biases.resize(channels);
    for (std::size_t k = 0; k < channels; ++k) biases[k] = biases[k] * folding->scale[k] + folding->shift[k];
    const std::size_t perChannel = descriptor.weightsPerOutputChannel();
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] *= folding->scale[i / perChannel];
  }
  result->weights_ = upload(*device, weights);
  if (!biases.empty()) result->biases_ = upload(*device, biases);
  return result;
}

std::shared_ptr<const ConvolutionWeights> ConvolutionWeights::reloaded(
    const std::string& kernel, mtl::CommandBuffer& commandBuffer, CNNConvolutionWeightsAndBiasesState& state,
    const CNNConvolutionDescriptor& descriptor) const {
  checkCounts(kernel, "state", state, descriptor);
  auto result = std::make_shared<ConvolutionWeights>();
  result->weights_ = recordReload(commandBuffer, kernel, {state.weights()->memory(), state.weightsOffset()},
                                  {weights_, weightsOffset_}, descriptor.weightCount() * sizeof(float));
  const auto biases = state.biases();
  // A layer without biases has none for good, whatever the state holds (docs/decisions.md, D26).
  if (biases_)
    result->biases_ = recordReload(
        commandBuffer, kernel, biases ? MemoryPlace{biases->memory(), state.biasesOffset()} : MemoryPlace{},
        {biases_, biasesOffset_}, descriptor.outputFeatureChannels() * sizeof(float));
  return result;
}

void ConvolutionWeights::copyTo(const std::string& kernel, mtl::CommandBuffer& commandBuffer,
                                CNNConvolutionWeightsAndBiasesState& state) const {
  recordMemoryCopy(commandBuffer, kernel, weights_, weightsOffset_, state.weights()->memory(),
                   state.weightsOffset(), state.weightCount() * sizeof(float));
  if (biases_)
    recordMemoryCopy(commandBuffer, kernel, biases_, biasesOffset_, state.biases()->memory(),
                     state.biasesOffset(), state.biasCount() * sizeof(float));
}

std::shared_ptr<const ConvolutionWeights> ConvolutionWeights::code(
    Coder& coder, mtl::Device& device, const std::shared_ptr<const ConvolutionWeights>& weights,
    const std::shared_ptr<const ConvolutionWeights>& usual, const CNNConvolutionDescriptor& descriptor) {
  const ConvolutionWeights& own = weights ? *weights : *usual;
  const std::size_t count = descriptor.weightCount();
  const std::size_t channels = descriptor.outputFeatureChannels();
  const auto values = codeUnusualFloats(coder, "weights", device, {own.weights_, own.weightsOffset_, count},
                                        {usual->weights_, usual->weightsOffset_, count}, count);
  const auto biases = codeUnusualFloats(coder, "biases", device, {own.biases_, own.biasesOffset_, channels},
                                        {usual->biases_, usual->biasesOffset_, channels}, channels, true);
  if (!values && !biases) return usual;
  // Those of the data source are not the kernel's to change: what was read stands beside the others.
  auto result = std::make_shared<ConvolutionWeights>(*usual);
  if (values) {
    result->weights_ = upload(device, *values);
    result->weightsOffset_ = 0;
  }
  if (biases) {
    result->biases_ = biases->empty() ? nullptr : upload(device, *biases);
    result->biasesOffset_ = 0;
  }
  result->shared_ = false;
  return result;
}

}  // namespace mps::detail
