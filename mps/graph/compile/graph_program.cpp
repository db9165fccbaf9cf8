#include "mps/graph/compile/graph_program.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "mps/core/kernel/graph_traits.hpp"
#include "mps/core/layer/layer_kernel.hpp"
#include "mps/core/types/error.hpp"

namespace mps::detail {
namespace {

using Filter = std::shared_ptr<NNFilterNode>;

/// Stands in for a node without handle, so that counts and indices stay right.
class PlaceHolder final : public Handle {};

std::shared_ptr<Handle> handleOf(const std::shared_ptr<Handle>& handle) {
  return handle ? handle : std::make_shared<PlaceHolder>();
}

/// Something that a filter reads: an image or a state, made by a filter or an input of the graph.
struct Link {
  NNFilterNode* producer;
  const void* node;
};

/// Images, then states.
std::vector<Link> linksOf(const NNFilterNode& filter) {
  std::vector<Link> links;
  for (const auto& source : filter.sources()) links.push_back({source->producer(), source.get()});
  for (const auto& state : filter.sourceStates()) links.push_back({state->producer(), state.get()});
  return links;
}

/// Depth-first order from the results over image and state links: whatever is needed comes first.
class Order {
 public:
  explicit Order(const std::vector<std::shared_ptr<NNImageNode>>& results) {
    for (const auto& result : results)
      if (result->producer() != nullptr) visit(result->producer()->shared_from_this());
  }
  [[nodiscard]] const std::vector<Filter>& filters() const { return filters_; }
  /// Position at which an input was first met.
  [[nodiscard]] std::size_t rankOf(const void* input) const { return inputs_.at(input); }

 private:
  struct Visit {
    Filter filter;
    std::vector<Link> links;
    std::size_t next = 0;
  };

  void visit(const Filter& last) {
    if (done_.contains(last.get())) return;
    std::vector<Visit> stack;
    const auto enter = [&](const Filter& filter) {
      if (!open_.insert(filter.get()).second)
        throw Error("NNGraph", "resultImages", "a network with a cycle through " + filter->describe(),
                    "one without");
      stack.push_back({filter, linksOf(*filter), 0});
    };
    enter(last);
    while (!stack.empty()) {
      Visit& visit = stack.back();
      if (visit.next == visit.links.size()) {
        filters_.push_back(visit.filter);
        done_.insert(visit.filter.get());
        open_.erase(visit.filter.get());
        stack.pop_back();
        continue;
      }
      const Link link = visit.links[visit.next++];
      if (link.producer == nullptr)
        inputs_.emplace(link.node, inputs_.size());
      else if (!done_.contains(link.producer))
        enter(link.producer->shared_from_this());
    }
  }

