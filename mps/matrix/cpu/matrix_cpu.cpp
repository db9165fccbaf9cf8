#include <algorithm>
#include <memory>
#include <string>

#include "mps/core/cpu/product_cpu.hpp"
#include "mps/core/plan/onednn_plan_cpu.hpp"
#include "mps/core/types/storage.hpp"
#include "mps/core/types/text_stream.hpp"
#include "mps/matrix/matrix_problem.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

/// Calls multiply(0) of the type that a product's elements have: float or Float16.
template <class Multiply>
void withElements(const MatrixMultiplicationProblem& problem, Multiply multiply) {
  if (problem.result.format == ImageFeatureChannelFormat::Float16)
    multiply(Float16{});
  else
    multiply(0.0F);
}

/// Matrices as a product sees them.
MatrixStrides stridesOf(const TensorShape& shape) {
  return {shape.imageStride, shape.rowStride, 1};
}

/// A tensor that oneDNN reads and writes as float32: in its own memory, or float16 copied to scratch memory.
class Staged {
 public:
  Staged() = default;
  Staged(const TensorShape& shape, std::size_t& scratchBytes) : memory_(shape), staged_(shape) {
    if (shape.format == ImageFeatureChannelFormat::Float32) return;
    staged_ = TensorShape::dense(shape.images, shape.height, 1, shape.channels);
    offset_ = scratchBytes;
    constexpr std::size_t kAlignment = 64;
    scratchBytes += (static_cast<std::size_t>(staged_.bytes()) + kAlignment - 1) / kAlignment * kAlignment;
  }

  [[nodiscard]] const TensorShape& shape() const { return staged_; }
  [[nodiscard]] float* values(const std::byte* memory, std::byte* scratch) const {
    return reinterpret_cast<float*>(isCopied() ? scratch + offset_ : const_cast<std::byte*>(memory));
  }
  void load(mtl::cpu::Stream& stream, const std::byte* memory, std::byte* scratch) const {
    if (!isCopied()) return;
    auto* to = reinterpret_cast<float*>(scratch + offset_);
    forRows(stream, [&](std::int64_t at, std::int64_t stagedAt) {
      const auto* from = reinterpret_cast<const Float16*>(memory) + at;
      for (std::int64_t i = 0; i < memory_.channels; ++i) to[stagedAt + i] = loadFloat(from + i);
    });
  }
  void store(mtl::cpu::Stream& stream, std::byte* memory, const std::byte* scratch) const {
    if (!isCopied()) return;
    const auto* from = reinterpret_cast<const float*>(scratch + offset_);
    forRows(stream, [&](std::int64_t at, std::int64_t stagedAt) {
      auto* to = reinterpret_cast<Float16*>(memory) + at;
      for (std::int64_t i = 0; i < memory_.channels; ++i) storeFloat(from[stagedAt + i], to + i);
    });
  }

 private:
  [[nodiscard]] bool isCopied() const { return memory_.format != ImageFeatureChannelFormat::Float32; }
  template <class Body>
  void forRows(mtl::cpu::Stream& stream, Body&& body) const {
    constexpr std::int64_t kGrainElements = 16384;
    stream.parallelFor(memory_.images * memory_.height,
                       kGrainElements / std::max<std::int64_t>(1, memory_.channels) + 1,
                       [&](std::int64_t begin, std::int64_t end) {
                         for (std::int64_t row = begin; row < end; ++row) {
                           const std::int64_t n = row / memory_.height;
                           const std::int64_t y = row % memory_.height;
                           body(memory_.offset(n, y, 0, 0), staged_.offset(n, y, 0, 0));
                         }
                       });
  }

  TensorShape memory_;
  TensorShape staged_;
  std::size_t offset_ = 0;
};

/// oneDNN's product. Earns all products that have an interior.
class MatmulPlan final : public Plan {
 public:
  explicit MatmulPlan(const MatrixMultiplicationProblem& problem)
      : problem_(problem),
        left_(problem.left, productScratch_),
        right_(problem.right, productScratch_),
        result_(problem.result, productScratch_) {
    ProductShape shape;
    shape.matrices = problem.result.images;
    shape.rows = problem.result.height;
    shape.columns = problem.result.channels;
    shape.interior = problem.interiorColumns();
    const MatrixStrides left = stridesOf(left_.shape());
    const MatrixStrides right = stridesOf(right_.shape());
    shape.left = problem.transposeLeft ? left.transposed() : left;
    shape.right = problem.transposeRight ? right.transposed() : right;
    shape.result = stridesOf(result_.shape());
    shape.alpha = problem.alpha;
    shape.beta = problem.beta;
    product_ = DividedProduct(shape, problem.threadCount);
  }

