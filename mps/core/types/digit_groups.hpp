#pragma once

#include <locale>
#include <string>

namespace mps::test {

/// While it lives, the process's global locale writes 1234.5 as 1'234,5: what no text of the library may follow.
class DigitGroups {
 public:
  DigitGroups() : before_(std::locale::global(std::locale(std::locale::classic(), new Punctuation))) {}
  ~DigitGroups() { std::locale::global(before_); }
  DigitGroups(const DigitGroups&) = delete;
  DigitGroups& operator=(const DigitGroups&) = delete;

 private:
  class Punctuation : public std::numpunct<char> {
    [[nodiscard]] char do_thousands_sep() const override { return '\''; }
    [[nodiscard]] char do_decimal_point() const override { return ','; }
    [[nodiscard]] std::string do_grouping() const override { return "\3"; }
  };
  std::locale before_;
};

}  // namespace mps::test
