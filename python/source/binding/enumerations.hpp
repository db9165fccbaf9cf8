#pragma once

#include <nanobind/nanobind.h>

#include <bit>
#include <cstdint>
#include <type_traits>

namespace nanobind::detail {

/// Members alone pass as values of an enumeration. nanobind's own conversion, which this one is chosen over for its
/// constraint, takes numbers that a member has, True and False among them: an argument in the place of another would pass.
template <class Enumeration>
requires std::is_enum_v<Enumeration>
struct type_caster<Enumeration, enable_if_t<std::is_enum_v<Enumeration>>> {
  NB_TYPE_CASTER(Enumeration, const_name<Enumeration>())
  using Number = std::underlying_type_t<Enumeration>;

  bool from_python(handle source, unsigned /*flags*/, cleanup_list* /*cleanup*/) noexcept {
    if (!source.type().is(type<Enumeration>())) return false;
    value = static_cast<Enumeration>(cast<Number>(getattr(source, "value")));
    return true;
  }
  static handle from_cpp(Enumeration source, rv_policy /*policy*/, cleanup_list* /*cleanup*/) noexcept {
    try {
      return type<Enumeration>()(static_cast<Number>(source)).release();
    } catch (python_error& error) {  // a value that no member has
      error.restore();
      return {};
    }
  }
};

}  // namespace nanobind::detail

namespace python {

/// An enumeration whose members are bits that combine. A number with other bits is no value of it; Python 3.11 would drop
/// them.
template <class Enumeration>
nanobind::enum_<Enumeration> flags(nanobind::module_& module, const char* name, const char* documentation) {
  nanobind::enum_<Enumeration> bound(module, name, nanobind::is_flag(), documentation);
  const nanobind::module_ library = nanobind::module_::import_("enum");
  if (nanobind::hasattr(library, "STRICT")) bound.attr("_boundary_") = library.attr("STRICT");
  // The other bits that are members; with those that are only in masks the first versions of Python 3.11 fail.
  bound.attr("__invert__") = nanobind::cpp_function(
      [](nanobind::handle self) {
        std::uint64_t others = 0;
        for (const nanobind::handle member : self.type()) {
          const auto bits = nanobind::cast<std::uint64_t>(member.attr("value"));
          if (std::has_single_bit(bits)) others |= bits;
        }
        return self.type()(others & ~nanobind::cast<std::uint64_t>(self.attr("value")));
      },
      nanobind::is_method());
  return bound;
}

}  // namespace python
