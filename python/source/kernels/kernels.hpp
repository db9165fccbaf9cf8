#pragma once

#include <utility>

#include "python/source/binding/bind.hpp"

/// The encode forms of kernels, and those of the base classes, each set in one function. The base classes are bound with
/// them; a class that brings an encode of its own calls the function of its base before it binds that, because a name
/// that a Python class defines hides all that its base classes have of it.
namespace python {

inline constexpr const char* encodeIntoDocumentation =
    "Records the kernel with a given destination; properties are used as they stand. `destination_state` (of "
    "a batch: as many "
    "as images) receives what the gradient kernel needs. Raises Error before anything is recorded.";
inline constexpr const char* encodeReturningDocumentation =
    "Records the kernel and returns its destination, sized by `padding` and made by "
    "`destination_image_allocator`; "
    "with `destination_state_is_temporary` also the new state, None when the kernel makes none: (image, "
    "state). "
    "Raises Error before anything is recorded.";
inline constexpr const char* encodeGradientDocumentation =
    "Records the gradient: from dL/d(result) to dL/d(source), with the state of the forward encode. Without "
    "a "
    "destination one is made and returned. Raises Error before anything is recorded, e.g. for the state of "
    "another "
    "kernel.";

/// One image (of other kernels one matrix, one vector) and a batch: types, names, and the method of C++.
struct Single {
  using Image = ImagePointer;
  using State = StatePointer;
  static constexpr const char* name = "encode";
  static constexpr const char* destinationImage = "destination_image";
  static constexpr const char* destinationState = "destination_state";
  static constexpr const char* stateIsTemporary = "destination_state_is_temporary";
  template <class Self, class... Operands>
  static auto encode(Self& self, Operands&&... operands) {
    return self.encode(std::forward<Operands>(operands)...);
  }
};
struct Batch {
  using Image = mps::ImageBatch;
  using State = mps::StateBatch;
  static constexpr const char* name = "encode_batch";
  static constexpr const char* destinationImage = "destination_images";
  static constexpr const char* destinationState = "destination_states";
  static constexpr const char* stateIsTemporary = "destination_states_are_temporary";
  template <class Self, class... Operands>
  static auto encode(Self& self, Operands&&... operands) {
    return self.encodeBatch(std::forward<Operands>(operands)...);
  }
};

/// An encode of C++. @param Form Single or Batch @param Operands what stands behind the command buffer
/// @param arguments the names of the operands
template <class Form, class... Operands, class Class, class... Arguments>
void bindEncode(Class& bound, const char* documentation, const Arguments&... arguments) {
  using Self = typename Class::Type;
  bound.def(
      Form::name,
      [](Self& self, const CommandBufferPointer& commandBuffer, const Operands&... operands) {
        return Form::encode(self, commandBuffer, operands...);
      },
      "command_buffer"_a, arguments..., Released(), documentation);
}

/// An encode with a state as an out parameter behind the operands, of which Python makes a pair:
/// encode(..., destination_state_is_temporary=False) gives (image, state).
template <class Form, class... Operands, class Class, class... Arguments>
void bindEncodeWithState(Class& bound, const char* documentation, const Arguments&... arguments) {
  using Self = typename Class::Type;
  bound.def(
      Form::name,
      [](Self& self, const CommandBufferPointer& commandBuffer, const Operands&... operands, bool temporary) {
        typename Form::State state;
        auto image = Form::encode(self, commandBuffer, operands..., state, temporary);
        return std::pair(std::move(image), std::move(state));
      },
      "command_buffer"_a, arguments..., nb::kw_only(), nb::arg(Form::stateIsTemporary), Released(),
      documentation);
}

/// CNNKernel's: one source.
void bindUnaryEncodes(nb::handle bound);
/// CNNBinaryKernel's: two sources.
void bindBinaryEncodes(nb::handle bound);
/// CNNGradientKernel's: those of two sources, and with a gradient state.
void bindGradientEncodes(nb::handle bound);
/// CNNMultiaryKernel's: a list of sources.
void bindMultiaryEncodes(nb::handle bound);

}  // namespace python
