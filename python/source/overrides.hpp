#pragma once

#include "python/source/bind.hpp"

namespace python {

/// What a Python class has under a name in place of its bound base class; not valid where it has nothing of its own.
/// Of a property: its value. The caller holds the lock.
template <class Base>
nb::object overridden(const Base& object, const char* name) {
  const nb::handle self = nb::find(object);
  if (!self.is_valid()) return {};
  if (nb::getattr(self.type(), name).is(nb::getattr(nb::type<Base>(), name))) return {};
  return self.attr(name);
}

/// The same, where C++ has no default. @throws NotImplementedError
template <class Base>
nb::object required(const Base& object, const char* name) {
  nb::object found = overridden(object, name);
  if (found.is_valid()) return found;
  PyErr_Format(PyExc_NotImplementedError, "%s is to be defined by the subclass", name);
  throw nb::python_error();
}

}  // namespace python
