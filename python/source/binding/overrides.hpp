#pragma once

#include "python/source/binding/bind.hpp"

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

/// For what C++ has no default of. @throws NotImplementedError
[[noreturn]] void throwNotDefined(const char* name);

/// The same as overridden, where C++ has no default. @throws NotImplementedError
template <class Base>
nb::object required(const Base& object, const char* name) {
  nb::object found = overridden(object, name);
  if (!found.is_valid()) throwNotDefined(name);
  return found;
}

/// Whether an object is one of Python's own. What the base class has binds C++'s default for these (or throwNotDefined), not
/// the virtual function: that would call the object, which perhaps called super(), without end.
template <class PythonClass, class Base>
bool isOf(const Base& self) {
  return dynamic_cast<const PythonClass*>(&self) != nullptr;
}

}  // namespace python
