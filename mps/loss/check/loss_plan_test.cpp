#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/core/cpu/for_each_target.hpp"
#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/loss/check/loss_cases.hpp"
#include "mps/loss/check/loss_reference.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail::loss_plan_test {
namespace {

constexpr std::uint64_t kSeed = 11;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Memory of one tensor between guard bytes. Everything that is not an element is 0xFF: NaN in the float
/// formats.
class TensorMemory {
 public:
  explicit TensorMemory(const TensorShape& shape, std::size_t elementBytes = 0)
      : shape_(shape), elementBytes_(elementBytes > 0 ? elementBytes : bytesPerChannel(shape.format)) {
    const std::int64_t last =
        shape.elements() == 0
            ? 0
            : shape.offset(shape.images - 1, shape.height - 1, shape.width - 1, shape.channels - 1) + 1;
    memory_.assign(2 * kGuard + static_cast<std::size_t>(last) * elementBytes_, std::byte{0xFF});
  }

  void write(std::span<const double> values) { writeTensor(shape_, data(), values); }
  [[nodiscard]] std::vector<double> read() const { return readTensor(shape_, data()); }
  void writeIndices(const std::vector<double>& indices) {
    std::size_t i = 0;
    forElements([&](std::size_t offset) {
      const auto index = static_cast<std::uint32_t>(indices[i++]);
      std::memcpy(data() + offset, &index, sizeof index);
    });
  }

  /// To memory of as many bytes.
  void copyTo(TensorMemory& other) const { other.memory_ = memory_; }

  [[nodiscard]] std::byte* data() { return memory_.data() + kGuard; }
  [[nodiscard]] const std::byte* data() const { return memory_.data() + kGuard; }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return memory_; }
  [[nodiscard]] const TensorShape& shape() const { return shape_; }

  /// Whether every byte outside the elements still is 0xFF.
  [[nodiscard]] bool surroundingsUntouched() const {
    std::vector<std::byte> copy = memory_;
    forElements([&](std::size_t offset) {
      std::fill_n(copy.begin() + static_cast<std::ptrdiff_t>(kGuard + offset), elementBytes_,
                  std::byte{0xFF});
    });
    return std::all_of(copy.begin(), copy.end(), [](std::byte b) { return b == std::byte{0xFF}; });
  }

 private:
  // Not a multiple of the size of a vector: elements are aligned, vectors are not.
  static constexpr std::size_t kGuard = 68;

  template <class Visit>
  void forElements(Visit visit) const {
    for (std::int64_t n = 0; n < shape_.images; ++n)
      for (std::int64_t y = 0; y < shape_.height; ++y)
        for (std::int64_t x = 0; x < shape_.width; ++x)
          for (std::int64_t c = 0; c < shape_.channels; ++c)
            visit(static_cast<std::size_t>(shape_.offset(n, y, x, c)) * elementBytes_);
  }

  TensorShape shape_;
  std::size_t elementBytes_;
  std::vector<std::byte> memory_;
};

std::size_t labelBytes(const LossProblem& problem) {
  return problem.labelKind == LossLabels::ClassIndices ? sizeof(std::uint32_t) : 0;
}

/// All tensors of one run.
struct LossMemory {
  explicit LossMemory(const LossCase& lossCase)
      : predictions(lossCase.problem.predictions),
        labels(lossCase.problem.labels, labelBytes(lossCase.problem)),
        weights(lossCase.problem.weights),
        sourceGradient(lossCase.problem.sourceGradient),
        gradient(lossCase.problem.gradient),
        loss(lossCase.problem.loss),
        labelGradient(lossCase.problem.labelGradient) {}

  TensorMemory predictions;
  TensorMemory labels;
  TensorMemory weights;
  TensorMemory sourceGradient;
  TensorMemory gradient;
  TensorMemory loss;
  TensorMemory labelGradient;
};

std::vector<double> scaled(std::vector<double> values, double low, double high) {
  for (double& value : values) value = low + (high - low) * (value + 1) / 2;
  return values;
}

