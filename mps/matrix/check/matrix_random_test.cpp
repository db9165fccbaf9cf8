#include "mps/matrix/matrix_random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/conform/guarded/guarded_memory.hpp"
#include "mps/conform/testing/test_tensor.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/cpu/for_each_target.hpp"
#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/core/types/error.hpp"
#include "mps/matrix/check/matrix_cases.hpp"
#include "mps/matrix/check/matrix_reference.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::matrix_random_test {
namespace {

using detail::MatrixRandomCase;
using detail::MatrixRandomProblem;
using detail::RandomGenerator;
using detail::RandomNumbers;
using Words = std::vector<std::uint32_t>;
using Descriptor = MatrixRandomDistributionDescriptor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string errorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

::testing::AssertionResult names(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (text.find(word) == std::string::npos)
      return ::testing::AssertionFailure() << "\"" << word << "\" is not in \"" << text << "\"";
  return ::testing::AssertionSuccess();
}

/// Words as float16: detail::matrixRandomReference.
detail::TensorShape inHalves(detail::TensorShape shape) {
  shape.format = ImageFeatureChannelFormat::Unorm16;
  for (std::int64_t* size : {&shape.channels, &shape.pixelStride, &shape.rowStride, &shape.imageStride})
    *size *= 2;
  return shape;
}

/// One fill of a plan, its stream at `skipped`.
std::shared_ptr<mtl::Device> device() {
  static const std::shared_ptr<mtl::Device> made = mtl::newCPUDevice(3);
  return made;
}

/// Runs the plan of a problem in scratch memory between guards.
void runPlan(const MatrixRandomProblem& problem, mtl::cpu::Stream& stream, detail::Operands operands) {
  const auto plan = preparePlan(detail::matrixRandomImplementationsCpu(), problem).plan;
  const detail::GuardedMemory scratch(device(), plan->scratchBytes());
  operands.scratch = scratch.address();
  plan->run(stream, operands);
  EXPECT_TRUE(scratch.guardsIntact()) << "memory around the scratch was written";
}

class Fill {
 public:
  Fill(const MatrixRandomCase& item, RandomGenerator generator, int threads = 3)
      : problem_(item.problem(generator)),
        destination_(
            device(),
            problem_.numbers == RandomNumbers::Words ? inHalves(problem_.destination) : problem_.destination,
            2) {
    words_ = wordsOf(item, generator);
    detail::Operands operands;
    operands.destination = destination_.address();
    operands.scalars[0] = static_cast<double>(item.skippedBlocks);
    std::array<std::uint32_t, detail::kMTGP32StateWords> state{};
    detail::seedMTGP32(seed32(item), state);
    operands.parameters[0] = reinterpret_cast<std::byte*>(state.data());
    mtl::cpu::Stream stream(threads);
    if (generator == RandomGenerator::MTGP32 && item.skippedBlocks > 0) {
      MatrixRandomProblem skipped;
      skipped.generator = generator;
      skipped.destination = detail::matrixShape(1, 1, static_cast<std::int64_t>(item.skipped()));
      Words unused(item.skipped());
      detail::Operands skip = operands;
      skip.destination = reinterpret_cast<std::byte*>(unused.data());
      runPlan(skipped, stream, skip);
    }
    runPlan(problem_, stream, operands);
  }

  static Words wordsOf(const MatrixRandomCase& item, RandomGenerator generator) {
    const auto count = static_cast<std::size_t>(item.matrices * item.rows * item.columns);
    return generator == RandomGenerator::Philox
               ? detail::philoxReference(item.seed, item.skippedBlocks, count)
               : detail::mtgp32Reference(seed32(item), item.skipped(), count);
  }

  detail::Comparison judge(const MatrixRandomProblem& problem) {
    const bool isNormal = problem.numbers == RandomNumbers::Normal;
    return compare(matrixRandomReference(problem, words_), destination_.read(), destination_.shape().format,
                   isNormal ? detail::Tier::Bounded : detail::Tier::Exact, detail::Zeros::Expected);
  }
  detail::Comparison judge() { return judge(problem_); }
  bool surroundingsIntact() { return destination_.surroundingsIntact(); }
  std::vector<double> found() { return destination_.read(); }

