#include "mps/core/array/nd_array_kernel.hpp"

#include <string>
#include <vector>

#include "mps/core/array/array_storage.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"

namespace mps {

using detail::ArrayStorage;
using detail::BatchOperand;
using detail::CallOperands;
using detail::PreparedCall;
using detail::TensorShape;

namespace {

/// One encode, from its arguments to a recorded call.
class ArrayEncoding {
 public:
  ArrayEncoding(const Kernel& kernel, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer)
      : kernel_(kernel), commandBuffer_(commandBuffer) {
    detail::checkCommandBuffer(kernel, commandBuffer);
  }

  /// @param needsContent false: only its size counts
  void reads(const char* name, const std::shared_ptr<NDArray>& array, bool needsContent = true) {
    check(name, array, needsContent);
    read_.push_back(&array->storage());
  }

  void expect(const char* name, const NDArrayDescriptor& found, const NDArrayDescriptor& expected) const {
    if (found != expected) throw Error(kernel_.describe(), name, found.describe(), expected.describe());
  }

  /// What the call writes. @param given null: a temporary array is made
  void writes(const std::shared_ptr<NDArray>* given, const NDArrayDescriptor& expected) {
    if (given == nullptr) {
      made_ = TemporaryNDArray::create(commandBuffer_, expected);
      destination_ = made_;
      return;
    }
    check("destinationArray", *given, false);
    expect("destinationArray", (*given)->descriptor(), expected);
    for (const ArrayStorage* source : read_)
      if (source == &(*given)->storage())
        throw Error(kernel_.describe(), "destinationArray", "one of the sources", "an array of its own");
    destination_ = *given;
  }

  /// Records the call; takes the reads off. @return the array that was made, or null
  std::shared_ptr<TemporaryNDArray> finish(const PreparedCall& prepared, const NDArray* source,
                                           const NDArray& secondary, const NDArray* gradient) {
    mtl::RecordingGuard guard(*commandBuffer_);
    const BatchOperand sourceMemory = operandOf(source);
    const BatchOperand secondaryMemory = operandOf(&secondary);
    const BatchOperand gradientMemory = operandOf(gradient);
    const BatchOperand destinationMemory = operandOf(destination_.get());
    CallOperands operands;
    if (source != nullptr) operands.source = &sourceMemory;
    operands.secondary = &secondaryMemory;
    if (gradient != nullptr) operands.gradient = &gradientMemory;
    operands.destination = &destinationMemory;
    detail::recordCall(*commandBuffer_, kernel_, prepared, operands);
    guard.keep();
    destination_->storage().setProducer(kernel_.describe());
    detail::consumeRead(read_);
    return made_;
  }

 private:
  void check(const char* name, const std::shared_ptr<NDArray>& array, bool isRead) const {
    if (!array) throw Error(kernel_.describe(), name, "null", "an array");
    array->storage().check(kernel_, name, *commandBuffer_, isRead);
  }

  /// Plans know the sizes: a call sees bytes. Takes the memory.
  static BatchOperand operandOf(const NDArray* array) {
    if (array == nullptr) return {};
    const auto bytes = static_cast<std::int64_t>(detail::bytesOf(array->descriptor()));
    return BatchOperand::ofMemory(TensorShape::dense(1, 1, 1, bytes, ImageFeatureChannelFormat::Unorm8),
                                  array->storage().buffer()->memory(), array->offset(),
                                  !array->isTemporary());
  }

  const Kernel& kernel_;
  const std::shared_ptr<mtl::CommandBuffer>& commandBuffer_;
  std::vector<ArrayStorage*> read_;
  std::shared_ptr<NDArray> destination_;
  std::shared_ptr<TemporaryNDArray> made_;
};

}  // namespace

struct NDArrayBinaryKernel::Arguments {
  const std::shared_ptr<mtl::CommandBuffer>& commandBuffer;
  const std::shared_ptr<NDArray>& primary;
  const std::shared_ptr<NDArray>& secondary;
  const std::shared_ptr<State>* state = nullptr;          ///< null: none
  const std::shared_ptr<NDArray>* destination = nullptr;  ///< null: one is made
};

NDArrayDescriptor NDArrayBinaryKernel::destinationArrayDescriptor(
    const std::shared_ptr<NDArray>& primarySourceArray,
    const std::shared_ptr<NDArray>& secondarySourceArray) const {
  if (!primarySourceArray) throw Error(describe(), "primarySourceArray", "null", "an array");
  if (!secondarySourceArray) throw Error(describe(), "secondarySourceArray", "null", "an array");
  return destinationFor(primarySourceArray->descriptor(), secondarySourceArray->descriptor());
}

std::shared_ptr<State> NDArrayBinaryKernel::resultState(
    const std::shared_ptr<NDArray>& /*primarySourceArray*/,
    const std::shared_ptr<NDArray>& /*secondarySourceArray*/,
    ArrayRef<std::shared_ptr<State>> /*sourceStates*/,
    const std::shared_ptr<NDArray>& /*destinationArray*/) const {
  return newState();
}

std::shared_ptr<TemporaryNDArray> NDArrayBinaryKernel::record(const Arguments& arguments) const {
  ArrayEncoding encoding(*this, arguments.commandBuffer);
  encoding.reads("primarySourceArray", arguments.primary);
  encoding.reads("secondarySourceArray", arguments.secondary);
  const NDArrayDescriptor& primary = arguments.primary->descriptor();
  const NDArrayDescriptor& secondary = arguments.secondary->descriptor();
  const NDArrayDescriptor destination = destinationFor(primary, secondary);
  std::shared_ptr<NDArrayGradientState> state;
  if (arguments.state != nullptr) {
    if (!*arguments.state) throw Error(describe(), "resultState", "null", "a state");
    if (acceptsState(**arguments.state))
      state = std::static_pointer_cast<NDArrayGradientState>(*arguments.state);
    if (!state) throw Error(describe(), "resultState", "a state of another kernel", "one of resultState()");
  }
  const PreparedCall prepared = prepare(primary, secondary);
  encoding.writes(arguments.destination, destination);
  auto made = encoding.finish(prepared, arguments.primary.get(), *arguments.secondary, nullptr);
  if (state) {
    state->setRecord({primary, secondary, destination});
    fillState(*state);
  }
  return made;
}

std::shared_ptr<TemporaryNDArray> NDArrayBinaryKernel::encode(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<NDArray>& primarySourceArray,
    const std::shared_ptr<NDArray>& secondarySourceArray) {
  return record({commandBuffer, primarySourceArray, secondarySourceArray});
}

void NDArrayBinaryKernel::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                 const std::shared_ptr<NDArray>& primarySourceArray,
                                 const std::shared_ptr<NDArray>& secondarySourceArray,
                                 const std::shared_ptr<NDArray>& destinationArray) {
  record({commandBuffer, primarySourceArray, secondarySourceArray, nullptr, &destinationArray});
}

