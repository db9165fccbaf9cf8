#pragma once

#include <concepts>
#include <cstddef>
#include <ranges>
#include <type_traits>

namespace mps::detail {

/// A vector, an array or a span of elements that are not bytes.
template <class Range>
concept ElementRange = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
    !std::same_as<std::ranges::range_value_t<Range>, std::byte>;

/// One whose elements can be written.
template <class Range>
concept WritableElementRange =
    ElementRange<Range> && !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Range>>>;

}  // namespace mps::detail
