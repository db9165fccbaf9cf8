#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "mps/matrix/matrix_problem.hpp"

/// The problems that tests, conform and bench share.
namespace mps::detail {

/// `gap` elements behind each row, two rows' worth behind each matrix.
inline TensorShape matrixShape(std::int64_t matrices, std::int64_t rows, std::int64_t columns,
                               ImageFeatureChannelFormat format = ImageFeatureChannelFormat::Float32,
                               std::int64_t gap = 0) {
  TensorShape shape = TensorShape::dense(matrices, rows, 1, columns, format);
  shape.rowStride += gap;
  shape.imageStride = (rows + (gap > 0 ? 2 : 0)) * shape.rowStride;
  return shape;
}

struct MatrixMultiplicationCase {
  std::string name;
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t interior = 1;
  std::int64_t matrices = 1;
  bool transposeLeft = false;
  bool transposeRight = false;
  float alpha = 1;
  float beta = 0;
  std::int64_t gap = 0;

  [[nodiscard]] MatrixMultiplicationProblem problem(ImageFeatureChannelFormat format) const {
    MatrixMultiplicationProblem problem;
    problem.transposeLeft = transposeLeft;
    problem.transposeRight = transposeRight;
    problem.alpha = alpha;
    problem.beta = beta;
    problem.left = transposeLeft ? matrixShape(matrices, interior, rows, format, gap)
                                 : matrixShape(matrices, rows, interior, format, gap);
    problem.right = transposeRight ? matrixShape(matrices, columns, interior, format, 2 * gap)
                                   : matrixShape(matrices, interior, columns, format, 2 * gap);
    problem.result = matrixShape(matrices, rows, columns, format, 3 * gap);
    return problem;
  }
};

inline std::vector<MatrixMultiplicationCase> matrixMultiplicationCases() {
  std::vector<MatrixMultiplicationCase> cases = {
      {.name = "OneElement"},
      {.name = "RowTimesMatrix", .columns = 19, .interior = 33},
      {.name = "MatrixTimesColumn", .rows = 21, .interior = 17, .beta = 0.5F},
      {.name = "Outer", .rows = 13, .columns = 9},
      {.name = "Square", .rows = 64, .columns = 64, .interior = 64},
      {.name = "Batch", .rows = 5, .columns = 7, .interior = 6, .matrices = 4, .alpha = 2},
      {.name = "Tall", .rows = 2000, .interior = 5, .gap = 1},
      {.name = "NothingInside", .rows = 3, .columns = 4, .interior = 0, .beta = 2},
      {.name = "NothingInsideNorBefore", .rows = 3, .columns = 4, .interior = 0},
      {.name = "LongSum", .rows = 3, .columns = 5, .interior = 3000},
      {.name = "ManyTiles", .rows = 66, .columns = 131, .interior = 65},
      // Fewer products than threads, each long enough to be shared.
      {.name = "FewLongProducts", .rows = 16, .columns = 16, .interior = 3000, .matrices = 2},
      {.name = "FewLongProductsTransposed",
       .rows = 24,
       .columns = 24,
       .interior = 3000,
       .matrices = 2,
       .transposeLeft = true},
      {.name = "RowTimesWideMatrix", .columns = 5003, .interior = 37, .beta = 0.5F, .gap = 1},
      {.name = "RowsTimesWideMatrices", .columns = 300, .interior = 6, .matrices = 3, .alpha = 2, .gap = 3},
      {.name = "ColumnTransposedTimesWideMatrix",
       .columns = 256,
       .interior = 9,
       .transposeLeft = true,
       .gap = 2},
      {.name = "RowTimesMatrixOneColumnWider", .columns = 257, .interior = 6},
      {.name = "MatrixTimesLongColumn", .rows = 1067, .interior = 301, .alpha = 2, .beta = 0.5F},
      {.name = "MatricesTimesTransposedColumns",
       .rows = 64,
       .interior = 64,
       .matrices = 3,
       .transposeRight = true,
       .gap = 3},
      {.name = "NothingInsideAWideMatrix", .columns = 256, .interior = 0, .beta = 2},
  };
  for (int transposes = 0; transposes < 4; ++transposes)
    for (const float beta : {0.0F, 0.5F}) {
      MatrixMultiplicationCase item{.name = "Transposes",
                                    .rows = 11,
                                    .columns = 7,
                                    .interior = 9,
                                    .matrices = 3,
                                    .alpha = -0.5F,
                                    .gap = 3};
      item.transposeLeft = (transposes & 1) != 0;
      item.transposeRight = (transposes & 2) != 0;
      item.beta = beta;
      item.name += std::to_string(transposes) + (beta == 0 ? "" : "Added");
      cases.push_back(item);
    }
  return cases;
}

struct ImageMatrixCopyCase {
  std::string name;
  std::int64_t images = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 1;
  std::int64_t pixelGap = 0;
  std::int64_t rowGap = 0;
  std::int64_t matrixGap = 0;