/// Predictions in the domain of the type.
std::vector<double> predictionValues(const LossCase& lossCase, std::size_t count) {
  if (lossCase.exact) return randomValues(count, kSeed, RandomKind::SmallIntegers);
  const std::vector<double> uniform = randomValues(count, kSeed, RandomKind::Uniform);
  switch (lossCase.problem.lossType) {
    case CNNLossType::CategoricalCrossEntropy:
      return scaled(uniform, 0.01, 1);
    case CNNLossType::Log:
      return scaled(uniform, 0.01, 0.99);
    case CNNLossType::KullbackLeiblerDivergence:
      return scaled(uniform, -5, 0);
    default:
      return scaled(uniform, -lossCase.range, lossCase.range);
  }
}

std::vector<double> labelValues(const LossCase& lossCase, std::size_t count) {
  const bool hinge = lossCase.problem.lossType == CNNLossType::Hinge;
  std::vector<double> bits = randomValues(count, kSeed + 1, RandomKind::ZeroOrOne);
  if (hinge) return bits;
  if (lossCase.exact) return randomValues(count, kSeed + 2, RandomKind::SmallIntegers);
  std::vector<double> values = randomValues(count, kSeed + 2, RandomKind::Positive);
  for (std::size_t i = 0; i < count; i += 3) values[i] = bits[i];  // zeros and ones too
  return values;
}

/// Class indices; every third pixel is left out if the case says so.
std::vector<double> indexValues(const LossCase& lossCase, std::size_t count) {
  std::vector<double> values = randomValues(count, kSeed + 3, RandomKind::Positive);
  const auto classes = static_cast<double>(lossCase.problem.countedChannels);
  const double none = 4294967295.0;
  for (std::size_t i = 0; i < count; ++i)
    values[i] = lossCase.leavesOut && i % 3 == 0 ? (i % 2 == 0 ? none : classes)
                                                 : std::min(std::floor(values[i] * classes), classes - 1);
  return values;
}

std::vector<double> weightValues(const LossCase& lossCase, std::size_t count) {
  std::vector<double> values = randomValues(count, kSeed + 4, RandomKind::Positive);
  if (lossCase.exact) values = randomValues(count, kSeed + 4, RandomKind::SmallIntegers);
  for (std::size_t i = 0; i < count; i += 4) values[i] = 0;
  return values;
}

void fillInputs(const LossCase& lossCase, LossMemory& memory) {
  const auto count = [](const TensorMemory& tensor) {
    return static_cast<std::size_t>(tensor.shape().elements());
  };
  memory.predictions.write(predictionValues(lossCase, count(memory.predictions)));
  switch (lossCase.problem.labelKind) {
    case LossLabels::Dense:
      memory.labels.write(labelValues(lossCase, count(memory.labels)));
      break;
    case LossLabels::ClassIndices:
      memory.labels.writeIndices(indexValues(lossCase, count(memory.labels)));
      break;
  }
  memory.weights.write(weightValues(lossCase, count(memory.weights)));
  memory.sourceGradient.write(randomValues(count(memory.sourceGradient), kSeed + 5, RandomKind::Uniform));
  if (lossCase.accumulate)
    memory.gradient.write(randomValues(count(memory.gradient), kSeed + 6, RandomKind::Uniform));
}

ReferenceTensor tensorOf(const TensorMemory& memory) {
  const TensorShape& shape = memory.shape();
  if (shape.channels == 0) return {};
  ReferenceTensor result(shape.images, shape.height, shape.width, shape.channels);
  result.values = memory.read();
  return result;
}

LossInputs inputsOf(const LossCase& lossCase, const LossMemory& memory) {
  LossInputs inputs;
  inputs.predictions = tensorOf(memory.predictions);
  inputs.weights = tensorOf(memory.weights);
  inputs.sourceGradient = tensorOf(memory.sourceGradient);
  if (lossCase.problem.labelKind == LossLabels::Dense) {
    inputs.labels = tensorOf(memory.labels);
  } else {
    const TensorShape& shape = lossCase.problem.labels;
    inputs.labels = ReferenceTensor(shape.images, shape.height, shape.width, 1);
    inputs.labels.values = indexValues(lossCase, inputs.labels.values.size());
  }
  inputs.weight = lossCase.weight;
  inputs.labelSmoothing = lossCase.labelSmoothing;
  inputs.epsilon = lossCase.epsilon;
  inputs.delta = lossCase.delta;
  return inputs;
}

