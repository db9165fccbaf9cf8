#include "mps/core/types/checked_number.hpp"

#include <cmath>
#include <string>

#include "mps/core/types/error.hpp"

namespace mps::detail {
namespace {

template <class Number>
Number checked(bool isRight, std::string_view owner, std::string_view property, Number number,
               std::string_view expected) {
  if (!isRight) throw Error(owner, property, std::to_string(number), expected);
  return number;
}

}  // namespace

float checkedFinite(std::string_view owner, std::string_view property, float number) {
  return checked(std::isfinite(number), owner, property, number, "a finite number");
}

double checkedFinite(std::string_view owner, std::string_view property, double number) {
  return checked(std::isfinite(number), owner, property, number, "a finite number");
}

float checkedNotNegative(std::string_view owner, std::string_view property, float number) {
  return checked(number >= 0 && std::isfinite(number), owner, property, number,
                 "a finite number, at least 0");
}

double checkedDecay(std::string_view owner, std::string_view property, double number) {
  return checked(number >= 0 && number < 1, owner, property, number, "at least 0 and below 1");
}

}  // namespace mps::detail
