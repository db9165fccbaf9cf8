#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace mtl {
class CommandBuffer;
class Memory;
}  // namespace mtl

namespace mps {
class Communicator;
}

namespace mps::detail {

/// A row of float64 numbers of each rank.
struct GatheredRow {
  std::size_t length = 0;
  /// Records what writes this rank's row, at this byte of the memory.
  std::function<void(const std::shared_ptr<mtl::Memory>& memory, std::size_t byteOffset)> write;
  /// Records what reads the rows of all ranks: that of rank 0 at this byte, each of the others `stride` numbers behind the one
  /// before it.
  std::function<void(const std::shared_ptr<mtl::Memory>& memory, std::size_t byteOffset, std::size_t stride)>
      read;
};

/// Small rows of several layers that the ranks hand to each other in one operation: each operation costs the time of a message,
/// whatever its size. All ranks add rows of the same lengths in the same order.
class JointGather {
 public:
  explicit JointGather(std::shared_ptr<Communicator> communicator);

  [[nodiscard]] const Communicator& communicator() const { return *communicator_; }
  void add(GatheredRow row);
  /// Records the rows that were added: all that write, the gather, all that read.
  void record(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);

 private:
  std::shared_ptr<Communicator> communicator_;
  std::vector<GatheredRow> rows_;
};

}  // namespace mps::detail
