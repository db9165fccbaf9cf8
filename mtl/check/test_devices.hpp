#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>

#include "mtl/device.hpp"

namespace mtl {

/// GoogleTest shows a device by its name; otherwise it would read the bytes of the object, padding too.
inline void PrintTo(const Device& device, std::ostream* stream) {
  *stream << device.name();
}

}  // namespace mtl

namespace mtl::testing {

/// Name of a parameterised test: "cpu", "cuda0".
inline std::string nameOf(const ::testing::TestParamInfo<std::shared_ptr<Device>>& info) {
  std::string name = info.param->name();
  std::erase(name, ':');
  return name;
}

}  // namespace mtl::testing
