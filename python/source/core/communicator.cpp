#include "mps/distributed/communicator.hpp"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "mps/core/array/vector.hpp"
#include "mtl/buffer.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {
namespace {

using mps::Communicator;
using BufferPointer = std::shared_ptr<mtl::Buffer>;
using VectorPointer = std::shared_ptr<mps::Vector>;
using DevicePointer = std::shared_ptr<mtl::Device>;

void bindMaking(nb::class_<Communicator>& communicator) {
  communicator
      .def_static("create", &Communicator::create, "device"_a, "A group of one, whose operations do nothing.")
      .def_static(
          "create_group", &Communicator::createGroup, "devices"_a, Released(),
          "Ranks that are threads of this process, one for each device: CPU devices of "
          "mtl.new_cpu_device, or CUDA devices with NCCL. Each encodes on a thread of its own, or all "
          "are committed before the first is waited for.")
      .def_static(
          "from_environment", &Communicator::fromEnvironment, "device"_a,
          "engine"_a = mps::CommunicatorEngine::Automatic, Released(),
          "The rank that a launcher has made this process: mpirun, srun with MPI, or torchrun. Of one where "
          "nothing has launched several. Waits for the other ranks. Raises Error that says what is missing.")
      .def_static("describe_library", &Communicator::describeLibrary, "engine"_a,
                  "File and version of the library that an engine uses. Raises Error when it is missing.");
  readOnly(communicator, "rank", &Communicator::rank, "The place among the ranks, from 0.");
  readOnly(communicator, "size", &Communicator::size, "How many ranks there are.");
  communicator.def_prop_ro("device", &Communicator::device, "Where its operations run.");
  readOnly(communicator, "engine_name", &Communicator::engineName,
           "\"none\" for a group of one, \"threads\", \"MPI\" or \"NCCL\".");
}

void bindSums(nb::class_<Communicator>& communicator) {
  communicator
      .def("all_reduce",
           nb::overload_cast<const CommandBufferPointer&, const BufferPointer&, mps::DataType>(
               &Communicator::allReduce),
           "command_buffer"_a, "buffer"_a, "data_type"_a = mps::DataType::Float32, Released(),
           "Sets the elements of all ranks, float32 or float16, to their sums.")
      .def("all_reduce",
           nb::overload_cast<const CommandBufferPointer&, const VectorPointer&>(&Communicator::allReduce),
           "command_buffer"_a, "vector"_a, Released(), "The same with vectors.")
      .def("all_reduce",
           nb::overload_cast<const CommandBufferPointer&, const StatePointer&>(&Communicator::allReduce),
           "command_buffer"_a, "state"_a, Released(),
           "All buffers of a state, as float32; of a CNNBatchNormalizationState the gradients of gamma and "
           "beta.")
      .def("all_reduce",
           nb::overload_cast<const CommandBufferPointer&, const mps::ImageBatch&>(&Communicator::allReduce),
           "command_buffer"_a, "images"_a, Released(), "As many images of the same size on all ranks.")
      .def("all_gather", &Communicator::allGather, "command_buffer"_a, "own"_a, "all"_a, Released(),
           "Sets `all` to the bytes of `own` of all ranks, one after the other; it is `size` times as long.");
}

void bindBroadcasts(nb::class_<Communicator>& communicator) {
  communicator
      .def(
          "broadcast",
          nb::overload_cast<const CommandBufferPointer&, const BufferPointer&, int>(&Communicator::broadcast),
          "command_buffer"_a, "buffer"_a, "root"_a = 0, Released(),
          "Makes the memory of all ranks what it is on the root.")
      .def(
          "broadcast",
          nb::overload_cast<const CommandBufferPointer&, const VectorPointer&, int>(&Communicator::broadcast),
          "command_buffer"_a, "vector"_a, "root"_a = 0, Released(), "The same with vectors.")
      .def("broadcast",
           nb::overload_cast<const CommandBufferPointer&, const StatePointer&, int>(&Communicator::broadcast),
           "command_buffer"_a, "state"_a, "root"_a = 0, Released(), "The same with all buffers of a state.")
      .def("broadcast",
           nb::overload_cast<const CommandBufferPointer&, const mps::ImageBatch&, int>(
               &Communicator::broadcast),
           "command_buffer"_a, "images"_a, "root"_a = 0, Released(), "The same with images.");
}

void agreeOnBuffers(Communicator& self, const CommandBufferPointer& commandBuffer,
                    const std::vector<std::pair<std::string, BufferPointer>>& buffers) {
  std::vector<Communicator::Named> named;
  for (const auto& [name, buffer] : buffers) named.push_back({name, buffer});
  self.agree(commandBuffer, named);
}

void bindAgreement(nb::class_<Communicator>& communicator) {
  communicator
      .def("agree", &agreeOnBuffers, "command_buffer"_a, "buffers"_a, Released(),
           "Records a check that buffers hold the same bits on all ranks, as pairs of a name and a buffer. "
           "Where not, the command buffer of every rank fails and names the first one that differs.")
      .def(
          "agree",
          [](Communicator& self, const std::string& name, const std::string& value) {
            self.agree(name, value);
          },
          "name"_a, "value"_a, Released(),
          "Waits until all ranks have called it. Raises Error on every rank, with the values, when they are "
          "not the same. Up to 200 bytes.")
      .def(
          "gather", [](Communicator& self, const std::string& value) { return self.gather(value); },
          "value"_a, Released(),
          "Waits until all ranks have called it: the values of all, in their order. Up to 1000 bytes.")
      .def(
          "set_timeout",
          [](Communicator& self, std::int64_t milliseconds) {
            self.setTimeout(std::chrono::milliseconds(milliseconds));
          },
          "milliseconds"_a,
          "How long a rank waits for the others in an operation; five times as long in the first one. 60 s.")
      .def("give_up", &Communicator::giveUp,
           "This process will end while others may wait for it: its end waits for none of them then.");
  readOnly(communicator, "failure", &Communicator::failure,
           "Why no operation can run any more; empty while they can.");
  readOnly(communicator, "missing_ranks", &Communicator::missingRanks,
           "The ranks that did not come, where that is the failure and it is known which they are.");
}

}  // namespace

void bindCommunicator(nb::module_& module) {
  nb::enum_<mps::CommunicatorEngine>(module, "CommunicatorEngine", "What carries the data between ranks.")
      .value("Automatic", mps::CommunicatorEngine::Automatic, "As the environment and the device say.")
      .value("Mpi", mps::CommunicatorEngine::Mpi, "CPU devices.")
      .value("Nccl", mps::CommunicatorEngine::Nccl, "CUDA devices.");
  nb::class_<Communicator> communicator(
      module, "Communicator",
      "This process' or thread's place among ranks that do the same work on parts of one batch. Its "
      "operations are recorded on command buffers; all ranks record the same ones in the same order. One "
      "that a rank does not come to makes its command buffer fail, and every later one.\n\n"
      "    communicator = unmetal.Communicator.from_environment(device)\n"
      "    communicator.all_reduce(command_buffer, gradient_state)");
  bindMaking(communicator);
  bindSums(communicator);
  bindBroadcasts(communicator);
  bindAgreement(communicator);
}

}  // namespace python
