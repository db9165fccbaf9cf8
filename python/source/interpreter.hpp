#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <utility>

/// Python as seen from the library's own threads, which may run longer than the interpreter.
namespace python {

/// Holds the interpreter's lock, unless the interpreter is about to end. For all that calls Python, or lets go of
/// objects of Python's, on a thread that may be the library's: while an Attached lives, the interpreter does not end.
class Attached {
 public:
  Attached();
  ~Attached();
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;
  explicit operator bool() const { return isInside_; }

 private:
  bool isInside_;
  std::optional<nanobind::gil_scoped_acquire> lock_;
};

/// Holds something of Python's for the library, which may let it go anywhere and at any time.
template <class T>
std::shared_ptr<T> heldForLibrary(T value) {
  return {new T(std::move(value)), [](T* held) {
            if (const Attached attached; attached) delete held;  // else the end of the process takes it
          }};
}

/// From the interpreter's end on nobody is attached any more.
void watchForTheEnd();

}  // namespace python