std::shared_ptr<TemporaryNDArray> NDArrayBinaryKernel::encode(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<NDArray>& primarySourceArray, const std::shared_ptr<NDArray>& secondarySourceArray,
    std::shared_ptr<State>& resultState, bool /*outputStateIsTemporary*/) {
  const std::shared_ptr<State> state = newState();
  auto destination = record({commandBuffer, primarySourceArray, secondarySourceArray, &state});
  resultState = state;
  return destination;
}

void NDArrayBinaryKernel::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                 const std::shared_ptr<NDArray>& primarySourceArray,
                                 const std::shared_ptr<NDArray>& secondarySourceArray,
                                 const std::shared_ptr<State>& resultState,
                                 const std::shared_ptr<NDArray>& destinationArray) {
  record({commandBuffer, primarySourceArray, secondarySourceArray, &resultState, &destinationArray});
}

struct NDArrayBinaryPrimaryGradientKernel::Arguments {
  const std::shared_ptr<mtl::CommandBuffer>& commandBuffer;
  const std::shared_ptr<NDArray>& primary;
  const std::shared_ptr<NDArray>& secondary;
  const std::shared_ptr<NDArray>& gradient;
  const std::shared_ptr<State>& state;
  const std::shared_ptr<NDArray>* destination = nullptr;  ///< null: one is made
};

std::shared_ptr<TemporaryNDArray> NDArrayBinaryPrimaryGradientKernel::record(
    const Arguments& arguments) const {
  ArrayEncoding encoding(*this, arguments.commandBuffer);
  encoding.reads("primarySourceArray", arguments.primary, false);
  encoding.reads("secondarySourceArray", arguments.secondary);
  encoding.reads("sourceGradient", arguments.gradient);
  if (!arguments.state) throw Error(describe(), "gradientState", "null", "a state");
  if (!acceptsState(*arguments.state))
    throw Error(describe(), "gradientState", "a state of another kernel", "one of the forward kernel");
  const auto& state = static_cast<const NDArrayGradientState&>(*arguments.state);
  if (!state.record())
    throw Error(describe(), "gradientState", "empty", "one that the forward kernel has encoded with");
  encoding.expect("primarySourceArray", arguments.primary->descriptor(), state.record()->primary);
  encoding.expect("secondarySourceArray", arguments.secondary->descriptor(), state.record()->secondary);
  encoding.expect("sourceGradient", arguments.gradient->descriptor(), state.record()->destination);
  const PreparedCall prepared = prepare(state);
  encoding.writes(arguments.destination, state.record()->primary);
  return encoding.finish(prepared, nullptr, *arguments.secondary, arguments.gradient.get());
}

std::shared_ptr<TemporaryNDArray> NDArrayBinaryPrimaryGradientKernel::encode(
    const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
    const std::shared_ptr<NDArray>& primarySourceArray, const std::shared_ptr<NDArray>& secondarySourceArray,
    const std::shared_ptr<NDArray>& sourceGradient, const std::shared_ptr<State>& gradientState) {
  return record({commandBuffer, primarySourceArray, secondarySourceArray, sourceGradient, gradientState});
}

void NDArrayBinaryPrimaryGradientKernel::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                const std::shared_ptr<NDArray>& primarySourceArray,
                                                const std::shared_ptr<NDArray>& secondarySourceArray,
                                                const std::shared_ptr<NDArray>& sourceGradient,
                                                const std::shared_ptr<State>& gradientState,
                                                const std::shared_ptr<NDArray>& destinationArray) {
  record({commandBuffer, primarySourceArray, secondarySourceArray, sourceGradient, gradientState,
          &destinationArray});
}

}  // namespace mps
