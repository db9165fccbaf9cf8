#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/error.hpp"
#include "mps/distributed/collective.hpp"
#include "mps/distributed/communicator.hpp"
#include "mps/distributed/launch.hpp"
#include "mps/distributed/mpi_engine.hpp"
#include "mps/distributed/nccl_engine.hpp"
#include "mps/distributed/thread_engine.hpp"
#include "mtl/device.hpp"

/// Which engine a communicator has.
namespace mps {
namespace {

/// Null in builds without CUDA, which have no CUDA device either.
struct NcclCalls {
  decltype(&detail::makeNcclId) makeId;
  decltype(&detail::makeNcclEngine) makeEngine;
  decltype(&detail::makeNcclEngines) makeEngines;
  decltype(&detail::describeNccl) describe;
};
constexpr NcclCalls nccl{UNMETAL_CUDA_LIST(detail::makeNcclId), UNMETAL_CUDA_LIST(detail::makeNcclEngine),
                         UNMETAL_CUDA_LIST(detail::makeNcclEngines), UNMETAL_CUDA_LIST(detail::describeNccl)};

constexpr bool hasNccl = !std::is_same_v<std::nullptr_t, decltype(UNMETAL_CUDA_LIST(&detail::describeNccl))>;

bool isCuda(const std::shared_ptr<mtl::Device>& device) {
  return device->kind() == mtl::DeviceKind::CUDA;
}

void checkDevice(const std::shared_ptr<mtl::Device>& device) {
  if (!device) throw Error("Communicator", "device", "null", "a device");
}

void checkEngine(const std::shared_ptr<mtl::Device>& device, CommunicatorEngine engine) {
  const CommunicatorEngine own = isCuda(device) ? CommunicatorEngine::Nccl : CommunicatorEngine::Mpi;
  if (engine == CommunicatorEngine::Automatic || engine == own) return;
  throw Error("Communicator", "engine", engine == CommunicatorEngine::Mpi ? "MPI" : "NCCL",
              isCuda(device) ? "NCCL for a CUDA device" : "MPI for a CPU device");
}

/// Rank 0's. Where NCCL is missing on any rank all of them say so, and none waits for another.
detail::NcclId idByMpi(const detail::Launch& launch) {
  std::string failure;
  detail::NcclId id{};
  try {
    if (launch.rank == 0)
      id = nccl.makeId("");
    else
      (void)nccl.describe();
  } catch (const mtl::Error& error) {
    failure = error.what();
  }
  const auto failures = detail::gatherByMpi(failure);
  for (std::size_t rank = 0; rank < failures.size(); ++rank)
    if (!failures[rank].empty()) throw Error("rank " + std::to_string(rank) + ": " + failures[rank]);
  const std::string bytes =
      detail::gatherByMpi({reinterpret_cast<const char*>(id.data()), id.size()}).front();
  std::memcpy(id.data(), bytes.data(), id.size());
  return id;
}

std::unique_ptr<detail::CollectiveEngine> joinByNccl(const mtl::Device& device,
                                                     const detail::Launch& launch) {
  if (launch.size == 1) return nccl.makeEngine(device, 0, 1, nccl.makeId(""), "", nullptr);
  if (launch.launcher != detail::Launcher::Mpi) {
    const std::string place = detail::meetingPlaceOf(detail::processEnvironment());
    return nccl.makeEngine(device, launch.rank, launch.size, nccl.makeId(place), place, nullptr);
  }
  return nccl.makeEngine(device, launch.rank, launch.size, idByMpi(launch), "", detail::callRollByMpi);
}

/// NCCL alone compares the GPUs of all ranks: a name such as cuda:0 may be another one for each process.
std::unique_ptr<detail::CollectiveEngine> ncclEngine(const mtl::Device& device,
                                                     const detail::Launch& launch) {
  try {
    return joinByNccl(device, launch);
  } catch (const mtl::Error& error) {
    throw Error(detail::sentenceOfNccl(error.what()));
  }
}

std::unique_ptr<detail::CollectiveEngine> mpiEngine(const detail::Launch& launch) {
  auto engine = detail::makeMpiEngine();
  if (engine->size() != launch.size)
    throw Error("Communicator: the launcher has started " + std::to_string(launch.size) +
                " ranks, but MPI knows of " + std::to_string(engine->size()) +
                ": the two must be of one MPI (of srun: --mpi=pmix)");
  return engine;
}

}  // namespace

std::shared_ptr<Communicator> Communicator::create(const std::shared_ptr<mtl::Device>& device) {
  checkDevice(device);
  return std::make_shared<Communicator>(device, nullptr);
}

std::vector<std::shared_ptr<Communicator>> Communicator::createGroup(
    const std::vector<std::shared_ptr<mtl::Device>>& devices) {
  if (devices.empty()) throw Error("Communicator", "devices", "an empty list", "at least one device");
  std::unordered_set<const mtl::Device*> seen;
  for (const auto& device : devices) {
    checkDevice(device);
    if (isCuda(device) != isCuda(devices.front()))
      throw Error("Communicator", "devices", "CPU and CUDA devices", "of one kind");
    if (!seen.insert(device.get()).second)
      throw Error("Communicator", "devices", device->name() + " twice",
                  "a device for each rank; mtl::newCPUDevice makes them of the CPU");
  }
  std::vector<std::unique_ptr<detail::CollectiveEngine>> engines(1);
  if (devices.size() > 1)
    engines = isCuda(devices.front()) ? nccl.makeEngines(devices)
                                      : detail::makeThreadEngines(static_cast<int>(devices.size()));
  std::vector<std::shared_ptr<Communicator>> communicators;
  for (std::size_t rank = 0; rank < devices.size(); ++rank)
    communicators.push_back(std::make_shared<Communicator>(devices[rank], std::move(engines[rank])));
  return communicators;
}

std::string Communicator::describeLibrary(CommunicatorEngine engine) {
  if (engine == CommunicatorEngine::Mpi) return detail::describeMpi();
  if (engine == CommunicatorEngine::Automatic)
    throw Error("Communicator", "engine", "Automatic", "MPI or NCCL");
  if (!hasNccl) throw Error("NCCL cannot be used: this library was built without CUDA");
  return nccl.describe();
}

std::shared_ptr<Communicator> Communicator::fromEnvironment(const std::shared_ptr<mtl::Device>& device,
                                                            CommunicatorEngine engine) {
  checkDevice(device);
  checkEngine(device, engine);
  const detail::Launch launch = detail::launchOf(detail::processEnvironment());
  if (launch.size == 1 && engine == CommunicatorEngine::Automatic) return create(device);
  if (!isCuda(device) && launch.launcher == detail::Launcher::Torchrun &&
      engine == CommunicatorEngine::Automatic)
    throw Error("Communicator: ranks on CPU devices meet through MPI: launch them with mpirun, not torchrun");
  auto communicator = std::make_shared<Communicator>(
      device, isCuda(device) ? ncclEngine(*device, launch) : mpiEngine(launch));
  communicator->exchangePlaces();
  return communicator;
}

}  // namespace mps
