#pragma once

#include <string>
#include <string_view>

#include "mtl/error.hpp"

namespace mps {

/// Wrong use of the library, thrown by the call that is wrong; nothing was recorded, nothing changed.
///
/// what() reads `CNNPoolingMax "pool1": sourceImage is float16 9x9x3, expected a device image of device cpu`.
class Error : public mtl::Error {
 public:
  /// A sentence of its own, e.g. about a file.
  explicit Error(const std::string& sentence) : mtl::Error(sentence) {}

  /// @param kernel   class name, with the label in quotes when it has one
  /// @param argument name of the argument or property
  /// @param found    what it is
  /// @param expected what it should be
  Error(std::string_view kernel, std::string_view argument, std::string_view found, std::string_view expected)
      : mtl::Error(std::string(kernel) + ": " + std::string(argument) + " is " + std::string(found) +
                   ", expected " + std::string(expected)),
        kernel_(kernel),
        argument_(argument),
        found_(found),
        expected_(expected) {}

  /// Parts of the second form; empty for the first.
  [[nodiscard]] const std::string& kernel() const { return kernel_; }
  [[nodiscard]] const std::string& argument() const { return argument_; }
  [[nodiscard]] const std::string& found() const { return found_; }
  [[nodiscard]] const std::string& expected() const { return expected_; }

 private:
  std::string kernel_;
  std::string argument_;
  std::string found_;
  std::string expected_;
};

}  // namespace mps
