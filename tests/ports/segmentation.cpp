// A picture in, a mask out: two branches that are concatenated, odd sizes, pooling and upsampling, a padding policy and an image
// allocator of one's own, exported images, several results, and a loss for each pixel.

#include <algorithm>
#include <array>

#include "tests/ports/port.hpp"

namespace {

constexpr std::size_t side = 9;
constexpr std::size_t batchSize = 4;
constexpr std::size_t leftChannels = 7;
constexpr std::size_t rightChannels = 11;

class DataSource : public mps::CNNConvolutionDataSource {
 public:
  DataSource(const std::shared_ptr<mtl::Device>& device, std::size_t kernel, std::size_t in, std::size_t out,
             std::string label)
      : descriptor_(mps::CNNConvolutionDescriptor::create(kernel, kernel, in, out)),
        label_(std::move(label)),
        weights_(port::Random(kernel * in * out)
                     .floats(descriptor_.weightCount(), -1.5 / std::sqrt(static_cast<double>(in) * 9),
                             1.5 / std::sqrt(static_cast<double>(in) * 9))),
        biases_(out) {
    // The framework allocates the state; nobody fills it. The first update takes its values from sourceState.
    state_ = mps::CNNConvolutionWeightsAndBiasesState::create(device, descriptor_);
    for (const std::size_t length : {descriptor_.weightCount(), out}) {
      momentum_.push_back(port::zeros(device, length));
      velocity_.push_back(port::zeros(device, length));
    }
    optimizer_ = mps::NNOptimizerAdam::create(device, 0.02F);
  }
  mps::DataType dataType() const override { return mps::DataType::Float32; }
  mps::CNNConvolutionDescriptor descriptor() const override { return descriptor_; }
  std::span<const std::byte> weights() const override { return std::as_bytes(std::span(weights_)); }
  std::span<const float> biasTerms() const override { return biases_; }
  bool load() override { return true; }
  void purge() override {}
  std::string label() const override { return label_; }
  std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState> update(
      const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
      const std::shared_ptr<mps::CNNConvolutionGradientState>& gradientState,
      const std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState>& sourceState) override {
    optimizer_->encode(commandBuffer, gradientState, sourceState, momentum_, velocity_, state_);
    return state_;
  }
  const std::vector<float>& values() const { return weights_; }

 private:
  mps::CNNConvolutionDescriptor descriptor_;
  std::string label_;
  std::vector<float> weights_, biases_;
  std::shared_ptr<mps::CNNConvolutionWeightsAndBiasesState> state_;
  std::vector<std::shared_ptr<mps::Vector>> momentum_, velocity_;
  std::shared_ptr<mps::NNOptimizerAdam> optimizer_;
};

/// Makes a 2x2 convolution of an 8x8 picture a 9x9 one, with repeated edges: what the bits of a policy cannot say.
class GrowingPadding : public mps::NNPadding {
 public:
  mps::NNPaddingMethod paddingMethod() const override {
    return mps::NNPaddingMethod::Custom | mps::NNPaddingMethod::SizeSame;
  }
  std::string label() const override { return "growing"; }
  mps::ImageDescriptor destinationImageDescriptor(
      std::span<const std::shared_ptr<mps::Image>> sourceImages,
      std::span<const std::shared_ptr<mps::State>> /*sourceStates*/, mps::Kernel& kernel,
      const mps::ImageDescriptor& suggestedDescriptor) override {
    ++asked;
    auto& convolution = dynamic_cast<mps::CNNKernel&>(kernel);
    convolution.setOffset({0, 0, 0});
    convolution.setEdgeMode(mps::ImageEdgeMode::Clamp);
    mps::ImageDescriptor descriptor = suggestedDescriptor;
    descriptor.setWidth(sourceImages[0]->width() + 1);
    descriptor.setHeight(sourceImages[0]->height() + 1);
    return descriptor;
  }
  std::size_t asked = 0;
};

/// Hands out images of the program's own, with a label.
class LabelledImages : public mps::ImageAllocator {
 public:
  std::shared_ptr<mps::Image> image(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                    const mps::ImageDescriptor& descriptor,
                                    const mps::Kernel& /*kernel*/) override {
    ++made;
    auto image = mps::Image::create(commandBuffer->device(), descriptor);
    image->setLabel("mine");
    return image;
  }
  std::size_t made = 0;
};

/// Finds images and states again.
class Name : public mps::Handle {
 public:
  explicit Name(std::string name) : name_(std::move(name)) {}
  std::string label() const override { return name_; }