void runPlan(const Plan& plan, const LossCase& lossCase, LossMemory& memory, int threads) {
  std::vector<double> scratch(plan.scratchBytes() / sizeof(double) + 1, kNaN);
  Operands operands;
  operands.source = memory.predictions.data();
  operands.secondary = memory.labels.data();
  operands.gradient = memory.sourceGradient.data();
  operands.destination = memory.gradient.data();
  operands.scratch = reinterpret_cast<std::byte*>(scratch.data());
  operands.parameters = {memory.weights.data(), memory.loss.data(), memory.labelGradient.data()};
  operands.scalars = {lossCase.weight, lossCase.labelSmoothing, lossCase.epsilon, lossCase.delta};
  operands.accumulate = lossCase.accumulate;
  mtl::cpu::Stream stream(threads);
  plan.run(stream, operands);
}

/// Puts a reduced loss into the first element of a larger loss image.
ReferenceTensor inLossImage(const ReferenceTensor& loss, const TensorShape& shape) {
  ReferenceTensor result(shape.images, shape.height, shape.width, shape.channels);
  if (loss.values.size() == result.values.size()) return loss;
  result.magnitude.assign(result.values.size(), 0);
  result.roundings = loss.roundings;
  result.transcendental = loss.transcendental;
  for (std::int64_t n = 0; n < shape.images; ++n) {
    result.values[result.index(n, 0, 0, 0)] = loss.values[static_cast<std::size_t>(n)];
    result.magnitude[result.index(n, 0, 0, 0)] = loss.magnitude[static_cast<std::size_t>(n)];
  }
  return result;
}

void compareOutput(const char* what, const ReferenceTensor& expected, const TensorMemory& found, Tier tier,
                   std::string& report) {
  if (found.shape().channels == 0) return;
  const Comparison comparison = compare(expected, found.read(), found.shape().format, tier, Zeros::Expected);
  if (!comparison.passed()) report += std::string(what) + ": " + comparison.report;
  if (!found.surroundingsUntouched()) report += std::string(what) + ": wrote outside the elements\n";
}

/// Empty, or how the outputs differ from the reference of `judge`, which is `lossCase` but for tests of the
/// test.
std::string judge(const LossCase& judgeCase, const LossCase& lossCase, const LossMemory& memory,
                  const LossMemory& before) {
  LossOutputs expected = lossReference(judgeCase.problem, inputsOf(judgeCase, memory));
  if (judgeCase.accumulate) {
    const std::vector<double> start = before.gradient.read();
    for (std::size_t i = 0; i < start.size(); ++i) expected.gradient.add(i, start[i]);
    expected.gradient.roundings += 1;
  }
  const Tier tier = lossCase.exact ? Tier::Exact : Tier::Bounded;
  std::string report;
  compareOutput("gradient", expected.gradient, memory.gradient, tier, report);
  compareOutput("label gradient", expected.labelGradient, memory.labelGradient, tier, report);
  if (lossCase.problem.loss.channels > 0)
    compareOutput("loss", inLossImage(expected.loss, lossCase.problem.loss), memory.loss, tier, report);
  return report;
}

class LossPlans : public testing::TestWithParam<LossCase> {};

