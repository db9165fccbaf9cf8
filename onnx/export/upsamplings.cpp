#include "mps/upsampling/image_scale.hpp"
#include "mps/upsampling/resize.hpp"
#include "mps/upsampling/upsampling.hpp"
#include "mps/upsampling/upsampling_call.hpp"
#include "mps/upsampling/upsampling_taps.hpp"
#include "onnx/export/step.hpp"

/// Upsampling and scaling.
namespace unmetal::onnx::detail {
namespace {

using mps::detail::UpsamplingAxis;
using mps::detail::UpsamplingProblem;
using mps::detail::UpsamplingSampling;
using mps::detail::UpsamplingTaps;

/// By whole factors. @param positions coordinate_transformation_mode
std::string addResize(const Step& step, const mps::CNNUpsampling& upsampling, const std::string& mode,
                      const std::string& positions) {
  const auto scaleY = static_cast<float>(upsampling.scaleFactorY());
  const auto scaleX = static_cast<float>(upsampling.scaleFactorX());
  const std::string scales = step.model.constant("scales", {4}, {1, 1, scaleY, scaleX});
  std::vector<Attribute> attributes{{"mode", mode}, {"coordinate_transformation_mode", positions}};
  if (mode == "nearest") attributes.push_back({"nearest_mode", std::string("floor")});
  return step.add("Resize", {step.source().value, "", scales}, std::move(attributes));
}

std::string positionsOf(const mps::CNNUpsamplingBilinear& upsampling) {
  if (upsampling.alignCorners()) return "align_corners";
  return upsampling.halfPixelCenters() ? "half_pixel" : "asymmetric";
}

/// What each pixel of a result is made of along an axis: a row for each.
std::vector<float> weightsOf(const UpsamplingProblem& problem, const UpsamplingAxis& axis) {
  const UpsamplingTaps taps(problem, axis, axis.sourceSize, axis.resultSize);
  std::vector<float> matrix(static_cast<std::size_t>(axis.sourceSize * axis.resultSize), 0);
  for (std::int64_t i = 0; i < axis.resultSize; ++i)
    for (const auto* tap = taps.begin(i); tap != taps.end(i); ++tap)
      matrix[static_cast<std::size_t>(i * axis.sourceSize + tap->input)] += tap->weight;
  return matrix;
}

std::vector<float> transposed(const std::vector<float>& matrix, std::int64_t rows, std::int64_t columns) {
  std::vector<float> result(matrix.size());
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column)
      result[static_cast<std::size_t>(column * rows + row)] =
          matrix[static_cast<std::size_t>(row * columns + column)];
  return result;
}

/// Any sampling: rows times picture times columns.
std::string addMatrices(const Step& step, const mps::CNNKernel& kernel, UpsamplingProblem problem) {
  problem.edgeMode = kernel.edgeMode();
  const auto rows = weightsOf(problem, problem.y);
  const auto columns = transposed(weightsOf(problem, problem.x), problem.x.resultSize, problem.x.sourceSize);
  const std::string below = step.add(
      "MatMul",
      {step.model.constant("rows", {problem.y.resultSize, problem.y.sourceSize}, rows), step.source().value});
  return step.add("MatMul", {below, step.model.constant(
                                        "columns", {problem.x.sourceSize, problem.x.resultSize}, columns)});
}

std::string addUpsampling(const Step& step, const mps::CNNUpsampling& upsampling) {
  if (upsampling.offset().x != 0 || upsampling.offset().y != 0)
    throw step.refusal("its padding policy moves the result, and ONNX resizes whole pictures");
  const auto* bilinear = step.as<mps::CNNUpsamplingBilinear>();
  if (bilinear == nullptr) return addResize(step, upsampling, "nearest", "asymmetric");
  return addResize(step, upsampling, "linear", positionsOf(*bilinear));
}

/// Bilinear, to any size. Factors of an operator Resize would be rounded; where it is told sizes it is told the batch's, too.
std::string addResizing(const Step& step, const mps::NNResizeBilinear& resize) {
  UpsamplingProblem problem;
  problem.sampling = resize.alignCorners()       ? UpsamplingSampling::BilinearAlignCorners
                     : resize.halfPixelCenters() ? UpsamplingSampling::BilinearHalfPixel
                                                 : UpsamplingSampling::Bilinear;
  problem.x = {step.source().width, step.result.width, resize.offset().x};
  problem.y = {step.source().height, step.result.height, resize.offset().y};
  return addMatrices(step, resize, problem);
}

std::string addScale(const Step& step, const mps::ImageScale& scale) {
  if (scale.hasTransformProvider())
    throw step.refusal("its transform provider gives each picture another transform");
  const auto manner = scale.mannerFor(step.source().width, step.source().height);
  UpsamplingProblem problem;
  problem.sampling = manner.sampling;
  problem.x = {step.source().width, manner.resultWidth, scale.offset().x, manner.x.start, manner.x.step};
  problem.y = {step.source().height, manner.resultHeight, scale.offset().y, manner.y.start, manner.y.step};
  return addMatrices(step, scale, problem);
}

}  // namespace

std::optional<std::string> translateUpsampling(const Step& step) {
  if (const auto* upsampling = step.as<mps::CNNUpsampling>()) return addUpsampling(step, *upsampling);
  if (const auto* resize = step.as<mps::NNResizeBilinear>()) return addResizing(step, *resize);
  if (const auto* scale = step.as<mps::ImageScale>()) return addScale(step, *scale);
  return std::nullopt;
}

}  // namespace unmetal::onnx::detail
