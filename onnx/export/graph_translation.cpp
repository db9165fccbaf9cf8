#include "onnx/export/graph_translation.hpp"

#include <algorithm>
#include <utility>

#include "mps/core/kernel/cnn_binary_kernel.hpp"
#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_multiary_kernel.hpp"
#include "mps/core/types/error.hpp"
#include "mps/graph/layout/graph_layout.hpp"
#include "onnx/export/step.hpp"
#include "train/text/utf8.hpp"

namespace unmetal::onnx::detail {
namespace {

using mps::detail::GraphLayout;
using mps::detail::GraphProgram;
using mps::detail::ImageIndex;
using mps::detail::ProgramStep;
using mps::detail::StepIndex;

constexpr Translation translations[] = {translateConvolution,
                                        translateTransposedConvolution,
                                        translatePooling,
                                        translateBatchNormalization,
                                        translateImageNormalization,
                                        translateLocalNormalization,
                                        translateNeuron,
                                        translateSoftMax,
                                        translateDropout,
                                        translateArithmetic,
                                        translateConcatenation,
                                        translateUpsampling,
                                        translateReduction,
                                        translateReshape,
                                        translateGramMatrix};

train::Shape shapeOf(const mps::ImageDescriptor& size) {
  return {size.height(), size.width(), size.featureChannels()};
}

Picture pictureOf(std::string value, const mps::ImageDescriptor& size) {
  return {std::move(value), static_cast<std::int64_t>(size.width()), static_cast<std::int64_t>(size.height()),
          static_cast<std::int64_t>(size.featureChannels())};
}

bool isForTraining(const mps::Kernel& kernel) {
  const auto* unary = dynamic_cast<const mps::CNNKernel*>(&kernel);
  return dynamic_cast<const mps::CNNGradientKernel*>(&kernel) != nullptr ||
         (unary != nullptr && unary->isItsOwnGradient());
}

/// Whether a kernel writes all pixels of a result.
bool covers(const mtl::Region& clip, const mps::ImageDescriptor& result) {
  return clip.origin.x == 0 && clip.origin.y == 0 && clip.size.width >= result.width() &&
         clip.size.height >= result.height();
}

mtl::Region clipRectOf(const mps::Kernel& kernel) {
  if (const auto* unary = dynamic_cast<const mps::CNNKernel*>(&kernel)) return unary->clipRect();
  if (const auto* binary = dynamic_cast<const mps::CNNBinaryKernel*>(&kernel)) return binary->clipRect();
  const auto* multiary = dynamic_cast<const mps::CNNMultiaryKernel*>(&kernel);
  return multiary != nullptr ? multiary->clipRect() : mps::RectNoClip;
}

/// Of the channels of a kernel's only source those that it reads.
void selectChannels(Step& step) {
  const auto* unary = step.as<mps::CNNKernel>();
  if (unary == nullptr) return;
  step.sources[0] = step.channels(step.source(), unary->sourceFeatureChannelOffset(),
                                  unary->sourceFeatureChannelMaxCount());
}

/// Translates a program with the sizes of its images.
class GraphTranslator {
 public:
  GraphTranslator(const GraphProgram& program, const GraphLayout& layout)
      : program_(program), layout_(layout), values_(program.images.size()) {}

  Model translate(std::map<std::string, std::string> metadata) {
    for (const ImageIndex source : program_.sourceImages)
      values_[source] = model_.addInput(nameOf(source, "input"), shapeOf(layout_.images[source]));
    for (StepIndex index = 0; index < program_.steps.size(); ++index) translateStep(index);
    addOutput(program_.results.front());
    for (const ImageIndex image : program_.intermediateImages)
      if (image != program_.results.front()) addOutput(image);
    return model_.take(std::move(metadata));
  }

 private:
  [[nodiscard]] std::string nameOf(ImageIndex image, const std::string& otherwise) const {
    const auto& handle = program_.images[image].handle;
    const std::string& label = handle ? handle->label() : otherwise;
    if (label.empty()) return otherwise;
    checkText(label);
    return label;
  }

