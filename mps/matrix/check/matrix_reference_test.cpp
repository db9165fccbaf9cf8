#include "mps/matrix/check/matrix_reference.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "mps/conform/compare.hpp"
#include "mps/matrix/check/matrix_cases.hpp"

namespace mps::detail::matrix_reference_test {
namespace {

using Words = std::vector<std::uint32_t>;
using Values = std::vector<double>;

ReferenceTensor matrix(std::int64_t rows, std::int64_t columns, const Values& values) {
  ReferenceTensor tensor(1, rows, 1, columns);
  tensor.values = values;
  return tensor;
}

TEST(MatrixRandomKnownAnswers, PhiloxSeeds0To2) {
  EXPECT_EQ(philoxReference(0, 0, 8), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8, 0x2dce73e5,
                                             0x1348e23f, 0xfcf8e0ec, 0xa287aadb}));
  EXPECT_EQ(philoxReference(1, 0, 8), (Words{0xe3e80670, 0xe50a0ebc, 0x95f222c0, 0xb615aa27, 0x127bee41,
                                             0x1e047488, 0x48842b20, 0x0a393496}));
  EXPECT_EQ(philoxReference(2, 0, 4), (Words{0x6cea1ec5, 0x7f4dbfff, 0xf99450e5, 0x664593ce}));
}

TEST(MatrixRandomKnownAnswers, PhiloxGoesOnWithABlock) {
  const Words whole = philoxReference(7, 0, 40);
  EXPECT_EQ(philoxReference(7, 3, 28), Words(whole.begin() + 12, whole.end()));
}

TEST(MatrixRandomKnownAnswers, MTGP32Seeds0And1) {
  EXPECT_EQ(mtgp32Reference(0, 0, 8), (Words{0x30566b4e, 0xd37ab372, 0x682c93be, 0xbe961b1d, 0xa3e22079,
                                             0xcbcc59a2, 0xabde92e4, 0xef185bd7}));
  EXPECT_EQ(mtgp32Reference(0, 1000, 1), Words{0x4b83249c});
  EXPECT_EQ(mtgp32Reference(1, 0, 4), (Words{0x601f577d, 0x3857e475, 0x94d32c98, 0x3765da5b}));
  EXPECT_EQ(mtgp32Reference(1, 1000, 1), Words{0xeed86279});
}

/// The values are printed with these digits.
constexpr double kPrinted = 5e-7;

MatrixRandomProblem problemOf(RandomNumbers numbers, float minimum, float maximum, float mean,
                              float standardDeviation) {
  MatrixRandomProblem problem;
  problem.numbers = numbers;
  problem.minimum = minimum;
  problem.maximum = maximum;
  problem.mean = mean;
  problem.standardDeviation = standardDeviation;
  problem.destination = matrixShape(1, 1, 8);
  return problem;
}

TEST(MatrixRandomKnownAnswers, NumbersOfSeed0) {
  const Words words = philoxReference(0, 0, 8);
  const auto expectNear = [&](const MatrixRandomProblem& problem, const Values& expected) {
    const ReferenceTensor found = matrixRandomReference(problem, words);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(found.values[i], expected[i], kPrinted) << i;
  };
  expectNear(problemOf(RandomNumbers::UnitInterval, 0, 0, 0, 0),
             {0.399046421, 0.880520105, 0.735712767, 0.605481744, 0.178931355, 0.0753308535, 0.988172531,
              0.634882569});
  expectNear(problemOf(RandomNumbers::Uniform, -0.2F, 0.2F, 0, 0),
             {-0.0403814, 0.152208, 0.0942851, 0.0421927});
  expectNear(problemOf(RandomNumbers::Normal, -INFINITY, INFINITY, 0, 1),
             {-0.255816, 1.177591, 0.630184, 0.267562});
}

TEST(MatrixRandomKnownAnswers, ExtremesOfTheNormalDistribution) {
  const auto problem = problemOf(RandomNumbers::Normal, -INFINITY, INFINITY, 0, 1);
  const ReferenceTensor found = matrixRandomReference(problem, {0, 511, 0xffffffff, 0x80000000});
  constexpr double kFourDigits = 5e-5;
  EXPECT_NEAR(found.values[0], -5.2947, kFourDigits);
  EXPECT_NEAR(found.values[1], -5.2947, kFourDigits);
  EXPECT_NEAR(found.values[2], 5.1666, kFourDigits);
  EXPECT_EQ(found.values[3], 0);
}

TEST(MatrixRandomKnownAnswers, QuantilesInvertThePhi) {
  for (const double p : {1e-300, 1e-40, 1e-12, 1e-5, 0.01, 0.3, 0.499, 0.5, 0.6, 0.99}) {
    const double x = normalQuantileReference(p);
    const double back = std::erfc(-x / std::sqrt(2.0)) / 2;
    EXPECT_NEAR(back / p, 1, 1e-11) << p;
  }
}

