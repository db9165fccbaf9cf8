#include "mps/loss/yolo_loss.hpp"

#include "mps/conform/testing/plan_testing.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "mps/conform/tolerance.hpp"
#include "mps/core/layer/loss_scale.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/loss/check/yolo_loss_cases.hpp"
#include "mps/loss/check/yolo_loss_reference.hpp"
#include "mps/loss/yolo_loss_node.hpp"

/// The loss of YOLO: reference, plans, classes and nodes.
namespace mps::yolo_loss_test {
namespace {

using detail::ReferenceTensor;
using detail::YOLOLossCase;
using detail::YOLOLossOutputs;
using detail::YOLOLossProblem;
using testing::errorOf;
using testing::names;
using testing::sizeOf;
using testing::Values;
using testing::valuesOf;
using enum ImageFeatureChannelFormat;
namespace plans = detail::plan_testing;

constexpr std::uint64_t kSeed = 20261125;

struct Inputs {
  ReferenceTensor predictions, labels, weights;

  explicit Inputs(const YOLOLossProblem& problem, double classRange = 1) {
    const auto tensor = [](const detail::TensorShape& shape, std::vector<double> values) {
      ReferenceTensor made(shape.images, shape.height, shape.width, shape.channels);
      made.values = std::move(values);
      return made;
    };
    predictions = tensor(problem.predictions, detail::yoloPredictions(problem, classRange, kSeed));
    labels = tensor(problem.labels, detail::yoloLabels(problem, kSeed));
    if (problem.weights.channels > 0) weights = tensor(problem.weights, detail::yoloWeights(problem, kSeed));
  }
  [[nodiscard]] YOLOLossOutputs outputs(const YOLOLossProblem& problem) const {
    return detail::yoloLossReference(problem, predictions, labels, weights);
  }
};

/// One cell and one anchor of 1x1; squares everywhere, all factors 1. Raw values of 0 predict a box of 1x1 in the middle.
YOLOLossProblem oneCell() {
  YOLOLossProblem problem = YOLOLossCase{.name = "", .classes = 1, .anchors = 1}.problem(Float32);
  for (auto& part : problem.parts) part = {};
  problem.anchorBoxes = {1, 1};
  problem.scaleXY = problem.scaleWH = problem.scaleObject = problem.scaleNoObject = problem.scaleClass = 1;
  return problem;
}

ReferenceTensor cell(std::vector<double> values) {
  ReferenceTensor tensor(1, 1, 1, static_cast<std::int64_t>(values.size()));
  tensor.values = std::move(values);
  return tensor;
}

void expectNear(const std::vector<double>& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], detail::kFloat64Tolerance * std::max(1.0, std::abs(expected[i])))
        << "element " << i;
}

/// The truth is the left half of the predicted box: IOU 1/2. p = 1/2, target 1/4: 2 (1/4) p (1 - p) = 1/8.
TEST(YOLOLossExamples, AnObject) {
  const YOLOLossProblem problem = oneCell();
  const ReferenceTensor raw = cell({0, 0, 0, 0, 0.75, 2});
  const ReferenceTensor label = cell({0.25, 0.5, 0.5, 1, 1, 1});
  const double tiny = static_cast<double>(1e-5F);
  const double tw = std::log(0.5 + tiny);
  const double th = std::log(1 + tiny);
  const YOLOLossOutputs outputs = yoloLossReference(problem, raw, label, {});
  expectNear(outputs.gradient.values, {0.125, 0, -2 * tw, -2 * th, 0.5, 2});
  expectNear(outputs.loss.values, {0.0625 + tw * tw + th * th + 0.0625 + 1});
  YOLOLossProblem unscored = problem;
  unscored.rescore = false;
  EXPECT_EQ(yoloLossReference(unscored, raw, label, {}).gradient.values[4], -0.5);
}

/// Only the confidence counts, towards 0; above maxIOUForObjectAbsence not even that.
TEST(YOLOLossExamples, NoObject) {
  const YOLOLossProblem problem = oneCell();
  const ReferenceTensor raw = cell({1, 2, 3, 4, 0.75, 2});
  expectNear(yoloLossReference(problem, raw, cell({0, 0, 0, 0, 0, 0}), {}).gradient.values,
             {0, 0, 0, 0, 1.5, 0});
  expectNear(yoloLossReference(problem, raw, cell({0.5, 0.5, 1, 1, 0, 0}), {}).gradient.values,
             {0, 0, 0, 0, 0, 0});
}

