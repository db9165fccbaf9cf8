#pragma once

#include <cstddef>
#include <iterator>
#include <memory>

namespace mps::detail {

/// Walks through the images of an ImageBatch, or the states of a StateBatch. Valid as long as the batch is.
template <class Batch, class Element>
class BatchIterator {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = std::shared_ptr<Element>;
  using difference_type = std::ptrdiff_t;
  using pointer = const value_type*;
  using reference = const value_type&;

  BatchIterator() = default;
  BatchIterator(const Batch& batch, std::size_t index) : batch_(&batch), index_(index) {}
  reference operator*() const { return batch_->element(index_); }
  pointer operator->() const { return &**this; }
  BatchIterator& operator++() {
    ++index_;
    return *this;
  }
  BatchIterator operator++(int) {
    BatchIterator before = *this;
    ++index_;
    return before;
  }
  bool operator==(const BatchIterator&) const = default;

 private:
  const Batch* batch_ = nullptr;
  std::size_t index_ = 0;
};

}  // namespace mps::detail
