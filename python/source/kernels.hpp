#pragma once

#include <cstddef>
#include <utility>

#include "mps/core/cnn_binary_kernel.hpp"
#include "mps/core/cnn_gradient_kernel.hpp"
#include "mps/core/cnn_kernel.hpp"
#include "mps/core/cnn_multiary_kernel.hpp"
#include "python/source/bind.hpp"

/// The encode forms of the base classes, each set in one function. The base classes are bound with them; a class that
/// brings an encode of its own calls the function of its base before it binds that, because a name that a Python class
/// defines hides all that its base classes have of it.
///
/// Where C++ has a state as an out parameter Python returns a pair: encode(..., destination_state_is_temporary=False)
/// gives (image, state).
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

/// CNNKernel's: one source.
template <class Class>
void bindUnaryEncodes(Class& bound) {
  using Self = mps::CNNKernel;
  bindCoding(bound);
  bound
      .def(
          "encode",
          [](Self& self, const CommandBufferPointer& commandBuffer, const ImagePointer& source) {
            return self.encode(commandBuffer, source);
          },
          "command_buffer"_a, "source_image"_a, Released(), encodeReturningDocumentation)
      .def(
          "encode",
          [](Self& self, const CommandBufferPointer& commandBuffer, const ImagePointer& source,
             bool temporary) {
            StatePointer state;
            auto image = self.encode(commandBuffer, source, state, temporary);
            return std::pair(std::move(image), std::move(state));
          },
          "command_buffer"_a, "source_image"_a, nb::kw_only(), "destination_state_is_temporary"_a, Released(),
          encodeReturningDocumentation)
      .def(
          "encode",
          [](Self& self, const CommandBufferPointer& commandBuffer, const ImagePointer& source,
             const ImagePointer& destination) { self.encode(commandBuffer, source, destination); },
          "command_buffer"_a, "source_image"_a, "destination_image"_a, Released(), encodeIntoDocumentation)
      .def(
          "encode",
          [](Self& self, const CommandBufferPointer& commandBuffer, const ImagePointer& source,
             const StatePointer& state,
             const ImagePointer& destination) { self.encode(commandBuffer, source, state, destination); },
          "command_buffer"_a, "source_image"_a, "destination_state"_a, "destination_image"_a, Released(),
          encodeIntoDocumentation)
      .def(
          "encode_batch",
          [](Self& self, const CommandBufferPointer& commandBuffer, const mps::ImageBatch& sources) {
            return self.encodeBatch(commandBuffer, sources);
          },
          "command_buffer"_a, "source_images"_a, Released(), encodeReturningDocumentation)
      .def(
          "encode_batch",
          [](Self& self, const CommandBufferPointer& commandBuffer, const mps::ImageBatch& sources,
             bool temporary) {
            mps::StateBatch states;
            auto images = self.encodeBatch(commandBuffer, sources, states, temporary);
            return std::pair(std::move(images), std::move(states));
          },
          "command_buffer"_a, "source_images"_a, nb::kw_only(), "destination_states_are_temporary"_a,
          Released(), encodeReturningDocumentation)
      .def(
          "encode_batch",
          [](Self& self, const CommandBufferPointer& commandBuffer, const mps::ImageBatch& sources,
             const mps::ImageBatch& destinations) { self.encodeBatch(commandBuffer, sources, destinations); },
          "command_buffer"_a, "source_images"_a, "destination_images"_a, Released(), encodeIntoDocumentation)
      .def(
          "encode_batch",
          [](Self& self, const CommandBufferPointer& commandBuffer, const mps::ImageBatch& sources,
             const mps::StateBatch& states, const mps::ImageBatch& destinations) {
            self.encodeBatch(commandBuffer, sources, states, destinations);
          },
          "command_buffer"_a, "source_images"_a, "destination_states"_a, "destination_images"_a, Released(),
          encodeIntoDocumentation);
}

