#pragma once

#include <string_view>

/// Numbers that properties take. The library's own.
namespace mps::detail {

/// Not NaN and not infinite. @throws Error that names class or kernel, and property
float checkedFinite(std::string_view owner, std::string_view property, float number);
double checkedFinite(std::string_view owner, std::string_view property, double number);
/// Finite and at least 0. @throws Error likewise
float checkedNotNegative(std::string_view owner, std::string_view property, float number);
/// At least 0 and below 1: how much of an average stays. @throws Error likewise
double checkedDecay(std::string_view owner, std::string_view property, double number);

}  // namespace mps::detail
