#include "mps/matrix/matrix_copy.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "mps/core/coding/coder.hpp"
#include "mps/core/testing/test_matrices.hpp"
#include "mps/matrix/check/matrix_layers_reference.hpp"

/// Copies of parts of matrices.
namespace mps::matrix_copy_test {
namespace {

using testing::counted;
using testing::errorOf;
using testing::names;
using testing::Values;
using Matrices = std::vector<std::shared_ptr<Matrix>>;
using Words = std::vector<std::uint32_t>;

class MatrixCopyTest : public testing::MatrixTest {
 protected:
  [[nodiscard]] std::shared_ptr<Vector> words(const Words& values) const {
    auto made = Vector::create(device_, VectorDescriptor::vectorDescriptor(values.size(), DataType::UInt32));
    std::copy(values.begin(), values.end(), made->data()->contentsAs<std::uint32_t>().begin());
    return made;
  }
  void copy(std::size_t rows, std::size_t columns, bool fromTransposed, bool toTransposed,
            const MatrixCopyDescriptor& descriptor) {
    const auto kernel = MatrixCopy::create(device_, rows, columns, fromTransposed, toTransposed);
    run([&](const auto& commandBuffer) { kernel->encode(commandBuffer, descriptor); });
  }
  /// 11 12 13; 21 22 23.
  const std::shared_ptr<Matrix> source_ = matrix(2, 3, {11, 12, 13, 21, 22, 23});
};

TEST_F(MatrixCopyTest, DescriptorsOfPrivateMatricesAreCoded) {
  const auto shape = MatrixDescriptor::matrixDescriptor(2, 3, 3 * sizeof(float), DataType::Float32);
  const auto hidden =
      Matrix::create(device_->newBuffer(6 * sizeof(float), mtl::ResourceOptions::StorageModePrivate), shape);
  copy(2, 3, false, false, MatrixCopyDescriptor::descriptor(source_, hidden, {}));
  KeyedArchiver archiver;
  MatrixCopyDescriptor::descriptor(hidden, source_, {}).encode(archiver);
  KeyedUnarchiver unarchiver(archiver.encodedData());
  const auto decoded = MatrixCopyDescriptor::decode(unarchiver, device_);
  EXPECT_EQ(valuesOf(*decoded.operations().front().source), (Values{11, 12, 13, 21, 22, 23}));
}

TEST_F(MatrixCopyTest, APartToAnotherPlace) {
  const auto to = matrix(3, 3);
  copy(1, 2, false, false, MatrixCopyDescriptor::descriptor(source_, to, {1, 1, 2, 0}));
  EXPECT_EQ(valuesOf(*to), (Values{kPoison, kPoison, kPoison, kPoison, kPoison, kPoison, 22, 23, kPoison}));
}

TEST_F(MatrixCopyTest, TransposedSourcesAreStoredByColumns) {
  const auto to = matrix(3, 2);
  copy(3, 2, true, false, MatrixCopyDescriptor::descriptor(source_, to, {}));
  EXPECT_EQ(valuesOf(*to), (Values{11, 21, 12, 22, 13, 23}));
}

TEST_F(MatrixCopyTest, TransposedDestinationsAreStoredByColumns) {
  const auto to = matrix(3, 3);
  copy(2, 3, false, true, MatrixCopyDescriptor::descriptor(source_, to, {0, 0, 0, 1}));
  EXPECT_EQ(valuesOf(*to), (Values{kPoison, 11, 21, kPoison, 12, 22, kPoison, 13, 23}));
}

TEST_F(MatrixCopyTest, BothTransposedIsACopyOfTheTransposedRegion) {
  const auto to = matrix(2, 3);
  copy(3, 2, true, true, MatrixCopyDescriptor::descriptor(source_, to, {}));
  EXPECT_EQ(valuesOf(*to), (Values{11, 12, 13, 21, 22, 23}));
}

TEST_F(MatrixCopyTest, SeveralCopiesInOneEncode) {
  const auto one = matrix(1, 2);
  const auto other = matrix(1, 2);
  MatrixCopyDescriptor descriptor(2);
  descriptor.setCopyOperation(1, source_, other, {1, 1, 0, 0});
  descriptor.setCopyOperation(0, source_, one, {0, 0, 0, 0});
  copy(1, 2, false, false, descriptor);
  EXPECT_EQ(valuesOf(*one), (Values{11, 12}));
  EXPECT_EQ(valuesOf(*other), (Values{22, 23}));
}

/// Those between the same matrices run together, each with its own offsets.
TEST_F(MatrixCopyTest, SeveralCopiesBetweenTheSameMatrices) {
  const auto one = matrix(2, 3);
  const auto other = matrix(1, 2);
  MatrixCopyDescriptor descriptor(3);
  descriptor.setCopyOperation(0, source_, one, {0, 0, 1, 1});
  descriptor.setCopyOperation(1, source_, one, {1, 1, 0, 0});
  descriptor.setCopyOperation(2, source_, other, {1, 0, 0, 0});
  copy(1, 2, false, false, descriptor);
  EXPECT_EQ(valuesOf(*one), (Values{22, 23, kPoison, kPoison, 11, 12}));
  EXPECT_EQ(valuesOf(*other), (Values{21, 22}));
}

/// Offsets of a vector are read when the work runs.
TEST_F(MatrixCopyTest, OffsetsOfAVector) {
  const auto one = matrix(1, 3);
  const auto other = matrix(1, 3);
  const auto offsets = words(Words(12, 0));
  const MatrixCopyDescriptor descriptor(Matrices{source_, source_}, Matrices{one, other}, offsets, 16);
  const auto kernel = MatrixCopy::create(device_, 1, 2, false, false);
  run([&](const auto& commandBuffer) {
    kernel->encode(commandBuffer, descriptor);
    const Words places{9, 9, 9, 9, 1, 0, 0, 1, 0, 2, 0, 0};
    std::copy(places.begin(), places.end(), offsets->data()->contentsAs<std::uint32_t>().begin());
  });
  EXPECT_EQ(valuesOf(*one), (Values{kPoison, 21, 22}));
  EXPECT_EQ(valuesOf(*other), (Values{13, kPoison, kPoison})) << "what lies outside is left out";
}

TEST_F(MatrixCopyTest, SizesBeyondTheMatricesAreAllThatThereIs) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  for (const std::size_t most : {kAll, kAll / 2, kAll / 2 + 2, std::size_t{1} << 38U, std::size_t{1} << 31U})
    for (const bool sourceIsTransposed : {false, true})
      for (const bool destinationIsTransposed : {false, true}) {
        const auto to = matrix(3, 3, Values(9));
        const auto offsets = words({0, 0, 1, 1});
        const auto kernel =
            MatrixCopy::create(device_, most, most, sourceIsTransposed, destinationIsTransposed);
        const MatrixCopyDescriptor all(Matrices{matrix(2, 2, {1, 2, 3, 4})}, Matrices{to}, offsets);
        run([&](const auto& commandBuffer) { kernel->encode(commandBuffer, all); });
        EXPECT_EQ(valuesOf(*to), sourceIsTransposed == destinationIsTransposed
                                     ? (Values{0, 0, 0, 0, 1, 2, 0, 3, 4})
                                     : (Values{0, 0, 0, 0, 1, 3, 0, 2, 4}));
        EXPECT_TRUE(names(refusal([&](const auto& commandBuffer) {
                            kernel->encode(commandBuffer, MatrixCopyDescriptor::descriptor(source_, to, {}));
                          }),
                          {"sourceMatrix", "at least " + std::to_string(most)}))
            << "offsets that are no vector's";
        EXPECT_TRUE(names(refusal([&](const auto& commandBuffer) {
                            kernel->encode(commandBuffer, all, words({0, 1, 2}), 0, nullptr, 0);
                          }),
                          {"rowPermuteIndices", "1x3"}));
      }
}

TEST_F(MatrixCopyTest, WithoutAVectorOfOffsetsTheyAreZero) {
  const auto to = matrix(2, 2);
  copy(2, 2, false, false, MatrixCopyDescriptor(Matrices{source_}, Matrices{to}, nullptr));
  EXPECT_EQ(valuesOf(*to), (Values{11, 12, 21, 22}));
}

TEST_F(MatrixCopyTest, RowsAndColumnsArePermuted) {
  const auto to = matrix(3, 4);
  const auto kernel = MatrixCopy::create(device_, 2, 3, false, false);
  const auto descriptor = MatrixCopyDescriptor::descriptor(source_, to, {0, 0, 1, 0});
  run([&](const auto& commandBuffer) {
    kernel->encode(commandBuffer, descriptor, words({9, 1, 0}), 1, words({3, 0, 2}), 0);
  });
  EXPECT_EQ(valuesOf(*to),
            (Values{kPoison, kPoison, kPoison, kPoison, 22, kPoison, 23, 21, 12, kPoison, 13, 11}));
}

TEST_F(MatrixCopyTest, PermutationsFollowTheTransposition) {
  const auto to = matrix(3, 2);
  const auto kernel = MatrixCopy::create(device_, 2, 3, false, true);
  run([&](const auto& commandBuffer) {
    kernel->encode(commandBuffer, MatrixCopyDescriptor::descriptor(source_, to, {}), words({2, 0, 1}), 0,
                   nullptr, 0);
  });
  EXPECT_EQ(valuesOf(*to), (Values{12, 22, 13, 23, 11, 21}));
  run([&](const auto& commandBuffer) {
    kernel->encode(commandBuffer, MatrixCopyDescriptor::descriptor(source_, to, {}), nullptr, 0,
                   words({1, 7}), 0);
  });
  EXPECT_EQ(valuesOf(*to), (Values{12, 11, 13, 12, 11, 13})) << "column 7 is left out";
}

TEST_F(MatrixCopyTest, BitsOfAnyType) {
  for (const DataType type : {DataType::UInt8, DataType::Int16, DataType::Float16, DataType::UInt32}) {
    const std::size_t size = sizeInBytes(type);
    const auto from = matrixOf(2, 3, type);
    const auto to = matrixOf(3, 2, type);
    const auto bytes = from->data()->contentsAs<std::uint8_t>();
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{200});
    copy(2, 3, false, true, MatrixCopyDescriptor::descriptor(from, to, {}));
    const auto found = to->data()->contentsAs<std::uint8_t>();
    for (std::size_t row = 0; row < 2; ++row)
      for (std::size_t column = 0; column < 3; ++column)
        for (std::size_t byte = 0; byte < size; ++byte)
          EXPECT_EQ(found[column * to->rowBytes() + row * size + byte],
                    bytes[row * from->rowBytes() + column * size + byte]);
  }
}

