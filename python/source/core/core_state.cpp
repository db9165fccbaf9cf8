#include "mps/core/image/state.hpp"

#include <cstddef>
#include <utility>

#include "mps/core/image/gradient_state.hpp"
#include "mtl/buffer.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"
#include "python/source/binding/sequences.hpp"

namespace python {
namespace {

using BufferPointer = std::shared_ptr<mtl::Buffer>;

void bindValues(nb::module_& module) {
  nb::enum_<mps::StateResourceType>(module, "StateResourceType", "What a resource of a state is.")
      .value("None_", mps::StateResourceType::None)
      .value("Buffer", mps::StateResourceType::Buffer)
      .value("Texture", mps::StateResourceType::Texture);
  nb::class_<mps::StateTextureInfo>(module, "StateTextureInfo", "What a texture of a state is.")
      .def_ro("width", &mps::StateTextureInfo::width, "Texels.")
      .def_ro("height", &mps::StateTextureInfo::height, "Texels.")
      .def_ro("depth", &mps::StateTextureInfo::depth, "Texels.")
      .def_ro("array_length", &mps::StateTextureInfo::arrayLength, "Slices.")
      .def_ro("pixel_format", &mps::StateTextureInfo::pixelFormat, "Of a texel.")
      .def_ro("texture_type", &mps::StateTextureInfo::textureType, "Its dimensions.")
      .def_ro("usage", &mps::StateTextureInfo::usage, "What it may be used for.");
  nb::class_<mps::StateResourceList>(module, "StateResourceList",
                                     "Sizes of the buffers of a state, in bytes.")
      .def(nb::new_([](const std::vector<std::size_t>& bufferSizes) {
             mps::StateResourceList list;
             for (const std::size_t size : bufferSizes) list.appendBuffer(size);
             return list;
           }),
           "buffer_sizes"_a = std::vector<std::size_t>{})
      .def("append_buffer", &mps::StateResourceList::appendBuffer, "size"_a, "One more buffer.")
      .def_prop_ro(
          "buffer_sizes",
          [](const mps::StateResourceList& self) {
            return std::vector<std::size_t>(self.bufferSizes().begin(), self.bufferSizes().end());
          },
          "The sizes, in order.");
}

void bindState(nb::module_& module) {
  using mps::State;
  nb::class_<State> state(module, "State",
                          "Data that flows between kernels beside images. A temporary state lives on one "
                          "command buffer until its read_count is "
                          "0; each encode that reads it takes 1 off. A permanent state, and a state without "
                          "resources, shows read_count 0 and is "
                          "never counted.");
  state
      .def(nb::new_([](const std::shared_ptr<mtl::Device>& device, const mps::StateResourceList& resources) {
             return State::create(device, resources);
           }),
           "device"_a, "resources"_a, "Permanent, with zero-filled buffers that are allocated at first use.")
      .def(nb::new_([](std::vector<BufferPointer> resources) { return State::create(std::move(resources)); }),
           "resources"_a, "Permanent, around buffers of the caller (which may be none).")
      .def_static(
          "create_temporary",
          [](const CommandBufferPointer& commandBuffer, const mps::StateResourceList& resources) {
            return State::createTemporary(commandBuffer, resources);
          },
          "command_buffer"_a, "resources"_a = mps::StateResourceList(),
          "Temporary, with private buffers of undefined content.");
  readOnly(state, "resource_count", &State::resourceCount, "Number of buffers.");
  state
      .def("resource", &State::resource, "index"_a, "allocate_memory"_a = true,
           "The buffer, or None when it is not allocated and allocate_memory is false. Raises Error for an "
           "index that is too "
           "large, or when the state was released.")
      .def("resource_type", &State::resourceType, "index"_a, "None_ beyond the last resource.")
      .def("buffer_size", &State::bufferSize, "index"_a,
           "Bytes of a buffer; 0 beyond the last resource. Does not allocate.")
      .def("texture_info", &State::textureInfo, "index"_a, "Zeros: no resource of a state is a texture.");
  readOnly(state, "resource_size", &State::resourceSize,
           "Bytes of backing storage; 0 when built around buffers of the caller.");
  property(state, "read_count", &State::readCount, &State::setReadCount,
           "Reads that are still to come. 0 frees the memory now. Raises Error when it was 0 already.");
  readOnly(state, "is_temporary", &State::isTemporary, "Whether it lives on one command buffer.");
  readOnly(state, "device", &State::device, "Where it was made; None around no buffers.");
  property(state, "label", &State::label, &State::setLabel, "For people; empty by default.");
  state
      .def(
          "belongs_to",
          [](const State& self, const mtl::CommandBuffer& commandBuffer) {
            return self.belongsTo(commandBuffer);
          },
          "command_buffer"_a, "Whether a temporary state may be used with this command buffer.")
      .def(
          "destination_image_descriptor",
          [](State& self, const Images& sourceImages, const States& sourceStates, mps::Kernel& kernel,
             const mps::ImageDescriptor& suggested) {
            return self.destinationImageDescriptor(sourceImages, sourceStates, kernel, suggested);
          },
          "source_images"_a, "source_states"_a, "kernel"_a, "suggested_descriptor"_a,
          "What a kernel's destination_image_descriptor asks of each source state: the descriptor, perhaps "
          "changed.")
      .def("synchronize", &State::synchronize, "command_buffer"_a, Released(),
           "Records the copy that makes device results visible on the host, for all resources.");

  nb::class_<mps::NNGradientState, State> gradientState(
      module, "NNGradientState",
      "Record of one forward encode, read by the gradient kernel. It belongs to one forward pass, has no "
      "resources and is "
      "therefore never temporary; it keeps what the kernel's properties were when it encoded.");
  gradientState.def(nb::new_(&mps::NNGradientState::create), "device"_a);
  readOnly(gradientState, "source_width", &mps::NNGradientState::sourceWidth,
           "Width of the forward source; 0 before the forward kernel encoded.");
  readOnly(gradientState, "source_height", &mps::NNGradientState::sourceHeight,
           "Height of the forward source; 0 before the forward kernel encoded.");
  nb::class_<mps::NNBinaryGradientState, State>(module, "NNBinaryGradientState",
                                                "Record of a forward encode with two sources.")
      .def(nb::new_(&mps::NNBinaryGradientState::create), "device"_a);
  nb::class_<mps::NNMultiaryGradientState, State>(module, "NNMultiaryGradientState",
                                                  "Record of a forward encode with several sources.")
      .def(nb::new_(&mps::NNMultiaryGradientState::create), "device"_a);
}

void bindBatch(nb::module_& module) {
  using mps::StateBatch;
  nb::class_<StateBatch> batch(
      module, "StateBatch",
      "The states of a batch: one for each image, or one that every image shares. A list of states is one, "
      "too, wherever a batch is expected.");
  bindSequence<StateBatch, mps::State>(batch, "State", "Those states.");
  batch.def(nb::init<>())
      .def(nb::init_implicit<States>(), "states"_a)
      .def(nb::init<StatePointer, std::size_t>(), "state"_a, "count"_a)
      .def_prop_ro("count", &StateBatch::count, "Number of states; len(batch), too.")
      .def_prop_ro("empty", &StateBatch::empty, "Whether there are none.")
      .def("slice", &StateBatch::slice, "first"_a, "count"_a,
           "States [first, first + count). Raises Error when the range leaves the batch.")
      .def_prop_ro("shared_state", &StateBatch::sharedState,
                   "The state that all share, or None when they differ.")
      .def("distinct", &StateBatch::distinct, "Each distinct state once, in order of first position.")
      .def("increment_read_count", &mps::StateBatchIncrementReadCount, "amount"_a,
           "Adds to read_count once for each distinct temporary state whose count is not 0; never below 0. "
           "Returns the number "
           "of distinct states.")
      .def("synchronize", &mps::StateBatchSynchronize, "command_buffer"_a, Released(),
           "State.synchronize once for each distinct state.")
      .def_prop_ro("resource_size", &mps::StateBatchResourceSize,
                   "Sum of resource_size over distinct states.");
}

}  // namespace

void bindCoreState(nb::module_& module) {
  bindValues(module);
  bindState(module);
  bindBatch(module);
}

}  // namespace python
