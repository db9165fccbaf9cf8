#include "mps/core/cpu/product_cpu.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "mps/core/cpu/array_sum.hpp"

namespace mps::detail {
namespace {

using ShapeInMemory = dnnl::memory::desc;

/// With smaller blocks a product reads its operands more often than it computes with them.
constexpr std::int64_t kLeastSide = 32;
/// A partial product costs as much as some hundred steps of its sums.
constexpr std::int64_t kLeastInterior = 2048;

/// Products of few rows are bound by memory: a part reads as much as is worth a thread, in runs that are not too short.
constexpr double kLeastBytesOfPart = 1 << 19U;

constexpr std::int64_t kVector = 16;

constexpr std::size_t aligned(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// A side in blocks of the same size but the last one.
struct Blocks {
  std::int64_t size = 0;
  std::int64_t count = 1;

  /// @param least size of a block
  /// @param multiple what the size is a multiple of, where there are several
  static Blocks of(std::int64_t side, std::int64_t wanted, std::int64_t least, std::int64_t multiple) {
    wanted = std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, side / least));
    if (wanted == 1) return {side, 1};
    const std::int64_t size = ((side + wanted - 1) / wanted + multiple - 1) / multiple * multiple;
    return {size, (side + size - 1) / size};
  }
};

ShapeInMemory describe(std::int64_t matrices, std::int64_t rows, std::int64_t columns,
                       const MatrixStrides& strides) {
  constexpr auto type = dnnl::memory::data_type::f32;
  if (matrices == 1) return {{rows, columns}, type, dnnl::memory::dims{strides.row, strides.column}};
  return {{matrices, rows, columns}, type, dnnl::memory::dims{strides.matrix, strides.row, strides.column}};
}

/// How many parts are worth a thread each.
std::int64_t partsOf(const ProductShape& shape) {
  const auto matrices = static_cast<double>(shape.matrices);
  const auto rows = static_cast<double>(shape.rows);
  const auto columns = static_cast<double>(shape.columns);
  const auto interior = static_cast<double>(shape.interior);
  const double bytes = sizeof(float) * matrices * (rows * interior + interior * columns + rows * columns);
  const auto ofMemory =
      static_cast<std::int64_t>(std::min(bytes / kLeastBytesOfPart, static_cast<double>(kMostParts)));
  return std::max(partsFor(2 * matrices * rows * columns * interior), ofMemory);
}

}  // namespace

std::int64_t partsFor(double operations) {
  return static_cast<std::int64_t>(std::clamp(operations / static_cast<double>(kLeastOperationsOfPart), 1.0,
                                              static_cast<double>(kMostParts)));
}

