#include "mps/gather/gather.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "mps/conform/tolerance.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/image/gradient_state.hpp"
#include "mps/core/testing/test_images.hpp"
#include "mps/gather/check/gather_arrays_conform.hpp"
#include "mps/gather/check/gather_reference.hpp"
#include "mtl/memory.hpp"

/// The public classes.
namespace mps::gather_test {
namespace {

using testing::errorOf;
using testing::names;
using testing::Values;
using Array = std::shared_ptr<NDArray>;
using Commands = std::shared_ptr<mtl::CommandBuffer>;

class Gather : public testing::DeviceTest {
 protected:
  [[nodiscard]] Array array(std::vector<std::size_t> lengths, DataType type = DataType::Float32) const {
    return NDArray::create(device_, NDArrayDescriptor::descriptor(type, std::move(lengths)));
  }
  [[nodiscard]] Array array(std::vector<std::size_t> lengths, const Values& values) const {
    Array made = array(std::move(lengths));
    made->writeBytes(std::span(values));
    return made;
  }
  template <class Index = std::uint32_t>
  [[nodiscard]] Array indices(const std::vector<Index>& numbers, DataType type = DataType::UInt32) const {
    Array made = array({numbers.size()}, type);
    made->writeBytes(std::span(numbers));
    return made;
  }
  [[nodiscard]] Array poisonedArray(std::vector<std::size_t> lengths) const {
    Array made = array(std::move(lengths));
    detail::poison(*made);
    return made;
  }
  static Values valuesOf(const NDArray& array) {
    Values values(detail::elementsOf(array));
    array.readBytes(std::span(values));
    return values;
  }
  void encodeAndRun(const std::function<void(const Commands&)>& encode) {
    const auto buffer = commands();
    encode(buffer);
    run(buffer);
  }
  /// What an encode throws; then it leaves nothing in the command buffer.
  std::string refusal(const std::function<void(const Commands&)>& encode) {
    const auto buffer = commands();
    std::string error = errorOf([&] { encode(buffer); });
    EXPECT_TRUE(error.empty() || buffer->commandCount() == 0) << error;
    return error;
  }
  /// What a gather along an axis gives. @param lengths of the result
  Values gathered(const Array& source, std::size_t axis, const Array& numbers,
                  std::vector<std::size_t> lengths) {
    gather_->setAxis(axis);
    EXPECT_EQ(gather_->destinationArrayDescriptor(source, numbers),
              NDArrayDescriptor::descriptor(source->dataType(), lengths));
    const Array result = poisonedArray(std::move(lengths));
    encodeAndRun([&](const auto& buffer) { gather_->encode(buffer, source, numbers, result); });
    return valuesOf(*result);
  }