/// Both anchors are marked: the better one counts, the other one where its overlap is above the limit.
TEST(YOLOLossExamples, WhichAnchorIsResponsible) {
  YOLOLossProblem problem = YOLOLossCase{.name = "", .classes = 0, .anchors = 2}.problem(Float32);
  for (auto& part : problem.parts) part = {};
  problem.anchorBoxes = {1, 1, 2, 1};
  problem.rescore = false;
  problem.scaleObject = 1;
  problem.scaleNoObject = 10;
  const ReferenceTensor raw = cell(std::vector<double>(10));
  const ReferenceTensor label = cell({0.5, 0.5, 1, 1, 1, 0.5, 0.5, 1, 1, 1});
  const auto confidences = [&] {
    const auto found = yoloLossReference(problem, raw, label, {}).gradient.values;
    return std::vector<double>{found[4], found[9]};
  };
  EXPECT_EQ(confidences(), (std::vector<double>{-2, 0})) << "an overlap of 1/2 is neither";
  problem.minIOUForObjectPresence = 0.4F;
  EXPECT_EQ(confidences(), (std::vector<double>{-2, -2}));
}

/// With obj, noobj and the overlap held constant: without rescoring they are.
TEST(YOLOLossReference, GradientIsTheCentralDifference) {
  for (const YOLOLossCase& item : detail::yoloLossCases()) {
    SCOPED_TRACE(item.name + ", seed " + std::to_string(kSeed));
    YOLOLossProblem problem = item.problem(Float32);
    problem.rescore = false;
    problem.reductionType = CNNReductionType::Sum;
    problem.reduceAcrossBatch = false;
    for (auto& part : problem.parts) part.exactSoftMaxGradient = true;
    Inputs inputs(problem, item.classRange);
    const YOLOLossOutputs outputs = inputs.outputs(problem);
    const auto objective = [&] {
      double sum = 0;
      for (const double loss : inputs.outputs(problem).loss.values) sum += loss;
      return sum;
    };
    constexpr double step = 0x1p-20;
    const double tolerance = detail::kDerivativeTolerance * std::max(1.0, std::abs(objective()));
    const std::size_t count = inputs.predictions.values.size();
    for (std::size_t i = 0; i < count; i += std::max<std::size_t>(1, count / 24)) {
      double& value = inputs.predictions.values[i];
      const double before = value;
      value = before + step;
      const double above = objective();
      value = before - step;
      const double difference = (above - objective()) / (2 * step);
      value = before;
      EXPECT_NEAR(outputs.gradient.values[i], difference, tolerance) << "element " << i;
    }
  }
}

/// What a plan stores of gradient and loss.
struct Found {
  std::vector<double> gradient, loss;
  YOLOLossOutputs expected;
};

/// Nothing where the implementation refuses.
Found runPlan(const plans::Entry& entry, const YOLOLossProblem& problem, int threads = plans::kThreads,
              double classRange = 1) {
  const auto plan = plans::preparedBy(entry, detail::yoloLossBackEnds, problem);
  if (!plan) return {};
  const Inputs inputs(problem, classRange);
  detail::TestTensor predictions(entry.device, problem.predictions, 1);
  detail::TestTensor labels(entry.device, problem.labels, 2);
  detail::TestTensor weights(entry.device, problem.weights, 3);
  detail::TestTensor gradient(entry.device, problem.gradient, 1);
  detail::TestTensor loss(entry.device, problem.loss, 2);
  predictions.write(inputs.predictions.values);
  labels.write(inputs.labels.values);
  weights.write(inputs.weights.values);
  detail::Operands operands;
  operands.source = predictions.address();
  operands.secondary = labels.address();
  if (problem.weights.channels > 0) operands.parameters[0] = weights.address();
  operands.parameters[1] = loss.address();
  operands.destination = gradient.address();
  plans::runPlan(*plan, operands, entry.device, threads);
  EXPECT_TRUE(predictions.isUnchanged() && labels.isUnchanged()) << "an input was written";
  EXPECT_TRUE(gradient.surroundingsIntact() && loss.surroundingsIntact()) << "memory around was written";
  return {gradient.read(), loss.read(),
          detail::yoloLossReference(problem, predictions.reference(), labels.reference(),
                                    problem.weights.channels > 0 ? weights.reference() : ReferenceTensor())};
}