  std::vector<Filter> filters_;
  std::unordered_set<const NNFilterNode*> done_;
  std::unordered_set<const NNFilterNode*> open_;
  std::unordered_map<const void*, std::size_t> inputs_;
};

/// Whether a kernel sums its sources up as they are.
bool isUnitSum(const ImageKernel& kernel) {
  const SumTraits sum = kernel.sumTraits();
  return sum.handsGradientOn[0] && sum.handsGradientOn[1];
}

NNTrainingStyle styleOf(const NNFilterNode& filter) {
  const auto* trainable = dynamic_cast<const NNTrainableNode*>(&filter);
  return trainable != nullptr && filter.isGradient() ? trainable->trainingStyle()
                                                     : NNTrainingStyle::UpdateDeviceNone;
}

/// Whether a filter writes its gradient into a state that is handed out.
bool writesExportedState(const NNFilterNode& filter) {
  return filter.isGradient() && std::ranges::any_of(filter.sourceStates(), [](const auto& state) {
           return state->exportFromGraph() && state->producer() != nullptr;
         });
}

/// What makes no kernel says of which layer.
std::shared_ptr<ImageKernel> kernelOf(const NNFilterNode& filter,
                                      const std::shared_ptr<mtl::Device>& device) {
  try {
    return kernelOfStep(filter.describe(), filter.makeKernel(device));
  } catch (const Error& error) {
    if (filter.label().empty()) throw;
    if (error.kernel().empty()) throw Error(filter.describe() + ": " + error.what());
    throw Error(filter.describe() + ": " + error.kernel(), error.argument(), error.found(), error.expected());
  }
}

/// Filters that something needs: a result, an export, an update, a loss value.
std::unordered_set<const NNFilterNode*> liveFilters(
    const std::vector<Filter>& order, const std::unordered_set<const NNImageNode*>& neededResults) {
  std::unordered_set<const NNFilterNode*> live;
  std::unordered_set<const NNFilterNode*> wanted;  // something live depends on it
  for (auto filter = order.rbegin(); filter != order.rend(); ++filter) {
    NNFilterNode& node = **filter;
    bool needed = wanted.contains(&node) || styleOf(node) != NNTrainingStyle::UpdateDeviceNone ||
                  node.isItsOwnGradient() || node.resultImage()->exportFromGraph() ||
                  writesExportedState(node) || neededResults.contains(node.resultImage().get());
    for (const auto& state : node.resultStates()) needed = needed || state->exportFromGraph();
    if (!needed) continue;
    live.insert(&node);
    for (const Link& link : linksOf(node)) wanted.insert(link.producer);
  }
  return live;
}

class Compiler {
 public:
  Compiler(const std::shared_ptr<mtl::Device>& device,
           const std::vector<std::shared_ptr<NNImageNode>>& results, const std::vector<bool>& needed)
      : device_(device), program_(std::make_shared<GraphProgram>()) {
    std::unordered_set<const NNImageNode*> neededResults;
    for (std::size_t i = 0; i < results.size(); ++i)
      if (needed[i]) neededResults.insert(results[i].get());
    const Order order(results);
    const auto live = liveFilters(order.filters(), neededResults);
    for (const auto& filter : order.filters())
      if (live.contains(filter.get())) addStep(filter);
    createUpdates(*program_, styles_);
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (!needed[i]) {
        program_->results.push_back(nowhere);
        continue;
      }
      const ImageIndex image = imageOf(results[i]);
      if (program_->images[image].producer == nowhere)
        throw Error("NNGraph", "resultImages", "an input of the graph", "the result of a filter");
      program_->results.push_back(image);
    }
    markResults(*program_);
    sortInputs(order);
    connectReaders(*program_);
    if (program_->runs(GraphPass::FuseNeurons)) fuseNeurons(*program_);
    connectReaders(*program_);
    if (program_->runs(GraphPass::FuseNeuronGradients)) fuseNeuronGradients(*program_);
    connectReaders(*program_);
    decideGradients();
    connectReaders(*program_);
    listHandles(*program_);
    leaveOutBiases(*program_);
  }

  std::shared_ptr<GraphProgram> take() { return program_; }

 private:
  ImageIndex imageOf(const std::shared_ptr<NNImageNode>& node) {
    const auto [found, inserted] = images_.emplace(node.get(), program_->images.size());
    if (!inserted) return found->second;
    ProgramImage image;
    image.handle = node->handle();
    image.name = image.handle ? image.handle->label() : std::string();
    image.format = node->format();
    image.allocator = node->imageAllocator();
    image.isExported = node->exportFromGraph() && node->producer() != nullptr;
    image.synchronizes = node->synchronizeResource();
    program_->images.push_back(std::move(image));
    if (node->producer() == nullptr) program_->sourceImages.push_back(found->second);
    return found->second;
  }

  StateIndex stateOf(const std::shared_ptr<NNStateNode>& node) {
    const auto [found, inserted] = states_.emplace(node.get(), program_->states.size());
    if (!inserted) return found->second;
    ProgramState state;
    state.handle = node->handle();
    state.isExported = node->exportFromGraph();
    state.synchronizes = node->synchronizeResource();
    program_->states.push_back(std::move(state));
    if (node->producer() == nullptr) program_->sourceStates.push_back(found->second);
    return found->second;
  }

