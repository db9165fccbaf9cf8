#include <algorithm>
#include <memory>
#include <string>

#include "mps/core/cpu/product_cpu.hpp"
#include "mps/core/plan/onednn_plan_cpu.hpp"
#include "mps/core/plan/tensor_copy.hpp"
#include "mps/core/types/storage.hpp"
#include "mps/gram_matrix/gram_matrix_problem.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

constexpr std::int64_t kGrain = 16384;  ///< elements below which another thread does not pay
constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::int64_t bytes) {
  return (static_cast<std::size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
}

float alphaOf(const Operands& operands) {
  return static_cast<float>(operands.scalars[0]);
}

/// G + G^T, times alpha: dense float32.
void addTranspose(const mtl::cpu::Stream& stream, const GramMatrixProblem& problem, const Operands& operands,
                  float* sums) {
  const TensorShape& g = problem.matrix;
  const std::int64_t channels = g.channels;
  const float alpha = alphaOf(operands);
  withElementType(g.format, [&](auto element) {
    const auto* const memory = reinterpret_cast<const decltype(element)*>(operands.gradient);
    stream.parallelFor(g.images * channels, kGrain / channels + 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t n = row / channels;
        const std::int64_t f = row % channels;
        for (std::int64_t c = 0; c < channels; ++c)
          sums[row * channels + c] =
              alpha * (loadFloat(memory + g.offset(n, 0, f, c)) + loadFloat(memory + g.offset(n, 0, c, f)));
      }
    });
  });
}

/// A tensor as oneDNN sees it: where it lies, or a dense float32 copy in scratch memory.
class Staged {
 public:
  explicit Staged(const TensorShape& shape)
      : isDirect_(shape.format == ImageFeatureChannelFormat::Float32 &&
                  (shape.height == 1 || shape.rowStride == shape.width * shape.pixelStride)),
        shape_(isDirect_ ? shape
                         : TensorShape::dense(shape.images, shape.height, shape.width, shape.channels)) {
    if (isDirect_) return;
    load_ = copying(shape, shape_);
    store_ = copying(shape_, shape);
  }

  [[nodiscard]] std::size_t bytes() const { return isDirect_ ? 0 : aligned(shape_.bytes()); }
  void place(std::size_t offset) { offset_ = offset; }
  [[nodiscard]] const TensorShape& shape() const { return shape_; }
  [[nodiscard]] bool isDirect() const { return isDirect_; }
  /// Of each image: pixels x channels.
  [[nodiscard]] MatrixStrides strides() const { return {shape_.imageStride, shape_.pixelStride, 1}; }
  [[nodiscard]] float* values(const std::byte* memory, std::byte* scratch) const {
    return reinterpret_cast<float*>(isDirect_ ? const_cast<std::byte*>(memory) : scratch + offset_);
  }
  void load(mtl::Stream& stream, const std::byte* memory, std::byte* scratch) const {
    if (!isDirect_) run(*load_, stream, memory, scratch + offset_);
  }
  void store(mtl::Stream& stream, std::byte* memory, const std::byte* scratch) const {
    if (!isDirect_) run(*store_, stream, scratch + offset_, memory);
  }

 private:
  static std::shared_ptr<const Plan> copying(const TensorShape& from, const TensorShape& to) {
    TensorCopyProblem problem;
    problem.source = from;
    problem.destination = to;
    return preparePlan(tensorCopyImplementationsCpu(), problem).plan;
  }
  static void run(const Plan& copy, mtl::Stream& stream, const std::byte* from, std::byte* to) {
    Operands operands;
    operands.source = from;
    operands.destination = to;
    copy.run(stream, operands);
  }

  bool isDirect_;
  TensorShape shape_;
  std::shared_ptr<const Plan> load_;
  std::shared_ptr<const Plan> store_;
  std::size_t offset_ = 0;
};

/// oneDNN's products of all images. Earns the style losses of style transfer.
class MatmulPlan final : public Plan {
 public:
  explicit MatmulPlan(const GramMatrixProblem& problem)
      : problem_(problem),
        source_(problem.source),
        result_(problem.isForward() ? problem.matrix : problem.destination) {
    result_.place(source_.bytes());
    sums_ = source_.bytes() + result_.bytes();
    const TensorShape& g = problem.matrix;
    const TensorShape sums = TensorShape::dense(g.images, 1, g.channels, g.channels);
    productScratch_ = sums_ + (problem.isForward() ? 0 : aligned(sums.bytes()));

    const std::int64_t pixels = problem.source.height * problem.source.width;
    ProductShape shape;
    shape.matrices = problem.source.images;
    shape.rows = problem.isForward() ? g.channels : pixels;
    shape.columns = g.channels;
    shape.interior = problem.isForward() ? pixels : g.channels;
    shape.left = problem.isForward() ? source_.strides().transposed() : source_.strides();
    shape.right = problem.isForward() ? source_.strides() : Staged(sums).strides();
    shape.result = result_.strides();
    product_ = DividedProduct(shape, problem.threadCount);
    if (!canAccumulate()) return;
    shape.beta = 1;
    adding_ = DividedProduct(shape, problem.threadCount);
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    source_.load(cpu, operands.source, operands.scratch);
    if (operands.accumulate) result_.load(cpu, operands.destination, operands.scratch);
    auto* const sums = reinterpret_cast<float*>(operands.scratch + sums_);
    if (!problem_.isForward()) addTranspose(cpu, problem_, operands, sums);
    const float* const source = source_.values(operands.source, operands.scratch);
    (operands.accumulate ? adding_ : product_)
        .run(cpu, source, problem_.isForward() ? source : sums, nullptr,
             result_.values(operands.destination, operands.scratch), operands.scratch + productScratch_);
    if (problem_.isForward()) scale(cpu, operands);
    result_.store(cpu, operands.destination, operands.scratch);
  }

