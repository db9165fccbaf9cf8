#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/conform/guarded/guarded_memory.hpp"
#include "mps/core/plan/reference_tensor.hpp"
#include "mps/core/types/tensor_shape.hpp"

namespace mps::detail {

/// A tensor of any format and strides in guarded device memory: an operand of a plan under test.
///
///     TestTensor source(device, problem.source), destination(device, problem.destination);
///     source.write(randomValues(...));
///     ... run the plan ...
///     compare(poolingForward(problem, source.reference()), destination.read(),
///             destination.shape().format, tier);
///     EXPECT_TRUE(source.isUnchanged() && destination.surroundingsIntact());
class TestTensor {
 public:
  /// All elements poisoned, all gaps guarded: fit for a destination. @param firstElement its distance from an
  /// address that is a multiple of 64, in elements: a channel range begins anywhere
  TestTensor(const std::shared_ptr<mtl::Device>& device, const TensorShape& shape,
             std::size_t firstElement = 0);
  /// The same for a CPU, beside a page that nobody may touch.
  TestTensor(PageSide side, const TensorShape& shape);

  [[nodiscard]] const TensorShape& shape() const { return shape_; }
  /// Of element (0, 0, 0, 0), on the device.
  [[nodiscard]] std::byte* address() const { return memory_.address(); }

  /// Rounds the values to the format. The gaps between them are poisoned, so that reading one shows.
  void write(std::span<const double> values);
  /// Back to the state after construction.
  void poison();

  /// What is stored now, in the order image, y, x, channel.
  [[nodiscard]] std::vector<double> read();
  /// What the last write() stored, as the input of a reference; a kernel that changes its source cannot hide.
  [[nodiscard]] ReferenceTensor reference() const;

  /// Whether all bytes but those of the elements are as the last write() or poison() left them.
  [[nodiscard]] bool surroundingsIntact();
  /// Whether all bytes are: sources are only read.
  [[nodiscard]] bool isUnchanged();

 private:
  void snapshot();

  TensorShape shape_;
  GuardedMemory memory_;
  std::vector<std::byte> written_;
};

/// What a kernel loads: stored values of normalised formats become the nearest float32.
inline ReferenceTensor asLoaded(ReferenceTensor stored) {
  for (double& value : stored.values) value = static_cast<double>(static_cast<float>(value));
  return stored;
}

/// New values with every call.
using NewValues = std::function<std::vector<double>(std::size_t count, RandomKind kind)>;

/// Bytes from the first to one past the last element of a tensor, gaps included.
std::size_t extentInBytes(const TensorShape& shape);

}  // namespace mps::detail