TEST_F(MatrixCopyTest, TemporariesAreCounted) {
  const auto to = matrix(1, 2);
  run([&](const auto& commandBuffer) {
    const auto temporary = TemporaryMatrix::create(
        commandBuffer, MatrixDescriptor::matrixDescriptor(1, 2, 8, DataType::Float32));
    const auto kernel = MatrixCopy::create(device_, 1, 2, false, false);
    kernel->encode(commandBuffer, MatrixCopyDescriptor::descriptor(source_, temporary, {}));
    EXPECT_EQ(temporary->readCount(), 1U);
    MatrixCopyDescriptor twice(2);
    twice.setCopyOperation(0, temporary, to, {});
    twice.setCopyOperation(1, temporary, matrix(1, 2), {});
    kernel->encode(commandBuffer, twice);
    EXPECT_EQ(temporary->readCount(), 0U) << "once for an encode";
  });
  EXPECT_EQ(valuesOf(*to), (Values{11, 12}));
}

TEST_F(MatrixCopyTest, NothingToDo) {
  const auto commandBuffer = queue_->commandBuffer();
  MatrixCopy::create(device_, 0, 2, false, false)
      ->encode(commandBuffer, MatrixCopyDescriptor::descriptor(source_, matrix(1, 2), {}));
  MatrixCopy::create(device_, 1, 1, false, false)->encode(commandBuffer, MatrixCopyDescriptor(0));
  EXPECT_EQ(commandBuffer->commandCount(), 0U);
}