bool agrees(const Found& found, const YOLOLossOutputs& expected, const YOLOLossProblem& problem,
            std::string& report) {
  const detail::Comparison gradient =
      detail::compare(expected.gradient, found.gradient, problem.gradient.format, detail::Tier::Bounded,
                      detail::Zeros::Expected);
  const detail::Comparison loss = detail::compare(expected.loss, found.loss, problem.loss.format,
                                                  detail::Tier::Bounded, detail::Zeros::Expected);
  report = gradient.report + loss.report;
  return gradient.passed() && loss.passed();
}

TEST(YOLOLossPlans, AgreeWithTheReference) {
  for (const plans::Entry& entry : plans::entriesOf(detail::yoloLossBackEnds))
    for (const auto format : {Float32, Float16})
      for (const YOLOLossCase& item : detail::yoloLossCases()) {
        const YOLOLossProblem problem = item.problem(format);
        SCOPED_TRACE(entry.name() + " " + item.name + ": " + problem.describe() + ", seed " +
                     std::to_string(kSeed));
        const plans::WithTarget target(entry);
        const Found found = runPlan(entry, problem, plans::kThreads, item.classRange);
        ASSERT_TRUE(!found.loss.empty() || !entry.isCpu());
        if (found.loss.empty()) continue;
        std::string report;
        EXPECT_TRUE(agrees(found, found.expected, problem, report)) << report;
      }
}

TEST(YOLOLossPlans, GiveTheSameBitsWithAnyNumberOfThreads) {
  const plans::Entry entry = plans::entriesOf(detail::yoloLossBackEnds).front();
  const YOLOLossProblem problem = detail::yoloLossCases()[1].problem(Float32);
  const Found one = runPlan(entry, problem, 1);
  const Found many = runPlan(entry, problem, 7);
  EXPECT_EQ(one.gradient, many.gradient);
  EXPECT_EQ(one.loss, many.loss);
}

struct Perturbation {
  const char* field;
  std::function<void(YOLOLossProblem&)> change;
};

std::vector<Perturbation> perturbations() {
  return {{"type", [](YOLOLossProblem& p) { p.parts[0].type = CNNLossType::MeanAbsoluteError; }},
          {"weight", [](YOLOLossProblem& p) { p.parts[3].weight = 3; }},
          {"delta", [](YOLOLossProblem& p) { p.parts[1].delta = 0.25F; }},
          {"reductionType", [](YOLOLossProblem& p) { p.reductionType = CNNReductionType::Mean; }},
          {"reduceAcrossBatch", [](YOLOLossProblem& p) { p.reduceAcrossBatch = true; }},
          {"rescore", [](YOLOLossProblem& p) { p.rescore = false; }},
          {"scaleXY", [](YOLOLossProblem& p) { p.scaleXY *= 2; }},
          {"scaleWH", [](YOLOLossProblem& p) { p.scaleWH *= 2; }},
          {"scaleNoObject", [](YOLOLossProblem& p) { p.scaleNoObject *= 2; }},
          {"scaleObject", [](YOLOLossProblem& p) { p.scaleObject *= 2; }},
          {"scaleClass", [](YOLOLossProblem& p) { p.scaleClass *= 2; }},
          {"anchorBoxes", [](YOLOLossProblem& p) { p.anchorBoxes[0] *= 2; }}};
}

// Can these tests fail? A kernel that overlooks a field computes what the reference computes for another value.
TEST(YOLOLossPlans, EachFieldCounts) {
  const plans::Entry entry = plans::entriesOf(detail::yoloLossBackEnds).front();
  const YOLOLossProblem problem = detail::yoloLossCases()[1].problem(Float32);
  const Found found = runPlan(entry, problem);
  const Inputs inputs(problem);
  for (const Perturbation& perturbation : perturbations()) {
    YOLOLossProblem other = problem;
    perturbation.change(other);
    std::string report;
    EXPECT_FALSE(agrees(found, inputs.outputs(other), problem, report)) << perturbation.field;
  }
}