 private:
  static std::uint32_t seed32(const MatrixRandomCase& item) {
    return static_cast<std::uint32_t>(item.seed) ^ static_cast<std::uint32_t>(item.seed >> 32U);
  }
  MatrixRandomProblem problem_;
  detail::TestTensor destination_;
  Words words_;
};

TEST(MatrixRandomPlan, AgreesWithTheReferenceOnEveryInstructionSet) {
  detail::forEachTarget([](const std::string& target) {
    for (const MatrixRandomCase& item : detail::matrixRandomCases())
      for (const auto generator : {RandomGenerator::Philox, RandomGenerator::MTGP32}) {
        SCOPED_TRACE(target + " " + item.name + ": " + item.problem(generator).describe());
        Fill fill(item, generator);
        const detail::Comparison comparison = fill.judge();
        EXPECT_TRUE(comparison.passed()) << comparison.report;
        EXPECT_TRUE(fill.surroundingsIntact()) << "memory around the elements was written";
      }
  });
}

TEST(MatrixRandomPlan, ThreadsDoNotMatter) {
  for (const MatrixRandomCase& item : detail::matrixRandomCases())
    for (const auto generator : {RandomGenerator::Philox, RandomGenerator::MTGP32}) {
      Fill one(item, generator, 1);
      for (const int threads : {2, 7}) {
        Fill several(item, generator, threads);
        EXPECT_EQ(several.found(), one.found()) << item.name;
      }
    }
}

/// With non-temporal stores, and from an address amid a cache line; MTGP32 chunk by chunk.
TEST(MatrixRandomPlan, FillsPastTheCaches) {
  const detail::NonTemporalFrom always(0);
  constexpr std::size_t count = 1'300'001;
  constexpr std::uint32_t untouched = 0x7FA12345;
  MatrixRandomProblem problem;
  problem.destination = detail::matrixShape(1, 1, count);
  problem.seed = 11;
  std::array<std::uint32_t, detail::kMTGP32StateWords> state{};
  detail::seedMTGP32(11, state);
  mtl::cpu::Stream stream(3);
  for (const auto generator : {RandomGenerator::Philox, RandomGenerator::MTGP32}) {
    problem.generator = generator;
    Words expected = generator == RandomGenerator::Philox ? detail::philoxReference(11, 0, count)
                                                          : detail::mtgp32Reference(11, 0, count);
    expected.insert(expected.begin(), 3, untouched);
    expected.push_back(untouched);
    Words found(expected.size(), untouched);
    detail::Operands operands;
    operands.destination = reinterpret_cast<std::byte*>(found.data() + 3);
    operands.parameters[0] = reinterpret_cast<std::byte*>(state.data());
    runPlan(problem, stream, operands);
    EXPECT_TRUE(found == expected) << problem.describe();
  }
}

/// Blocks beyond 2^32 continue in the third word of the counter.
TEST(MatrixRandomPlan, BlocksBeyond32Bits) {
  const MatrixRandomCase item{
      .name = "", .columns = 400, .seed = 3, .skippedBlocks = (std::uint64_t{1} << 32U) - 40};
  detail::forEachTarget([&](const std::string& target) {
    Fill fill(item, RandomGenerator::Philox);
    EXPECT_TRUE(fill.judge().passed()) << target;
  });
}

TEST(MatrixRandomPlan, EveryFieldMatters) {
  MatrixRandomCase item{.name = "", .numbers = RandomNumbers::Normal, .columns = 200};
  item.mean = 1;
  item.standardDeviation = 2;
  item.minimum = 0;
  item.maximum = 4;
  Fill fill(item, RandomGenerator::Philox);
  const MatrixRandomProblem problem = item.problem(RandomGenerator::Philox);
  const auto expectSeen = [&](const char* what, auto change) {
    MatrixRandomProblem other = problem;
    change(other);
    EXPECT_FALSE(fill.judge(other).passed()) << what;
    EXPECT_FALSE(other == problem) << what;
    EXPECT_NE(other.hash(), problem.hash()) << what;
  };
  expectSeen("numbers", [](auto& p) { p.numbers = RandomNumbers::Uniform; });
  expectSeen("minimum", [](auto& p) { p.minimum = 0.01F; });
  expectSeen("maximum", [](auto& p) { p.maximum = 3.99F; });
  expectSeen("mean", [](auto& p) { p.mean = 1.001F; });
  expectSeen("standardDeviation", [](auto& p) { p.standardDeviation = 2.001F; });
  MatrixRandomCase other = item;
  other.gap = 1;
  EXPECT_NE(other.problem(RandomGenerator::Philox).hash(), problem.hash());
  other.seed = 2;
  EXPECT_NE(other.problem(RandomGenerator::Philox).hash(), problem.hash());
  EXPECT_NE(Fill(other, RandomGenerator::Philox).found(), fill.found());
  EXPECT_NE(item.problem(RandomGenerator::MTGP32).hash(), problem.hash());
  EXPECT_NE(Fill(item, RandomGenerator::MTGP32).found(), fill.found());
}

class MatrixRandomTest : public ::testing::Test {
 protected:
  std::shared_ptr<mtl::Device> device_ = mtl::newCPUDevice(2);
  std::shared_ptr<mtl::CommandQueue> queue_ = device_->newCommandQueue();