TEST_F(MatrixCopyTest, WrongDescriptorsAreRefused) {
  const auto to = matrix(2, 3);
  EXPECT_TRUE(names(errorOf([&] { (void)MatrixCopyDescriptor::descriptor(nullptr, to, {}); }),
                    {"sourceMatrix", "null"}));
  EXPECT_TRUE(names(errorOf([&] { (void)MatrixCopyDescriptor::descriptor(source_, nullptr, {}); }),
                    {"destinationMatrix", "null"}));
  MatrixCopyDescriptor two(2);
  EXPECT_TRUE(names(errorOf([&] { two.setCopyOperation(2, source_, to, {}); }), {"index", "2"}));
  const auto made = [&](const Matrices& from, const Matrices& destinations,
                        const std::shared_ptr<Vector>& offsets, std::size_t offset) {
    return errorOf([&] { (void)MatrixCopyDescriptor(from, destinations, offsets, offset); });
  };
  EXPECT_TRUE(names(made({source_}, {}, nullptr, 0), {"destinationMatrices", "0 matrices", "1"}));
  EXPECT_TRUE(names(made({source_}, {nullptr}, nullptr, 0), {"destinationMatrix", "null"}));
  EXPECT_TRUE(names(made({source_}, {to}, words(Words(8)), 8), {"offset", "8", "16"}));
  EXPECT_TRUE(names(made({source_}, {to}, vector({1, 2, 3, 4}), 0), {"offsetVector", "Float32", "UInt32"}));
  EXPECT_TRUE(names(made({source_}, {to}, words(Words(7)), 16), {"offsetVector", "7 elements", "4 from 4"}));
  EXPECT_TRUE(names(made({source_}, {to}, words(Words(3)), 160), {"offsetVector", "3 elements"}));
  MatrixCopyDescriptor ofVector(Matrices{source_}, Matrices{to}, words(Words(4)));
  EXPECT_TRUE(names(errorOf([&] { ofVector.setCopyOperation(0, source_, to, {}); }), {"offsets", "vector"}));
}