TEST_P(LossPlans, AgreeWithTheReference) {
  const LossCase& lossCase = GetParam();
  SCOPED_TRACE(lossCase.problem.describe() + ", seed " + std::to_string(kSeed));
  for (const auto& implementation : lossImplementationsCpu()) {
    const ForceImplementation force(implementation.name);
    const ChosenPlan chosen = preparePlan(lossImplementationsCpu(), lossCase.problem);
    ASSERT_TRUE(!lossCase.accumulate || chosen.plan->canAccumulate());
    LossMemory memory(lossCase);
    fillInputs(lossCase, memory);
    const LossMemory before = memory;
    runPlan(*chosen.plan, lossCase, memory, 2);
    EXPECT_EQ(judge(lossCase, lossCase, memory, before), "") << implementation.name;
    EXPECT_EQ(memory.predictions.bytes(), before.predictions.bytes());
    EXPECT_EQ(memory.labels.bytes(), before.labels.bytes());
    EXPECT_EQ(memory.weights.bytes(), before.weights.bytes());
    EXPECT_EQ(memory.sourceGradient.bytes(), before.sourceGradient.bytes());
    for (const int threads : {1, 3, 2}) {
      LossMemory again = before;
      runPlan(*chosen.plan, lossCase, again, threads);
      EXPECT_EQ(again.gradient.bytes(), memory.gradient.bytes()) << threads << " threads";
      EXPECT_EQ(again.loss.bytes(), memory.loss.bytes()) << threads << " threads";
      EXPECT_EQ(again.labelGradient.bytes(), memory.labelGradient.bytes()) << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, LossPlans, testing::ValuesIn(lossCases()),
                         [](const auto& info) { return info.param.name; });

TEST(LossPlan, EmptyBatchDoesNothing) {
  const LossCase empty = lossCase(CNNLossType::MeanSquaredError, CNNReductionType::Sum, 0, 2, 2, 3);
  LossMemory memory(empty);
  runPlan(*preparePlan(lossImplementationsCpu(), empty.problem).plan, empty, memory, 2);
  EXPECT_TRUE(memory.gradient.surroundingsUntouched());
}

/// Runs a case on given predictions and labels of one image of one pixel.
LossMemory runPixel(const LossCase& lossCase, const std::vector<double>& predictions,
                    const std::vector<double>& labels) {
  LossMemory memory(lossCase);
  memory.predictions.write(predictions);
  memory.labels.write(labels);
  runPlan(*preparePlan(lossImplementationsCpu(), lossCase.problem).plan, lossCase, memory, 1);
  return memory;
}

TEST(LossPlan, NaNAndInfinityAreWhereTheReferenceHasThem) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> predictions = {0.5, kNaN, infinity, -infinity, 0, -1, 1, 2, 0.25};
  for (const CNNLossType type : lossTypes())
    for (const double label : {0.0, 1.0, 0.5}) {
      if (type == CNNLossType::SoftMaxCrossEntropy) continue;  // one of them spoils all: below
      const CNNReductionType reduction =
          type == CNNLossType::CosineDistance ? CNNReductionType::Sum : CNNReductionType::None;
      LossCase special = lossCase(type, reduction, 1, 1, 1, 9);
      special.epsilon = 0;
      const LossMemory memory = runPixel(special, predictions, std::vector<double>(9, label));
      EXPECT_EQ(judge(special, special, memory, memory), "") << name(type) << " label " << label;
    }
}

TEST(LossPlan, SoftMaxOfExtremePredictions) {
  const double infinity = std::numeric_limits<double>::infinity();
  const LossCase softMax = lossCase(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::None, 1, 1, 1, 3);
  for (const std::vector<double>& predictions : {std::vector<double>{1000, 0, -1000},
                                                 {3e38, -3e38, 0},
                                                 {-infinity, 1, 2},
                                                 {kNaN, 1, 2},
                                                 {infinity, 1, 2},
                                                 {-infinity, -infinity, -infinity}}) {
    const LossMemory memory = runPixel(softMax, predictions, {0, 1, 0});
    EXPECT_EQ(judge(softMax, softMax, memory, memory), "") << predictions[0];
  }
  const LossCase sum = lossCase(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum, 1, 1, 1, 3);
  EXPECT_EQ(runPixel(sum, {1000, 0, 0}, {1, 0, 0}).loss.read()[0], 0);
  EXPECT_EQ(runPixel(sum, {-infinity, 1, 1}, {0, 1, 0}).gradient.read()[0], 0);
}

TEST(LossPlan, SoftMaxFindsTheLargestPredictionAnywhere) {
  // exp(200) overflows float32: without the maximum subtracted, everything is infinite or NaN.
  for (const std::int64_t channels : {40, 2500})
    for (const std::size_t largest :
         {std::size_t{0}, std::size_t{21}, static_cast<std::size_t>(channels - 1)}) {
      const LossCase softMax =
          lossCase(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::None, 1, 1, 1, channels);
      std::vector<double> predictions(static_cast<std::size_t>(channels), -3);
      predictions[largest] = 200;
      std::vector<double> labels(static_cast<std::size_t>(channels), 0.25);
      const LossMemory memory = runPixel(softMax, predictions, labels);
      EXPECT_EQ(judge(softMax, softMax, memory, memory), "") << channels << " channels, largest " << largest;
    }
}

/// As training asks for it: no gradient for the labels.
LossCase softMaxForTraining(ImageFeatureChannelFormat format, std::int64_t images, std::int64_t channels) {
  LossCase softMax =
      lossCase(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Sum, images, 1, 1, channels);
  setFormats(softMax.problem, format, format);
  softMax.problem.labelGradient = {};
  return softMax;
}

TEST(LossPlan, Float16SoftMaxOfExtremePredictions) {
  const double infinity = std::numeric_limits<double>::infinity();
  const LossCase softMax = softMaxForTraining(ImageFeatureChannelFormat::Float16, 1, 3);
  for (const std::vector<double>& predictions : {std::vector<double>{60000, 0, -60000},
                                                 {0, -40, -60000},
                                                 {-infinity, 1, 2},
                                                 {kNaN, 1, 2},
                                                 {1, 2, kNaN},
                                                 {infinity, 1, 2},
                                                 {-infinity, -infinity, -infinity}}) {
    const LossMemory memory = runPixel(softMax, predictions, {0, 1, 0});
    EXPECT_EQ(judge(softMax, softMax, memory, memory), "") << predictions[0];
  }
}

TEST(LossPlan, Float16SoftMaxWithAndWithoutAShift) {
  // Up to 32 no shift is needed.
  for (const double outlier : {31.0, 32.0, 33.0, 300.0})
    for (const double sign : {1.0, -1.0})
      for (const std::int64_t channels : {2, 24, 70, 1000}) {
        const LossCase softMax = softMaxForTraining(ImageFeatureChannelFormat::Float16, 1, channels);
        std::vector<double> predictions = predictionValues(softMax, static_cast<std::size_t>(channels));
        predictions.back() = sign * outlier;
        const std::vector<double> labels = labelValues(softMax, predictions.size());
        const LossMemory memory = runPixel(softMax, predictions, labels);
        EXPECT_EQ(judge(softMax, softMax, memory, memory), "")
            << channels << " channels, " << predictions.back();
      }
}

TEST(LossPlan, Float16PixelsOfManyChannelsDoNotDependOnTheOthers) {
  constexpr std::int64_t images = 9;
  for (const std::int64_t channels : {600, 1001, 1024}) {
    const LossCase one = softMaxForTraining(ImageFeatureChannelFormat::Float16, 1, channels);
    const LossCase many = softMaxForTraining(ImageFeatureChannelFormat::Float16, images, channels);
    const auto count = static_cast<std::size_t>(channels);
    std::vector<double> predictions = predictionValues(many, images * count);
    for (const std::size_t image : {0U, 3U, 4U, 8U}) predictions[image * count + 5] = 50;  // needs a shift
    const std::vector<double> labels = labelValues(many, predictions.size());
    LossMemory memory(many);
    memory.predictions.write(predictions);
    memory.labels.write(labels);
    const LossMemory before = memory;
    for (const int threads : {1, 2, 4}) {
      memory = before;
      runPlan(*preparePlan(lossImplementationsCpu(), many.problem).plan, many, memory, threads);
      EXPECT_EQ(judge(many, many, memory, before), "") << channels << " channels";
      for (std::size_t image = 0; image < images; ++image) {
        const auto part = [&](const std::vector<double>& values) {
          const auto first = values.begin() + static_cast<std::ptrdiff_t>(image * count);
          return std::vector<double>(first, first + channels);
        };
        const LossMemory alone = runPixel(one, part(predictions), part(labels));
        EXPECT_EQ(part(memory.gradient.read()), alone.gradient.read()) << channels << ", image " << image;
        EXPECT_EQ(memory.loss.read()[image], alone.loss.read()[0]) << channels << ", image " << image;
      }
    }
  }
}

/// One image of a call, dense.
LossCase oneImageOf(LossCase lossCase) {
  LossProblem& problem = lossCase.problem;
  for (TensorShape* shape : {&problem.predictions, &problem.labels, &problem.weights, &problem.sourceGradient,
                             &problem.gradient, &problem.loss, &problem.labelGradient})
    if (shape->channels > 0)
      *shape = TensorShape::dense(1, shape->height, shape->width, shape->channels, shape->format);
  return lossCase;
}

/// The bytes of an image's elements, one after the other.
std::vector<std::byte> bytesOfImage(const TensorMemory& memory, std::int64_t image, std::size_t bytes) {
  const TensorShape& shape = memory.shape();
  std::vector<std::byte> result;
  if (shape.channels == 0) return result;
  for (std::int64_t y = 0; y < shape.height; ++y)
    for (std::int64_t x = 0; x < shape.width; ++x) {
      const std::byte* const from =
          memory.data() + static_cast<std::size_t>(shape.offset(image, y, x, 0)) * bytes;
      result.insert(result.end(), from, from + static_cast<std::size_t>(shape.channels) * bytes);
    }
  return result;
}
std::vector<std::byte> bytesOfImage(const TensorMemory& memory, std::int64_t image) {
  return bytesOfImage(memory, image, bytesPerChannel(memory.shape().format));
}

/// Compares each image of a call's results with what it gives alone, bit for bit.
void checkImagesAlone(const LossCase& many, const LossMemory& inputs, const LossMemory& results) {
  const LossCase one = oneImageOf(many);
  const auto plan = preparePlan(lossImplementationsCpu(), one.problem).plan;
  const auto copyImage = [](const TensorMemory& from, std::int64_t image, std::size_t bytes,
                            TensorMemory& to) {
    const std::vector<std::byte> elements = bytesOfImage(from, image, bytes);
    std::ranges::copy(elements, to.data());  // a tensor that the loss does not have is empty
  };
  for (std::int64_t image = 0; image < many.problem.predictions.images; ++image) {
    LossMemory alone(one);
    for (TensorMemory LossMemory::*tensor :
         {&LossMemory::predictions, &LossMemory::weights, &LossMemory::sourceGradient, &LossMemory::gradient})
      copyImage(inputs.*tensor, image, bytesPerChannel((inputs.*tensor).shape().format), alone.*tensor);
    const std::size_t bytes = labelBytes(many.problem);
    copyImage(inputs.labels, image, bytes > 0 ? bytes : bytesPerChannel(many.problem.labels.format),
              alone.labels);
    runPlan(*plan, one, alone, 1);
    for (TensorMemory LossMemory::*tensor :
         {&LossMemory::gradient, &LossMemory::loss, &LossMemory::labelGradient})
      ASSERT_EQ(bytesOfImage(results.*tensor, image), bytesOfImage(alone.*tensor, 0)) << "image " << image;
  }
}

/// Cases whose images may share a tile, and what few images of a call decide for others there.
std::vector<LossCase> casesOfSharedTiles() {
  std::vector<LossCase> cases = lossCases();
  for (const CNNLossType type : {CNNLossType::SoftMaxCrossEntropy, CNNLossType::SigmoidCrossEntropy})
    for (const std::int64_t channels : {2, 10, 16, 40, 300, 512, 600})
      for (const bool haveGaps : {false, true}) {
        LossCase float16Case = lossCase(type, CNNReductionType::Sum, 11, 1, 1, channels);
        float16Case.name += "Float16" + std::to_string(channels) + (haveGaps ? "Gaps" : "");
        setFormats(float16Case.problem, ImageFeatureChannelFormat::Float16,
                   ImageFeatureChannelFormat::Float16);
        float16Case.problem.labelGradient = {};
        float16Case.problem.loss.format = ImageFeatureChannelFormat::Float32;  // has the last bits
        if (haveGaps)
          for (TensorShape* shape :
               {&float16Case.problem.predictions, &float16Case.problem.labels, &float16Case.problem.gradient})
            *shape = withGaps(*shape);
        cases.push_back(float16Case);
      }
  std::erase_if(cases, [](const LossCase& item) {
    const LossProblem& problem = item.problem;
    return problem.reduceAcrossBatch || problem.predictions.images == 1;
  });
  return cases;
}

/// Some images of every case with what others do not have: predictions that need a shift.
void enlargeSomeImages(const LossCase& lossCase, LossMemory& memory) {
  std::vector<double> predictions = memory.predictions.read();
  const auto elements = predictions.size() / static_cast<std::size_t>(lossCase.problem.predictions.images);
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    const std::size_t image = i / elements;
    if (image % 3 == 1 && i % 4 == 1) predictions[i] = image % 2 == 0 ? -40 : 40;
    if (image % 7 == 5) predictions[i] = i % 5 == 0 ? 0 : -60;
  }
  memory.predictions.write(predictions);
}

