#include <string>

#include "fuzz/fuzz_target.hpp"
#include "mtl/device.hpp"
#include "train/network/network_text.hpp"

using namespace unmetal::train;

/// The text of a user's file, and that in the metadata of weights. No layer gets memory before its tensors were looked at.
int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto device = mtl::newCPUDevice(1);
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const auto textOf : {detail::TextOf::User, detail::TextOf::Weights})
    for (const LoadOptions& loading : {LoadOptions{}, LoadOptions{3, Shape{8, 8, 1}}})
      unmetal::fuzz::readUntrusted(data, size, [&](std::span<const std::byte> /*bytes*/) {
        const auto made = detail::networkOfText(text, {.device = device}, loading, textOf);
        const auto& layers = made.network.layers();
        for (const Layer& layer : layers)
          if (layer.shape.count() == 0) std::abort();
        if (loading.classes != 0 && made.network.outputShape().channels != loading.classes) std::abort();
        if (made.newHead) static_cast<void>(made.network.layer(*made.newHead));
        // What was read is written, and read again.
        const auto again = detail::networkOfText(detail::networkText(layers), {.device = device}, {}, textOf);
        if (again.network.layers().size() != layers.size()) std::abort();
      });
  return 0;
}