  const std::shared_ptr<NDArrayGather> gather_ = NDArrayGather::create(device_);
  const std::shared_ptr<NDArrayGatherGradient> gradient_ = NDArrayGatherGradient::create(device_);
  /// Two tables of three rows of two elements.
  const Array x_ = array({2, 3, 2}, testing::counted(12));
};

TEST_F(Gather, Defaults) {
  EXPECT_EQ(gather_->axis(), 0U);
  EXPECT_EQ(gather_->className(), "NDArrayGather");
  EXPECT_EQ(gradient_->className(), "NDArrayGatherGradient");
}

/// Along the axis result[i] = source[indices[i]], other axes are copied; dimension 0 is the fastest.
TEST_F(Gather, ResultIsTheSourceAtTheIndices) {
  EXPECT_EQ(gathered(x_, 0, indices({1, 0, 1}), {3, 3, 2}),
            (Values{2, 1, 2, 4, 3, 4, 6, 5, 6, 8, 7, 8, 10, 9, 10, 12, 11, 12}));
  EXPECT_EQ(gathered(x_, 1, indices({2, 0}), {2, 2, 2}), (Values{5, 6, 1, 2, 11, 12, 7, 8}));
  EXPECT_EQ(gathered(x_, 2, indices({1}), {2, 3, 1}), (Values{7, 8, 9, 10, 11, 12}));
}

/// DSrc[k] = sum over i with indices[i] = k of g[i]; others 0.
TEST_F(Gather, GradientsOfEqualIndicesAddUpAndOtherRowsAreZero) {
  gather_->setAxis(1);
  const Array numbers = indices({2, 0, 2});
  const Array dy = array({2, 3, 2}, testing::counted(12));
  const Array dx = poisonedArray({2, 3, 2});
  encodeAndRun([&](const auto& buffer) {
    std::shared_ptr<State> state;
    gather_->encode(buffer, x_, numbers, state, false)->setReadCount(0);
    gradient_->encode(buffer, x_, numbers, dy, state, dx);
  });
  EXPECT_EQ(valuesOf(*dx), (Values{3, 4, 0, 0, 6, 8, 9, 10, 0, 0, 18, 20}));
}

/// What names no part is no error: device data cannot be looked at when the work is encoded.
TEST_F(Gather, IndicesThatNameNoPartGiveZerosAndTheirGradientGoesNowhere) {
  const Array source = array({3}, {1, 2, 3});
  const Array dy = array({4}, {10, 20, 30, 40});
  const std::vector<Array> all = {indices({3, 1, 0xFFFFFFFF, 0x80000000}),
                                  indices<std::int32_t>({-1, 1, 3, -0x7FFFFFFF - 1}, DataType::Int32),
                                  indices<std::uint16_t>({3, 1, 0xFFFF, 4}, DataType::UInt16)};
  for (const Array& numbers : all) {
    SCOPED_TRACE(numbers->descriptor().describe());
    EXPECT_EQ(gathered(source, 0, numbers, {4}), (Values{0, 2, 0, 0}));
    const Array dx = poisonedArray({3});
    encodeAndRun([&](const auto& buffer) {
      std::shared_ptr<State> state;
      gather_->encode(buffer, source, numbers, state, false)->setReadCount(0);
      gradient_->encode(buffer, source, numbers, dy, state, dx);
    });
    EXPECT_EQ(valuesOf(*dx), (Values{0, 20, 0}));
  }
}

TEST_F(Gather, IndicesAreReadWhenTheWorkRuns) {
  const Array numbers = indices({0, 0});
  const Array result = poisonedArray({2});
  encodeAndRun([&](const auto& buffer) {
    gather_->encode(buffer, array({3}, {1, 2, 3}), numbers, result);
    const std::vector<std::uint32_t> later{2, 1};
    numbers->writeBytes(std::span(later));
  });
  EXPECT_EQ(valuesOf(*result), (Values{3, 2}));
}

/// docs/decisions.md, D9: the state keeps the axis that the forward kernel had.
TEST_F(Gather, D9TheAxisIsThatOfTheForwardEncode) {
  const Array square = array({2, 2}, {1, 2, 3, 4});
  const Array numbers = indices({1, 1});
  const Array dx = poisonedArray({2, 2});
  encodeAndRun([&](const auto& buffer) {
    gather_->setAxis(1);
    const auto state = gather_->resultState(square, numbers);
    gather_->encode(buffer, square, numbers, state, array({2, 2}));
    gather_->setAxis(0);
    EXPECT_EQ(dynamic_cast<NDArrayGatherGradientState&>(*state).axis(), 1U);
    EXPECT_EQ(state->resourceCount(), 0U);
    EXPECT_FALSE(state->isTemporary());
    gradient_->encode(buffer, square, numbers, square, state, dx);
  });
  EXPECT_EQ(valuesOf(*dx), (Values{0, 0, 4, 6}));
}

/// The encodes and what a state tells are those of the base classes.
TEST_F(Gather, WorksThroughItsBaseClasses) {
  const std::shared_ptr<NDArrayBinaryKernel> kernel = gather_;
  const std::shared_ptr<NDArrayBinaryPrimaryGradientKernel> gradient = gradient_;
  const Array source = array({3}, {1, 2, 4});
  const Array numbers = indices({2, 0, 2, 1});
  const Array dy = array({4}, {10, 20, 30, 40});
  const Array y = poisonedArray({4});
  const Array dx = poisonedArray({3});
  encodeAndRun([&](const auto& buffer) {
    const auto state = kernel->resultState(source, numbers);
    const auto filled = std::dynamic_pointer_cast<NDArrayGradientState>(state);
    ASSERT_NE(filled, nullptr);
    EXPECT_FALSE(filled->record().has_value());
    kernel->encode(buffer, source, numbers, state, y);
    ASSERT_TRUE(filled->record().has_value());
    EXPECT_EQ(filled->record()->primary, source->descriptor());
    EXPECT_EQ(filled->record()->secondary, numbers->descriptor());
    EXPECT_EQ(filled->record()->destination, y->descriptor());
    gradient->encode(buffer, source, numbers, dy, state, dx);
  });
  EXPECT_EQ(valuesOf(*y), (Values{4, 1, 4, 2}));
  EXPECT_EQ(valuesOf(*dx), (Values{20, 40, 40}));
}

/// docs/decisions.md, D10: only the size of the primary array counts for the gradient.
TEST_F(Gather, D10TheGradientReadsNoSource) {
  const Array numbers = indices({1, 1});
  const Array dx = poisonedArray({2});
  encodeAndRun([&](const auto& buffer) {
    const auto source =
        TemporaryNDArray::create(buffer, NDArrayDescriptor::descriptor(DataType::Float32, {2}));
    const auto state = gather_->resultState(source, numbers);
    gather_->encode(buffer, array({2}), numbers, state, array({2}));
    const std::size_t before = buffer->heap()->usedBytes();
    gradient_->encode(buffer, source, numbers, array({2}, {3, 4}), state, dx);
    EXPECT_EQ(source->readCount(), 0U);
    EXPECT_EQ(buffer->heap()->usedBytes(), before);
  });
  EXPECT_EQ(valuesOf(*dx), (Values{0, 7}));
}

TEST_F(Gather, TemporaryArraysAreCounted) {
  const Array numbers = indices({1, 0});
  const Array result = poisonedArray({2});
  const Array dx = poisonedArray({2});
  encodeAndRun([&](const auto& buffer) {
    const Array source = array({2}, {5, 6});
    std::shared_ptr<State> state;
    const auto first = gather_->encode(buffer, source, numbers);
    EXPECT_TRUE(first->isTemporary());
    EXPECT_EQ(first->readCount(), 1U);
    first->setReadCount(2);
    const auto second = gather_->encode(buffer, first, numbers, state, true);
    EXPECT_EQ(first->readCount(), 1U);
    gather_->encode(buffer, second, numbers, result);
    EXPECT_EQ(second->readCount(), 0U);
    const auto dFirst = gradient_->encode(buffer, first, numbers, array({2}, {1, 2}), state);
    EXPECT_EQ(first->readCount(), 0U);
    EXPECT_EQ(dFirst->readCount(), 1U);
    gather_->encode(buffer, dFirst, indices({0, 1}), dx);
    EXPECT_EQ(dFirst->readCount(), 0U);
  });
  EXPECT_EQ(valuesOf(*result), (Values{6, 5}));
  EXPECT_EQ(valuesOf(*dx), (Values{2, 1}));
}

TEST_F(Gather, WrongArgumentsOfTheForwardKernelAreRefused) {
  const Array numbers = indices({0, 1});
  const Array result = array({2, 3, 2});
  const auto refused = [&](const Array& primary, const Array& secondary, const Array& destination) {
    return refusal([&](const auto& buffer) { gather_->encode(buffer, primary, secondary, destination); });
  };
  EXPECT_EQ(refused(x_, numbers, result), "");
  EXPECT_TRUE(names(errorOf([] { (void)NDArrayGather::create(nullptr); }), {"device", "null"}));
  EXPECT_TRUE(
      names(errorOf([&] { gather_->encode(nullptr, x_, numbers, result); }), {"commandBuffer", "null"}));
  EXPECT_TRUE(names(refused(nullptr, numbers, result), {"NDArrayGather", "primarySourceArray", "null"}));
  EXPECT_TRUE(names(refused(x_, nullptr, result), {"secondarySourceArray", "null"}));
  EXPECT_TRUE(names(refused(x_, numbers, nullptr), {"destinationArray", "null"}));
  EXPECT_TRUE(names(refused(array({2, 3, 2}, DataType::Int32), numbers, result),
                    {"primarySourceArray", "Int32", "Float32 or Float16"}));
  EXPECT_TRUE(names(refused(x_, array({2}), result), {"secondarySourceArray", "Float32", "UInt32"}));
  EXPECT_TRUE(names(refused(x_, array({2, 1}, DataType::UInt32), result),
                    {"secondarySourceArray", "2 dimensions", "1"}));
  EXPECT_TRUE(
      names(refused(x_, numbers, array({2, 3})), {"destinationArray", "Float32 2x3,", "Float32 2x3x2"}));
  EXPECT_TRUE(names(refused(x_, numbers, array({2, 3, 2}, DataType::Float16)),
                    {"destinationArray", "Float16", "Float32 2x3x2"}));
  EXPECT_TRUE(names(refused(x_, numbers, x_), {"destinationArray", "one of the sources"}));
  const auto other =
      NDArray::create(mtl::newCPUDevice(1), NDArrayDescriptor::descriptor(DataType::Float32, {2, 3, 2}));
  EXPECT_TRUE(names(refused(other, numbers, result), {"primarySourceArray", "another device"}));
  EXPECT_TRUE(names(refused(x_, numbers, other), {"destinationArray", "another device"}));
  const auto elsewhere = TemporaryNDArray::create(commands(), x_->descriptor());
  EXPECT_TRUE(names(refused(elsewhere, numbers, result), {"primarySourceArray", "another command buffer"}));
  elsewhere->setReadCount(0);
  EXPECT_TRUE(names(errorOf([&] { (void)gather_->destinationArrayDescriptor(nullptr, numbers); }),
                    {"primarySourceArray", "null"}));
  EXPECT_TRUE(names(errorOf([&] { (void)gather_->destinationArrayDescriptor(x_, nullptr); }),
                    {"secondarySourceArray", "null"}));
  gather_->setAxis(3);
  EXPECT_TRUE(names(refused(x_, numbers, result), {"axis", "3", "less than 3"}));
}

TEST_F(Gather, WrongStatesOfTheForwardKernelAreRefused) {
  const Array numbers = indices({0, 1});
  const Array result = array({2, 3, 2});
  const auto refused = [&](const std::shared_ptr<State>& state) {
    return refusal([&](const auto& buffer) { gather_->encode(buffer, x_, numbers, state, result); });
  };
  EXPECT_EQ(refused(gather_->resultState(x_, numbers)), "");
  EXPECT_TRUE(names(refused(nullptr), {"NDArrayGather", "resultState", "null"}));
  EXPECT_TRUE(names(refused(NNGradientState::create(device_)), {"resultState", "another kernel"}));
}

TEST_F(Gather, WrongArgumentsOfTheGradientAreRefused) {
  const Array numbers = indices({0, 1, 1});
  const Array dy = array({3, 3, 2});
  const Array dx = array({2, 3, 2});
  const auto state = gather_->resultState(x_, numbers);
  const auto refused = [&](const Array& primary, const Array& secondary, const Array& gradient,
                           const std::shared_ptr<State>& gradientState, const Array& destination) {
    return refusal([&](const auto& buffer) {
      gradient_->encode(buffer, primary, secondary, gradient, gradientState, destination);
    });
  };
  EXPECT_TRUE(names(refused(x_, numbers, dy, state, dx),
                    {"NDArrayGatherGradient", "gradientState", "empty", "forward kernel"}));
  encodeAndRun([&](const auto& buffer) { gather_->encode(buffer, x_, numbers, state, array({3, 3, 2})); });
  EXPECT_EQ(refused(x_, numbers, dy, state, dx), "");
  EXPECT_TRUE(names(errorOf([] { (void)NDArrayGatherGradient::create(nullptr); }), {"device", "null"}));
  EXPECT_TRUE(names(errorOf([&] { gradient_->encode(nullptr, x_, numbers, dy, state, dx); }),
                    {"commandBuffer", "null"}));
  EXPECT_TRUE(names(refused(nullptr, numbers, dy, state, dx), {"primarySourceArray", "null"}));
  EXPECT_TRUE(names(refused(x_, nullptr, dy, state, dx), {"secondarySourceArray", "null"}));
  EXPECT_TRUE(names(refused(x_, numbers, nullptr, state, dx), {"sourceGradient", "null"}));
  EXPECT_TRUE(names(refused(x_, numbers, dy, nullptr, dx), {"gradientState", "null"}));
  EXPECT_TRUE(names(refused(x_, numbers, dy, state, nullptr), {"destinationArray", "null"}));
  EXPECT_TRUE(names(refused(x_, numbers, dy, NNGradientState::create(device_), dx),
                    {"gradientState", "another kernel"}));
  EXPECT_TRUE(names(refused(array({2, 3}), numbers, dy, state, dx), {"primarySourceArray", "2x3x2"}));
  EXPECT_TRUE(names(refused(x_, indices({0, 1}), dy, state, dx), {"secondarySourceArray", "UInt32 3"}));
  EXPECT_TRUE(names(refused(x_, numbers, x_, state, dx), {"sourceGradient", "2x3x2", "3x3x2"}));
  EXPECT_TRUE(names(refused(x_, numbers, dy, state, dy), {"destinationArray", "3x3x2", "2x3x2"}));
  EXPECT_TRUE(names(refused(x_, numbers, dy, state, x_), {"destinationArray", "one of the sources"}));
  dy->data()->memory()->setFailure("the disk is full");
  EXPECT_TRUE(names(refused(x_, numbers, dy, state, dx), {"sourceGradient", "the disk is full"}));
  x_->data()->memory()->setFailure("the disk is full");
  EXPECT_TRUE(names(refused(x_, numbers, array({3, 3, 2}), state, poisonedArray({3, 3, 2})),
                    {"destinationArray", "3x3x2"}))
      << "of the primary array only the size counts";
}

/// Arrays of up to four dimensions against the reference, and the adjoint identity <gather(x), g> = <x, gradient(g)>, which
/// small integers leave exact.
TEST_F(Gather, RandomGeometryMatchesTheReference) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr DataType kIndexTypes[] = {DataType::UInt32, DataType::Int32, DataType::UInt16};
  for (int repetition = 0; repetition < 60; ++repetition) {
    std::vector<std::size_t> lengths(1 + random() % 4);
    for (std::size_t& length : lengths) length = 1 + random() % 12;
    const bool isHalf = repetition % 2 == 1;
    const bool isExact = repetition % 3 == 0;
    const detail::GatherArrays arrays(
        device_, lengths, random() % lengths.size(), 1 + random() % 40,
        {isHalf ? DataType::Float16 : DataType::Float32, kIndexTypes[random() % 3]}, random());
    SCOPED_TRACE(arrays.source->descriptor().describe() + ", axis " + std::to_string(arrays.axis));
    const auto numbers = [&](NDArray& array) {
      return detail::store(array, detail::randomValues(detail::elementsOf(array), random(),
                                                       isExact ? detail::RandomKind::SmallIntegers
                                                               : detail::RandomKind::Uniform));
    };
    const std::vector<double> x = numbers(*arrays.source);
    const std::vector<double> g = numbers(*arrays.resultGradient);
    detail::poison(*arrays.result);
    detail::poison(*arrays.sourceGradient);
    gather_->setAxis(arrays.axis);
    encodeAndRun([&](const auto& buffer) {
      const auto state = gather_->resultState(arrays.source, arrays.indices);
      gather_->encode(buffer, arrays.source, arrays.indices, state, arrays.result);
      gradient_->encode(buffer, arrays.source, arrays.indices, arrays.resultGradient, state,
                        arrays.sourceGradient);
    });
    const detail::GatherProblem problem = arrays.problem(detail::GatherDirection::Forward);
    const auto agrees = [&](const detail::ReferenceTensor& expected, const NDArray& found,
                            detail::Tier tier) {
      const auto comparison = detail::compare(expected, detail::load(found), problem.source.format, tier,
                                              detail::Zeros::Expected);
      EXPECT_TRUE(comparison.passed()) << comparison.report;
    };
    agrees(detail::gatherForwardReference(problem, arrays.numbers, detail::tensorOf(problem.source, x)),
           *arrays.result, detail::Tier::Exact);
    agrees(detail::gatherGradientReference(problem, arrays.numbers, detail::tensorOf(problem.result, g)),
           *arrays.sourceGradient, isExact ? detail::Tier::Exact : detail::Tier::Bounded);
    if (!isExact) continue;
    const auto product = [](const std::vector<double>& one, const std::vector<double>& other) {
      double sum = 0;
      for (std::size_t i = 0; i < one.size(); ++i) sum += one[i] * other[i];
      return sum;
    };
    EXPECT_EQ(product(detail::load(*arrays.result), g), product(x, detail::load(*arrays.sourceGradient)));
  }
}

TEST_F(Gather, CopiesForAnotherDeviceKeepTheirProperties) {
  const auto device = mtl::newCPUDevice(1);
  gather_->setAxis(2);
  gather_->setLabel("rows");
  const auto copy = gather_->copy(device);
  EXPECT_EQ(copy->device(), device);
  EXPECT_EQ(copy->axis(), 2U);
  EXPECT_EQ(copy->label(), "rows");
  EXPECT_EQ(gather_->copy()->device(), device_);
  EXPECT_EQ(gradient_->copy(device)->device(), device);
}

TEST_F(Gather, D1DecodedOnAnotherDeviceTheyKeepTheirProperties) {
  const auto device = mtl::newCPUDevice(1);
  gather_->setAxis(2);
  KeyedArchiver archiver;
  gather_->encode(archiver);
  KeyedUnarchiver unarchiver(archiver.encodedData());
  const auto decoded = NDArrayGather::decode(unarchiver, device);
  EXPECT_EQ(decoded->device(), device);
  EXPECT_EQ(decoded->axis(), 2U);
  KeyedArchiver gradientArchiver;
  gradient_->encode(gradientArchiver);
  KeyedUnarchiver gradientUnarchiver(gradientArchiver.encodedData());
  EXPECT_EQ(NDArrayGatherGradient::decode(gradientUnarchiver, device)->device(), device);
  KeyedUnarchiver wrong(gradientArchiver.encodedData());
  EXPECT_TRUE(names(errorOf([&] { (void)NDArrayGather::decode(wrong, device); }), {"NDArrayGather"}));
}

}  // namespace
}  // namespace mps::gather_test