  [[nodiscard]] std::shared_ptr<Vector> vector(std::size_t length, DataType type = DataType::Float32) const {
    return Vector::create(device_, VectorDescriptor::vectorDescriptor(length, type));
  }
  template <class Encode>
  void run(Encode&& encode) {
    const auto commandBuffer = queue_->commandBuffer();
    encode(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
  }
  /// The next numbers of a generator.
  template <class T = float>
  std::vector<T> draw(MatrixRandom& random, std::size_t count) {
    const auto destination = vector(count, random.destinationDataType());
    run([&](const auto& commandBuffer) {
      random.encode(commandBuffer, destination);
      destination->synchronize(commandBuffer);
    });
    const auto found = destination->data()->contentsAs<T>();
    return {found.begin(), found.end()};
  }
};

using MatrixRandomTypes = ::testing::Types<MatrixRandomMTGP32, MatrixRandomPhilox>;
template <class Random>
class MatrixRandomOf : public MatrixRandomTest {
 protected:
  static Words words(std::uint32_t seed, std::size_t skipped, std::size_t count) {
    if constexpr (std::is_same_v<Random, MatrixRandomPhilox>)
      return detail::philoxReference(seed, skipped / 4, count);
    else
      return detail::mtgp32Reference(seed, skipped, count);
  }
};
TYPED_TEST_SUITE(MatrixRandomOf, MatrixRandomTypes);

TYPED_TEST(MatrixRandomOf, Defaults) {
  const auto random = TypeParam::create(this->device_);
  EXPECT_EQ(random->destinationDataType(), DataType::UInt32);
  EXPECT_EQ(random->distributionType(), MatrixRandomDistribution::Default);
  EXPECT_EQ(random->batchStart(), 0U);
  EXPECT_EQ(random->batchSize(), std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(this->template draw<std::uint32_t>(*random, 8), this->words(0, 0, 8));
}

TYPED_TEST(MatrixRandomOf, EncodesContinueAndFreshObjectsRepeat) {
  const auto parts = TypeParam::create(this->device_, DataType::UInt32, 11);
  Words joined = this->template draw<std::uint32_t>(*parts, 100);
  const Words rest = this->template draw<std::uint32_t>(*parts, 300);
  joined.insert(joined.end(), rest.begin(), rest.end());
  const auto whole = TypeParam::create(this->device_, DataType::UInt32, 11);
  EXPECT_EQ(this->template draw<std::uint32_t>(*whole, 400), joined);
  EXPECT_EQ(joined, this->words(11, 0, 400));
}

TYPED_TEST(MatrixRandomOf, TheSeedHas64Bits) {
  const auto low = TypeParam::create(this->device_, DataType::UInt32, 5);
  const auto wide = TypeParam::create(this->device_, DataType::UInt32, (std::uint64_t{7} << 32U) | 5U);
  EXPECT_NE(this->template draw<std::uint32_t>(*low, 8), this->template draw<std::uint32_t>(*wide, 8));
}

/// Length 801 inside a larger buffer, offset 12 bytes: bytes around it unchanged.
TYPED_TEST(MatrixRandomOf, OnlyTheElementsAreWritten) {
  const auto buffer = this->device_->newBuffer(12 + 801 * 4 + 20);
  std::memset(buffer->contents(), 0xA5, buffer->length());
  buffer->didModifyRange(0, buffer->length());
  const auto destination =
      Vector::create(buffer, VectorDescriptor::vectorDescriptor(801, DataType::UInt32), 12);
  const auto random = TypeParam::create(this->device_, DataType::UInt32, 3);
  this->run([&](const auto& commandBuffer) { random->encode(commandBuffer, destination); });
  const auto bytes = buffer->template contentsAs<std::uint8_t>();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i < 12 || i >= 12 + 801 * 4) {
      ASSERT_EQ(bytes[i], 0xA5) << i;
    }
  }
  Words found(801);
  std::memcpy(found.data(), buffer->contents() + 12, 801 * 4);
  EXPECT_EQ(found, this->words(3, 0, 801));
}

TYPED_TEST(MatrixRandomOf, MatricesAreFilledRowByRow) {
  const auto matrix =
      Matrix::create(this->device_, MatrixDescriptor::matrixDescriptor(2, 3, 4, 16, 48, DataType::UInt32));
  const auto random = TypeParam::create(this->device_, DataType::UInt32, 3);
  random->setBatchStart(1);
  random->setBatchSize(2);
  this->run([&](const auto& commandBuffer) { random->encode(commandBuffer, matrix); });
  const Words expected = this->words(3, 0, 12);
  const auto found = matrix->data()->template contentsAs<std::uint32_t>();
  std::size_t next = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::size_t k = i / 12;
    const bool isFilled = (k == 1 || k == 2) && i % 12 < 8 && i % 4 < 3;
    EXPECT_EQ(found[i], isFilled ? expected[next++] : 0U) << i;
  }
  EXPECT_EQ(next, 12U);
}

