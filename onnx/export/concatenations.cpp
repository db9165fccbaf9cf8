#include "mps/concatenation/concatenation.hpp"
#include "onnx/export/step.hpp"

/// Channels side by side.
namespace unmetal::onnx::detail {
namespace {

/// The part of a source that is read.
Picture readPart(const Step& step, const mps::NNConcatenation& concatenation, std::size_t index) {
  const Picture part = step.channels(step.sources[index], concatenation.sourceFeatureChannelOffset(index),
                                     concatenation.sourceFeatureChannelMaxCount(index));
  const mps::Offset offset = concatenation.offset(index);
  return step.pixels(part, {offset.x, offset.y, step.result.width, step.result.height},
                     mps::ImageEdgeMode::Zero);
}

/// Channels of zeros behind it, up to a multiple of the alignment.
std::string rounded(const Step& step, const Picture& part, std::size_t alignment) {
  const auto multiple = static_cast<std::int64_t>(alignment);
  const std::int64_t missing = (multiple - part.channels % multiple) % multiple;
  if (missing == 0) return part.value;
  return step.pad(part.value, {0, 0, 0, 0, 0, missing, 0, 0});
}

}  // namespace

std::optional<std::string> translateConcatenation(const Step& step) {
  const auto* concatenation = step.as<mps::NNConcatenation>();
  if (concatenation == nullptr) return std::nullopt;
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < step.sources.size(); ++i)
    parts.push_back(rounded(step, readPart(step, *concatenation, i), concatenation->channelAlignment()));
  return step.add("Concat", std::move(parts), {{"axis", std::int64_t{1}}});
}

}  // namespace unmetal::onnx::detail
