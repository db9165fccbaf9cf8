#include <string>
#include <string_view>

#include "fuzz/fuzz_target.hpp"
#include "mtl/device.hpp"
#include "onnx/import/graph_import.hpp"
#include "onnx/model/external_data.hpp"
#include "train/network/network_text.hpp"

/// A model, with its sizes and with others where it leaves them open. Weights are not made: their number follows the layers.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace onnx = unmetal::onnx;
  namespace train = unmetal::train;
  static const auto device = mtl::newCPUDevice(1);
  static constexpr std::string_view beside("\0\0\0\x3f\0\0\x80\x3f\1\0\0\0\0\0\0\0", 16);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const auto& pictures : {std::optional<train::Shape>(), std::optional(train::Shape{8, 8, 3})})
    unmetal::fuzz::readUntrusted(data, size, [&](std::span<const std::byte> /*bytes*/) {
      onnx::detail::ModelMessage model = onnx::detail::readModel(bytes);
      onnx::detail::attachExternalData(model, [](const std::string& /*name*/) { return beside; });
      onnx::detail::ImportSettings settings;
      settings.network.device = device;
      settings.pictures = pictures;
      const auto made = onnx::detail::GraphImport(model, settings).run();
      const auto& layers = made.network.layers();
      std::size_t withWeights = 0;
      std::size_t numbers = 0;
      for (const train::Layer& layer : layers) {
        if (layer.shape.count() == 0) std::abort();
        if (layer.parameters.empty()) continue;
        ++withWeights;
        // Each parameter has as many numbers as its shape says.
        const auto& weights = made.weights.at(layer.label);
        if (weights.size() != layer.parameters.size()) std::abort();
        for (std::size_t i = 0; i < weights.size(); ++i) {
          numbers += layer.parameters[i].count();
          constexpr std::size_t most = 1U << 16U;
          if (numbers < most && weights[i]().size() != layer.parameters[i].count()) std::abort();
        }
      }
      if (withWeights != made.weights.size()) std::abort();
      // What was read is written, and read again.
      const auto again = train::detail::networkOfText(train::detail::networkText(layers), {.device = device},
                                                      {}, train::detail::TextOf::Weights);
      if (again.network.layers().size() != layers.size()) std::abort();
    });
  return 0;
}