/// What coding makes of a descriptor on another device.
MatrixCopyDescriptor coded(const MatrixCopyDescriptor& descriptor,
                           const std::shared_ptr<mtl::Device>& device) {
  KeyedArchiver archiver;
  descriptor.encode(archiver);
  const std::vector<std::byte> bytes = archiver.encodedData();
  KeyedUnarchiver unarchiver(bytes, device);
  MatrixCopyDescriptor made = MatrixCopyDescriptor::decode(unarchiver);
  unarchiver.checkAllRead();
  return made;
}

TEST_F(MatrixCopyTest, CodedDescriptorsCopyTheSame) {
  const auto device = mtl::newCPUDevice(1);
  const auto to = matrix(2, 3, {1, 2, 3, 4, 5, 6});
  MatrixCopyDescriptor descriptor(3);
  descriptor.setCopyOperation(0, source_, to, {0, 1, 1, 0});
  descriptor.setCopyOperation(2, source_, matrixOf(4, 1, DataType::UInt8), {7, 8, 9, 10});
  MatrixCopyDescriptor made = coded(descriptor, device);
  ASSERT_EQ(made.operations().size(), 3U);
  const auto& [from, result, offsets] = made.operations()[0];
  EXPECT_EQ(from->device(), device);
  EXPECT_EQ(from, made.operations()[2].source) << "one matrix again";
  EXPECT_EQ(made.operations()[1].source, nullptr);
  EXPECT_EQ(made.operations()[2].destination->dataType(), DataType::UInt8);
  EXPECT_EQ(made.operations()[2].destination->rows(), 4U);
  EXPECT_EQ(made.operations()[2].offsets.destinationColumnOffset, 10U);
  EXPECT_EQ(from->rowBytes(), 12U) << "without gaps";
  EXPECT_EQ(made.offsetVector(), nullptr);
  const auto commandBuffer = device->newCommandQueue()->commandBuffer();
  MatrixCopy::create(device, 1, 2, false, false)
      ->encode(commandBuffer, MatrixCopyDescriptor::descriptor(from, result, offsets));
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  EXPECT_EQ(valuesOf(*result), (Values{1, 2, 3, 12, 13, 6}));
  EXPECT_EQ(valuesOf(*to), (Values{1, 2, 3, 4, 5, 6})) << "memory of its own";
}