TYPED_TEST(MatrixRandomOf, SeveralVectors) {
  const auto vectors =
      Vector::create(this->device_, VectorDescriptor::vectorDescriptor(3, 2, 16, DataType::UInt32));
  const auto random = TypeParam::create(this->device_, DataType::UInt32, 3);
  this->run([&](const auto& commandBuffer) { random->encode(commandBuffer, vectors); });
  const Words expected = this->words(3, 0, 6);
  const auto found = vectors->data()->template contentsAs<std::uint32_t>();
  EXPECT_EQ(Words(found.begin(), found.end()),
            (Words{expected[0], expected[1], expected[2], 0, expected[3], expected[4], expected[5], 0}));
}

TYPED_TEST(MatrixRandomOf, NothingToFillLeavesTheStreamAlone) {
  const auto random = TypeParam::create(this->device_, DataType::UInt32, 3);
  const auto matrix =
      Matrix::create(this->device_, MatrixDescriptor::matrixDescriptor(2, 3, 4, 16, 48, DataType::UInt32));
  const auto commandBuffer = this->queue_->commandBuffer();
  random->encode(commandBuffer, this->vector(0, DataType::UInt32));
  random->setBatchSize(0);
  random->encode(commandBuffer, matrix);
  random->setBatchSize(9);
  random->setBatchStart(4);
  random->encode(commandBuffer, matrix);
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
  random->setBatchStart(0);
  EXPECT_EQ(this->template draw<std::uint32_t>(*random, 4), this->words(3, 0, 4));
}

TYPED_TEST(MatrixRandomOf, ATemporaryVectorCanBeFilled) {
  const auto random = TypeParam::create(this->device_, DataType::Float32, 3);
  this->run([&](const auto& commandBuffer) {
    const auto temporary =
        TemporaryVector::create(commandBuffer, VectorDescriptor::vectorDescriptor(100, DataType::Float32));
    random->encode(commandBuffer, temporary);
    EXPECT_EQ(temporary->readCount(), 1U) << "writing is no read";
    temporary->setReadCount(0);
    EXPECT_TRUE(names(errorOf([&] { random->encode(commandBuffer, temporary); }),
                      {"destinationVector", "readCount is 0"}));
    const auto foreign = TemporaryVector::create(this->queue_->commandBuffer(),
                                                 VectorDescriptor::vectorDescriptor(100, DataType::Float32));
    EXPECT_TRUE(names(errorOf([&] { random->encode(commandBuffer, foreign); }),
                      {"destinationVector", "another command buffer"}));
  });
}

TYPED_TEST(MatrixRandomOf, WrongArgumentsAreRefused) {
  const auto random = TypeParam::create(this->device_, DataType::Float32, 3);
  const auto commandBuffer = this->queue_->commandBuffer();
  const auto good = this->vector(4);
  const auto encode = [&](const auto& destination) {
    return errorOf([&] { random->encode(commandBuffer, destination); });
  };
  EXPECT_EQ(encode(good), "");
  EXPECT_TRUE(names(encode(std::shared_ptr<Vector>()), {random->className(), "destinationVector", "null"}));
  EXPECT_TRUE(names(encode(std::shared_ptr<Matrix>()), {"destinationMatrix", "null"}));
  EXPECT_TRUE(names(encode(this->vector(4, DataType::UInt32)), {"destinationVector", "UInt32", "Float32"}));
  EXPECT_TRUE(names(encode(this->vector(4, DataType::Int64)), {"Int64"}));
  EXPECT_TRUE(names(
      encode(Vector::create(mtl::newCPUDevice(1), VectorDescriptor::vectorDescriptor(4, DataType::Float32))),
      {"destinationVector", "another device"}));
  EXPECT_TRUE(names(errorOf([&] { random->encode(nullptr, good); }), {"commandBuffer", "null"}));
  random->setBatchStart(2);
  EXPECT_TRUE(names(encode(good), {"batchStart", "2", "1"}));
  EXPECT_EQ(commandBuffer->commandCount(), 1U) << "what was refused is not recorded";
}