  [[nodiscard]] ImageMatrixCopyProblem problem(bool toMatrix, bool channelsFirst,
                                               ImageFeatureChannelFormat format) const {
    ImageMatrixCopyProblem problem;
    problem.toMatrix = toMatrix;
    problem.channelsFirst = channelsFirst;
    problem.images = TensorShape::dense(images, height, width, channels, format);
    problem.images.pixelStride += pixelGap;
    problem.images.rowStride = width * problem.images.pixelStride + rowGap;
    problem.images.imageStride = height * problem.images.rowStride + rowGap;
    problem.matrix = matrixShape(1, images, height * width * channels, format, matrixGap);
    return problem;
  }
};

inline std::vector<ImageMatrixCopyCase> imageMatrixCopyCases() {
  return {
      {.name = "OneElement"},
      {.name = "Channels3", .images = 4, .height = 3, .width = 5, .channels = 3},
      {.name = "Channels5", .images = 2, .height = 7, .width = 6, .channels = 5, .matrixGap = 3},
      {.name = "OneChannel", .images = 3, .height = 9, .width = 4, .rowGap = 2},
      {.name = "OnePixel", .images = 5, .channels = 130, .matrixGap = 1},
      {.name = "Vectors", .images = 70, .channels = 1},
      {.name = "ManyPieces", .images = 2, .height = 11, .width = 17, .channels = 33},
      {.name = "LongRows", .images = 1, .height = 2, .width = 200, .channels = 18, .rowGap = 5},
      {.name = "ChannelRange", .images = 2, .height = 4, .width = 6, .channels = 4, .pixelGap = 8},
      // Runs of pixels that are multiples of 16 bytes, of 8, 4 and 2, and several tiles.
      {.name = "Runs16", .images = 2, .height = 8, .width = 9, .channels = 72, .pixelGap = 8},
      {.name = "Runs8", .images = 2, .height = 14, .width = 14, .channels = 80, .matrixGap = 4},
      {.name = "Runs4", .images = 3, .height = 5, .width = 14, .channels = 24, .rowGap = 8},
      {.name = "Runs2", .images = 2, .height = 7, .width = 11, .channels = 136, .matrixGap = 1},
      {.name = "ManyPixels", .images = 2, .height = 30, .width = 30, .channels = 72},
      {.name = "AllGaps",
       .images = 3,
       .height = 5,
       .width = 7,
       .channels = 19,
       .pixelGap = 1,
       .rowGap = 2,
       .matrixGap = 4},
  };
}

struct MatrixRandomCase {
  std::string name;
  RandomNumbers numbers = RandomNumbers::Words;
  std::int64_t matrices = 1;
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  std::int64_t gap = 0;
  float minimum = 0;
  float maximum = 0;
  float mean = 0;
  float standardDeviation = 0;
  std::uint64_t seed = 1;
  std::uint64_t skippedBlocks = 0;  ///< the fill begins 4 times as many numbers into the stream

