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

/// Lets other Python threads run while it lives: for all that encodes, waits or runs kernels. User code that is called
/// from inside takes the lock again by itself. Where the interpreter has ended meanwhile, a thread other than the one
/// that ends it waits here for the process's end: CPython before 3.14 ends a thread that asks for the lock then, and
/// a destructor cannot be left that way (nanobind's gil_scoped_release would abort the process).
class LockReleased {
 public:
  LockReleased() : state_(PyEval_SaveThread()) {}
  ~LockReleased();
  LockReleased(const LockReleased&) = delete;
  LockReleased& operator=(const LockReleased&) = delete;

 private:
  PyThreadState* state_;
};

/// Holds something of Python's for the library, which may let it go anywhere and at any time.
template <class T>
std::shared_ptr<T> heldForLibrary(T value) {
  return {new T(std::move(value)), [](T* held) {
            if (const Attached attached; attached) delete held;  // else the end of the process takes it
          }};
}

/// From the interpreter's end on nobody is attached any more. Waits for those who are.
void watchForTheEnd();

}  // namespace python
