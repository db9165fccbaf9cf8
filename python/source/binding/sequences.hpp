#pragma once

#include <string>
#include <utility>
#include <vector>

#include "python/source/binding/bind.hpp"

namespace python {

/// A slice of `count` items, as Python cuts it.
struct SliceOf {
  std::size_t start = 0;
  Py_ssize_t step = 1;
  std::size_t length = 0;

  SliceOf(const nb::slice& slice, std::size_t count) {
    const auto computed = slice.compute(count);
    start = static_cast<std::size_t>(computed.get<0>());
    step = computed.get<2>();
    length = computed.get<3>();
  }
  [[nodiscard]] std::size_t place(std::size_t index) const {
    return static_cast<std::size_t>(static_cast<Py_ssize_t>(start) + step * static_cast<Py_ssize_t>(index));
  }
};

/// What a batch has as a sequence: len, items and slices. Items are the same objects each time; a slice of step 1 is
/// Batch::slice, others are batches of those items.
template <class Batch, class Item>
void bindSequence(nb::class_<Batch>& batch, const char* item, const char* items) {
  const std::string iterate =
      std::string("def __iter__(self) -> collections.abc.Iterator[unmetal._core.") + item + "]";
  batch.def("__len__", &Batch::count)
      .def(
          "__getitem__",
          [](const Batch& self, std::int64_t index) { return self[indexOf(index, self.count())]; }, "index"_a,
          "Number `index`; the same object each time. Raises IndexError.")
      .def(
          "__getitem__",
          [](const Batch& self, const nb::slice& slice) {
            const SliceOf cut(slice, self.count());
            if (cut.step == 1) return self.slice(cut.length == 0 ? 0 : cut.start, cut.length);
            std::vector<std::shared_ptr<Item>> chosen;
            for (std::size_t i = 0; i < cut.length; ++i) chosen.push_back(self[cut.place(i)]);
            return Batch(std::move(chosen));
          },
          "index"_a, items)
      .def(
          "__iter__", [](nb::handle self) { return nb::steal(PySeqIter_New(self.ptr())); },
          nb::sig(iterate.c_str()), "One after the other.");
}

}  // namespace python