TYPED_TEST(MatrixRandomOf, WrongDistributionsAreRefused) {
  const auto create = [&](const Descriptor& descriptor, DataType type = DataType::Float32) {
    return errorOf([&] { (void)TypeParam::create(this->device_, type, 0, descriptor); });
  };
  const float nan = std::nanf("");
  EXPECT_EQ(create(Descriptor::uniformDistributionDescriptor(1, 1)), "");
  EXPECT_TRUE(names(create(Descriptor::uniformDistributionDescriptor(1, 0.5F)), {"minimum and maximum"}));
  EXPECT_TRUE(names(create(Descriptor::uniformDistributionDescriptor(nan, 1)), {"minimum and maximum"}));
  EXPECT_TRUE(names(create(Descriptor::uniformDistributionDescriptor(0, nan)), {"minimum and maximum"}));
  EXPECT_TRUE(names(create(Descriptor::uniformDistributionDescriptor(-3e38F, 3e38F)), {"finite difference"}));
  EXPECT_TRUE(names(create(Descriptor::uniformDistributionDescriptor(0, kInfinity)), {"finite difference"}));
  EXPECT_EQ(create(Descriptor::normalDistributionDescriptor(1, 0)), "");
  EXPECT_TRUE(names(create(Descriptor::normalDistributionDescriptor(1, -1)), {"standardDeviation", "-1"}));
  EXPECT_TRUE(names(create(Descriptor::normalDistributionDescriptor(1, nan)), {"standardDeviation", "nan"}));
  EXPECT_TRUE(
      names(create(Descriptor::normalDistributionDescriptor(1, kInfinity)), {"standardDeviation", "inf"}));
  EXPECT_TRUE(names(create(Descriptor::normalDistributionDescriptor(nan, 1)), {"mean", "nan"}));
  EXPECT_TRUE(names(create(Descriptor::normalDistributionDescriptor(kInfinity, 1)), {"mean", "inf"}));
  EXPECT_TRUE(names(create(Descriptor::normalDistributionDescriptor(0, 1, 2, 1)), {"minimum and maximum"}));
  EXPECT_TRUE(names(create(Descriptor::normalDistributionDescriptor(0, 1, nan, 1)), {"minimum and maximum"}));
  EXPECT_TRUE(names(create(Descriptor::normalDistributionDescriptor(0, 1, kInfinity, kInfinity)),
                    {"minimum and maximum"}));
  EXPECT_TRUE(names(create(Descriptor::normalDistributionDescriptor(0, 1, -kInfinity, -kInfinity)),
                    {"minimum and maximum"}));
  EXPECT_TRUE(names(create(Descriptor::uniformDistributionDescriptor(0, 1), DataType::UInt32),
                    {"distributionType", "Uniform with UInt32"}));
  EXPECT_TRUE(names(create(Descriptor::normalDistributionDescriptor(0, 1), DataType::UInt32),
                    {"distributionType", "Normal with UInt32"}));
  EXPECT_TRUE(names(create(Descriptor::defaultDistributionDescriptor(), DataType::Float16),
                    {"destinationDataType", "Float16"}));
  auto unknown = Descriptor::defaultDistributionDescriptor();
  unknown.setDistributionType(static_cast<MatrixRandomDistribution>(4));
  EXPECT_TRUE(names(create(unknown), {"distributionType", "4"}));
  EXPECT_TRUE(names(errorOf([] { (void)TypeParam::create(nullptr); }), {"device", "null"}));
}

/// How far a mean of a million numbers may be off.
double millionTolerance(double variance) {
  return detail::sampleTolerance(variance, 1e6);
}

