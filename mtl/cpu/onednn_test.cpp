#include "mtl/cpu/onednn.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace mtl::cpu {
namespace {

using dnnl::memory;

/// A product over as many numbers as it is told: row times column.
std::string refusalOf(std::int64_t interior) {
  const auto tensor = [](std::int64_t rows, std::int64_t columns) {
    return memory::desc({1, rows, columns}, memory::data_type::f32, memory::format_tag::abc);
  };
  try {
    static_cast<void>(oneDnnProduct(tensor(1, interior), tensor(interior, 1), tensor(1, 1), {}, 1, 0));
    return "";
  } catch (const dnnl::error& error) {
    return error.what();
  }
}

TEST(OneDnn, SidesBeyondItsNumbersAreRefused) {
  EXPECT_EQ(refusalOf(1000), "");
  EXPECT_EQ(refusalOf(std::int64_t{std::numeric_limits<std::int32_t>::max()} + 1),
            "a side is longer than 2147483647");
  EXPECT_EQ(refusalOf(std::int64_t{1} << 54U), "a side is longer than 2147483647");
}

}  // namespace
}  // namespace mtl::cpu