/// CNNBinaryKernel's: two sources.
template <class Class>
void bindBinaryEncodes(Class& bound) {
  using Self = mps::CNNBinaryKernel;
  bindCoding(bound);
  bound
      .def(
          "encode",
          [](Self& self, const CommandBufferPointer& commandBuffer, const ImagePointer& primary,
             const ImagePointer& secondary) { return self.encode(commandBuffer, primary, secondary); },
          "command_buffer"_a, "primary_image"_a, "secondary_image"_a, Released(),
          encodeReturningDocumentation)
      .def(
          "encode",
          [](Self& self, const CommandBufferPointer& commandBuffer, const ImagePointer& primary,
             const ImagePointer& secondary, bool temporary) {
            StatePointer state;
            auto image = self.encode(commandBuffer, primary, secondary, state, temporary);
            return std::pair(std::move(image), std::move(state));
          },
          "command_buffer"_a, "primary_image"_a, "secondary_image"_a, nb::kw_only(),
          "destination_state_is_temporary"_a, Released(), encodeReturningDocumentation)
      .def(
          "encode",
          [](Self& self, const CommandBufferPointer& commandBuffer, const ImagePointer& primary,
             const ImagePointer& secondary, const ImagePointer& destination) {
            self.encode(commandBuffer, primary, secondary, destination);
          },
          "command_buffer"_a, "primary_image"_a, "secondary_image"_a, "destination_image"_a, Released(),
          encodeIntoDocumentation)
      .def(
          "encode_batch",
          [](Self& self, const CommandBufferPointer& commandBuffer, const mps::ImageBatch& primary,
             const mps::ImageBatch& secondary) {
            return self.encodeBatch(commandBuffer, primary, secondary);
          },
          "command_buffer"_a, "primary_images"_a, "secondary_images"_a, Released(),
          encodeReturningDocumentation)
      .def(
          "encode_batch",
          [](Self& self, const CommandBufferPointer& commandBuffer, const mps::ImageBatch& primary,
             const mps::ImageBatch& secondary, bool temporary) {
            mps::StateBatch states;
            auto images = self.encodeBatch(commandBuffer, primary, secondary, states, temporary);
            return std::pair(std::move(images), std::move(states));
          },
          "command_buffer"_a, "primary_images"_a, "secondary_images"_a, nb::kw_only(),
          "destination_states_are_temporary"_a, Released(), encodeReturningDocumentation)
      .def(
          "encode_batch",
          [](Self& self, const CommandBufferPointer& commandBuffer, const mps::ImageBatch& primary,
             const mps::ImageBatch& secondary, const mps::ImageBatch& destinations) {
            self.encodeBatch(commandBuffer, primary, secondary, destinations);
          },
          "command_buffer"_a, "primary_images"_a, "secondary_images"_a, "destination_images"_a, Released(),
          encodeIntoDocumentation)
      .def(
          "encode_batch",
          [](Self& self, const CommandBufferPointer& commandBuffer, const mps::ImageBatch& primary,
             const mps::ImageBatch& secondary, const mps::StateBatch& states,
             const mps::ImageBatch& destinations) {
            self.encodeBatch(commandBuffer, primary, secondary, states, destinations);
          },
          "command_buffer"_a, "primary_images"_a, "secondary_images"_a, "destination_states"_a,
          "destination_images"_a, Released(), encodeIntoDocumentation);
}

