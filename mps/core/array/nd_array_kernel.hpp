#pragma once

#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "mps/core/array/nd_array.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/types/array_ref.hpp"

/// What kernels on arrays share (MPSNDArrayKernel.h, MPSNDArrayGradientState.h).
///
/// An encode without a destination makes a temporary array. An encode takes one read off each temporary array that it is
/// given, also off one of which only the size counts.
///
/// All throw Error before anything is recorded. Refused are null arguments, another device, temporary arrays of another
/// command buffer or without reads left, and content that a failed command should have written. So is a destination of
/// other lengths or of another type, or one that is an argument, too.
namespace mps {

namespace detail {
struct PreparedCall;
}  // namespace detail

/// What a forward kernel on arrays leaves for its gradient (MPSNDArrayGradientState): types and lengths of the arrays, and its
/// properties at that moment. It has no resources and is therefore never temporary.
class NDArrayGradientState : public State {
 public:
  /// @name The library's own
  /// @{
  /// The arrays of the forward call.
  struct Record {
    NDArrayDescriptor primary, secondary, destination;
  };
  /// None before the forward kernel encoded.
  [[nodiscard]] const std::optional<Record>& record() const { return record_; }
  void setRecord(Record record) { record_ = std::move(record); }
  /// @}

 protected:
  using State::State;

 private:
  std::optional<Record> record_;
};

/// Base of kernels with two source arrays (MPSNDArrayBinaryKernel).
class NDArrayBinaryKernel : public Kernel {
 public:
  /// Type and lengths of the result. @throws Error for sources that the kernel cannot take
  [[nodiscard]] NDArrayDescriptor destinationArrayDescriptor(
      const std::shared_ptr<NDArray>& primarySourceArray,
      const std::shared_ptr<NDArray>& secondarySourceArray) const;
  /// A state for the encode below, which says nothing yet; the arguments are not looked at.
  [[nodiscard]] std::shared_ptr<State> resultState(
      const std::shared_ptr<NDArray>& primarySourceArray,
      const std::shared_ptr<NDArray>& secondarySourceArray,
      ArrayRef<std::shared_ptr<State>> sourceStates = {},
      const std::shared_ptr<NDArray>& destinationArray = nullptr) const;

  /// @name Encodes
  /// @{
  using Kernel::encode;
  std::shared_ptr<TemporaryNDArray> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                           const std::shared_ptr<NDArray>& primarySourceArray,
                                           const std::shared_ptr<NDArray>& secondarySourceArray);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<NDArray>& primarySourceArray,
              const std::shared_ptr<NDArray>& secondarySourceArray,
              const std::shared_ptr<NDArray>& destinationArray);
  /// @param resultState becomes the state for the gradient @param outputStateIsTemporary without effect: it has no resources
  std::shared_ptr<TemporaryNDArray> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                           const std::shared_ptr<NDArray>& primarySourceArray,
                                           const std::shared_ptr<NDArray>& secondarySourceArray,
                                           std::shared_ptr<State>& resultState, bool outputStateIsTemporary);
  /// @param resultState made by resultState(). @throws Error for another state too
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<NDArray>& primarySourceArray,
              const std::shared_ptr<NDArray>& secondarySourceArray, const std::shared_ptr<State>& resultState,
              const std::shared_ptr<NDArray>& destinationArray);
  /// @}

 protected:
  using Kernel::Kernel;
  NDArrayBinaryKernel(const NDArrayBinaryKernel&) = default;

  /// @throws Error for what the kernel cannot take
  [[nodiscard]] virtual NDArrayDescriptor destinationFor(const NDArrayDescriptor& primary,
                                                         const NDArrayDescriptor& secondary) const = 0;
  /// The plan takes the primary array as source, the other one as secondary.
  [[nodiscard]] virtual detail::PreparedCall prepare(const NDArrayDescriptor& primary,
                                                     const NDArrayDescriptor& secondary) const = 0;
  [[nodiscard]] virtual std::shared_ptr<NDArrayGradientState> newState() const = 0;
  /// Whether a state is one that newState() makes.
  [[nodiscard]] virtual bool acceptsState(const State& state) const = 0;
  /// Leaves the kernel's properties in such a state.
  virtual void fillState(NDArrayGradientState& state) const = 0;

 private:
  struct Arguments;
  std::shared_ptr<TemporaryNDArray> record(const Arguments& arguments) const;
};

/// Base of kernels that compute the gradient for the primary source of a kernel with two (MPSNDArrayBinaryPrimaryGradientKernel).
class NDArrayBinaryPrimaryGradientKernel : public Kernel {
 public:
  /// @name Encodes
  /// The source arrays are those of the forward call; of the primary one only the size counts, no memory is taken for it.
  /// @throws Error also for a state that no forward kernel has filled, and for arrays of other lengths or types than it tells
  /// @{
  using Kernel::encode;
  std::shared_ptr<TemporaryNDArray> encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                           const std::shared_ptr<NDArray>& primarySourceArray,
                                           const std::shared_ptr<NDArray>& secondarySourceArray,
                                           const std::shared_ptr<NDArray>& sourceGradient,
                                           const std::shared_ptr<State>& gradientState);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<NDArray>& primarySourceArray,
              const std::shared_ptr<NDArray>& secondarySourceArray,
              const std::shared_ptr<NDArray>& sourceGradient, const std::shared_ptr<State>& gradientState,
              const std::shared_ptr<NDArray>& destinationArray);
  /// @}

 protected:
  using Kernel::Kernel;
  NDArrayBinaryPrimaryGradientKernel(const NDArrayBinaryPrimaryGradientKernel&) = default;

  /// The plan takes the secondary array as secondary and the incoming gradient as gradient.
  /// @param state filled by a forward kernel
  [[nodiscard]] virtual detail::PreparedCall prepare(const NDArrayGradientState& state) const = 0;
  [[nodiscard]] virtual bool acceptsState(const State& state) const = 0;

 private:
  struct Arguments;
  std::shared_ptr<TemporaryNDArray> record(const Arguments& arguments) const;
};

}  // namespace mps
