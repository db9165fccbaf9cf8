#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "mps/arithmetic/arithmetic_node.hpp"
#include "mps/core/kernel/node.hpp"
#include "mps/core/types/error.hpp"

/// NNFilterNode::trainingGraph.
namespace mps {
namespace {

using Images = std::vector<std::shared_ptr<NNImageNode>>;
using Filters = std::vector<std::shared_ptr<NNFilterNode>>;

/// Forward filters that `last` depends on over images without stopGradient, in topological order.
Filters forwardFilters(const std::shared_ptr<NNFilterNode>& last) {
  Filters order;
  std::unordered_set<NNFilterNode*> seen;
  // Depth first with an explicit stack: networks are deep.
  struct Visit {
    std::shared_ptr<NNFilterNode> filter;
    std::size_t nextSource = 0;
  };
  std::vector<Visit> stack{{last, 0}};
  seen.insert(last.get());
  while (!stack.empty()) {
    Visit& visit = stack.back();
    if (visit.nextSource == visit.filter->sources().size()) {
      order.push_back(visit.filter);
      stack.pop_back();
      continue;
    }
    const auto& source = visit.filter->sources()[visit.nextSource++];
    NNFilterNode* producer = source->producer();
    if (producer != nullptr && !source->stopGradient() && seen.insert(producer).second)
      stack.push_back({producer->shared_from_this(), 0});
  }
  return order;
}

class TrainingGraphBuilder {
 public:
  TrainingGraphBuilder(std::shared_ptr<NNFilterNode> last, const GradientNodeBlock& handler)
      : last_(std::move(last)), handler_(handler) {}

  Filters build(const std::shared_ptr<NNImageNode>& sourceGradient) {
    const auto first = sourceGradient ? sourceGradient : last_->resultImage();
    Filters forward = forwardFilters(last_);
    if (last_->isItsOwnGradient()) {
      forward.pop_back();
      contribute(last_->sources()[0], first);
    } else {
      contribute(last_->resultImage(), first);
    }
    for (auto filter = forward.rbegin(); filter != forward.rend(); ++filter) propagate(**filter);
    for (const auto& input : inputs_) join(input, contributions_[input.get()]);
    return termini();
  }

 private:
  void contribute(const std::shared_ptr<NNImageNode>& image, const std::shared_ptr<NNImageNode>& gradient) {
    Images& gradients = contributions_[image.get()];
    if (gradients.empty() && image->producer() == nullptr) inputs_.push_back(image);
    gradients.push_back(gradient);
  }

  void propagate(NNFilterNode& filter) {
    const auto result = filter.resultImage();
    const auto found = contributions_.find(result.get());
    if (found == contributions_.end() || result->stopGradient()) return;
    const auto gradient = join(result, found->second);
    if (!gradient) return;
    const auto gradientFilters = filter.gradientFilters(gradient);
    for (std::size_t i = 0; i < gradientFilters.size(); ++i) {
      if (!filter.buildsGradientOf(i)) continue;
      const auto source = filter.sources()[i];
      announce(gradientFilters[i], filter.shared_from_this(), source, gradient);
      const auto sourceGradient = gradientFilters[i]->resultImage();
      if (!source->stopGradient() && !sourceGradient->stopGradient()) contribute(source, sourceGradient);
    }
  }

  /// The sum of all contributions to an image, added in the order in which they arrived. Null where the handler
  /// stops at one of the additions: there is no whole gradient then, and nothing is built on a part of it.
  std::shared_ptr<NNImageNode> join(const std::shared_ptr<NNImageNode>& image, const Images& gradients) {
    auto sum = gradients.front();
    for (std::size_t i = 1; i < gradients.size(); ++i) {
      auto addition = NNAdditionNode::create(sum, gradients[i]);
      consumed_.insert(gradients[i].get());
      announce(addition, nullptr, image, gradients[i], sum);
      sum = addition->resultImage();
      if (sum->stopGradient() || image->stopGradient()) return nullptr;
    }
    return sum;
  }

  void announce(const std::shared_ptr<NNFilterNode>& node, const std::shared_ptr<NNFilterNode>& forward,
                const std::shared_ptr<NNImageNode>& source, const std::shared_ptr<NNImageNode>& gradient,
                const std::shared_ptr<NNImageNode>& other = nullptr) {
    created_.push_back(node);
    consumed_.insert(gradient.get());
    if (other) consumed_.insert(other.get());
    if (handler_)
      handler_(node, forward, source, gradient);
    else
      node->resultImage()->setHandle(source->handle());
  }

  [[nodiscard]] Filters termini() const {
    Filters ends;
    for (const auto& node : created_)
      if (!consumed_.contains(node->resultImage().get())) ends.push_back(node);
    return ends;
  }

  std::shared_ptr<NNFilterNode> last_;
  const GradientNodeBlock& handler_;
  std::unordered_map<const NNImageNode*, Images> contributions_;
  Images inputs_;
  Filters created_;
  std::unordered_set<const NNImageNode*> consumed_;
};

}  // namespace

std::vector<std::shared_ptr<NNFilterNode>> NNFilterNode::trainingGraph(
    const std::shared_ptr<NNImageNode>& sourceGradient, const GradientNodeBlock& nodeHandler) {
  return TrainingGraphBuilder(shared_from_this(), nodeHandler).build(sourceGradient);
}

}  // namespace mps