  void addStep(const Filter& filter) {
    const StepIndex index = program_->steps.size();
    ProgramStep step;
    step.name = filter->describe();
    step.kernel = kernelOf(*filter, device_);
    step.ownsKernel = step.kernel.use_count() == 1;
    step.kernel->joinGraph();
    if (filter->label().empty() && !step.kernel->label().empty())  // of the data source
      step.name += " \"" + step.kernel->label() + "\"";
    for (const auto& source : filter->sources()) step.sources.push_back(imageOf(source));
    for (const auto& state : filter->sourceStates()) step.sourceStates.push_back(stateOf(state));
    step.result = imageOf(filter->resultImage());
    program_->images[step.result].producer = index;
    if (program_->images[step.result].name.empty()) program_->images[step.result].name = step.name;
    if (const auto state = filter->resultState()) {
      step.resultState = stateOf(state);
      program_->states[*step.resultState].producer = index;
    }
    if (filter->isGradient() && !step.sourceStates.empty()) {
      step.forward = program_->states[step.sourceStates[0]].producer;
      if (step.forward != nowhere) {
        labelByForward(step);
        checkWiring(step);
      }
    }
    styles_.push_back(styleOf(*filter));
    program_->steps.push_back(std::move(step));
  }

  /// A gradient of a layer that has its label from a data source.
  void labelByForward(ProgramStep& step) const {
    const std::string& label = program_->steps[step.forward].kernel->label();
    if (label.empty() || !step.kernel->label().empty()) return;
    step.kernel->setLabel(label + " gradient");
    step.name += " \"" + step.kernel->label() + "\"";
  }

  /// Refuses a gradient node that does not fit the node whose state it is given.
  void checkWiring(const ProgramStep& step) const {
    if (const DerivativeTraits gradient = step.kernel->derivativeTraits(); gradient.isGradient) {
      checkKind(step);
      checkSourceImage(step, gradient);
      checkFurtherSources(step, gradient);
    }
    checkSourceGradient(step);
  }

  /// Refuses the state of a node of another kind.
  void checkKind(const ProgramStep& step) const {
    const ProgramStep& forward = program_->steps[step.forward];
    if (!step.kernel->acceptsForward(forward.kernel->className()))
      throw Error(step.name, "gradientState", "that of " + forward.name,
                  "that of a node which this is the gradient of");
  }

  /// Refuses another image than the one of the forward node that the gradient is computed from. Where the size alone
  /// counts, another source is right (docs/decisions.md, D10), but not the forward result, which kernels refuse, too.
  void checkSourceImage(const ProgramStep& step, const DerivativeTraits& gradient) const {
    const ProgramStep& forward = program_->steps[step.forward];
    const ImageIndex expected =
        gradient.sourceImage ? forward.sources.at(*gradient.sourceImage) : forward.result;
    const ImageIndex given = step.sources[1];
    const bool isFree = !gradient.readsWithoutSavedFields && given != forward.result;
    if (given != expected && step.sources[0] == expected)
      throw Error(step.name + ": sourceGradient and sourceImage look exchanged: sourceGradient is " +
                  roleOf(expected, forward));
    if (given != expected && !isFree)
      throw Error(step.name, "sourceImage", roleOf(given, forward), roleOf(expected, forward));
  }

  /// Refuses other images behind sourceImage than the forward node has, such as the labels of a loss.
  void checkFurtherSources(const ProgramStep& step, const DerivativeTraits& gradient) const {
    const ProgramStep& forward = program_->steps[step.forward];
    const auto sourceAt = [](const std::vector<ImageIndex>& sources, std::size_t place) {
      return place < sources.size() ? sources[place] : nowhere;
    };
    for (std::size_t i = 0; i < gradient.furtherSources.size(); ++i) {
      const ImageIndex given = sourceAt(step.sources, i + 2);
      const ImageIndex expected = sourceAt(forward.sources, i + 1);
      if (given != expected)
        throw Error(step.name, gradient.furtherSources[i], given == nowhere ? "none" : roleOf(given, forward),
                    expected == nowhere ? "none, as " + forward.name + " has" : roleOf(expected, forward));
    }
  }

  /// What an image is to a forward node, or else to another one, or to the graph.
  [[nodiscard]] std::string roleOf(ImageIndex image, const ProgramStep& forward) const {
    if (image == forward.result) return "the result of " + forward.name;
    if (const auto source = std::ranges::find(forward.sources, image); source != forward.sources.end())
      return "source " + std::to_string(source - forward.sources.begin()) + " of " + forward.name;
    if (const StepIndex producer = program_->images[image].producer; producer != nowhere)
      return "the result of " + program_->steps[producer].name;
    for (const ProgramStep& step : program_->steps)
      if (std::ranges::find(step.sources, image) != step.sources.end()) return roleOf(image, step);
    return "another input of the graph";
  }

