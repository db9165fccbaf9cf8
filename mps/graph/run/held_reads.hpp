#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>

#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/state.hpp"

namespace mps::detail {

/// Read counts while a graph encodes. How often its steps read a temporary object depends on what is fused and left out, and
/// memory that was given back could not be had again when a later step throws: so the counts are raised beforehand, and set
/// afterwards to what the caller is promised. When the encode fails they are as before. The library's own.
class HeldReads {
 public:
  HeldReads() = default;
  ~HeldReads() { finish(false); }
  HeldReads(const HeldReads&) = delete;
  HeldReads& operator=(const HeldReads&) = delete;

  /// Holds the temporary ones of a batch. @param taken what the encode takes off each of them, however often it appears
  void hold(const ImageBatch& images, std::size_t taken);
  void hold(const StateBatch& states, std::size_t taken);
  /// The encode has succeeded.
  void keep() { finish(true); }

 private:
  template <class Object>
  struct Entry {
    std::shared_ptr<Object> object;
    std::size_t before = 0;
    std::size_t taken = 0;
  };
  template <class Object>
  using Entries = std::unordered_map<const Object*, Entry<Object>>;

  template <class Object>
  static Entry<Object>& entryOf(Entries<Object>& entries, std::shared_ptr<Object> object);
  template <class Object>
  static void set(const Entry<Object>& entry, bool hasSucceeded);
  void finish(bool hasSucceeded);

  Entries<TemporaryImage> images_;
  Entries<State> states_;
};

}  // namespace mps::detail