 private:
  std::string name_;
};

void train() {
  const auto device = mtl::createSystemDefaultDevice();
  const auto queue = device->newCommandQueue();
  const auto left = std::make_shared<DataSource>(device, 3, 1, leftChannels, "left");
  const auto right = std::make_shared<DataSource>(device, 3, 1, rightChannels, "right");
  const auto middle = std::make_shared<DataSource>(device, 3, 20, 8, "middle");
  const auto last = std::make_shared<DataSource>(device, 2, 8, 1, "last");
  const auto padding = std::make_shared<GrowingPadding>();
  const auto allocator = std::make_shared<LabelledImages>();

  const auto picture = mps::NNImageNode::create(std::make_shared<Name>("picture"));
  const auto conv1 = mps::CNNConvolutionNode::create(picture, left);
  const auto conv2 = mps::CNNConvolutionNode::create(picture, right);
  // 7 and 11 channels become 8 and 12: a multiple of four each.
  const auto joined = mps::NNConcatenationNode::create({conv1->resultImage(), conv2->resultImage()});
  joined->resultImage()->setHandle(std::make_shared<Name>("joined"));
  joined->resultImage()->setExportFromGraph(true);
  joined->resultImage()->setSynchronizeResource(true);
  joined->resultImage()->setImageAllocator(allocator);
  const auto conv3 = mps::CNNConvolutionNode::create(joined->resultImage(), middle);
  const auto relu = mps::CNNNeuronReLUNode::create(conv3->resultImage());
  // 9x9 to 4x4: the last row and column are left out.
  const auto pool = mps::CNNPoolingMaxNode::create(relu->resultImage(), 2);
  pool->setPaddingPolicy(mps::NNDefaultPadding::create(mps::NNPaddingMethod::SizeValidOnly));
  const auto up = mps::CNNUpsamplingNearestNode::create(pool->resultImage(), 2, 2);
  const auto conv4 = mps::CNNConvolutionNode::create(up->resultImage(), last);
  conv4->setPaddingPolicy(padding);
  // TensorFlow's average over 3x3, which leaves out what lies outside the picture.
  const auto smooth = mps::CNNPoolingAverageNode::create(conv4->resultImage(), 3, 1);
  smooth->setPaddingPolicy(mps::NNDefaultPadding::paddingForTensorflowAveragePooling());

  auto descriptor =
      mps::CNNLossDescriptor::create(mps::CNNLossType::SigmoidCrossEntropy, mps::CNNReductionType::None);
  descriptor.setWeight(1.0F / (batchSize * side * side));
  const auto loss = mps::CNNLossNode::create(smooth->resultImage(), descriptor);
  loss->inputLabels()->setHandle(std::make_shared<Name>("mask"));
  std::vector<std::shared_ptr<mps::NNImageNode>> results;
  for (const auto& end : loss->trainingGraph(nullptr)) results.push_back(end->resultImage());
  // The mask is a result, too, the first.
  results.insert(results.begin(), mps::CNNNeuronSigmoidNode::create(smooth->resultImage())->resultImage());
  std::vector<bool> needed(results.size(), false);
  needed[0] = true;
  port::throws([&] { mps::NNGraph::create(device, results, std::vector<bool>(results.size() + 1)); },
               {"resultsAreNeeded", std::to_string(results.size())}, "a wrong number of flags");
  const auto graph = mps::NNGraph::create(device, results, needed);
  port::check(graph->sourceImageHandles().size() == 1 && graph->sourceImageHandles()[0]->label() == "picture",
              "the handle of the source is lost");
  port::check(graph->sourceStateHandles().size() == 1 && graph->sourceStateHandles()[0]->label() == "mask",
              "the handle of the labels is lost");
  port::check(graph->intermediateImageHandles().size() == 1 &&
                  graph->intermediateImageHandles()[0]->label() == "joined",
              "the handle of the exported image is lost");

  // Bright rectangles, whose mask is to be found.
  port::Random random(9);
  std::vector<std::shared_ptr<mps::Image>> pictures;
  std::vector<std::shared_ptr<mps::CNNLossLabels>> masks;
  std::vector<std::vector<float>> pixels;
  for (std::size_t n = 0; n < batchSize; ++n) {
    std::vector<float> image = random.floats(side * side, 0, 0.2), mask(side * side);
    for (std::size_t y = n; y < n + 5; ++y)
      for (std::size_t x = 1; x < 6; ++x) {
        image[y * side + x] += 0.8F;
        mask[y * side + x] = 1;
      }
    pixels.push_back(image);
    pictures.push_back(mps::Image::create(device, port::floatImage(side, side, 1)));
    pictures.back()->writeBytes(image, port::pixelsFirst);
    masks.push_back(mps::CNNLossLabels::create(
        device, {side, side, 1}, mps::CNNLossDataDescriptor::create(mask, port::planesFirst, {side, side, 1}),
        nullptr));
  }

  double first = 0, latest = 0;
  mps::ImageBatch result;
  for (int step = 0; step < 150; ++step) {
    const auto commandBuffer = queue->commandBuffer();
    std::vector<mps::ImageBatch> intermediates;
    result = graph->encodeBatch(commandBuffer, {pictures}, {masks}, &intermediates, nullptr);
    for (const auto& mask : masks) mask->lossImage()->synchronize(commandBuffer);
    mps::ImageBatchSynchronize(result, commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();

    latest = 0;
    for (const auto& mask : masks) {
      std::vector<float> losses(side * side);
      mask->lossImage()->readBytes(losses, port::pixelsFirst);
      for (const float value : losses) latest += static_cast<double>(value);
    }
    if (step > 0) continue;
    first = latest;
    port::check(intermediates.size() == 1 && intermediates[0].size() == batchSize, "one batch is exported");
    for (std::size_t n = 0; n < batchSize; ++n) {
      const auto image = intermediates[0][n];
      port::check(image->label() == "mine", "the exported image is not the allocator's");
      port::check(image->featureChannels() == 20, "7 and 11 channels do not give 20");
      std::vector<float> values(side * side * 20);
      image->readBytes(values, port::pixelsFirst);
      // The first pixel of each branch by hand, and the zeros between them.
      for (const std::size_t pixel : {std::size_t{0}, side * 4 + 4})
        for (std::size_t c = 0; c < 20; ++c) {
          double expected = 0;
          const auto& weights = c < 8 ? left->values() : right->values();
          const std::size_t k = c < 8 ? c : c - 8;
          const bool isPadding = c == 7 || c == 19;
          for (std::size_t q = 0; q < 3 && !isPadding; ++q)
            for (std::size_t p = 0; p < 3; ++p) {
              const std::size_t v = pixel / side + q, u = pixel % side + p;
              if (v < 1 || u < 1 || v > side || u > side) continue;
              expected += static_cast<double>(weights[(k * 3 + q) * 3 + p]) *
                          static_cast<double>(pixels[n][(v - 1) * side + u - 1]);
            }
          port::near(static_cast<double>(values[pixel * 20 + c]), expected, isPadding ? 0 : 1e-5,
                     "channel " + std::to_string(c) + " of the concatenation");
        }
    }
  }
  port::check(allocator->made > 0, "the allocator was not asked");
  port::check(padding->asked > 0, "the padding policy was not asked");
  port::check(result.size() == batchSize && result[0]->width() == side && result[0]->height() == side,
              "the mask has not the size of the picture");
  port::near(first, std::log(2.0), 0.3, "the first loss");
  port::check(latest < 0.3, "the loss fell from " + std::to_string(first) + " to " + std::to_string(latest));
  double share = 0;
  for (std::size_t n = 0; n < batchSize; ++n) {
    std::vector<float> mask(side * side);
    result[n]->readBytes(mask, port::pixelsFirst);
    for (std::size_t i = 0; i < mask.size(); ++i)
      share +=
          (mask[i] > 0.5F) == (pixels[n][i] > 0.5F) ? 1.0 / static_cast<double>(mask.size() * batchSize) : 0;
  }
  port::check(share > 0.85, "of all pixels are right: " + std::to_string(share));
}

}  // namespace

int main() {
  return port::run(train);
}
