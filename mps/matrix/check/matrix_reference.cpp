#include "mps/matrix/check/matrix_reference.hpp"

namespace mps::detail {

ReferenceTensor matrixMultiplicationReference(const MatrixMultiplicationProblem& problem,
                                              const ReferenceTensor& left, const ReferenceTensor& right,
                                              const ReferenceTensor& old) {
  const std::int64_t rows = problem.result.height;
  const std::int64_t columns = problem.result.channels;
  const std::int64_t interior = problem.transposeLeft ? problem.left.height : problem.left.channels;
  const auto alpha = static_cast<double>(problem.alpha);
  const auto beta = static_cast<double>(problem.beta);
  ReferenceTensor result(problem.result.images, rows, 1, columns);
  result.magnitude.resize(result.values.size());
  result.roundings = interior + 3;  // the sum, alpha, beta and their sum
  for (std::int64_t n = 0; n < problem.result.images; ++n)
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) {
        const std::size_t at = result.index(n, i, 0, j);
        for (std::int64_t k = 0; k < interior; ++k) {
          const double a = problem.transposeLeft ? left.at(n, k, 0, i) : left.at(n, i, 0, k);
          const double b = problem.transposeRight ? right.at(n, j, 0, k) : right.at(n, k, 0, j);
          result.add(at, alpha * (a * b));
        }
        if (beta != 0) result.add(at, beta * old.at(n, i, 0, j));
      }
  return result;
}

ReferenceTensor imageMatrixCopyReference(const ImageMatrixCopyProblem& problem,
                                         const ReferenceTensor& source) {
  const TensorShape& images = problem.images;
  ReferenceTensor result(
      problem.toMatrix ? 1 : images.images, problem.toMatrix ? images.images : images.height,
      problem.toMatrix ? 1 : images.width, problem.toMatrix ? problem.matrix.channels : images.channels);
  for (std::int64_t n = 0; n < images.images; ++n)
    for (std::int64_t y = 0; y < images.height; ++y)
      for (std::int64_t x = 0; x < images.width; ++x)
        for (std::int64_t c = 0; c < images.channels; ++c) {
          const std::int64_t column = problem.channelsFirst ? (c * images.height + y) * images.width + x
                                                            : (y * images.width + x) * images.channels + c;
          if (problem.toMatrix)
            result.at(0, n, 0, column) = source.at(n, y, x, c);
          else
            result.at(n, y, x, c) = source.at(0, n, 0, column);
        }
  return result;
}

}  // namespace mps::detail