TEST(LossPlan, AnImageHasTheSameBitsAloneAndAmongOthers) {
  const std::vector<LossCase> cases = casesOfSharedTiles();
  forEachTarget([&](const std::string& target) {
    for (const LossCase& item : cases) {
      SCOPED_TRACE(target + ": " + item.name + ", " + item.problem.describe());
      const ImageFeatureChannelFormat format = item.problem.predictions.format;
      const bool mayBeLarge =
          (item.problem.lossType == CNNLossType::SoftMaxCrossEntropy ||
           item.problem.lossType == CNNLossType::SigmoidCrossEntropy) &&
          (format == ImageFeatureChannelFormat::Float16 || format == ImageFeatureChannelFormat::Float32);
      for (const bool areMixed : {false, true}) {
        if (areMixed && !mayBeLarge) continue;
        LossMemory memory(item);
        fillInputs(item, memory);
        if (areMixed) enlargeSomeImages(item, memory);
        const LossMemory before = memory;
        runPlan(*preparePlan(lossImplementationsCpu(), item.problem).plan, item, memory, 3);
        checkImagesAlone(item, before, memory);
      }
    }
  });
}

TEST(LossPlan, GradientsOfUnalignedPixelsGoPastTheCaches) {
  constexpr std::int64_t channels = 1001;
  const NonTemporalFrom always(0);
  for (const auto format : {ImageFeatureChannelFormat::Float16, ImageFeatureChannelFormat::Float32}) {
    const LossCase one = softMaxForTraining(format, 1, channels);
    const auto pixelBytes = static_cast<std::size_t>(one.problem.gradient.bytes());
    LossCase many = softMaxForTraining(format, 200, channels);
    many.problem.predictions.imageStride = many.problem.labels.imageStride = 0;
    const std::vector<double> predictions = predictionValues(one, static_cast<std::size_t>(channels));
    const std::vector<double> labels = labelValues(one, predictions.size());
    const LossMemory expected = runPixel(one, predictions, labels);
    LossMemory memory(many);
    expected.predictions.copyTo(memory.predictions);
    expected.labels.copyTo(memory.labels);
    runPlan(*preparePlan(lossImplementationsCpu(), many.problem).plan, many, memory, 2);
    for (std::int64_t n = 0; n < many.problem.gradient.images; ++n)
      ASSERT_EQ(std::memcmp(memory.gradient.data() + static_cast<std::size_t>(n) * pixelBytes,
                            expected.gradient.data(), pixelBytes),
                0)
          << name(format) << " image " << n;
    EXPECT_TRUE(memory.gradient.surroundingsUntouched());
  }
}