TYPED_TEST(MatrixRandomOf, AMillionUniformNumbers) {
  const auto random = TypeParam::create(this->device_, DataType::Float32, 2024,
                                        Descriptor::uniformDistributionDescriptor(-0.2F, 0.2F));
  const std::vector<float> numbers = this->draw(*random, 1000000);
  double sum = 0;
  double squares = 0;
  for (const float number : numbers) {
    ASSERT_GE(number, -0.2F);
    ASSERT_LT(number, 0.2F);
    sum += static_cast<double>(number);
    squares += static_cast<double>(number) * static_cast<double>(number);
  }
  EXPECT_NEAR(sum / 1e6, 0, millionTolerance(0.04 / 3));
  // E x^2 = w^2 / 3 and E x^4 = w^4 / 5 between -w and w.
  EXPECT_NEAR(squares / 1e6, 0.04 / 3, millionTolerance(0.0016 / 5 - 0.0016 / 9));
}

TYPED_TEST(MatrixRandomOf, AMillionNormalNumbers) {
  const auto random = TypeParam::create(this->device_, DataType::Float32, 2025,
                                        Descriptor::normalDistributionDescriptor(3, 2));
  const std::vector<float> numbers = this->draw(*random, 1000000);
  double sum = 0;
  double squares = 0;
  double fourths = 0;
  for (const float number : numbers) {
    const double z = (static_cast<double>(number) - 3) / 2;
    sum += z;
    squares += z * z;
    fourths += z * z * z * z;
  }
  EXPECT_NEAR(sum / 1e6, 0, millionTolerance(1));
  EXPECT_NEAR(squares / 1e6, 1, millionTolerance(2));
  EXPECT_NEAR(fourths / 1e6, 3, millionTolerance(96));
}

TYPED_TEST(MatrixRandomOf, BoundedNormalNumbers) {
  const auto random = TypeParam::create(this->device_, DataType::Float32, 2026,
                                        Descriptor::normalDistributionDescriptor(1, 2, 0, 4));
  const std::vector<float> numbers = this->draw(*random, 1000000);
  double sum = 0;
  for (const float number : numbers) {
    ASSERT_GE(number, 0);
    ASSERT_LE(number, 4);
    sum += static_cast<double>(number);
  }
  EXPECT_NEAR(sum / 1e6, 1.7125, millionTolerance(1));
}

/// Every byte of the words takes each value about as often: chi squared with 255 degrees of freedom.
TYPED_TEST(MatrixRandomOf, BytesAreEquallyFrequent) {
  const auto random = TypeParam::create(this->device_, DataType::UInt32, 99);
  const Words words = this->template draw<std::uint32_t>(*random, 256000);
  for (unsigned shift = 0; shift < 32; shift += 8) {
    std::vector<double> counts(256);
    for (const std::uint32_t word : words) counts[(word >> shift) & 0xFFU] += 1;
    double chi = 0;
    for (const double count : counts) chi += (count - 1000) * (count - 1000) / 1000;
    EXPECT_GT(chi, 150) << shift;
    EXPECT_LT(chi, 380) << shift;
  }
}

TYPED_TEST(MatrixRandomOf, TheNumberOfThreadsDoesNotMatter) {
  std::vector<float> first;
  for (const int threads : {1, 2, 5}) {
    this->device_ = mtl::newCPUDevice(threads);
    this->queue_ = this->device_->newCommandQueue();
    const auto random = TypeParam::create(this->device_, DataType::Float32, 8,
                                          Descriptor::normalDistributionDescriptor(0, 1));
    const std::vector<float> numbers = this->draw(*random, 50001);
    if (first.empty()) first = numbers;
    EXPECT_EQ(numbers, first) << threads;
  }
}

TEST_F(MatrixRandomTest, KnownAnswersOfSection4_7) {
  const auto unit = MatrixRandomPhilox::create(device_, DataType::Float32, 0);
  EXPECT_EQ(draw(*unit, 8), (std::vector<float>{0.399046421F, 0.880520105F, 0.735712767F, 0.605481744F,
                                                0.178931355F, 0.0753308535F, 0.988172531F, 0.634882569F}));
  const auto uniform = MatrixRandomPhilox::create(device_, DataType::Float32, 0,
                                                  Descriptor::uniformDistributionDescriptor(-0.2F, 0.2F));
  const auto normal = MatrixRandomPhilox::create(device_, DataType::Float32, 0,
                                                 Descriptor::normalDistributionDescriptor(0, 1));
  const std::vector<float> fromUniform = draw(*uniform, 4);
  const std::vector<float> fromNormal = draw(*normal, 4);
  const double uniforms[] = {-0.0403814, 0.152208, 0.0942851, 0.0421927};
  const double normals[] = {-0.255816, 1.177591, 0.630184, 0.267562};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(static_cast<double>(fromUniform[i]), uniforms[i], detail::printedTolerance(6));
    EXPECT_NEAR(static_cast<double>(fromNormal[i]), normals[i], detail::printedTolerance(6));
  }
  const auto mtgp = MatrixRandomMTGP32::create(device_, DataType::UInt32, 1);
  const Words words = draw<std::uint32_t>(*mtgp, 1001);
  EXPECT_EQ(words[0], 0x601f577dU);
  EXPECT_EQ(words[1000], 0xeed86279U);
}