  /// Refuses the gradient of another image than the result of the node that a gradient node belongs to, also as part
  /// of a sum. What else the application computes from gradients by nodes of its own is not looked into.
  void checkSourceGradient(const ProgramStep& step) const {
    const ProgramStep& forward = program_->steps[step.forward];
    std::vector<ImageIndex> open{step.sources[0]};
    std::unordered_set<ImageIndex> seen{step.sources[0]};
    while (!open.empty()) {
      const StepIndex giver = program_->images[open.back()].producer;
      open.pop_back();
      if (giver == nowhere) continue;
      const ProgramStep& given = program_->steps[giver];
      if (isUnitSum(*given.kernel))
        for (const ImageIndex summand : given.sources)
          if (seen.insert(summand).second) open.push_back(summand);
      const auto differentiated = differentiatedBy(given);
      if (!differentiated || isSummand(forward.result, differentiated->image())) continue;
      throw Error(step.name, "sourceGradient",
                  "the gradient of source " + std::to_string(differentiated->source) + " of " +
                      differentiated->step.name,
                  "that of the result of " + forward.name);
    }
  }

  /// A source of a step.
  struct StepSource {
    const ProgramStep& step;
    std::size_t source;
    [[nodiscard]] ImageIndex image() const { return step.sources.at(source); }
  };

  /// What a step's result is the gradient of; nothing where it is none, or of what is not in the graph.
  [[nodiscard]] std::optional<StepSource> differentiatedBy(const ProgramStep& step) const {
    const DerivativeTraits traits = step.kernel->derivativeTraits();
    if (traits.isGradient && step.forward != nowhere)
      return StepSource{program_->steps[step.forward], traits.forwardSource.value_or(0)};
    if (traits.ownSource) return StepSource{step, *traits.ownSource};
    return std::nullopt;
  }

  /// Whether an image is another one, or is added up to it: then both have the same gradient.
  [[nodiscard]] bool isSummand(ImageIndex image, ImageIndex sum) const {
    std::vector<ImageIndex> open{sum};
    std::unordered_set<ImageIndex> seen{sum};
    while (!open.empty()) {
      const ImageIndex current = open.back();
      open.pop_back();
      if (current == image) return true;
      const StepIndex producer = program_->images[current].producer;
      if (producer == nowhere) continue;
      const ProgramStep& step = program_->steps[producer];
      const SumTraits sum = step.kernel->sumTraits();
      for (std::size_t i = 0; i < std::min(step.sources.size(), sum.handsGradientOn.size()); ++i)
        if (sum.handsGradientOn[i] && seen.insert(step.sources[i]).second) open.push_back(step.sources[i]);
    }
    return false;
  }

  /// Inputs in the order in which a walk from the results meets them.
  void sortInputs(const Order& order) {
    std::vector<std::size_t> imageRank(program_->images.size());
    std::vector<std::size_t> stateRank(program_->states.size());
    for (const auto& [node, image] : images_)
      if (program_->images[image].producer == nowhere) imageRank[image] = order.rankOf(node);
    for (const auto& [node, state] : states_)
      if (node->producer() == nullptr) stateRank[state] = order.rankOf(node);
    std::ranges::sort(program_->sourceImages, {}, [&](ImageIndex image) { return imageRank[image]; });
    std::ranges::sort(program_->sourceStates, {}, [&](StateIndex state) { return stateRank[state]; });
  }

  /// What gradients of layers with weights have to compute, and which statistics batch normalisations use.
  void decideGradients() {
    for (ProgramStep& step : program_->steps) {
      const KernelRoles roles = step.kernel->roles();
      if (roles.layer != nullptr)
        roles.layer->chooseTraining(step.resultState && !program_->states[*step.resultState].readers.empty());
      if (roles.layerGradient == nullptr) continue;
      const ProgramImage& result = program_->images[step.result];
      const bool data = !result.readers.empty() || result.isExported || result.isNeededResult;
      const bool exported = !step.sourceStates.empty() && program_->states[step.sourceStates[0]].isExported;
      const bool weights = step.update != nullptr || exported || !data;
      step.writesResult = data;
      roles.layerGradient->chooseGradients(data, weights);
    }
  }

  std::shared_ptr<mtl::Device> device_;
  std::shared_ptr<GraphProgram> program_;
  std::vector<NNTrainingStyle> styles_;  ///< of every step
  std::unordered_map<const NNImageNode*, ImageIndex> images_;
  std::unordered_map<const NNStateNode*, StateIndex> states_;
};

}  // namespace