TEST(YOLOLossProblemTest, HashAndEqualitySeeEachField) {
  std::vector<Perturbation> changes = perturbations();
  changes.push_back({"labelSmoothing", [](YOLOLossProblem& p) { p.parts[2].labelSmoothing = 0.5F; }});
  changes.push_back({"numberOfClasses", [](YOLOLossProblem& p) { p.parts[3].numberOfClasses = 7; }});
  changes.push_back({"epsilon", [](YOLOLossProblem& p) { p.parts[0].epsilon = 1; }});
  changes.push_back({"exact", [](YOLOLossProblem& p) { p.parts[3].exactSoftMaxGradient = true; }});
  changes.push_back({"presence", [](YOLOLossProblem& p) { p.minIOUForObjectPresence = 0.5F; }});
  changes.push_back({"absence", [](YOLOLossProblem& p) { p.maxIOUForObjectAbsence = 0.5F; }});
  changes.push_back({"predictions", [](YOLOLossProblem& p) { ++p.predictions.rowStride; }});
  changes.push_back({"labels", [](YOLOLossProblem& p) { ++p.labels.rowStride; }});
  changes.push_back({"weights", [](YOLOLossProblem& p) { ++p.weights.channels; }});
  changes.push_back({"gradient", [](YOLOLossProblem& p) { p.gradient.format = Float16; }});
  changes.push_back({"loss", [](YOLOLossProblem& p) { ++p.loss.width; }});
  const YOLOLossProblem problem = detail::yoloLossCases()[1].problem(Float32);
  for (const Perturbation& perturbation : changes) {
    YOLOLossProblem other = problem;
    perturbation.change(other);
    EXPECT_NE(other, problem) << perturbation.field;
    EXPECT_NE(other.hash(), problem.hash()) << perturbation.field;
  }
}

CNNYOLOLossDescriptor squares(std::vector<float> anchors = {1, 1}, std::size_t count = 1) {
  using enum CNNLossType;
  return CNNYOLOLossDescriptor::cnnLossDescriptor(MeanSquaredError, MeanSquaredError, MeanSquaredError,
                                                  MeanSquaredError, CNNReductionType::Sum, anchors, count);
}

class YOLOLoss : public testing::DeviceTest {
 protected:
  [[nodiscard]] std::shared_ptr<CNNLossLabels> labels(const Values& values,
                                                      mtl::Size lossSize = {1, 1, 1}) const {
    return CNNLossLabels::create(device_, lossSize, image(sizeOf(1, 1, values.size()), values), nullptr);
  }
  std::shared_ptr<Image> raw_ = image(sizeOf(1, 1, 6), {0, 0, 0, 0, 0.75F, 2});
};

/// The first anchor of the reference's example, with the default factors.
TEST_F(YOLOLoss, EncodesGiveGradientAndLoss) {
  const auto kernel = CNNYOLOLoss::create(device_, squares());
  kernel->setDestinationImageAllocator(Image::defaultAllocator());
  const auto buffer = commands();
  const auto none = labels({0, 0, 0, 0, 0, 0});
  const auto gradient = kernel->encode(buffer, raw_, none);
  const auto given = poisoned(sizeOf(1, 1, 6));
  const auto object = labels({0.25F, 0.5F, 0.5F, 1, 1, 1});
  kernel->encode(buffer, raw_, object, given);
  run(buffer);
  EXPECT_EQ(valuesOf(*gradient), (Values{0, 0, 0, 0, 7.5F, 0}));
  EXPECT_EQ(valuesOf(*none->lossImage()), (Values{2.8125F}));
  const Values found = valuesOf(*given);
  EXPECT_EQ(found[0], 1.25F);
  EXPECT_EQ(found[1], 0);
  EXPECT_EQ(found[4], 50);
  EXPECT_EQ(found[5], 4);
}