  static void checkText(const std::string& label) {
    if (!train::detail::isUtf8(label))
      throw mps::Error("cannot export to ONNX: the label \"" + label + "\" is not UTF-8");
  }

  /// Other images may be the same value: a dropout's source and result.
  void addOutput(ImageIndex image) {
    const std::string value = values_[image];
    const std::string output =
        model_.addOutput(nameOf(image, "output"), value, shapeOf(layout_.images[image]));
    std::ranges::replace(values_, value, output);
  }

  void translateStep(StepIndex index) {
    const ProgramStep& given = program_.steps[index];
    mps::detail::ImageKernel& kernel = *given.kernel;
    const mps::detail::GeometryScope scope(kernel);
    mps::detail::placeSources(layout_, index, kernel);
    Step step{kernel, given.name, {}, pictureOf({}, layout_.images[given.result]), model_};
    for (const ImageIndex source : given.sources)
      step.sources.push_back(pictureOf(values_[source], layout_.images[source]));
    checkStep(step, kernel, layout_.images[given.result]);
    checkText(kernel.label());
    model_.beginStep(kernel.label().empty() ? kernel.className() : kernel.label());
    selectChannels(step);
    checkChannels(step, index);
    values_[given.result] = valueOf(step);
  }

  static void checkStep(const Step& step, const mps::detail::ImageKernel& kernel,
                        const mps::ImageDescriptor& result) {
    if (isForTraining(kernel))
      throw step.refusal("it is for training; export a graph of what comes before the loss");
    if (kernel.destinationFeatureChannelOffset() != 0 || !covers(clipRectOf(kernel), result))
      throw step.refusal("its padding policy lets it write a part of its result alone");
  }

  /// A policy of the user's may give a result other channels than the kernel writes.
  void checkChannels(const Step& step, StepIndex index) const {
    const ProgramStep& given = program_.steps[index];
    auto* unary = dynamic_cast<mps::CNNKernel*>(&step.kernel);
    if (unary == nullptr || !mps::detail::hasCustomPadding(*unary)) return;
    const mps::ImageDescriptor written = unary->sizeDestination(layout_.images[given.sources.front()]);
    mps::detail::placeSources(layout_, index, *unary);
    if (written.featureChannels() != layout_.images[given.result].featureChannels())
      throw step.refusal("its padding policy lets it write some channels of its result alone");
  }

  static std::string valueOf(const Step& step) {
    for (const Translation translate : translations)
      if (const auto value = translate(step)) return *value;
    throw step.refusal("ONNX has no operator for " + step.kernel.className());
  }

  const GraphProgram& program_;
  const GraphLayout& layout_;
  GraphBuilder model_;
  std::vector<std::string> values_;  ///< of each image
};

void checkSources(const GraphProgram& program, std::span<const train::Shape> pictures) {
  if (pictures.size() != program.sourceImages.size())
    throw mps::Error(
        "exportGraph", "number of shapes in pictures", std::to_string(pictures.size()),
        std::to_string(program.sourceImages.size()) + ", one for each source image of the graph");
}

GraphLayout layoutOf(const mps::NNGraph& graph, std::span<const train::Shape> pictures) {
  GraphLayout layout;
  layout.count = 1;
  layout.format = mps::ImageFeatureChannelFormat::Float32;
  for (const train::Shape& shape : pictures)
    layout.sources.push_back(
        {mps::ImageFeatureChannelFormat::Float32, shape.width, shape.height, shape.channels});
  mps::detail::resolveLayout(layout, graph.program(), graph.device(), false);
  return layout;
}

}  // namespace

Model translateGraph(const mps::NNGraph& graph, std::span<const train::Shape> pictures,
                     std::map<std::string, std::string> metadata) {
  const GraphProgram& program = graph.program();
  checkSources(program, pictures);
  const GraphLayout layout = layoutOf(graph, pictures);
  return GraphTranslator(program, layout).translate(std::move(metadata));
}

}  // namespace unmetal::onnx::detail