TEST_F(MatrixCopyTest, CodedDescriptorsKeepEveryMatrixAndTheOffsetVector) {
  const auto several = matrix(2, 1, {1, 2, 3, 4}, 2);
  const MatrixCopyDescriptor made = coded(
      MatrixCopyDescriptor(Matrices{several}, Matrices{matrix(0, 3)}, words({9, 9, 9, 9, 1, 2, 3, 4}), 16),
      device_);
  const auto& operation = made.operations().at(0);
  EXPECT_EQ(operation.source->matrices(), 2U);
  EXPECT_EQ(valuesOf(*operation.source), (Values{1, 2, 3, 4}));
  EXPECT_EQ(operation.destination->rows(), 0U);
  EXPECT_EQ(operation.destination->columns(), 3U);
  EXPECT_EQ(made.vectorOffset(), 16U);
  const auto found = made.offsetVector()->data()->contentsAs<std::uint32_t>();
  EXPECT_EQ(Words(found.begin(), found.end()), (Words{9, 9, 9, 9, 1, 2, 3, 4}));
  // A vector that begins somewhere in its buffer.
  const auto later = Vector::create(words({9, 9, 5, 6, 7, 8})->data(),
                                    VectorDescriptor::vectorDescriptor(4, DataType::UInt32), 8);
  const MatrixCopyDescriptor second =
      coded(MatrixCopyDescriptor(Matrices{several}, Matrices{source_}, later), device_);
  EXPECT_EQ(second.offsetVector()->data()->contentsAs<std::uint32_t>()[0], 5U);
  EXPECT_EQ(second.offsetVector()->length(), 4U);
  EXPECT_TRUE(coded(MatrixCopyDescriptor(0), device_).operations().empty());
}

/// The map of a descriptor of one matrix of a row of two bytes, copied into itself, with changes.
struct Forged {
  std::uint64_t rows = 1, columns = 2, matrices = 1;
  std::uint64_t source = 1, destination = 1, vectorOffset = 0;
  bool hasOffsetVector = false;
  Words offsets = {};
  std::uint64_t type = static_cast<std::uint64_t>(DataType::UInt8);

  [[nodiscard]] std::string refusal(const std::shared_ptr<mtl::Device>& device) const {
    KeyedArchiver archiver;
    archiver.codeClass("MatrixCopyDescriptor");
    std::vector<int> one(1);
    archiver.codeList("matrices", one, [&](int) {
      archiver.encode("rows", rows);
      archiver.encode("columns", columns);
      archiver.encode("matrices", matrices);
      archiver.encode("dataType", type);
      archiver.encode("values", std::vector<std::uint8_t>{1, 2});
    });
    archiver.codeList("copies", one, [&](int) {
      archiver.encode("source", source);
      archiver.encode("destination", destination);
      for (const char* key :
           {"sourceRowOffset", "sourceColumnOffset", "destinationRowOffset", "destinationColumnOffset"})
        archiver.encode(key, std::uint32_t{0});
    });
    archiver.encode("hasOffsetVector", hasOffsetVector);
    archiver.encode("vectorOffset", vectorOffset);
    if (hasOffsetVector) archiver.encode("offsetVector", offsets);
    const std::vector<std::byte> bytes = archiver.encodedData();
    return errorOf([&] {
      KeyedUnarchiver unarchiver(bytes, device);
      (void)MatrixCopyDescriptor::decode(unarchiver);
    });
  }
};

