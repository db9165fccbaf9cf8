#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mps/core/types/types.hpp"

namespace mtl {
class Buffer;
class CommandBuffer;
class Device;
class Memory;
}  // namespace mtl

namespace mps {

class ImageBatch;
class State;
class Vector;

namespace detail {
class CollectiveEngine;
class PendingCollective;
struct Collective;
}  // namespace detail

/// What carries the data between ranks.
enum class CommunicatorEngine : std::uint8_t {
  Automatic,  ///< as the environment and the device say
  Mpi,        ///< CPU devices
  Nccl,       ///< CUDA devices
};

/// One training on several devices: this process' or thread's place among `size` ranks that do the same. No counterpart in
/// MPS.
///
/// Its operations are recorded on command buffers as kernels are, and run with them, in place, in device memory. All ranks
/// record the same ones, of the same sizes, and commit them in the same order; one that is not met by all others makes its
/// command buffer fail, and every later one of the communicator, with a sentence that says why. Sums are of float32 or
/// float16 and have the same bits on all ranks; the same number of ranks gives the same bits in each run. A group of one
/// rank records nothing for them and needs no library.
///
///     auto communicator = mps::Communicator::fromEnvironment(device);
///     gradient->encodeBatch(commandBuffer, dy, x, states, dx);
///     communicator->allReduce(commandBuffer, states[0]);       // gradients of the whole batch, on all ranks
///     optimizer->encode(commandBuffer, gradientState, sourceState, momentum, resultState);
class Communicator {
 public:
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// A group of one. @throws Error for a null device
  static std::shared_ptr<Communicator> create(const std::shared_ptr<mtl::Device>& device);
  /// Ranks that are threads of this process, one for each device, in their order. Each rank encodes on a thread of its own,
  /// or all are encoded before the first is waited for. CPU devices (mtl::newCPUDevice) need no library, CUDA devices NCCL.
  /// @throws Error for no devices, a null one, the same twice, and for kinds that differ
  static std::vector<std::shared_ptr<Communicator>> createGroup(
      const std::vector<std::shared_ptr<mtl::Device>>& devices);
  /// The rank that a launcher has made this process: mpirun, srun with MPI, or torchrun. Of one where nothing has launched
  /// several. On a CPU device the ranks meet through MPI. On CUDA devices they use NCCL, and meet through MPI where it has
  /// launched them, else through NCCL_COMM_ID, by default the port after MASTER_PORT on MASTER_ADDR.
  ///
  /// MPI is initialised by the first call unless the program has done so, and finalised at the end of the process.
  /// @throws Error that says what is missing: the MPI module (UNMETAL_MPI names its file), NCCL (UNMETAL_NCCL), a variable.
  static std::shared_ptr<Communicator> fromEnvironment(
      const std::shared_ptr<mtl::Device>& device, CommunicatorEngine engine = CommunicatorEngine::Automatic);

  /// File and version of the library that an engine uses; opens it. @throws Error in one sentence when it is missing
  static std::string describeLibrary(CommunicatorEngine engine);

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] const std::shared_ptr<mtl::Device>& device() const { return device_; }
  /// "none" for a group of one, "threads", "MPI" or "NCCL".
  [[nodiscard]] std::string engineName() const;
  /// How long a rank waits for the others in an operation; five times as long in the first one. 60 s.
  /// @throws Error for less than 1 ms
  void setTimeout(std::chrono::milliseconds timeout);

  /// @name Sums over the ranks, in place
  /// @throws Error for null, another device, a command buffer with a predicate, and elements that are not float16 or float32
  /// @{
  void allReduce(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                 const std::shared_ptr<mtl::Buffer>& buffer, DataType dataType = DataType::Float32);
  void allReduce(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                 const std::shared_ptr<Vector>& vector);
  /// All buffers, as float32. Of a CNNBatchNormalizationState the gradients of gamma and beta.
  void allReduce(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                 const std::shared_ptr<State>& state);
  /// As many images of the same size on all ranks.
  void allReduce(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& images);
  /// @}