/// CNNGradientKernel's: those of two sources, and with a gradient state.
template <class Class>
void bindGradientEncodes(Class& bound) {
  using Self = mps::CNNGradientKernel;
  bound
      .def(
          "encode",
          [](Self& self, const CommandBufferPointer& commandBuffer, const ImagePointer& gradient,
             const ImagePointer& source,
             const StatePointer& state) { return self.encode(commandBuffer, gradient, source, state); },
          "command_buffer"_a, "source_gradient"_a, "source_image"_a, "gradient_state"_a, Released(),
          encodeGradientDocumentation)
      .def(
          "encode",
          [](Self& self, const CommandBufferPointer& commandBuffer, const ImagePointer& gradient,
             const ImagePointer& source, const StatePointer& state, const ImagePointer& destination) {
            self.encode(commandBuffer, gradient, source, state, destination);
          },
          "command_buffer"_a, "source_gradient"_a, "source_image"_a, "gradient_state"_a,
          "destination_gradient"_a, Released(), encodeGradientDocumentation)
      .def(
          "encode_batch",
          [](Self& self, const CommandBufferPointer& commandBuffer, const mps::ImageBatch& gradients,
             const mps::ImageBatch& sources, const mps::StateBatch& states) {
            return self.encodeBatch(commandBuffer, gradients, sources, states);
          },
          "command_buffer"_a, "source_gradients"_a, "source_images"_a, "gradient_states"_a, Released(),
          encodeGradientDocumentation)
      .def(
          "encode_batch",
          [](Self& self, const CommandBufferPointer& commandBuffer, const mps::ImageBatch& gradients,
             const mps::ImageBatch& sources, const mps::StateBatch& states,
             const mps::ImageBatch& destinations) {
            self.encodeBatch(commandBuffer, gradients, sources, states, destinations);
          },
          "command_buffer"_a, "source_gradients"_a, "source_images"_a, "gradient_states"_a,
          "destination_gradients"_a, Released(), encodeGradientDocumentation);
  // Later than those: of a state and a destination Python's call takes the first that fits, and that state is the source.
  bindBinaryEncodes(bound);
}

/// CNNMultiaryKernel's: a list of sources.
template <class Class>
void bindMultiaryEncodes(Class& bound) {
  using Self = mps::CNNMultiaryKernel;
  bindCoding(bound);
  bound
      .def(
          "encode",
          [](Self& self, const CommandBufferPointer& commandBuffer, const Images& sources) {
            return self.encode(commandBuffer, sources);
          },
          "command_buffer"_a, "source_images"_a, Released(), encodeReturningDocumentation)
      .def(
          "encode",
          [](Self& self, const CommandBufferPointer& commandBuffer, const Images& sources, bool temporary) {
            StatePointer state;
            auto image = self.encode(commandBuffer, sources, state, temporary);
            return std::pair(std::move(image), std::move(state));
          },
          "command_buffer"_a, "source_images"_a, nb::kw_only(), "destination_state_is_temporary"_a,
          Released(), encodeReturningDocumentation)
      .def(
          "encode",
          [](Self& self, const CommandBufferPointer& commandBuffer, const Images& sources,
             const ImagePointer& destination) { self.encode(commandBuffer, sources, destination); },
          "command_buffer"_a, "source_images"_a, "destination_image"_a, Released(), encodeIntoDocumentation)
      .def(
          "encode_batch",
          [](Self& self, const CommandBufferPointer& commandBuffer, const ImageBatches& sources) {
            return self.encodeBatch(commandBuffer, sources);
          },
          "command_buffer"_a, "source_images"_a, Released(), encodeReturningDocumentation)
      .def(
          "encode_batch",
          [](Self& self, const CommandBufferPointer& commandBuffer, const ImageBatches& sources,
             bool temporary) {
            mps::StateBatch states;
            auto images = self.encodeBatch(commandBuffer, sources, states, temporary);
            return std::pair(std::move(images), std::move(states));
          },
          "command_buffer"_a, "source_images"_a, nb::kw_only(), "destination_states_are_temporary"_a,
          Released(), encodeReturningDocumentation)
      .def(
          "encode_batch",
          [](Self& self, const CommandBufferPointer& commandBuffer, const ImageBatches& sources,
             const mps::ImageBatch& destinations) { self.encodeBatch(commandBuffer, sources, destinations); },
          "command_buffer"_a, "source_images"_a, "destination_images"_a, Released(), encodeIntoDocumentation)
      .def(
          "encode_batch",
          [](Self& self, const CommandBufferPointer& commandBuffer, const ImageBatches& sources,
             const mps::StateBatch& states, const mps::ImageBatch& destinations) {
            self.encodeBatch(commandBuffer, sources, states, destinations);
          },
          "command_buffer"_a, "source_images"_a, "destination_states"_a, "destination_images"_a, Released(),
          encodeIntoDocumentation);
}

}  // namespace python