TEST_F(MatrixRandomTest, AStartedPhiloxBlockIsFinishedWithTheEncode) {
  const auto random = MatrixRandomPhilox::create(device_, DataType::UInt32, 4);
  EXPECT_EQ(draw<std::uint32_t>(*random, 5), detail::philoxReference(4, 0, 5));
  EXPECT_EQ(draw<std::uint32_t>(*random, 5), detail::philoxReference(4, 2, 5));
}

TEST_F(MatrixRandomTest, MTGP32GoesOnWithAnyNumber) {
  const auto random = MatrixRandomMTGP32::create(device_, DataType::UInt32, 4);
  EXPECT_EQ(draw<std::uint32_t>(*random, 5), detail::mtgp32Reference(4, 0, 5));
  EXPECT_EQ(draw<std::uint32_t>(*random, 2500), detail::mtgp32Reference(4, 5, 2500));
  EXPECT_EQ(draw<std::uint32_t>(*random, 3), detail::mtgp32Reference(4, 2505, 3));
}

TEST_F(MatrixRandomTest, WideSeedsOfMTGP32AreFolded) {
  const auto random = MatrixRandomMTGP32::create(device_, DataType::UInt32, (std::uint64_t{6} << 32U) | 5U);
  EXPECT_EQ(draw<std::uint32_t>(*random, 5), detail::mtgp32Reference(3, 0, 5));
}

TEST_F(MatrixRandomTest, APhiloxCopyGoesOnFromTheSamePosition) {
  const auto random = MatrixRandomPhilox::create(device_, DataType::UInt32, 4);
  random->setBatchStart(0);
  random->setBatchSize(1);
  random->setLabel("noise");
  (void)draw<std::uint32_t>(*random, 8);
  const auto other = random->copy();
  EXPECT_EQ(other->label(), "noise");
  EXPECT_EQ(other->batchSize(), 1U);
  const Words expected = detail::philoxReference(4, 2, 8);
  EXPECT_EQ(draw<std::uint32_t>(*other, 8), expected);
  EXPECT_EQ(draw<std::uint32_t>(*random, 8), expected);
}

TEST_F(MatrixRandomTest, AnMTGP32CopyGoesOnFromTheSynchronizedState) {
  const auto random = MatrixRandomMTGP32::create(device_, DataType::UInt32, 4);
  (void)draw<std::uint32_t>(*random, 7);
  EXPECT_EQ(draw<std::uint32_t>(*random->copy(), 3), detail::mtgp32Reference(4, 0, 3));
  run([&](const auto& commandBuffer) { random->synchronizeState(commandBuffer); });
  (void)draw<std::uint32_t>(*random, 10);
  EXPECT_EQ(draw<std::uint32_t>(*random->copy(), 3), detail::mtgp32Reference(4, 7, 3));
  EXPECT_EQ(draw<std::uint32_t>(*random, 3), detail::mtgp32Reference(4, 17, 3)) << "copies leave it alone";
  EXPECT_TRUE(names(errorOf([&] { random->synchronizeState(nullptr); }), {"commandBuffer", "null"}));

  const auto there = mtl::newCPUDevice(1);
  const auto moved = random->copy(there);
  EXPECT_EQ(moved->device(), there);
  device_ = there;
  queue_ = there->newCommandQueue();
  EXPECT_EQ(draw<std::uint32_t>(*moved, 3), detail::mtgp32Reference(4, 7, 3));
}

template <class Generator>
std::shared_ptr<Generator> decodedCopy(const Generator& random, const std::shared_ptr<mtl::Device>& device) {
  KeyedArchiver archiver;
  random.encode(archiver);
  const std::vector<std::byte> bytes = archiver.encodedData();
  KeyedUnarchiver unarchiver(bytes, device);
  return Generator::decode(unarchiver);
}

