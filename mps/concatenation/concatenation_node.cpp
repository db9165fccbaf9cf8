#include "mps/concatenation/concatenation_node.hpp"

#include <algorithm>

#include "mps/concatenation/concatenation.hpp"
#include "mps/core/types/error.hpp"

namespace mps {
namespace {

std::size_t indexOf(const NNStateNode* state, const NNImageNode* source,
                    std::optional<std::size_t> sourceIndex) {
  const char* const name = "NNConcatenationGradientNode";
  const auto* const forward =
      state == nullptr ? nullptr : dynamic_cast<const NNConcatenationNode*>(state->producer());
  if (forward == nullptr)
    throw Error(name, "gradientState", "not that of a concatenation", "the state of an NNConcatenationNode");
  const auto sources = forward->sources();
  const auto is = [&](const auto& other) { return other.get() == source; };
  const std::size_t index =
      sourceIndex.value_or(static_cast<std::size_t>(std::ranges::find_if(sources, is) - sources.begin()));
  if (index >= sources.size() || !is(sources[index]))
    throw Error(name, "sourceImage", "not source " + std::to_string(index) + " of " + forward->describe(),
                "a source of the concatenation");
  return index;
}

}  // namespace

NNConcatenationNode::NNConcatenationNode(std::vector<std::shared_ptr<NNImageNode>> sources)
    : NNFilterNode(std::move(sources)) {
  if (this->sources().empty()) throw Error("NNConcatenationNode", "sources", "none", "at least 1");
  addResultState(std::make_unique<NNGradientStateNode>());
}

std::shared_ptr<NNConcatenationNode> NNConcatenationNode::create(
    ArrayRef<std::shared_ptr<NNImageNode>> sources) {
  return std::shared_ptr<NNConcatenationNode>(
      new NNConcatenationNode(std::vector(sources.begin(), sources.end())));
}

void NNConcatenationNode::setChannelAlignment(std::size_t channelAlignment) {
  if (channelAlignment != 1 && channelAlignment != 4)
    throw Error(describe(), "channelAlignment", std::to_string(channelAlignment), "1 or 4");
  channelAlignment_ = channelAlignment;
}

std::shared_ptr<Kernel> NNConcatenationNode::makeKernel(const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = NNConcatenation::create(device, sources().size());
  kernel->setChannelAlignment(channelAlignment_);
  configure(*kernel);
  return kernel;
}

std::vector<std::shared_ptr<NNGradientFilterNode>> NNConcatenationNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  std::vector<std::shared_ptr<NNGradientFilterNode>> filters;
  for (std::size_t i = 0; i < sources().size(); ++i)
    filters.push_back(NNConcatenationGradientNode::create(gradientImage, sources()[i], resultState(), i));
  return filters;
}

NNConcatenationGradientNode::NNConcatenationGradientNode(std::shared_ptr<NNImageNode> sourceGradient,
                                                         std::shared_ptr<NNImageNode> sourceImage,
                                                         std::shared_ptr<NNStateNode> gradientState,
                                                         std::size_t sourceIndex)
    : NNGradientFilterNode(std::move(sourceGradient), std::move(sourceImage), std::move(gradientState)),
      sourceIndex_(sourceIndex) {}

std::shared_ptr<NNConcatenationGradientNode> NNConcatenationGradientNode::create(
    std::shared_ptr<NNImageNode> sourceGradient, std::shared_ptr<NNImageNode> sourceImage,
    std::shared_ptr<NNStateNode> gradientState, std::optional<std::size_t> sourceIndex) {
  const std::size_t index = indexOf(gradientState.get(), sourceImage.get(), sourceIndex);
  return std::shared_ptr<NNConcatenationGradientNode>(new NNConcatenationGradientNode(
      std::move(sourceGradient), std::move(sourceImage), std::move(gradientState), index));
}

std::shared_ptr<Kernel> NNConcatenationGradientNode::makeKernel(
    const std::shared_ptr<mtl::Device>& device) const {
  auto kernel = NNConcatenationGradient::create(device, sourceIndex_);
  configure(*kernel);
  return kernel;
}

}  // namespace mps
