#pragma once

#include <gtest/gtest.h>

#include <cstddef>

#include "mps/core/testing/test_images.hpp"
#include "mps/core/types/types.hpp"

namespace mps::testing {

/// The recommended strides, for rows of matrices and for vectors.
inline void expectRecommendedStrides(std::size_t (*strideOf)(std::size_t elements, DataType dataType)) {
  EXPECT_EQ(strideOf(0, DataType::Float32), 0U);
  EXPECT_EQ(strideOf(1, DataType::Float32), 4U);
  EXPECT_EQ(strideOf(2, DataType::Float32), 16U);
  EXPECT_EQ(strideOf(4, DataType::Float32), 16U);
  EXPECT_EQ(strideOf(5, DataType::Float32), 32U);
  EXPECT_EQ(strideOf(9, DataType::Float16), 32U);
  EXPECT_EQ(strideOf(1, DataType::Int8), 1U);
  EXPECT_EQ(strideOf(2, DataType::Int8), 4U);
  EXPECT_EQ(strideOf(5, DataType::UInt32), 32U);
  EXPECT_EQ(strideOf(3, DataType::Int16), 8U);
  EXPECT_TRUE(names(errorOf([&] { (void)strideOf(4, DataType::Invalid); }), {"dataType", "Invalid"}));
}

}  // namespace mps::testing
