#include "python/source/layers/data_source.hpp"

namespace python {

void throwNotDefined(const char* name) {
  PyErr_Format(PyExc_NotImplementedError, "%s is to be defined by the subclass", name);
  throw nb::python_error();
}

void throwNotInitialised(nb::handle self) {
  PyErr_Format(PyExc_TypeError, "%s is not initialised: its __init__ is to call super().__init__()",
               Py_TYPE(self.ptr())->tp_name);
  throw nb::python_error();
}

void refuse(const nb::object& found, const char* name, const char* expected) {
  PyErr_Format(PyExc_TypeError, "%s is %S, expected %s", name, found.type().ptr(), expected);
  throw nb::python_error();
}

void LentArrays::purge() {
  if (loads_ > 0) --loads_;
  if (loads_ > 0) return;
  arrays_.clear();
  floats_.clear();
}

void LentArrays::setArray(const char* name, const nb::object& found) {
  arrays_.insert_or_assign(name, converted<Array>(found, name, "an array on the host"));
}

/// Equal numbers stay where they are: another thread may read them.
void LentArrays::setFloats(const char* name, const nb::object& found) {
  std::vector<float> values;
  if (found.is_valid()) values = converted<std::vector<float>>(found, name, "numbers");
  auto& lent = floats_[name];
  if (lent != values) lent = std::move(values);
}

}  // namespace python
