#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "mps/core/array/nd_array.hpp"
#include "mps/core/array/nd_array_kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"

/// Parts of arrays, chosen by indices on the device (MPSNDArrayGather.h).
namespace mps {

/// State of one gather for its gradient (MPSNDArrayGatherGradientState).
class NDArrayGatherGradientState : public NDArrayGradientState {
 public:
  static std::shared_ptr<NDArrayGatherGradientState> create(const std::shared_ptr<mtl::Device>& device);
  /// That of the forward kernel when it encoded.
  [[nodiscard]] std::size_t axis() const { return axis_; }

 private:
  friend class NDArrayGather;
  using NDArrayGradientState::NDArrayGradientState;
  std::size_t axis_ = 0;
};

/// Takes the parts of an array that indices name, along one axis (MPSNDArrayGather):
///
///     result(..., i, ...) = primary(..., indices(i), ...)          i and indices(i) stand in dimension `axis`
///
/// | array | type | lengths |
/// |---|---|---|
/// | primary | Float32, Float16 | any |
/// | secondary, the indices | UInt32, Int32, UInt16 | one dimension |
/// | result | as primary | those of primary, but along the axis the number of indices |
///
/// Dimension 0 is the fastest one, as with Apple. In a table of 1000 rows of 64 elements, whose lengths are {64, 1000}, axis 1 takes
/// rows. Bits are copied.
///
/// Indices are device data, read when the work runs. One that names no part, because it is negative or not below the length along
/// the axis, gives zeros, and its gradient goes nowhere; no memory outside the array is read. Padding can be marked so.
class NDArrayGather : public detail::KernelClass<NDArrayGather, NDArrayBinaryKernel, "NDArrayGather"> {
 public:
  static std::shared_ptr<NDArrayGather> create(const std::shared_ptr<mtl::Device>& device);

  /// The dimension of the primary array that indices count in. 0. Encodes throw Error for one that the array does not have.
  [[nodiscard]] std::size_t axis() const { return axis_; }
  void setAxis(std::size_t axis) { axis_ = axis; }

 protected:
  using KernelClass::KernelClass;
  NDArrayGather(const NDArrayGather&) = default;
  [[nodiscard]] NDArrayDescriptor destinationFor(const NDArrayDescriptor& primary,
                                                 const NDArrayDescriptor& secondary) const override;
  [[nodiscard]] detail::PreparedCall prepare(const NDArrayDescriptor& primary,
                                             const NDArrayDescriptor& secondary) const override;
  [[nodiscard]] std::shared_ptr<NDArrayGradientState> newState() const override;
  [[nodiscard]] bool acceptsState(const State& state) const override;
  void fillState(NDArrayGradientState& state) const override;
  void codeProperties(Coder& coder) override;

 private:
  friend KernelClass;
  std::size_t axis_ = 0;
};

/// Gradient of NDArrayGather for its primary array (MPSNDArrayGatherGradient); indices have none:
///
///     dPrimary(..., k, ...) = sum over all i with indices(i) = k of dResult(..., i, ...)
///
/// 0 where no index is k. Sums are float32, added in the order of i and rounded once: every run gives the same bits. The axis is that
/// of the state. The arrays have the types and lengths of the forward call, the result those of the primary array.
///
///     auto gather = mps::NDArrayGather::create(device);
///     gather->setAxis(1);
///     auto state = gather->resultState(x, indices);
///     gather->encode(commandBuffer, x, indices, state, y);
///     auto gradient = mps::NDArrayGatherGradient::create(device);
///     gradient->encode(commandBuffer, x, indices, dy, state, dx);
class NDArrayGatherGradient
    : public detail::KernelClass<NDArrayGatherGradient, NDArrayBinaryPrimaryGradientKernel,
                                 "NDArrayGatherGradient"> {
 public:
  static std::shared_ptr<NDArrayGatherGradient> create(const std::shared_ptr<mtl::Device>& device);

 protected:
  using KernelClass::KernelClass;
  NDArrayGatherGradient(const NDArrayGatherGradient&) = default;
  [[nodiscard]] detail::PreparedCall prepare(const NDArrayGradientState& state) const override;
  [[nodiscard]] bool acceptsState(const State& state) const override;

 private:
  friend KernelClass;
};

}  // namespace mps