  [[nodiscard]] bool isReference() const { return product_.isReference(); }
  [[nodiscard]] std::size_t scratchBytes() const override {
    return productScratch_ + std::max(product_.scratchBytes(), canAccumulate() ? adding_.scratchBytes() : 0);
  }
  [[nodiscard]] bool canAccumulate() const override {
    return !problem_.isForward() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }
  [[nodiscard]] std::string describe() const override { return product_.implementation(); }

 private:
  /// alpha is not known when the product is made.
  void scale(const mtl::cpu::Stream& stream, const Operands& operands) const {
    const float alpha = alphaOf(operands);
    if (alpha == 1) return;
    const TensorShape& shape = result_.shape();
    float* const memory = result_.values(operands.destination, operands.scratch);
    stream.parallelFor(
        shape.images * shape.width, kGrain / shape.channels + 1, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t row = begin; row < end; ++row) {
            float* const values = memory + shape.offset(row / shape.width, 0, row % shape.width, 0);
            for (std::int64_t c = 0; c < shape.channels; ++c) values[c] *= alpha;
          }
        });
  }

  GramMatrixProblem problem_;
  Staged source_;
  Staged result_;
  std::size_t sums_ = 0;  ///< of gradients, behind the copies
  std::size_t productScratch_ = 0;
  DividedProduct product_;
  DividedProduct adding_;
};

Preparation prepareMatmul(const GramMatrixProblem& problem) {
  if (problem.source.elements() == 0) return Refusal{"there is nothing to multiply"};
  return prepareByOneDnn<MatmulPlan>(problem);
}

/// Pixel after pixel, some channels of the result at a time.
class PlainPlan final : public Plan {
 public:
  explicit PlainPlan(const GramMatrixProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    auto* const sums = reinterpret_cast<float*>(operands.scratch);
    if (!problem_.isForward()) addTranspose(cpu, problem_, operands, sums);
    const TensorShape& result = problem_.isForward() ? problem_.matrix : problem_.destination;
    withElementType(problem_.source.format, [&](auto from) {
      withElementType(result.format, [&](auto to) {
        cpu.parallelFor(result.pixels(), 1, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t pixel = begin; pixel < end; ++pixel)
            computePixel<decltype(from), decltype(to)>(operands, sums, result, pixel);
        });
      });
    });
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    const TensorShape& g = problem_.matrix;
    return problem_.isForward() ? 0 : static_cast<std::size_t>(g.elements()) * sizeof(float);
  }
  [[nodiscard]] bool canAccumulate() const override {
    return !problem_.isForward() && problem_.destination.format == ImageFeatureChannelFormat::Float32;
  }

 private:
  static constexpr std::int64_t kBlock = 256;

  template <class From, class To>
  void computePixel(const Operands& operands, const float* sums, const TensorShape& result,
                    std::int64_t pixel) const {
    const TensorShape& source = problem_.source;
    const std::int64_t x = pixel % result.width;
    const std::int64_t y = pixel / result.width % result.height;
    const std::int64_t n = pixel / (result.width * result.height);
    const auto* const from = reinterpret_cast<const From*>(operands.source);
    auto* const to = reinterpret_cast<To*>(operands.destination) + result.offset(n, y, x, 0);
    for (std::int64_t first = 0; first < result.channels; first += kBlock) {
      const std::int64_t count = std::min(kBlock, result.channels - first);
      float totals[kBlock] = {};
      if (problem_.isForward()) {
        for (std::int64_t row = 0; row < source.height; ++row)
          for (std::int64_t column = 0; column < source.width; ++column) {
            const From* const values = from + source.offset(n, row, column, 0);
            const float factor = loadFloat(values + x);
            for (std::int64_t i = 0; i < count; ++i) totals[i] += factor * loadFloat(values + first + i);
          }
        const float alpha = alphaOf(operands);
        for (std::int64_t i = 0; i < count; ++i) totals[i] *= alpha;
      } else {
        const From* const values = from + source.offset(n, y, x, 0);
        for (std::int64_t f = 0; f < source.channels; ++f) {
          const float factor = loadFloat(values + f);
          const float* const row = sums + (n * source.channels + f) * source.channels + first;
          for (std::int64_t i = 0; i < count; ++i) totals[i] += factor * row[i];
        }
      }
      for (std::int64_t i = 0; i < count; ++i)
        storeFloat(operands.accumulate ? totals[i] + loadFloat(to + first + i) : totals[i], to + first + i);
    }
  }

  GramMatrixProblem problem_;
};

Preparation preparePlain(const GramMatrixProblem& problem) {
  return std::make_shared<const PlainPlan>(problem);
}

constexpr Implementation<GramMatrixProblem> kImplementations[] = {{"matmul", prepareMatmul},
                                                                  {"dot products", preparePlain}};

}  // namespace

std::span<const Implementation<GramMatrixProblem>> gramMatrixImplementationsCpu() {
  return kImplementations;
}

std::string GramMatrixProblem::describe() const {
  return isForward() ? "Gram matrix, " + source.describe() + " -> " + matrix.describe()
                     : "Gram matrix, gradient " + matrix.describe() + ", source " + source.describe() +
                           " -> " + destination.describe();
}

}  // namespace mps::detail