TEST(LossPlan, PixelsLeftOutAreZeroWhateverTheirPredictions) {
  for (const CNNLossType type : lossTypes()) {
    LossCase leftOut = lossCase(type, CNNReductionType::Sum, 1, 1, 2, 3);
    leftOut.problem.labelKind = LossLabels::ClassIndices;
    leftOut.problem.labels = TensorShape::dense(1, 1, 2, 1);
    LossMemory memory(leftOut);
    memory.predictions.write(std::vector<double>{0.25, 0.5, 0.125, kNaN, kNaN, kNaN});
    memory.labels.writeIndices({1, 255});
    runPlan(*preparePlan(lossImplementationsCpu(), leftOut.problem).plan, leftOut, memory, 1);
    for (std::size_t i = 3; i < 6; ++i) {
      EXPECT_EQ(memory.gradient.read()[i], 0) << name(type);
      EXPECT_EQ(memory.labelGradient.read()[i], 0) << name(type);
    }
    EXPECT_TRUE(std::isfinite(memory.loss.read()[0])) << name(type);
  }
}

TEST(LossPlan, AccumulatesOnlyIntoFloat32) {
  LossCase half = lossCase(CNNLossType::MeanSquaredError, CNNReductionType::Sum, 1, 1, 1, 4);
  EXPECT_TRUE(preparePlan(lossImplementationsCpu(), half.problem).plan->canAccumulate());
  half.problem.gradient.format = ImageFeatureChannelFormat::Float16;
  EXPECT_FALSE(preparePlan(lossImplementationsCpu(), half.problem).plan->canAccumulate());
}

