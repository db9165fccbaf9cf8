#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "mtl/cpu/onednn.hpp"
#include "mtl/cpu/stream.hpp"

/// Matrix products by oneDNN, divided among threads. What families share whose plans multiply matrices.
namespace mps::detail {

/// Elements between neighbours of a batch of matrices in memory.
struct MatrixStrides {
  std::int64_t matrix = 0;
  std::int64_t row = 0;
  std::int64_t column = 1;

  [[nodiscard]] MatrixStrides transposed() const { return {matrix, column, row}; }
};

/// result[n] = alpha (left[n] right[n] + bias) + beta result[n], of float32 matrices.
struct ProductShape {
  std::int64_t matrices = 1;
  std::int64_t rows = 0;      ///< of left and result
  std::int64_t columns = 0;   ///< of right and result
  std::int64_t interior = 0;  ///< columns of left, rows of right
  MatrixStrides left;
  MatrixStrides right;
  MatrixStrides result;
  bool hasBias = false;  ///< one number for each column
  float alpha = 1;
  float beta = 0;
};

/// How much work a part of a division among threads has at least and how many parts there are at most. Parts depend on
/// shapes alone, so results do not depend on the number of threads.
inline constexpr std::int64_t kLeastOperationsOfPart = 2'000'000;
inline constexpr std::int64_t kMostParts = 64;

/// min(kMostParts, operations / kLeastOperationsOfPart), at least 1.
std::int64_t partsFor(double operations);

/// Products of blocks of the matrices, each in one thread. Where result has too few rows and columns, the interior is
/// divided, too, and the products are added up in a fixed order.
class DividedProduct {
 public:
  DividedProduct() = default;
  /// @param threads most that will share a run. Throws dnnl::error where oneDNN cannot compute a part.
  DividedProduct(const ProductShape& shape, int threads);

  /// @param bias null where the shape has none
  /// @param scratch scratchBytes() bytes
  void run(const mtl::cpu::Stream& stream, const float* left, const float* right, const float* bias,
           float* result, std::byte* scratch) const;

  [[nodiscard]] std::size_t scratchBytes() const { return partialBytes_ + threads_ * scratchpadBytes_; }
  [[nodiscard]] bool isReference() const;
  /// oneDNN's name of the algorithm.
  [[nodiscard]] std::string implementation() const { return primitives_.front().implementation(); }

 private:
  struct Part {
    std::size_t primitive = 0;
    std::int64_t left = 0;  ///< elements from the first one
    std::int64_t right = 0;
    std::int64_t bias = 0;
    std::int64_t result = 0;
  };

  void addUp(const mtl::cpu::Stream& stream, const float* partial, float* result) const;

  ProductShape shape_;
  std::size_t threads_ = 1;
  std::int64_t depth_ = 1;  ///< products that are added up to one result
  std::vector<mtl::cpu::OneDnnPrimitive> primitives_;
  std::vector<Part> parts_;
  std::size_t partialBytes_ = 0;
  std::size_t scratchpadBytes_ = 0;
};

}  // namespace mps::detail