TEST_F(YOLOLoss, Batches) {
  const auto kernel = CNNYOLOLoss::create(device_, squares());
  kernel->setDestinationImageAllocator(Image::defaultAllocator());
  const auto buffer = commands();
  const auto targets =
      CNNLossLabels::createBatch(device_, {1, 1, 1}, batch(sizeOf(1, 1, 6), 2, Values(12, 0)));
  const auto gradients =
      kernel->encodeBatch(buffer, batch(sizeOf(1, 1, 6), 2, {0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0}), targets);
  run(buffer);
  EXPECT_EQ(valuesOf(gradients), (Values{0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 20, 0}));
  EXPECT_EQ(valuesOf(CNNLossLabels::lossImages(targets)), (Values{5, 20}));
}

TEST_F(YOLOLoss, KeepsWhatItIsGiven) {
  CNNYOLOLossDescriptor descriptor = squares({1, 2, 3, 4}, 2);
  EXPECT_EQ(descriptor.scaleXY(), 10);
  EXPECT_EQ(descriptor.scaleWH(), 10);
  EXPECT_EQ(descriptor.scaleNoObject(), 5);
  EXPECT_EQ(descriptor.scaleObject(), 100);
  EXPECT_EQ(descriptor.scaleClass(), 2);
  EXPECT_EQ(descriptor.minIOUForObjectPresence(), 0.7F);
  EXPECT_EQ(descriptor.maxIOUForObjectAbsence(), 0.3F);
  EXPECT_TRUE(descriptor.rescore());
  EXPECT_FALSE(descriptor.reduceAcrossBatch());
  auto wh = CNNLossDescriptor::cnnLossDescriptor(CNNLossType::Huber, CNNReductionType::None);
  wh.setDelta(0.5F);
  descriptor.setWHLossDescriptor(wh);
  descriptor.setScaleClass(3);
  descriptor.setReduceAcrossBatch(true);
  const auto kernel = CNNYOLOLoss::create(device_, descriptor)->copy();
  EXPECT_EQ(kernel->className(), "CNNYOLOLoss");
  EXPECT_EQ(kernel->lossXY()->lossType(), CNNLossType::MeanSquaredError);
  EXPECT_EQ(kernel->lossWH()->lossType(), CNNLossType::Huber);
  EXPECT_EQ(kernel->lossWH()->delta(), 0.5F);
  EXPECT_EQ(kernel->lossWH()->reductionType(), CNNReductionType::Sum) << "the common one";
  EXPECT_EQ(kernel->lossConfidence()->weight(), 1);
  EXPECT_EQ(kernel->lossClasses()->numberOfClasses(), 1U);
  EXPECT_EQ(kernel->scaleClass(), 3);
  EXPECT_TRUE(kernel->reduceAcrossBatch());
  EXPECT_EQ(kernel->numberOfAnchorBoxes(), 2U);
  EXPECT_EQ(kernel->anchorBoxes(), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(YOLOLoss, WrongUseIsNamed) {
  const auto refusal = [&](const CNNYOLOLossDescriptor& descriptor) {
    return errorOf([&] { CNNYOLOLoss::create(device_, descriptor); });
  };
  EXPECT_TRUE(names(refusal(squares({}, 0)), {"numberOfAnchorBoxes", "at least 1"}));
  EXPECT_TRUE(
      names(refusal(squares(std::vector<float>(130, 1), 65)), {"numberOfAnchorBoxes", "65", "at most 64"}));
  EXPECT_EQ(refusal(squares(std::vector<float>(128, 1), 64)), "");
  EXPECT_TRUE(names(refusal(squares({1, 1, 1}, 2)), {"anchorBoxes", "3 numbers", "4"}));
  EXPECT_TRUE(names(refusal(squares({1, 0}, 1)), {"anchorBoxes", "above 0"}));
  CNNYOLOLossDescriptor cosine = squares();
  cosine.setClassesLossDescriptor(
      CNNLossDescriptor::cnnLossDescriptor(CNNLossType::CosineDistance, CNNReductionType::Sum));
  EXPECT_TRUE(names(refusal(cosine), {"classesLossDescriptor", "cosine distance"}));
  CNNYOLOLossDescriptor scaled = squares();
  auto withScale = scaled.XYLossDescriptor();
  withScale.setLossScale(LossScale::create(device_));
  scaled.setXYLossDescriptor(withScale);
  EXPECT_TRUE(names(refusal(scaled), {"XYLossDescriptor", "loss scale"}));

  const auto kernel = CNNYOLOLoss::create(device_, squares());
  const auto buffer = commands();
  const auto none = labels(Values(6, 0));
  const auto result = poisoned(sizeOf(1, 1, 6));
  EXPECT_TRUE(names(errorOf([&] { static_cast<CNNKernel&>(*kernel).encode(buffer, raw_, result); }),
                    {"encoded without labels"}));
  EXPECT_TRUE(names(errorOf([&] { kernel->encode(buffer, raw_, nullptr, result); }), {"labels", "null"}));
  EXPECT_TRUE(names(errorOf([&] { kernel->encode(buffer, raw_, std::shared_ptr<CNNLossLabels>()); }),
                    {"labels", "null"}));
  EXPECT_TRUE(names(errorOf([&] { kernel->encode(buffer, nullptr, none); }), {"sourceImage", "null"}));
  EXPECT_TRUE(
      names(errorOf([&] { kernel->encode(buffer, nullptr, none, result); }), {"sourceImage", "null"}));
  EXPECT_TRUE(names(errorOf([&] { kernel->encode(buffer, poisoned(sizeOf(1, 1, 4)), none); }),
                    {"sourceImages", "4 feature channels"}));
  EXPECT_TRUE(names(errorOf([&] { kernel->encode(buffer, raw_, none, poisoned(sizeOf(1, 1, 7))); }),
                    {"destinationImages", "1x1x7", "1x1x6"}));
  EXPECT_TRUE(names(errorOf([&] { kernel->encode(buffer, raw_, labels(Values(7, 0)), result); }),
                    {"labels", "1x1x7", "1x1x6"}));
  EXPECT_TRUE(names(errorOf([&] {
                      kernel->encode(buffer, raw_, labels(Values(6, 0), {1, 1, 2}), result);
                    }),
                    {"lossImageSize", "1x1x2"}));
  EXPECT_TRUE(names(errorOf([&] {
                      kernel->encodeBatch(buffer, ImageBatch{raw_},
                                          CNNLossLabels::createClassBatch(device_, 1), ImageBatch{result});
                    }),
                    {"labels", "class indices"}));
  const ImageBatch empty;
  const std::vector<std::string> named{"CNNYOLOLoss", "sourceImages", "an empty batch"};
  EXPECT_TRUE(names(errorOf([&] { kernel->encodeBatch(buffer, empty, CNNLossLabelsBatch()); }), named));
  EXPECT_TRUE(
      names(errorOf([&] { kernel->encodeBatch(buffer, empty, CNNLossLabelsBatch(), empty); }), named));
  const auto clipped = CNNYOLOLoss::create(device_, squares());
  clipped->setClipRect({{0, 0, 0}, {1, 1, 1}});
  EXPECT_TRUE(names(errorOf([&] { clipped->encode(buffer, raw_, none, result); }), {"offset and clipRect"}));
  const auto ranged = CNNYOLOLoss::create(device_, squares());
  ranged->setSourceFeatureChannelOffset(4);
  EXPECT_TRUE(names(errorOf([&] { ranged->encode(buffer, raw_, none, result); }), {"all channels"}));
  const auto targets = CNNLossLabels::create(device_, {1, 1, 1}, result, nullptr);
  EXPECT_TRUE(
      names(errorOf([&] { kernel->encode(buffer, raw_, targets, result); }), {"CNNYOLOLoss", "labels"}));
}

TEST_F(YOLOLoss, TheNodeIsItsOwnGradient) {
  const auto x = NNImageNode::create();
  const auto node = CNNYOLOLossNode::create(x, squares());
  EXPECT_EQ(node->className(), "CNNYOLOLossNode");
  EXPECT_TRUE(static_cast<const NNFilterNode&>(*node).isItsOwnGradient());
  EXPECT_EQ(node->descriptor(), squares());
  EXPECT_EQ(node->sourceStates()[0], node->inputLabels());
  EXPECT_NE(std::dynamic_pointer_cast<CNNYOLOLoss>(node->makeKernel(device_)), nullptr);
}

}  // namespace
}  // namespace mps::yolo_loss_test
