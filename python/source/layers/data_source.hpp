#pragma once

#include <nanobind/ndarray.h>

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mtl/error.hpp"
#include "python/source/binding/interpreter.hpp"
#include "python/source/binding/overrides.hpp"

/// What the data sources, policies and callbacks written in Python have in common. The caller of each function holds the lock.
namespace python {

/// The lock, for what the library calls on any of its threads. @throws Error where the interpreter has ended
class Locked {
 public:
  Locked() {
    if (!attached_) throw mtl::Error("the Python interpreter has ended");
  }

 private:
  Attached attached_;
};

/// An attribute of a Python object: of the class, of the instance or a property.
template <class Base>
nb::object requiredAttribute(const Base& object, const char* name) {
  return nb::getattr(nb::find(object), name);
}

/// The same; not valid where there is none, or where it is None.
template <class Base>
nb::object attributeOf(const Base& object, const char* name) {
  try {
    nb::object found = requiredAttribute(object, name);
    return found.is_none() ? nb::object() : found;
  } catch (const nb::python_error& raised) {
    if (raised.matches(PyExc_AttributeError)) return {};
    throw;
  }
}

/// Of an object whose class has an `__init__` that does not call that of its base class. @throws TypeError
[[noreturn]] void throwNotInitialised(nb::handle self);
[[noreturn]] void refuse(const nb::object& found, const char* name, const char* expected);

/// A Python value. @param expected in words @throws TypeError naming the attribute
template <class Value>
Value converted(const nb::object& found, const char* name, const char* expected) {
  try {
    return nb::cast<Value>(found);
  } catch (const nb::cast_error&) {
    refuse(found, name, expected);
  }
}

template <class Value, class Base>
Value attributeOr(const Base& object, const char* name, Value otherwise, const char* expected) {
  const nb::object found = attributeOf(object, name);
  return found.is_valid() ? converted<Value>(found, name, expected) : std::move(otherwise);
}

/// Calls what the class defines in place of its bound base class. @return not valid: nothing of its own
template <class Base, class... Arguments>
nb::object callOverridden(const Base& object, const char* name, Arguments&&... arguments) {
  const nb::object own = overridden(object, name);
  return own.is_valid() ? own(std::forward<Arguments>(arguments)...) : nb::object();
}

/// What such a call returned; of None and where there was none, C++'s default.
template <class Value>
Value resultOf(const nb::object& found, const char* name, const char* expected) {
  return found.is_valid() && !found.is_none() ? converted<Value>(found, name, expected) : Value{};
}

/// An attribute that a subclass defines or that is set on the object. @param getter for the sources written in C++
template <class PythonClass, class Class, class Getter>
void bindAttribute(Class& source, const char* name, Getter getter, const char* documentation) {
  using Base = typename Class::Type;
  source.def_prop_rw(
      name,
      [name, getter](const nb::handle self) -> nb::object {
        if (!nb::inst_ready(self)) throwNotInitialised(self);
        auto& base = nb::cast<Base&>(self);
        if (!isOf<PythonClass>(base)) return nb::cast(getter(base));
        const nb::object values = nb::getattr(self, "__dict__", nb::dict());
        if (!values.attr("__contains__")(name).is(nb::handle(Py_True)))
          throw nb::attribute_error((std::string(name) + " is to be defined by the subclass").c_str());
        return values[name];
      },
      [name](const nb::handle self, const nb::object& value) { self.attr("__dict__")[name] = value; },
      nb::for_setter(nb::arg("value").none()), documentation);
}

/// Arrays that Python code has handed to the library, which is done with them when it calls purge(). Until then each of a name
/// is asked for once.
class LentArrays {
 public:
  using Array = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

  void load() { ++loads_; }
  void purge();
  /// The object's own memory; elements in another order are copied. @throws TypeError
  template <class Source>
  const Array& array(const Source& source, const char* name) {
    if (!isLent(arrays_, name)) setArray(name, requiredAttribute(source, name));
    return arrays_.at(name);
  }
  /// A copy of numbers; of an attribute that is not there none. @throws TypeError
  template <class Source>
  std::span<const float> floats(const Source& source, const char* name) {
    if (!isLent(floats_, name)) setFloats(name, attributeOf(source, name));
    return floats_.at(name);
  }

 private:
  template <class Map>
  [[nodiscard]] bool isLent(const Map& lent, const char* name) const {
    return loads_ > 0 && lent.contains(name);
  }
  void setArray(const char* name, const nb::object& found);
  void setFloats(const char* name, const nb::object& found);

  int loads_ = 0;
  std::map<std::string, Array> arrays_;
  std::map<std::string, std::vector<float>> floats_;
};

/// The load() and purge() of a data source of which the base class is `Base`.
template <class Base>
bool loadSource(const Base& source, LentArrays& arrays) {
  const nb::object loaded = callOverridden(source, "load");
  if (loaded.is_valid() && !converted<bool>(loaded, "what load() returns", "True or False")) return false;
  arrays.load();
  return true;
}
/// Where it raises the message goes to sys.unraisablehook: what was read is whole.
template <class Base>
void purgeSource(const Base& source, LentArrays& arrays) {
  const Attached attached;
  if (!attached) return;
  arrays.purge();
  try {
    callOverridden(source, "purge");
  } catch (nb::python_error& raised) {
    raised.discard_as_unraisable("purge");
  }
}

}  // namespace python