TEST_F(MatrixCopyTest, CodedDescriptorsAreChecked) {
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 62U;
  const auto refused = [&](const Forged& forged) { return forged.refusal(device_); };
  EXPECT_EQ(refused({}), "");
  EXPECT_TRUE(names(refused({.rows = 2}), {"MatrixCopyDescriptor", "values", "2 bytes", "4"}));
  EXPECT_TRUE(names(refused({.rows = kHuge << 1U}), {"size in bytes", "too large"}));
  EXPECT_TRUE(names(refused({.columns = kHuge}), {"values", "2 bytes"}));
  EXPECT_TRUE(names(refused({.rows = 0, .columns = kHuge, .matrices = kHuge}), {"values", "2 bytes", "0"}));
  EXPECT_TRUE(names(refused({.columns = 0, .matrices = kHuge}), {"values", "2 bytes", "0"}));
  EXPECT_TRUE(names(refused({.source = 2}), {"source", "2", "at most 1"}));
  EXPECT_TRUE(names(refused({.destination = 2}), {"destination", "2", "at most 1"}));
  EXPECT_TRUE(names(refused({.destination = 0}), {"destination", "both or none"}));
  EXPECT_TRUE(names(refused({.type = 12345}), {"dataType"}));
  EXPECT_TRUE(names(refused({.vectorOffset = 16}), {"vectorOffset", "16", "0 without a vector"}));
  EXPECT_EQ(refused({.hasOffsetVector = true, .offsets = {0, 0, 0, 0}}), "");
  EXPECT_TRUE(
      names(refused({.hasOffsetVector = true, .offsets = {0, 0, 0}}), {"offsetVector", "3 elements"}));
  EXPECT_TRUE(names(refused({.vectorOffset = kHuge, .hasOffsetVector = true, .offsets = {0, 0, 0, 0}}),
                    {"offsetVector", "4 elements"}));
  EXPECT_TRUE(
      names(refused({.source = 0, .destination = 0, .hasOffsetVector = true, .offsets = {0, 0, 0, 0}}),
            {"copies", "not set"}));
  const auto commandBuffer = queue_->commandBuffer();
  const auto temporary =
      TemporaryMatrix::create(commandBuffer, MatrixDescriptor::matrixDescriptor(1, 1, 4, DataType::Float32));
  const auto temporaryWords =
      TemporaryVector::create(commandBuffer, VectorDescriptor::vectorDescriptor(4, DataType::UInt32));
  const auto unwritten = [](const MatrixCopyDescriptor& descriptor) {
    return errorOf([&] {
      KeyedArchiver archiver;
      descriptor.encode(archiver);
    });
  };
  EXPECT_TRUE(names(unwritten(MatrixCopyDescriptor::descriptor(temporary, source_, {})), {"temporary"}));
  EXPECT_TRUE(names(unwritten(MatrixCopyDescriptor(Matrices{source_}, Matrices{source_}, temporaryWords)),
                    {"offsetVector", "temporary"}));
  temporary->setReadCount(0);
  temporaryWords->setReadCount(0);
}

TEST_F(MatrixCopyTest, WrongArgumentsAreRefused) {
  const auto to = matrix(2, 3);
  const auto kernel = MatrixCopy::create(device_, 2, 3, false, false);
  const auto refused = [&](const MatrixCopyDescriptor& descriptor,
                           const std::shared_ptr<Vector>& rows = nullptr,
                           const std::shared_ptr<Vector>& columns = nullptr) {
    return refusal(
        [&](const auto& commandBuffer) { kernel->encode(commandBuffer, descriptor, rows, 0, columns, 0); });
  };
  const auto one = [](const auto& from, const auto& destination, const MatrixCopyOffsets& offsets = {}) {
    return MatrixCopyDescriptor::descriptor(from, destination, offsets);
  };
  EXPECT_EQ(refused(one(source_, to)), "");
  EXPECT_TRUE(
      names(errorOf([] { (void)MatrixCopy::create(nullptr, 1, 1, false, false); }), {"device", "null"}));
  EXPECT_TRUE(names(errorOf([&] { kernel->encode(nullptr, one(source_, to)); }), {"commandBuffer", "null"}));
  EXPECT_TRUE(names(refused(MatrixCopyDescriptor(1)), {"MatrixCopy", "copyDescriptor", "copy 0 not set"}));
  EXPECT_TRUE(names(refused(one(source_, halfMatrix(2, 3))), {"destinationMatrix", "Float16", "Float32"}));
  EXPECT_TRUE(names(refused(one(matrixOf(2, 3, DataType::Int64), matrixOf(2, 3, DataType::Int64))),
                    {"sourceMatrix", "Int64"}));
  EXPECT_TRUE(names(refused(one(source_, to, {0, 1, 0, 0})), {"sourceMatrix", "2x3", "column 1"}));
  EXPECT_TRUE(names(refused(one(source_, to, {0, 0, 1, 0})), {"destinationMatrix", "2x3", "row 1"}));
  EXPECT_TRUE(
      names(refused(one(source_, source_)), {"destinationMatrix", "sharing elements", "sourceMatrix"}));
  EXPECT_TRUE(names(refused(one(source_, to), words({0})), {"rowPermuteIndices", "1x1", "1x2"}));
  EXPECT_TRUE(
      names(refused(one(source_, to), nullptr, words({0, 1})), {"columnPermuteIndices", "1x2", "1x3"}));
  EXPECT_TRUE(names(refused(one(source_, to), vector({0, 1})), {"rowPermuteIndices", "Float32", "UInt32"}));
  MatrixCopyDescriptor same(2);
  same.setCopyOperation(0, source_, to, {});
  same.setCopyOperation(1, source_, to, {});
  EXPECT_TRUE(names(refused(same), {"destinationMatrix", "sharing elements"}));
  const auto indices = words({0, 1, 2, 3, 4, 5});
  const auto over =
      Matrix::create(indices->data(), MatrixDescriptor::matrixDescriptor(2, 3, 12, DataType::Float32));
  EXPECT_TRUE(names(refused(one(source_, over), indices), {"destinationMatrix", "rowPermuteIndices"}));
  EXPECT_TRUE(names(refused(MatrixCopyDescriptor(Matrices{source_}, Matrices{over}, indices)),
                    {"destinationMatrix", "offsetVector"}));
  const auto transposed = MatrixCopy::create(device_, 3, 2, true, true);
  EXPECT_EQ(refusal([&](const auto& commandBuffer) { transposed->encode(commandBuffer, one(source_, to)); }),
            "");
}