  [[nodiscard]] bool isReference() const { return product_.isReference(); }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    mtl::cpu::Stream& cpu = mtl::cpu::asCpu(stream);
    left_.load(cpu, operands.source, operands.scratch);
    right_.load(cpu, operands.secondary, operands.scratch);
    if (problem_.beta != 0) result_.load(cpu, operands.destination, operands.scratch);
    product_.run(cpu, left_.values(operands.source, operands.scratch),
                 right_.values(operands.secondary, operands.scratch), nullptr,
                 result_.values(operands.destination, operands.scratch), operands.scratch + productScratch_);
    result_.store(cpu, operands.destination, operands.scratch);
  }

  [[nodiscard]] std::size_t scratchBytes() const override {
    return productScratch_ + product_.scratchBytes();
  }
  [[nodiscard]] std::string describe() const override { return product_.implementation(); }

 private:
  MatrixMultiplicationProblem problem_;
  std::size_t productScratch_ = 0;  ///< behind the copies
  Staged left_;
  Staged right_;
  Staged result_;
  DividedProduct product_;
};

Preparation prepareMatmul(const MatrixMultiplicationProblem& problem) {
  if (problem.interiorColumns() == 0 || problem.result.elements() == 0)
    return Refusal{"there is nothing to multiply"};
  return prepareByOneDnn<MatmulPlan>(problem);
}

/// One sum after the other.
class PlainPlan final : public Plan {
 public:
  explicit PlainPlan(const MatrixMultiplicationProblem& problem) : problem_(problem) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    withElements(problem_, [&](auto element) { multiply<decltype(element)>(stream, operands); });
  }

 private:
  template <class Element>
  void multiply(mtl::Stream& stream, const Operands& operands) const {
    const TensorShape& result = problem_.result;
    mtl::cpu::asCpu(stream).parallelFor(
        result.images * result.height, 1, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t row = begin; row < end; ++row)
            multiplyRow<Element>(operands, row / result.height, row % result.height);
        });
  }

  template <class Element>
  void multiplyRow(const Operands& operands, std::int64_t n, std::int64_t row) const {
    const auto* left = reinterpret_cast<const Element*>(operands.source);
    const auto* right = reinterpret_cast<const Element*>(operands.secondary);
    auto* to = reinterpret_cast<Element*>(operands.destination) + problem_.result.offset(n, row, 0, 0);
    for (std::int64_t column = 0; column < problem_.result.channels; ++column) {
      float sum = 0;
      for (std::int64_t k = 0; k < problem_.interiorColumns(); ++k) {
        const std::int64_t a =
            problem_.transposeLeft ? problem_.left.offset(n, k, 0, row) : problem_.left.offset(n, row, 0, k);
        const std::int64_t b = problem_.transposeRight ? problem_.right.offset(n, column, 0, k)
                                                       : problem_.right.offset(n, k, 0, column);
        sum += loadFloat(left + a) * loadFloat(right + b);
      }
      float value = problem_.alpha * sum;
      if (problem_.beta != 0) value += problem_.beta * loadFloat(to + column);
      storeFloat(value, to + column);
    }
  }

  MatrixMultiplicationProblem problem_;
};

Preparation preparePlain(const MatrixMultiplicationProblem& problem) {
  return std::make_shared<const PlainPlan>(problem);
}

}  // namespace

std::span<const Implementation<MatrixMultiplicationProblem>> matrixMultiplicationImplementationsCpu() {
  static constexpr Implementation<MatrixMultiplicationProblem> implementations[] = {
      {"matmul", prepareMatmul}, {"dot products", preparePlain}};
  return implementations;
}

std::string MatrixMultiplicationProblem::describe() const {
  TextStream text;
  text << alpha << " A" << (transposeLeft ? "^T" : "") << " B" << (transposeRight ? "^T" : "") << " + "
       << beta << " C, A " << left.describe() << ", B " << right.describe() << ", C " << result.describe();
  return text.str();
}

}  // namespace mps::detail
