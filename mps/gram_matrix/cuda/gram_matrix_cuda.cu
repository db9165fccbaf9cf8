#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "mps/core/cuda/elements_cuda.cuh"
#include "mps/core/cuda/rows_cuda.cuh"
#include "mps/core/plan/dense_product_cuda.hpp"
#include "mps/gram_matrix/gram_matrix_problem.hpp"
#include "mtl/cuda/launch.cuh"

namespace mps::detail {
namespace {

using cuda::RowGrid;

/// Copies a tensor, row by row of its images: to(n, y, x, c) = scale from(n, y, x, c), or added to what is there.
struct CopyArguments {
  RowGrid grid;
  cuda::Divider height;
  cuda::Divider channels;
  TensorShape from;
  TensorShape to;
  float scale = 1;
  bool accumulate = false;

  CopyArguments(const TensorShape& source, const TensorShape& destination)
      : grid(source.images * source.height, source.width * source.channels),
        height(source.height),
        channels(source.channels),
        from(source),
        to(destination) {}
};

__global__ void copyElements(CopyArguments a, const std::byte* from, std::byte* to) {
  cuda::forEachRow(a.grid, [&](std::uint32_t row) {
    const std::uint32_t n = a.height.divide(row);
    const std::uint32_t y = row - n * a.height.divisor();
    cuda::forEachPiece(a.grid, [&](std::uint32_t i) {
      const std::uint32_t x = a.channels.divide(i);
      const std::uint32_t c = i - x * a.channels.divisor();
      const std::int64_t place = a.to.offset(n, y, x, c);
      const float value = a.scale * cuda::loadAs(a.from.format, from, a.from.offset(n, y, x, c));
      cuda::storeAs(a.accumulate ? cuda::loadAs(a.to.format, to, place) + value : value, a.to.format, to,
                    place);
    });
  });
}

/// to = scale (G + G^T), of matrices whose rows are pixels.
__global__ void addTranspose(CopyArguments a, const std::byte* from, float* to) {
  cuda::forEachRow(a.grid, [&](std::uint32_t n) {
    cuda::forEachPiece(a.grid, [&](std::uint32_t i) {
      const std::uint32_t f = a.channels.divide(i);
      const std::uint32_t c = i - f * a.channels.divisor();
      to[a.to.offset(n, 0, f, c)] = a.scale * (cuda::loadAs(a.from.format, from, a.from.offset(n, 0, f, c)) +
                                               cuda::loadAs(a.from.format, from, a.from.offset(n, 0, c, f)));
    });
  });
}

bool isDenseFloat(const TensorShape& shape) {
  // Each image begins at a multiple of 16 bytes, if the tensor does.
  return shape.format == ImageFeatureChannelFormat::Float32 && shape.isDense() &&
         shape.height * shape.width * shape.channels % 4 == 0;
}

/// The same tensor as dense float32 images.
TensorShape asFloats(const TensorShape& shape) {
  TensorShape floats = TensorShape::dense(shape.images, shape.height, shape.width, shape.channels);
  floats.imageStride = (floats.imageStride + 63) / 64 * 64;
  return floats;
}

/// One product of dense float32 matrices for each image. Tensors that are not of this kind are copied to scratch memory
/// and back.
class ProductsPlan final : public Plan {
 public:
  explicit ProductsPlan(const GramMatrixProblem& problem)
      : problem_(problem),
        source_(isDenseFloat(problem.source) ? problem.source : asFloats(problem.source)),
        matrix_(asFloats(problem.matrix)),
        result_(isDenseFloat(problem.destination) ? problem.destination : asFloats(problem.destination)) {
    DenseProduct product;
    product.transposeLeft = problem.isForward();
    product.rows = problem.isForward() ? problem.channels() : problem.pixels();
    product.columns = problem.channels();
    product.interior = problem.isForward() ? problem.pixels() : problem.channels();
    product.deviceName = problem.deviceName;
    product_ = denseProductCuda(product);
    if (problem.isForward() || copiesResult()) return;
    product.adds = true;
    adding_ = denseProductCuda(product);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    if (problem_.matrix.elements() == 0) return;
    const auto alpha = static_cast<float>(operands.scalars[0]);
    std::byte* const matrices = operands.scratch + sourceBytes();
    const std::byte* source = operands.source;
    if (copiesSource()) {
      copy(stream, CopyArguments(problem_.source, source_), source, operands.scratch);
      source = operands.scratch;
    }
    if (problem_.isForward()) {
      multiply(stream, *product_, {source, source_}, {source, source_}, matrices, matrix_, operands);
      CopyArguments finish(matrix_, problem_.matrix);
      finish.scale = alpha;
      return copy(stream, finish, matrices, operands.destination);
    }
    CopyArguments sums(problem_.matrix, matrix_);
    sums.scale = alpha;
    mtl::cuda::launch(stream, addTranspose, sums.grid.grid, sums.grid.block, 0, sums, operands.gradient,
                      reinterpret_cast<float*>(matrices));
    std::byte* const result = copiesResult() ? matrices + bytesOf(matrix_) : operands.destination;
    const bool adds = operands.accumulate && !copiesResult();
    multiply(stream, adds ? *adding_ : *product_, {source, source_}, {matrices, matrix_}, result, result_,
             operands);
    if (!copiesResult()) return;
    CopyArguments finish(result_, problem_.destination);
    finish.accumulate = operands.accumulate;
    copy(stream, finish, result, operands.destination);
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    return productOffset() + std::max(product_->scratchBytes(), adding_ ? adding_->scratchBytes() : 0);
  }
  [[nodiscard]] bool canAccumulate() const override {
    return !problem_.isForward() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }
  [[nodiscard]] std::string describe() const override { return product_->describe(); }

