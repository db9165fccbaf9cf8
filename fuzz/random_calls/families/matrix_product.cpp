#include <algorithm>
#include <utility>

#include "fuzz/random_calls/arrays.hpp"
#include "fuzz/random_calls/families.hpp"
#include "mps/matrix/matrix.hpp"

namespace unmetal::random_calls {
namespace {

/// rows x inner times inner x columns.
struct ProductSizes {
  mps::DataType type = mps::DataType::Float32;
  std::size_t rows = 1;
  std::size_t columns = 1;
  std::size_t inner = 1;
  std::size_t count = 1;
  bool transposesLeft = false;
  bool transposesRight = false;
  double alpha = 1;
  double beta = 0;
};

ProductSizes drawProduct(Call& call) {
  RandomNumbers& random = call.random;
  constexpr std::size_t mostMultiplications = 4'000'000;
  ProductSizes sizes;
  sizes.type = call.noted("half", random.chance(0.5)) ? mps::DataType::Float16 : mps::DataType::Float32;
  sizes.rows = call.matrixSide();
  sizes.columns = call.matrixSide();
  sizes.inner = random.chance(0.02) ? 0 : call.matrixSide();
  while (sizes.rows * sizes.columns * sizes.inner > mostMultiplications)
    for (std::size_t* side : {&sizes.rows, &sizes.columns, &sizes.inner}) *side = (*side + 1) / 2;
  sizes.count = random.chance(0.6) ? 1 : random.size(1, 4);
  call.noted("inner", sizes.inner);
  sizes.transposesLeft = call.noted("transposesLeft", random.chance(0.5));
  sizes.transposesRight = call.noted("transposesRight", random.chance(0.5));
  sizes.alpha = call.noted("alpha", random.chance(0.5) ? 1 : random.real(-2, 2));
  sizes.beta = call.noted("beta", random.chance(0.6) ? 0 : random.real(-2, 2));
  return sizes;
}

/// A matrix behind an origin, which as a source is stored transposed.
ArraySizes behind(const mtl::Origin& origin, const ProductSizes& product, std::size_t rows,
                  std::size_t columns, bool isTransposed) {
  if (isTransposed) std::swap(rows, columns);
  return {product.type, rows + origin.x, columns + origin.y, product.count};
}

/// The result, which is read where beta is not 0.
Arrays makeResult(Call& call, const ArraySizes& sizes, double beta) {
  const Tolerance tolerance{.factor = 3, .leastScale = 1};
  return beta != 0 ? makeUpdatedArrays(call, "result", sizes, Numbers::Uniform, tolerance)
                   : makeDestinationArrays(call, "result", sizes, tolerance);
}

void callMatrixMultiplication(Call& call, const ProductSizes& sizes) {
  RandomNumbers& random = call.random;
  const mtl::Origin leftOrigin = matrixOrigin(call);
  const mtl::Origin rightOrigin = matrixOrigin(call);
  const mtl::Origin resultOrigin = matrixOrigin(call);
  const auto left =
      makeSourceArrays(call, "left", behind(leftOrigin, sizes, sizes.rows, sizes.inner, sizes.transposesLeft),
                       call.anyNumbers());
  const auto right = makeSourceArrays(
      call, "right", behind(rightOrigin, sizes, sizes.inner, sizes.columns, sizes.transposesRight),
      call.anyNumbers());
  const auto result =
      makeResult(call, behind(resultOrigin, sizes, sizes.rows, sizes.columns, false), sizes.beta);
  const auto kernel =
      mps::MatrixMultiplication::create(call.device, sizes.transposesLeft, sizes.transposesRight, sizes.rows,
                                        sizes.columns, sizes.inner, sizes.alpha, sizes.beta);
  kernel->setLeftMatrixOrigin(leftOrigin);
  kernel->setRightMatrixOrigin(rightOrigin);
  kernel->setResultMatrixOrigin(resultOrigin);
  if (random.chance(0.2)) {
    kernel->setBatchStart(call.noted("batchStart", random.size(0, sizes.count - 1)));
    kernel->setBatchSize(call.noted("batchSize", random.size(0, 2)));
  }
  call.stage = "encode";
  const CommandBufferPointer commandBuffer = call.begin();
  kernel->encode(commandBuffer, left.matrix, right.matrix, result.matrix);
  call.finish(commandBuffer);
}

void callMatrixVectorMultiplication(Call& call, const ProductSizes& sizes) {
  const mtl::Origin matrixStart = matrixOrigin(call);
  const mtl::Origin vectorStart{matrixOrigin(call).x, 0, 0};
  const mtl::Origin resultStart{matrixOrigin(call).x, 0, 0};
  const auto matrix = makeSourceArrays(
      call, "matrix", behind(matrixStart, sizes, sizes.rows, sizes.columns, sizes.transposesLeft),
      call.anyNumbers());
  const auto vector = makeSourceArrays(
      call, "vector", ArraySizes::vectors(sizes.type, sizes.columns + vectorStart.x, sizes.count),
      call.anyNumbers());
  const auto result =
      makeResult(call, ArraySizes::vectors(sizes.type, sizes.rows + resultStart.x, sizes.count), sizes.beta);
  const auto kernel = mps::MatrixVectorMultiplication::create(call.device, sizes.transposesLeft, sizes.rows,
                                                              sizes.columns, sizes.alpha, sizes.beta);
  kernel->setPrimarySourceMatrixOrigin(matrixStart);
  kernel->setSecondarySourceMatrixOrigin(vectorStart);
  kernel->setResultMatrixOrigin(resultStart);
  call.stage = "encode";
  const CommandBufferPointer commandBuffer = call.begin();
  kernel->encode(commandBuffer, matrix.matrix, vector.vector, result.vector);
  call.finish(commandBuffer);
}

}  // namespace

void callMatrixProduct(Call& call) {
  const ProductSizes sizes = drawProduct(call);
  call.stage = "sources";
  if (call.random.chance(0.7))
    callMatrixMultiplication(call, sizes);
  else
    callMatrixVectorMultiplication(call, sizes);
}

}  // namespace unmetal::random_calls
