#include "python/source/binding/wrong_arguments.hpp"

#include <exception>
#include <string>
#include <string_view>
#include <unordered_map>

#include "python/source/binding/bind.hpp"

namespace python {
namespace {

/// A function of nanobind's: what it called before, and its name, such as "CNNPoolingMax.kernel_width".
struct Function {
  vectorcallfunc call = nullptr;
  std::string name;
};

/// Written while the module is made; it stays until the process ends, as its functions do.
std::unordered_map<PyObject*, Function>& functions() {
  static auto* const all = new std::unordered_map<PyObject*, Function>();
  return *all;
}

/// Whether the error is the one of this call: what Python code has raised inside has a trace.
bool isOfOverloads(const nb::python_error& error) {
  constexpr std::string_view words = "(): incompatible function arguments";
  return !error.traceback().is_valid() &&
         nb::cast<std::string>(nb::str(error.value())).find(words) != std::string::npos;
}

void explain(const Function& function, nb::handle called, PyObject* const* arguments, std::size_t count,
             PyObject* names) {
  nb::python_error error;
  try {
    if (!isOfOverloads(error)) {
      error.restore();
      return;
    }
    nb::list positional;
    for (std::size_t i = 0; i < count; ++i) positional.append(nb::borrow(arguments[i]));
    nb::dict named;
    const nb::handle keys = names;
    for (std::size_t i = 0; names != nullptr && i < nb::len(keys); ++i)
      named[keys[i]] = nb::handle(arguments[count + i]);
    const nb::object sentence =
        nb::module_::import_("unmetal._wrong_arguments")
            .attr("sentence")(function.name, called, positional, named, nb::str(error.value()));
    PyErr_SetObject(PyExc_TypeError, sentence.ptr());
  } catch (const std::exception&) {  // nanobind's own text will do
    error.restore();
  }
}

/// Above the number of arguments are flags, CPython's and nanobind's own.
constexpr std::size_t countBits = 0xFFFFFFFF;

PyObject* call(PyObject* called, PyObject* const* arguments, std::size_t flags, PyObject* names) {
  const Function& function = functions().find(called)->second;
  PyObject* const result = function.call(called, arguments, flags, names);
  if (result == nullptr && PyErr_ExceptionMatches(PyExc_TypeError) != 0)
    explain(function, called, arguments, flags & countBits, names);
  return result;
}

/// CPython finds the function that a call runs in a field of the object, where its type says.
void watch(nb::handle function, const std::string& name) {
  const std::string_view type = Py_TYPE(function.ptr())->tp_name;
  if (!type.ends_with("nb_func") && !type.ends_with("nb_method")) return;
  const Py_ssize_t offset = Py_TYPE(function.ptr())->tp_vectorcall_offset;
  auto& field = *reinterpret_cast<vectorcallfunc*>(reinterpret_cast<char*>(function.ptr()) + offset);
  if (field == call) return;
  functions()[function.inc_ref().ptr()] = {field, name};
  field = call;
}

void watchMembers(nb::handle type) {
  const std::string prefix = nb::cast<std::string>(type.attr("__name__"));
  for (const auto& [key, member] : nb::borrow<nb::dict>(type.attr("__dict__").attr("copy")())) {
    const std::string name = prefix + "." + nb::cast<std::string>(nb::str(key));
    watch(member, name);
    for (const char* accessor : {"fget", "fset"})
      if (nb::hasattr(member, accessor)) watch(member.attr(accessor), name);
  }
}

}  // namespace

void explainWrongArguments(nb::handle module, nb::handle mtl) {
  for (const nb::handle from : {module, mtl}) {
    for (const auto& [key, member] : nb::borrow<nb::dict>(from.attr("__dict__").attr("copy")())) {
      if (PyType_Check(member.ptr()))
        watchMembers(member);
      else
        watch(member, nb::cast<std::string>(nb::str(key)));
    }
  }
}

}  // namespace python
