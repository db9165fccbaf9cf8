#include "mps/core/kernel/node.hpp"

#include "mps/core/kernel/cnn_binary_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/cnn_multiary_kernel.hpp"
#include "mps/core/types/error.hpp"

namespace mps {

std::shared_ptr<NNImageNode> NNImageNode::create(std::shared_ptr<Handle> handle) {
  auto node = std::shared_ptr<NNImageNode>(new NNImageNode(nullptr));
  node->handle_ = std::move(handle);
  return node;
}

std::shared_ptr<NNImageNode> NNImageNode::exportedNodeWithHandle(std::shared_ptr<Handle> handle) {
  auto node = create(std::move(handle));
  node->setExportFromGraph(true);
  return node;
}

NNFilterNode::NNFilterNode(std::vector<std::shared_ptr<NNImageNode>> sources,
                           std::vector<std::shared_ptr<NNStateNode>> sourceStates)
    : sources_(std::move(sources)), sourceStates_(std::move(sourceStates)), resultImage_(this) {
  for (const auto& source : sources_)
    if (!source) throw Error("NNFilterNode", "source", "null", "an image node");
  for (const auto& state : sourceStates_)
    if (!state) throw Error("NNFilterNode", "gradientState", "null", "the state node of the forward filter");
  if (!sources_.empty()) resultImage_.setFormat(sources_.front()->format());
}

void NNFilterNode::handOver(std::vector<Hold>& holds) {
  for (auto& source : sources_) {
    NNFilterNode* const producer = source->producer();
    holds.push_back({std::move(source), producer});
  }
  for (auto& state : sourceStates_) {
    NNFilterNode* const producer = state->producer();
    holds.push_back({std::move(state), producer});
  }
  sources_.clear();
  sourceStates_.clear();
}

bool NNFilterNode::Hold::isLast() const {
  if (producer == nullptr || resource.use_count() != 1) return false;
  const std::weak_ptr<const NNFilterNode> node = producer->weak_from_this();
  return !resource.owner_before(node) && !node.owner_before(resource);
}

// A producer that nobody else holds would let go of its own producer in its destructor, and so on, as deep as the
// network is long: it hands over what it holds first.
NNFilterNode::~NNFilterNode() {
  std::vector<Hold> holds;
  handOver(holds);
  while (!holds.empty()) {
    const Hold hold = std::move(holds.back());
    holds.pop_back();
    if (hold.isLast()) hold.producer->handOver(holds);
  }
}

// Results live inside their node, so a result keeps the node alive and the node needs no reference back.
std::shared_ptr<NNImageNode> NNFilterNode::resultImage() {
  return {shared_from_this(), &resultImage_};
}

std::vector<std::shared_ptr<NNStateNode>> NNFilterNode::resultStates() {
  std::vector<std::shared_ptr<NNStateNode>> states;
  for (const auto& state : resultStates_)
    states.push_back(std::shared_ptr<NNStateNode>(shared_from_this(), state.get()));
  return states;
}

std::shared_ptr<NNStateNode> NNFilterNode::resultState() {
  if (resultStates_.empty()) return nullptr;
  return {shared_from_this(), resultStates_.front().get()};
}

void NNFilterNode::addResultState(std::unique_ptr<NNStateNode> state) {
  state->producer_ = this;
  resultStates_.push_back(std::move(state));
}

void NNFilterNode::setPaddingPolicy(std::shared_ptr<NNPadding> policy) {
  if (!policy) throw Error(describe(), "paddingPolicy", "null", "a padding policy");
  paddingPolicy_ = std::move(policy);
}

std::string NNFilterNode::describe() const {
  return label_.empty() ? className() : className() + " \"" + label_ + "\"";
}

void NNFilterNode::configure(Kernel& kernel) const {
  if (!label_.empty()) kernel.setLabel(label_);
  if (auto* unary = dynamic_cast<CNNKernel*>(&kernel)) unary->setPadding(paddingPolicy_);
  if (auto* binary = dynamic_cast<CNNBinaryKernel*>(&kernel); binary != nullptr && !isGradient())
    binary->setPadding(paddingPolicy_);
  if (auto* multiary = dynamic_cast<CNNMultiaryKernel*>(&kernel)) multiary->setPadding(paddingPolicy_);
}

std::vector<std::shared_ptr<NNGradientFilterNode>> NNFilterNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& /*gradientImage*/) {
  if (isItsOwnGradient())
    throw Error(
        describe() +
        " has no gradient node: its result is the gradient of its source; call trainingGraph with null");
  throw Error(describe() +
              " has no gradient; set stopGradient on its result, or keep it in a graph of its own");
}