  [[nodiscard]] std::uint64_t skipped() const { return 4 * skippedBlocks; }
  [[nodiscard]] MatrixRandomProblem problem(RandomGenerator generator) const {
    MatrixRandomProblem problem;
    problem.generator = generator;
    problem.numbers = numbers;
    problem.seed = generator == RandomGenerator::Philox ? seed : 0;
    problem.minimum = minimum;
    problem.maximum = maximum;
    problem.mean = mean;
    problem.standardDeviation = standardDeviation;
    problem.destination = matrixShape(matrices, rows, columns, ImageFeatureChannelFormat::Float32, gap);
    return problem;
  }
};

inline std::vector<MatrixRandomCase> matrixRandomCases() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<MatrixRandomCase> cases;
  for (const std::int64_t columns : {1, 3, 4, 5, 17, 801, 2048, 2049, 20000}) {
    MatrixRandomCase item{.name = "Words" + std::to_string(columns), .columns = columns};
    cases.push_back(item);
  }
  MatrixRandomCase shaped{.name = "WordsMatrices", .matrices = 3, .rows = 7, .columns = 5};
  cases.push_back(shaped);
  shaped.name = "WordsWithGaps";
  shaped.gap = 3;
  cases.push_back(shaped);
  shaped = {.name = "WordsManyTiles", .rows = 300, .columns = 70, .gap = 2, .seed = 77};
  cases.push_back(shaped);
  cases.push_back({.name = "WordsWideSeed", .columns = 100, .seed = 0xFEDCBA9876543210ULL});
  cases.push_back({.name = "WordsLater", .columns = 3000, .skippedBlocks = 1234});
  cases.push_back({.name = "Unit", .numbers = RandomNumbers::UnitInterval, .rows = 30, .columns = 101});
  const auto uniform = [&](const char* name, float minimum, float maximum) {
    cases.push_back({.name = name,
                     .numbers = RandomNumbers::Uniform,
                     .rows = 9,
                     .columns = 333,
                     .gap = 1,
                     .minimum = minimum,
                     .maximum = maximum,
                     .seed = 5});
  };
  uniform("Uniform", -0.2F, 0.2F);
  uniform("UniformFarFromZero", 1000.0F, 1000.5F);
  uniform("UniformOneStep", 1.0F, 1.0F + 0x1p-23F);
  uniform("UniformConstant", 0.75F, 0.75F);
  const auto normal = [&](const char* name, float mean, float standardDeviation, float minimum,
                          float maximum) {
    cases.push_back({.name = name,
                     .numbers = RandomNumbers::Normal,
                     .rows = 9,
                     .columns = 333,
                     .gap = 1,
                     .minimum = minimum,
                     .maximum = maximum,
                     .mean = mean,
                     .standardDeviation = standardDeviation,
                     .seed = 5});
  };
  normal("Normal", 0, 1, -kInfinity, kInfinity);
  normal("NormalScaled", 3, 0.25F, -kInfinity, kInfinity);
  normal("NormalConstant", 3, 0, -kInfinity, kInfinity);
  normal("NormalConstantInsideBounds", 3, 0, 3.5F, 4);
  normal("Bounded", 1, 2, 0, 4);
  normal("BoundedBelow", 1, 2, 0.5F, kInfinity);
  normal("BoundedAbove", 1, 2, -kInfinity, -3);
  normal("BoundedFarAbove", 0, 1, 12, 13);
  normal("BoundedFarBelow", 0, 1, -30, -29.5F);
  normal("BoundedTooFarAbove", 0, 1, 50, 60);
  normal("BoundedTooFarBelow", 0, 1, -60, -50);
  normal("BoundedToOneValue", 0, 1, 0.5F, 0.5F);
  return cases;
}

}  // namespace mps::detail