TEST(MatrixRandomKnownAnswers, WordsAreComparedInHalves) {
  const auto problem = problemOf(RandomNumbers::Words, 0, 0, 0, 0);
  MatrixRandomProblem two = problem;
  two.destination = matrixShape(1, 1, 2);
  const ReferenceTensor found = matrixRandomReference(two, {0x12345678, 0xfffe0001});
  EXPECT_EQ(found.values, (Values{0x5678 / 65535.0, 0x1234 / 65535.0, 0x0001 / 65535.0, 0xfffe / 65535.0}));
}

TEST(MatrixMultiplicationReference, AllTransposes) {
  // A = (1 2 3; 4 5 6), B = (7 8; 9 10; 11 12): A B = (58 64; 139 154).
  const Values product = {58, 64, 139, 154};
  const ReferenceTensor old = matrix(2, 2, {1, 10, 100, 1000});
  for (const bool left : {false, true})
    for (const bool right : {false, true}) {
      const MatrixMultiplicationCase item{.name = "",
                                          .rows = 2,
                                          .columns = 2,
                                          .interior = 3,
                                          .transposeLeft = left,
                                          .transposeRight = right,
                                          .alpha = 2,
                                          .beta = 3};
      const auto problem = item.problem(ImageFeatureChannelFormat::Float32);
      const ReferenceTensor a = left ? matrix(3, 2, {1, 4, 2, 5, 3, 6}) : matrix(2, 3, {1, 2, 3, 4, 5, 6});
      const ReferenceTensor b =
          right ? matrix(2, 3, {7, 9, 11, 8, 10, 12}) : matrix(3, 2, {7, 8, 9, 10, 11, 12});
      const ReferenceTensor found = matrixMultiplicationReference(problem, a, b, old);
      for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(found.values[i], 2 * product[i] + 3 * old.values[i]);
      EXPECT_EQ(found.magnitude, found.values) << "all terms are positive";
    }
}

TEST(MatrixMultiplicationReference, BetaZeroForgetsNaN) {
  const MatrixMultiplicationCase item{.name = ""};
  const ReferenceTensor found =
      matrixMultiplicationReference(item.problem(ImageFeatureChannelFormat::Float32), matrix(1, 1, {2}),
                                    matrix(1, 1, {3}), matrix(1, 1, {std::nan("")}));
  EXPECT_EQ(found.values[0], 6);
}

/// An image of 2 x 2 pixels and 3 channels: y x c stands for 100 y + 10 x + c.
TEST(ImageMatrixCopyReference, BothLayouts) {
  const ImageMatrixCopyCase item{.name = "", .height = 2, .width = 2, .channels = 3};
  ReferenceTensor image(1, 2, 2, 3);
  image.values = {0, 1, 2, 10, 11, 12, 100, 101, 102, 110, 111, 112};
  const Values first = {0, 10, 100, 110, 1, 11, 101, 111, 2, 12, 102, 112};
  for (const bool channelsFirst : {false, true}) {
    const auto to = item.problem(true, channelsFirst, ImageFeatureChannelFormat::Float32);
    const ReferenceTensor row = imageMatrixCopyReference(to, image);
    EXPECT_EQ(row.values, channelsFirst ? first : image.values);
    const auto back = item.problem(false, channelsFirst, ImageFeatureChannelFormat::Float32);
    EXPECT_EQ(imageMatrixCopyReference(back, row).values, image.values);
  }
}

/// The gradient of a copy is the copy back: <copy x, y> = <x, copy back y>.
TEST(ImageMatrixCopyReference, TheCopyBackIsTheGradient) {
  for (const ImageMatrixCopyCase& item : imageMatrixCopyCases())
    for (const bool channelsFirst : {false, true}) {
      const auto to = item.problem(true, channelsFirst, ImageFeatureChannelFormat::Float32);
      ReferenceTensor x(item.images, item.height, item.width, item.channels);
      ReferenceTensor y(1, item.images, 1, to.matrix.channels);
      x.values = randomValues(x.values.size(), 3, RandomKind::SmallIntegers);
      y.values = randomValues(y.values.size(), 4, RandomKind::SmallIntegers);
      const auto back = item.problem(false, channelsFirst, ImageFeatureChannelFormat::Float32);
      const Values row = imageMatrixCopyReference(to, x).values;
      const Values image = imageMatrixCopyReference(back, y).values;
      double forward = 0;
      double backward = 0;
      for (std::size_t i = 0; i < row.size(); ++i) {
        forward += row[i] * y.values[i];
        backward += x.values[i] * image[i];
      }
      EXPECT_EQ(forward, backward) << item.name;
    }
}

}  // namespace
}  // namespace mps::detail::matrix_reference_test