DividedProduct::DividedProduct(const ProductShape& shape, int threads) : shape_(shape) {
  const std::int64_t wanted = partsOf(shape);
  const Blocks matrices = Blocks::of(shape.matrices, wanted, 1, 1);
  const std::int64_t wantedOfMatrix = matrices.size > 1 ? 1 : wanted / matrices.count;
  // Blocks that are nearly square read least.
  const double squares =
      std::sqrt(static_cast<double>(wantedOfMatrix * shape.rows) / static_cast<double>(shape.columns));
  const Blocks rows = Blocks::of(
      shape.rows, std::clamp<std::int64_t>(std::llround(squares), 1, wantedOfMatrix), kLeastSide, kVector);
  const Blocks columns = Blocks::of(shape.columns, wantedOfMatrix / rows.count, kLeastSide, kVector);
  const bool isSummable = matrices.size == 1 && !shape.hasBias && (shape.beta == 0 || shape.beta == 1);
  const std::int64_t wantedOfResult = wantedOfMatrix / (rows.count * columns.count);
  const Blocks interior =
      Blocks::of(shape.interior, isSummable ? wantedOfResult : 1, kLeastInterior, kVector);
  depth_ = interior.count;

  const MatrixStrides partial{shape.rows * shape.columns, shape.columns, 1};
  const MatrixStrides& result = depth_ > 1 ? partial : shape.result;
  const std::int64_t ofSummand = shape.matrices * partial.matrix;
  std::map<std::array<std::int64_t, 4>, std::size_t> known;
  const auto primitiveFor = [&](std::int64_t n, std::int64_t r, std::int64_t c, std::int64_t k) {
    const auto [found, isNew] = known.try_emplace({n, r, c, k}, primitives_.size());
    if (isNew)
      primitives_.push_back(mtl::cpu::oneDnnProduct(
          describe(n, r, k, shape.left), describe(n, k, c, shape.right), describe(n, r, c, result),
          shape.hasBias ? describe(1, 1, c, {0, c, 1}) : ShapeInMemory(), shape.alpha,
          depth_ > 1 ? 0 : shape.beta));
    return found->second;
  };
  for (std::int64_t n = 0; n < shape.matrices; n += matrices.size)
    for (std::int64_t r = 0; r < shape.rows; r += rows.size)
      for (std::int64_t c = 0; c < shape.columns; c += columns.size)
        for (std::int64_t k = 0; k < shape.interior; k += interior.size)
          parts_.push_back(
              {primitiveFor(std::min(matrices.size, shape.matrices - n), std::min(rows.size, shape.rows - r),
                            std::min(columns.size, shape.columns - c),
                            std::min(interior.size, shape.interior - k)),
               n * shape.left.matrix + r * shape.left.row + k * shape.left.column,
               n * shape.right.matrix + k * shape.right.row + c * shape.right.column, c,
               k / interior.size * ofSummand + n * result.matrix + r * result.row + c * result.column});
  threads_ = std::min(static_cast<std::size_t>(std::max(1, threads)), parts_.size());

  if (depth_ > 1) partialBytes_ = aligned(static_cast<std::size_t>(depth_ * ofSummand) * sizeof(float));
  for (const auto& primitive : primitives_)
    scratchpadBytes_ = std::max(scratchpadBytes_, aligned(primitive.scratchpadBytes()));
}

bool DividedProduct::isReference() const {
  return std::any_of(primitives_.begin(), primitives_.end(),
                     [](const auto& primitive) { return primitive.isReference(); });
}

void DividedProduct::run(const mtl::cpu::Stream& stream, const float* left, const float* right,
                         const float* bias, float* result, std::byte* scratch) const {
  auto* const partial = reinterpret_cast<float*>(scratch);
  float* const to = depth_ > 1 ? partial : result;
  std::byte* const scratchpads = scratch + partialBytes_;
  const auto multiply = [&](std::int64_t i, int thread) {
    const Part& part = parts_[static_cast<std::size_t>(i)];
    primitives_[part.primitive].run({{DNNL_ARG_SRC, left + part.left},
                                     {DNNL_ARG_WEIGHTS, right + part.right},
                                     {DNNL_ARG_BIAS, bias == nullptr ? nullptr : bias + part.bias},
                                     {DNNL_ARG_DST, to + part.result}},
                                    scratchpads + static_cast<std::size_t>(thread) * scratchpadBytes_);
  };
  stream.forEach(static_cast<std::int64_t>(parts_.size()), static_cast<int>(threads_), multiply);
  if (depth_ > 1) addUp(stream, partial, result);
}

void DividedProduct::addUp(const mtl::cpu::Stream& stream, const float* partial, float* result) const {
  const std::int64_t ofMatrix = shape_.rows * shape_.columns;
  const std::int64_t elements = shape_.matrices * ofMatrix;
  const bool accumulate = shape_.beta != 0;
  if (shape_.result.column == 1 && shape_.result.row == shape_.columns &&
      (shape_.matrices == 1 || shape_.result.matrix == ofMatrix))
    return sumArrays(stream, partial, depth_, elements, result, accumulate);
  constexpr std::int64_t kGrain = 16 * 1024;
  const std::int64_t grain = kGrain / (shape_.columns * depth_) + 1;
  stream.parallelFor(shape_.matrices * shape_.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      float* const to =
          result + row / shape_.rows * shape_.result.matrix + row % shape_.rows * shape_.result.row;
      for (std::int64_t column = 0; column < shape_.columns; ++column) {
        float& value = to[column * shape_.result.column];
        float sum = accumulate ? value : 0.0F;
        for (std::int64_t k = 0; k < depth_; ++k)
          sum += partial[k * elements + row * shape_.columns + column];
        value = sum;
      }
    }
  });
}

}  // namespace mps::detail