TEST_F(MatrixRandomTest, CodedGeneratorsGoOnInTheMiddleOfTheirStream) {
  const auto philox = MatrixRandomPhilox::create(device_, DataType::UInt32, 4);
  const auto twister = MatrixRandomMTGP32::create(device_, DataType::UInt32, 4);
  for (const std::size_t count : {3U, 801U, 1U}) {
    (void)draw<std::uint32_t>(*philox, count);
    (void)draw<std::uint32_t>(*twister, count);
  }
  run([&](const auto& commandBuffer) { twister->synchronizeState(commandBuffer); });
  (void)draw<std::uint32_t>(*twister, 10);
  EXPECT_EQ(draw<std::uint32_t>(*decodedCopy(*philox, device_), 9), detail::philoxReference(4, 203, 9));
  EXPECT_EQ(draw<std::uint32_t>(*decodedCopy(*twister, device_), 900), detail::mtgp32Reference(4, 805, 900))
      << "from the last synchronizeState()";
}

/// The kernel may go before its work runs.
TEST_F(MatrixRandomTest, RecordedWorkOutlivesTheKernel) {
  const auto destination = vector(6, DataType::UInt32);
  run([&](const auto& commandBuffer) {
    MatrixRandomMTGP32::create(device_, DataType::UInt32, 4)->encode(commandBuffer, destination);
  });
  const auto found = destination->data()->contentsAs<std::uint32_t>();
  EXPECT_EQ(Words(found.begin(), found.end()), detail::mtgp32Reference(4, 0, 6));
}

/// A failed command leaves no good state behind: the next encode says so.
TEST_F(MatrixRandomTest, AFailureOfAnEarlierCommandIsReported) {
  const auto destination = vector(6);
  const auto random = MatrixRandomPhilox::create(device_, DataType::Float32);
  destination->data()->memory()->setFailure("no power");
  run([&](const auto& commandBuffer) { random->encode(commandBuffer, destination); });
  EXPECT_EQ(destination->data()->memory()->failure(), "") << "it was filled anew";
}

TEST(MatrixRandomDistributionDescriptorTest, Factories) {
  const auto none = Descriptor::defaultDistributionDescriptor();
  EXPECT_EQ(none.distributionType(), MatrixRandomDistribution::Default);
  EXPECT_EQ(none.minimum(), 0);
  EXPECT_EQ(none.maximum(), 0);
  EXPECT_EQ(none.mean(), 0);
  EXPECT_EQ(none.standardDeviation(), 0);
  const auto uniform = Descriptor::uniformDistributionDescriptor(-1, 5);
  EXPECT_EQ(uniform.distributionType(), MatrixRandomDistribution::Uniform);
  EXPECT_EQ(uniform.minimum(), -1);
  EXPECT_EQ(uniform.maximum(), 5);
  EXPECT_EQ(uniform.mean(), 2);
  EXPECT_NEAR(uniform.standardDeviation(), std::sqrt(3.0), detail::arithmeticBound(2, 2, 0));
  const auto normal = Descriptor::normalDistributionDescriptor(1, 2);
  EXPECT_EQ(normal.distributionType(), MatrixRandomDistribution::Normal);
  EXPECT_EQ(normal.minimum(), -kInfinity);
  EXPECT_EQ(normal.maximum(), kInfinity);
  EXPECT_EQ(normal.mean(), 1);
  EXPECT_EQ(normal.standardDeviation(), 2);
  auto bounded = Descriptor::normalDistributionDescriptor(1, 2, 0, 4);
  EXPECT_EQ(bounded.minimum(), 0);
  EXPECT_EQ(bounded.maximum(), 4);
  bounded.setDistributionType(MatrixRandomDistribution::Uniform);
  bounded.setMinimum(6);
  bounded.setMaximum(7);
  bounded.setMean(8);
  bounded.setStandardDeviation(9);
  EXPECT_EQ(bounded.distributionType(), MatrixRandomDistribution::Uniform);
  EXPECT_EQ(bounded.minimum(), 6);
  EXPECT_EQ(bounded.maximum(), 7);
  EXPECT_EQ(bounded.mean(), 8);
  EXPECT_EQ(bounded.standardDeviation(), 9);
  EXPECT_EQ(static_cast<int>(MatrixRandomDistribution::Default), 1);
  EXPECT_EQ(static_cast<int>(MatrixRandomDistribution::Uniform), 2);
  EXPECT_EQ(static_cast<int>(MatrixRandomDistribution::Normal), 3);
}

}  // namespace
}  // namespace mps::matrix_random_test
