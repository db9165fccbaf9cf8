#include "mps/convolution/pooled_convolution.hpp"

#include <gtest/gtest.h>

#include "mps/conform/conform_report.hpp"
#include "mps/convolution/convolution_cases.hpp"
#include "mps/convolution/pooled_convolution_conform.hpp"
#include "mtl/device.hpp"

namespace mps::detail::pooled_convolution_test {
namespace {

TEST(PooledConvolution, AgreesWithTheReferenceOnEveryDevice) {
  for (const auto& device : mtl::copyAllDevices()) {
    ConformOptions options;
    options.device = device;
    Conform conform(options);
    conformPooledConvolution(conform);
    EXPECT_EQ(conform.failedCount(), 0) << conformSummary(conform.rows());
    EXPECT_EQ(conform.passedCount(), 4) << conformSummary(conform.rows());
  }
}

TEST(PooledConvolution, HashAndEqualitySeeBothParts) {
  PooledConvolutionProblem problem;
  problem.pooled = TensorShape::dense(1, 2, 2, 4);
  PooledConvolutionProblem other = problem;
  other.pooled.width = 3;
  EXPECT_NE(other, problem);
  EXPECT_NE(other.hash(), problem.hash());
  other = problem;
  other.convolution.outputFeatureChannels = 7;
  EXPECT_NE(other, problem);
  EXPECT_NE(other.hash(), problem.hash());
}

}  // namespace
}  // namespace mps::detail::pooled_convolution_test