 private:
  struct Factor {
    const std::byte* memory;
    const TensorShape& shape;
  };

  void copy(mtl::Stream& stream, const CopyArguments& a, const std::byte* from, std::byte* to) const {
    mtl::cuda::launch(stream, copyElements, a.grid.grid, a.grid.block, 0, a, from, to);
  }
  void multiply(mtl::Stream& stream, const Plan& product, const Factor& left, const Factor& right,
                std::byte* result, const TensorShape& resultShape, const Operands& operands) const {
    const auto bytesBefore = [](std::int64_t image, const TensorShape& shape) {
      return image * shape.imageStride * static_cast<std::int64_t>(sizeof(float));
    };
    for (std::int64_t n = 0; n < problem_.source.images; ++n) {
      Operands ofImage;
      ofImage.source = left.memory + bytesBefore(n, left.shape);
      ofImage.secondary = right.memory + bytesBefore(n, right.shape);
      ofImage.destination = result + bytesBefore(n, resultShape);
      ofImage.scratch = operands.scratch + productOffset();
      product.run(stream, ofImage);
    }
  }

  // Scratch memory: the copy of the source, the matrices, the result of a gradient, what the products need.
  static std::size_t bytesOf(const TensorShape& shape) {
    return static_cast<std::size_t>(shape.images * shape.imageStride) * sizeof(float);
  }
  [[nodiscard]] bool copiesSource() const { return !isDenseFloat(problem_.source); }
  [[nodiscard]] bool copiesResult() const {
    return !problem_.isForward() && !isDenseFloat(problem_.destination);
  }
  [[nodiscard]] std::size_t sourceBytes() const { return copiesSource() ? bytesOf(source_) : 0; }
  [[nodiscard]] std::size_t productOffset() const {
    return sourceBytes() + bytesOf(matrix_) + (copiesResult() ? bytesOf(result_) : 0);
  }

  GramMatrixProblem problem_;
  TensorShape source_, matrix_, result_;  ///< as the products have them
  std::shared_ptr<const Plan> product_;
  std::shared_ptr<const Plan> adding_;  ///< to what the destination of a gradient holds
};

Preparation prepareProducts(const GramMatrixProblem& problem) {
  for (const TensorShape* shape : {&problem.source, &problem.matrix, &problem.destination})
    if (!RowGrid::fits(shape->images * shape->height, shape->width * shape->channels))
      return Refusal{"2^31 rows, or about as many elements of a row"};
  return std::make_shared<const ProductsPlan>(problem);
}

constexpr Implementation<GramMatrixProblem> kImplementations[] = {{"matrix products", prepareProducts}};

}  // namespace

std::span<const Implementation<GramMatrixProblem>> gramMatrixImplementationsCuda() {
  return kImplementations;
}

}  // namespace mps::detail