/// A change of one field that must show in the result of some case.
struct Perturbation {
  const char* name;
  std::function<void(LossCase&)> apply;
};

TEST(LossPlan, EachFieldMatters) {
  // Two images, so that the reductions over the batch differ; everything else is set to a value of its own.
  LossCase original = lossCase(CNNLossType::SoftMaxCrossEntropy, CNNReductionType::Mean, 2, 2, 3, 5);
  original.problem.weights = original.problem.predictions;
  original.problem.sourceGradient = TensorShape::dense(2, 1, 1, 1);
  original.problem.divideGradient = true;
  original.labelSmoothing = 0.25;
  original.weight = 0.5;
  LossCase huber = original;
  huber.problem.lossType = CNNLossType::Huber;
  huber.delta = 0.5;
  LossCase log = original;
  log.problem.lossType = CNNLossType::Log;
  log.epsilon = 0.125;
  LossCase indices = original;
  indices.problem.labelKind = LossLabels::ClassIndices;
  indices.problem.labels.channels = 1;

  const std::vector<std::pair<LossCase, Perturbation>> rows = {
      {original, {"lossType", [](LossCase& c) { c.problem.lossType = CNNLossType::SigmoidCrossEntropy; }}},
      {original, {"reductionType", [](LossCase& c) { c.problem.reductionType = CNNReductionType::Sum; }}},
      {original, {"reduceAcrossBatch", [](LossCase& c) { c.problem.reduceAcrossBatch = true; }}},
      {original, {"divideGradient", [](LossCase& c) { c.problem.divideGradient = false; }}},
      {original, {"exactSoftMaxGradient", [](LossCase& c) { c.problem.exactSoftMaxGradient = true; }}},
      {original, {"numberOfClasses", [](LossCase& c) { c.problem.numberOfClasses = 1; }}},
      {original, {"countedChannels", [](LossCase& c) { c.problem.countedChannels = 4; }}},
      {indices, {"labelKind", [](LossCase& c) { c.leavesOut = true; }}},
      {original, {"weight", [](LossCase& c) { c.weight *= 1.0001; }}},
      {original, {"labelSmoothing", [](LossCase& c) { c.labelSmoothing *= 1.0001; }}},
      {huber, {"delta", [](LossCase& c) { c.delta *= 1.0001; }}},
      {log, {"epsilon", [](LossCase& c) { c.epsilon *= 1.001; }}},
  };
  for (const auto& [lossCase, perturbation] : rows) {
    LossMemory memory(lossCase);
    fillInputs(lossCase, memory);
    runPlan(*preparePlan(lossImplementationsCpu(), lossCase.problem).plan, lossCase, memory, 2);
    EXPECT_EQ(judge(lossCase, lossCase, memory, memory), "") << perturbation.name;
    LossCase perturbed = lossCase;
    perturbation.apply(perturbed);
    EXPECT_NE(judge(perturbed, lossCase, memory, memory), "") << perturbation.name << " was not noticed";
    EXPECT_TRUE(perturbed.problem == lossCase.problem || perturbed.problem.hash() != lossCase.problem.hash());
  }
}

TEST(LossPlan, EachInputTensorMatters) {
  LossCase original = lossCase(CNNLossType::SigmoidCrossEntropy, CNNReductionType::None, 1, 2, 3, 5);
  original.problem.weights = original.problem.sourceGradient = original.problem.predictions;
  LossMemory memory(original);
  fillInputs(original, memory);
  runPlan(*preparePlan(lossImplementationsCpu(), original.problem).plan, original, memory, 2);
  for (TensorMemory LossMemory::*input :
       {&LossMemory::predictions, &LossMemory::labels, &LossMemory::weights, &LossMemory::sourceGradient}) {
    LossMemory changed = memory;
    std::vector<double> values = (changed.*input).read();
    values[17] += 0.01;
    (changed.*input).write(values);
    EXPECT_NE(judge(original, original, changed, changed), "");
  }
}

}  // namespace
}  // namespace mps::detail::loss_plan_test