  /// Sets `all` to the bytes of `own` of all ranks, one after the other. @throws Error unless `all` is size() times as long
  void allGather(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                 const std::shared_ptr<mtl::Buffer>& own, const std::shared_ptr<mtl::Buffer>& all);

  /// @name Sets memory of all ranks to what the root's holds
  /// @throws Error for a root that does not exist, and as allReduce does
  /// @{
  void broadcast(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                 const std::shared_ptr<mtl::Buffer>& buffer, int root = 0);
  void broadcast(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                 const std::shared_ptr<Vector>& vector, int root = 0);
  void broadcast(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                 const std::shared_ptr<State>& state, int root = 0);
  void broadcast(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const ImageBatch& images,
                 int root = 0);
  /// @}

  /// A buffer, and what messages call it.
  struct Named {
    std::string name;
    std::shared_ptr<mtl::Buffer> buffer;
  };
  /// Records a check that buffers hold the same bits on all ranks. Where not, the command buffer of every rank fails and
  /// names the first one that differs, and the ranks. Reads all bytes once.
  void agree(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const std::vector<Named>& buffers);
  /// Waits until all ranks have called it, while none has other work of the communicator in flight.
  /// @param value up to 200 bytes. @throws Error on every rank, with the values, when they are not the same
  void agree(const std::string& name, std::string_view value);
  /// Waits as agree does. @param value of this rank, up to 1000 bytes @return those of all ranks, in their order
  [[nodiscard]] std::vector<std::string> gather(std::string_view value);

  /// @name When the others are gone
  /// @{
  /// Why no operation can run any more: a rank did not come, or the library underneath failed. Empty while they can.
  [[nodiscard]] std::string failure() const;
  /// The ranks that did not come, where that is the failure and it is known which they are.
  [[nodiscard]] std::vector<int> missingRanks() const;
  /// This process will end while others may wait for it: its end waits for none of them then.
  void giveUp();
  /// @}

  /// @name The library's own
  /// @{
  /// A sum under way: started by one command, there behind another.
  class Reduction;
  /// Sums of several float32 buffers at once, while what is recorded next goes on, where the engine can.
  std::shared_ptr<Reduction> startAllReduce(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                            const std::vector<std::shared_ptr<mtl::Buffer>>& buffers);
  void finish(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Reduction>& reduction);
  /// Records what an engine that must be called now and then needs; nothing for others.
  void recordProgress(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);
  /// As allReduce, of float64.
  void allReduceDoubles(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                        const std::shared_ptr<mtl::Buffer>& buffer);
  /// Tells all ranks on which host and device each of them is, for messages. Waits as agree does.
  void exchangePlaces();
  Communicator(std::shared_ptr<mtl::Device> device, std::shared_ptr<detail::CollectiveEngine> engine);
  /// @}

 private:
  /// Memory that an operation reads and writes.
  struct Part {
    std::shared_ptr<mtl::Memory> memory;
    std::size_t byteOffset = 0;
    std::size_t bytes = 0;
  };
  mtl::CommandBuffer& checked(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const;
  [[nodiscard]] Part partOf(const char* argument, const std::shared_ptr<mtl::Buffer>& buffer) const;
  [[nodiscard]] std::vector<Part> partsOf(const std::shared_ptr<Vector>& vector) const;
  [[nodiscard]] std::vector<Part> partsOf(const std::shared_ptr<State>& state) const;
  void checkRoot(int root) const;
  /// @param collective without arrays: they are those of the parts
  void record(mtl::CommandBuffer& commandBuffer, detail::Collective collective,
              const std::vector<Part>& parts, const Part* source = nullptr) const;
  /// The same with images, which loose ones are gathered for.
  void recordWithImages(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                        detail::Collective collective, const ImageBatch& images) const;

  std::shared_ptr<mtl::Device> device_;
  std::shared_ptr<detail::CollectiveEngine> engine_;  ///< null: a group of one
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace mps