TEST_F(MatrixCopyTest, RandomCopiesMatchTheReference) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int repetition = 0; repetition < 60; ++repetition) {
    detail::MatrixCopyProblem problem;
    // Small ones, and such as are worked on in several pieces.
    const auto most = static_cast<unsigned>(repetition % 4 == 0 ? 300 : 40);
    problem.rows = 1 + random() % most;
    problem.columns = 1 + random() % most;
    problem.sourceIsTransposed = random() % 2 == 1;
    problem.destinationIsTransposed = random() % 2 == 1;
    const auto from = matrix(1 + random() % (most + 10), 1 + random() % (most + 10));
    const auto to = matrix(1 + random() % (most + 10), 1 + random() % (most + 10));
    Words offsets(4);
    for (std::uint32_t& offset : offsets) offset = static_cast<std::uint32_t>(random() % 6);
    const auto permutation = [&](std::int64_t size) {
      Words indices(static_cast<std::size_t>(size));
      std::iota(indices.begin(), indices.end(), 0U);
      std::shuffle(indices.begin(), indices.end(), random);
      return indices;
    };
    Words rows, columns;
    if (random() % 2 == 1)
      rows = permutation(problem.destinationIsTransposed ? problem.columns : problem.rows);
    if (random() % 2 == 1)
      columns = permutation(problem.destinationIsTransposed ? problem.rows : problem.columns);
    const auto tensor = [](Matrix& stored) {
      const Values values = valuesOf(stored);
      detail::ReferenceTensor made(1, static_cast<std::int64_t>(stored.rows()), 1,
                                   static_cast<std::int64_t>(stored.columns()));
      made.values.assign(values.begin(), values.end());
      return made;
    };
    const Values numbers = counted(from->rows() * from->columns());
    for (std::size_t i = 0; i < numbers.size(); ++i)
      from->data()->contentsAs<float>()[i / from->columns() * (from->columns() + 2) + i % from->columns()] =
          numbers[i];
    const auto expected = matrixCopyReference(problem, tensor(*from), tensor(*to), offsets, rows, columns);
    const auto kernel = MatrixCopy::create(device_, static_cast<std::size_t>(problem.rows),
                                           static_cast<std::size_t>(problem.columns),
                                           problem.sourceIsTransposed, problem.destinationIsTransposed);
    run([&](const auto& commandBuffer) {
      kernel->encode(commandBuffer, MatrixCopyDescriptor(Matrices{from}, Matrices{to}, words(offsets)),
                     rows.empty() ? nullptr : words(rows), 0, columns.empty() ? nullptr : words(columns), 0);
    });
    const Values found = valuesOf(*to);
    EXPECT_EQ(std::vector<double>(found.begin(), found.end()), expected.values);
  }
}

TEST_F(MatrixCopyTest, CopiesOfTheKernelKeepItsProperties) {
  const auto device = mtl::newCPUDevice(1);
  const auto kernel = MatrixCopy::create(device_, 3, 4, true, false)->copy(device);
  EXPECT_EQ(kernel->device(), device);
  EXPECT_EQ(kernel->copyRows(), 3U);
  EXPECT_EQ(kernel->copyColumns(), 4U);
  EXPECT_TRUE(kernel->sourcesAreTransposed());
  EXPECT_FALSE(kernel->destinationsAreTransposed());
}

}  // namespace
}  // namespace mps::matrix_copy_test
