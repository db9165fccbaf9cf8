#include "mps/core/plan/tensor_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "mps/conform/run_on_device.hpp"
#include "mps/conform/testing/test_tensor.hpp"
#include "mps/core/plan/finite_check.hpp"
#include "mtl/device.hpp"
#include "mtl/error.hpp"

/// Copies and the finite check, on every device.
namespace mps::detail::tensor_copy_test {
namespace {

using enum ImageFeatureChannelFormat;

struct CopyCase {
  TensorCopyProblem problem;
  std::size_t firstElement;
  double number = 0;  ///< of a fill
};

TensorShape strided(TensorShape shape, std::int64_t gap) {
  shape.pixelStride = shape.channels + gap;
  shape.rowStride = shape.width * shape.pixelStride + gap;
  shape.imageStride = shape.height * shape.rowStride + gap;
  return shape;
}

/// Every alignment of addresses, strides and runs.
std::vector<CopyCase> copyCases() {
  std::vector<CopyCase> cases;
  for (const auto format : {Unorm8, Unorm16, Float16, Float32})
    for (const std::int64_t channels : {1, 3, 4, 8, 16, 21})
      for (const std::int64_t gap : {0, 1, 4, 16})
        for (const std::size_t first : {0U, 1U, 4U}) {
          const TensorShape source = strided(TensorShape::dense(3, 5, 7, channels, format), gap);
          const TensorShape same = strided(TensorShape::dense(3, 5, 7, channels, format), 0);
          const TensorShape part = strided(TensorShape::dense(3, 4, 6, channels, format), gap);
          cases.push_back({{.source = source, .destination = same}, first});
          cases.push_back({{.source = same, .destination = source}, first});
          cases.push_back({{.offsetX = 1, .offsetY = 1, .source = source, .destination = part}, first});
          cases.push_back({{.offsetX = -3, .offsetY = -2, .source = same, .destination = part}, first});
          cases.push_back(
              {{.clampEdges = true, .offsetX = -2, .offsetY = 3, .source = same, .destination = part},
               first});
          for (const double number : {0, 1})
            cases.push_back({{.fills = true, .source = {}, .destination = source}, first, number});
        }
  for (const auto from : {Unorm8, Unorm16, Float16})
    for (const std::int64_t channels : {3, 4, 8})
      for (const std::int64_t gap : {0, 3, 4})
        for (const std::size_t first : {0U, 1U, 4U}) {
          const TensorShape source = strided(TensorShape::dense(3, 5, 7, channels, from), gap);
          const TensorShape whole = strided(TensorShape::dense(3, 5, 7, channels, Float32), gap);
          const TensorShape part = strided(TensorShape::dense(3, 4, 6, channels, Float32), 0);
          cases.push_back({{.source = source, .destination = whole}, first});
          cases.push_back({{.offsetX = -3, .offsetY = 2, .source = source, .destination = part}, first});
          cases.push_back(
              {{.clampEdges = true, .offsetX = 2, .offsetY = -1, .source = source, .destination = part},
               first});
        }
  return cases;
}

double expected(const CopyCase& copy, const ReferenceTensor& source, std::int64_t n, std::int64_t y,
                std::int64_t x, std::int64_t c) {
  const TensorCopyProblem& problem = copy.problem;
  if (problem.fills) return copy.number;
  y += problem.offsetY;
  x += problem.offsetX;
  if (problem.clampEdges) {
    y = std::clamp<std::int64_t>(y, 0, source.height - 1);
    x = std::clamp<std::int64_t>(x, 0, source.width - 1);
  }
  if (y < 0 || y >= source.height || x < 0 || x >= source.width) return 0;
  const double value = source.at(n, y, x, c);
  return problem.source.format == problem.destination.format ? value : static_cast<float>(value);
}

TEST(TensorCopy, CopiesFillsAndExtendsOnEveryDevice) {
  constexpr std::uint32_t seed = 4711;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const auto& device : mtl::copyAllDevices()) {
    for (const CopyCase& copy : copyCases()) {
      const TensorCopyProblem& problem = copy.problem;
      SCOPED_TRACE(device->name() + ": " + problem.describe() + " from element " +
                   std::to_string(copy.firstElement));
      TestTensor source(device, problem.fills ? problem.destination : problem.source, copy.firstElement);
      std::vector<double> values(static_cast<std::size_t>(source.shape().elements()));
      for (double& value : values) value = static_cast<double>(random() % 256) / 255;
      source.write(values);
      TestTensor destination(device, problem.destination, copy.firstElement);
      const ChosenPlan chosen = preparePlan(tensorCopyBackEnds.of(*device), problem);
      Operands operands;
      operands.source = problem.fills ? nullptr : source.address();
      operands.destination = destination.address();
      operands.scalars[0] = copy.number;
      runOnDevice(device, "copy", [&](mtl::Stream& stream) { chosen.plan->run(stream, operands); });
      const ReferenceTensor from = source.reference();
      const std::vector<double> found = destination.read();
      std::size_t i = 0;
      bool isRight = true;
      for (std::int64_t n = 0; n < problem.destination.images; ++n)
        for (std::int64_t y = 0; y < problem.destination.height; ++y)
          for (std::int64_t x = 0; x < problem.destination.width; ++x)
            for (std::int64_t c = 0; c < problem.destination.channels; ++c)
              isRight = isRight && found[i++] == expected(copy, from, n, y, x, c);
      EXPECT_TRUE(isRight);
      EXPECT_TRUE(source.isUnchanged());
      EXPECT_TRUE(destination.surroundingsIntact());
    }
  }
}

TEST(FiniteCheck, NamesTheFirstPlaceOnEveryDevice) {
  for (const auto& device : mtl::copyAllDevices()) {
    for (const auto format : {Float16, Float32}) {
      SCOPED_TRACE(device->name() + " " + name(format));
      const TensorShape shape = strided(TensorShape::dense(3, 4, 5, 6, format), 2);
      TestTensor source(device, shape, 1);
      std::vector<double> values(static_cast<std::size_t>(shape.elements()), 1);
      const auto check = [&] {
        source.write(values);
        const ChosenPlan chosen = preparePlan(finiteCheckBackEnds.of(*device), FiniteCheckProblem{shape});
        GuardedMemory scratch(device, chosen.plan->scratchBytes());
        const Operands operands{.source = source.address(), .scratch = scratch.address()};
        runOnDevice(device, "check", [&](mtl::Stream& stream) { chosen.plan->run(stream, operands); });
      };
      EXPECT_NO_THROW(check());
      values[((1 * 4 + 2) * 5 + 3) * 6 + 4] = std::numeric_limits<double>::quiet_NaN();
      values[((2 * 4 + 0) * 5 + 0) * 6 + 0] = HUGE_VAL;
      try {
        check();
        ADD_FAILURE() << "no error";
      } catch (const mtl::Error& error) {
        EXPECT_NE(std::string(error.what()).find("(image 1, x 3, y 2, channel 4)"), std::string::npos)
            << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace mps::detail::tensor_copy_test