std::shared_ptr<ImageKernel> kernelOfStep(const std::string& name, const std::shared_ptr<Kernel>& kernel) {
  if (auto ofImages = std::dynamic_pointer_cast<ImageKernel>(kernel)) return ofImages;
  throw Error("NNGraph: a graph cannot run " + name);
}

void markResults(GraphProgram& program) {
  for (std::size_t i = 0; i < program.results.size(); ++i) {
    if (program.results[i] == nowhere) continue;
    program.images[program.results[i]].isNeededResult = true;
    if (i > 0) program.intermediateImages.push_back(program.results[i]);
  }
  program.firstResultIsNeeded = program.results[0] != nowhere;
}

void connectReaders(GraphProgram& program) {
  for (auto& image : program.images) {
    image.producer = nowhere;
    image.readers.clear();
  }
  for (auto& state : program.states) {
    state.producer = nowhere;
    state.readers.clear();
  }
  for (StepIndex s = 0; s < program.steps.size(); ++s) {
    const ProgramStep& step = program.steps[s];
    program.images[step.result].producer = s;
    if (step.resultState) program.states[*step.resultState].producer = s;
    if (step.fusedNeuronState) program.states[*step.fusedNeuronState].producer = s;
    const DerivativeTraits traits = step.kernel->derivativeTraits();
    const bool readsSourceImage =
        step.forward != nowhere ? traits.readsBesideSavedFields : traits.readsWithoutSavedFields;
    for (std::size_t i = 0; i < step.sources.size(); ++i)
      if (i != 1 || !traits.isGradient || readsSourceImage)
        program.images[step.sources[i]].readers.push_back(s);
    for (const StateIndex state : step.sourceStates) program.states[state].readers.push_back(s);
  }
}

void leaveOutBiases(GraphProgram& program) {
  for (ProgramStep& step : program.steps) {
    LayerGradientKernel* const gradient = step.kernel->roles().layerGradient;
    if (gradient == nullptr || !step.update || step.update->style() != NNTrainingStyle::UpdateDeviceGPU)
      continue;
    if (!program.states[step.sourceStates[0]].isExported) gradient->leaveOutMissingParameters();
  }
}

void listHandles(GraphProgram& program) {
  for (const ProgramStep& step : program.steps) {
    const ProgramImage& image = program.images[step.result];
    // Further results are among them already; the first one, when it is exported, is handed out twice.
    if (image.isExported &&
        std::ranges::find(program.intermediateImages, step.result) == program.intermediateImages.end())
      program.intermediateImages.push_back(step.result);
    if (step.resultState && program.states[*step.resultState].isExported)
      program.resultStates.push_back(*step.resultState);
  }
  for (const ImageIndex i : program.sourceImages)
    program.sourceImageHandles.push_back(handleOf(program.images[i].handle));
  for (const StateIndex i : program.sourceStates)
    program.sourceStateHandles.push_back(handleOf(program.states[i].handle));
  for (const ImageIndex i : program.intermediateImages)
    program.intermediateImageHandles.push_back(handleOf(program.images[i].handle));
  for (const StateIndex i : program.resultStates)
    program.resultStateHandles.push_back(handleOf(program.states[i].handle));
}

std::shared_ptr<GraphProgram> compileGraph(const std::shared_ptr<mtl::Device>& device,
                                           const std::vector<std::shared_ptr<NNImageNode>>& resultImages,
                                           const std::vector<bool>& resultsAreNeeded) {
  if (resultImages.empty()) throw Error("NNGraph", "resultImages", "empty", "at least one image node");
  for (const auto& image : resultImages)
    if (!image) throw Error("NNGraph", "resultImages", "null", "image nodes");
  if (!resultsAreNeeded.empty() && resultsAreNeeded.size() != resultImages.size())
    throw Error("NNGraph", "resultsAreNeeded", std::to_string(resultsAreNeeded.size()) + " flags",
                std::to_string(resultImages.size()) + ", one for each result image");
  const std::vector<bool> needed =
      resultsAreNeeded.empty() ? std::vector<bool>(resultImages.size(), true) : resultsAreNeeded;
  return Compiler(device, resultImages, needed).take();
}

}  // namespace mps::detail
