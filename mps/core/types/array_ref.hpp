#pragma once

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <span>

namespace mps {

/// A list that a method reads while it runs, like the classes of that name in LLVM and PyTorch.
///
/// It is made of a vector, an array, a span, {a, b}, or one element alone. nullptr and {} are the empty list, where
/// Apple's methods take nil. It holds no elements: take it as a parameter, keep it nowhere.
template <class T>
class ArrayRef : public std::span<const T> {
 public:
  constexpr ArrayRef() = default;
  constexpr ArrayRef(std::nullptr_t) {}  // NOLINT: nothing is an empty list
  constexpr ArrayRef(const T& element) : std::span<const T>(&element, 1) {}  // NOLINT: one element is a list
  constexpr ArrayRef(std::initializer_list<T> elements)                      // NOLINT: {a, b} is one
      : std::span<const T>(elements.begin(), elements.size()) {}
  template <class List>
  requires std::convertible_to<const List&, std::span<const T>>
  constexpr ArrayRef(const List& list) : std::span<const T>(list) {}  // NOLINT: a vector is one
};

}  // namespace mps