std::vector<std::shared_ptr<NNGradientFilterNode>> NNFilterNode::gradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  if (!gradientImage) throw Error(describe(), "gradientImage", "null", "an image node");
  auto filters = makeGradientFilters(gradientImage);
  for (const auto& filter : filters) NNGradientFilterNode::mirror(*filter, *this);
  return filters;
}

std::vector<std::shared_ptr<NNGradientFilterNode>> NNFilterNode::gradientFilters(
    ArrayRef<std::shared_ptr<NNImageNode>> gradientImages) {
  if (gradientImages.size() != 1)
    throw Error(describe(), "gradientImages", std::to_string(gradientImages.size()) + " images", "exactly 1");
  return gradientFilters(gradientImages[0]);
}

std::shared_ptr<NNGradientFilterNode> NNFilterNode::gradientFilter(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  if (!hasMainSource() && !isGradient())
    throw Error(describe() + ": gradientFilter is for filters with one input; call gradientFilters");
  return gradientFilters(gradientImage).front();
}

std::shared_ptr<NNGradientFilterNode> NNFilterNode::gradientFilter(
    ArrayRef<std::shared_ptr<NNImageNode>> gradientImages) {
  if (gradientImages.size() != 1)
    throw Error(describe(), "gradientImages", std::to_string(gradientImages.size()) + " images", "exactly 1");
  return gradientFilter(gradientImages[0]);
}

namespace {

std::vector<std::shared_ptr<NNImageNode>> withFurther(std::vector<std::shared_ptr<NNImageNode>> sources,
                                                      ArrayRef<std::shared_ptr<NNImageNode>> furtherSources) {
  sources.insert(sources.end(), furtherSources.begin(), furtherSources.end());
  return sources;
}

}  // namespace

NNGradientFilterNode::NNGradientFilterNode(std::shared_ptr<NNImageNode> sourceGradient,
                                           std::shared_ptr<NNImageNode> sourceImage,
                                           std::shared_ptr<NNStateNode> gradientState,
                                           ArrayRef<std::shared_ptr<NNImageNode>> furtherSources)
    : NNFilterNode(withFurther({sourceGradient, sourceImage}, furtherSources),
                   gradientState ? std::vector{gradientState} : std::vector<std::shared_ptr<NNStateNode>>{}),
      sourceGradient_(std::move(sourceGradient)),
      sourceImage_(std::move(sourceImage)),
      gradientState_(std::move(gradientState)) {}

std::vector<std::shared_ptr<NNGradientFilterNode>> NNGradientFilterNode::makeGradientFilters(
    const std::shared_ptr<NNImageNode>& gradientImage) {
  const NNFilterNode* forward = gradientState_ ? gradientState_->producer() : nullptr;
  const NNFilterNode* giver = gradientImage->producer();
  throw Error(
      describe() + (forward != nullptr ? ", the gradient of " + forward->describe() : std::string()) +
      ": no second derivatives" +
      (giver != nullptr ? " (asked for the gradient made by " + giver->describe() + ")" : std::string()));
}

void NNGradientFilterNode::mirror(NNGradientFilterNode& gradient, const NNFilterNode& forward) {
  if (!forward.label().empty()) gradient.setLabel(forward.label() + " gradient");
  if (auto inverse = forward.paddingPolicy()->inverse()) gradient.setPaddingPolicy(std::move(inverse));
}

}  // namespace mps
