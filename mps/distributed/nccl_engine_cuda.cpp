#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mps/distributed/nccl_engine.hpp"
#include "mtl/cuda/api.hpp"
#include "mtl/cuda/executor.hpp"
#include "mtl/cuda/nccl.hpp"
#include "mtl/cuda/stream.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
namespace {

using mtl::cuda::check;
using mtl::cuda::Nccl;

static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));

/// Sets variables that NCCL alone reads, where the user has not, while it reads them; then the environment is as before.
class NcclVariables {
 public:
  explicit NcclVariables(const std::string& meetingPlace = "") : lock_(mutex()) {
    if (!meetingPlace.empty()) set("NCCL_COMM_ID", meetingPlace);
    // Sums in the switch have other bits from run to run.
    set("NCCL_NVLS_ENABLE", "0");
    // One rank may replay what another one runs; memory that a graph registers would be the business of both.
    set("NCCL_GRAPH_REGISTER", "0");
  }
  ~NcclVariables() {
    for (const char* name : set_) unsetenv(name);
  }
  NcclVariables(const NcclVariables&) = delete;
  NcclVariables& operator=(const NcclVariables&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex& mutex = *new std::mutex;
    return mutex;
  }
  void set(const char* name, const std::string& value) {
    if (std::getenv(name) != nullptr) return;
    setenv(name, value.c_str(), 1);
    set_.push_back(name);
  }
  std::lock_guard<std::mutex> lock_;
  std::vector<const char*> set_;
};

ncclDataType_t ncclTypeOf(CollectiveType type) {
  switch (type) {
    case CollectiveType::Float16:
      return ncclFloat16;
    case CollectiveType::Float32:
      return ncclFloat32;
    case CollectiveType::Float64:
      return ncclFloat64;
    case CollectiveType::Byte:
      break;
  }
  return ncclInt8;
}

/// Memory of the device for gatherFromHost.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes) { check(cudaMalloc(&address_, bytes), "cudaMalloc"); }
  ~DeviceBytes() { cudaFree(address_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  [[nodiscard]] std::byte* get() const { return static_cast<std::byte*>(address_); }

 private:
  void* address_ = nullptr;
};

/// Marks a place in a stream.
class Event {
 public:
  Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  [[nodiscard]] bool hasPassed() const { return cudaEventQuery(event_) == cudaSuccess; }
  void makeWait(cudaStream_t stream) { check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent"); }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Collectives that the device has not ended yet, in their order.
class Outstanding {
 public:
  struct Oldest {
    std::string description;
    std::chrono::milliseconds timeout;
    std::chrono::steady_clock::duration age;
  };

  void begin(std::string description, std::chrono::milliseconds timeout, cudaStream_t stream) {
    auto entry = std::make_unique<Entry>(std::move(description), timeout);
    entry->begin.record(stream);
    const std::lock_guard lock(mutex_);
    beginning_ = std::move(entry);
  }
  void end(cudaStream_t stream) {
    const std::lock_guard lock(mutex_);
    beginning_->end.record(stream);
    entries_.push_back(std::move(beginning_));
  }
  /// One that its stream has come to; its age counts from when that was first seen.
  std::optional<Oldest> oldest() {
    const std::lock_guard lock(mutex_);
    while (!entries_.empty() && entries_.front()->end.hasPassed()) entries_.pop_front();
    Entry* const first = entries_.empty() ? beginning_.get() : entries_.front().get();
    if (first == nullptr || !first->begin.hasPassed()) return std::nullopt;
    const auto now = std::chrono::steady_clock::now();
    if (!first->since) first->since = now;
    return Oldest{first->description, first->timeout, now - *first->since};
  }

 private:
  struct Entry {
    Entry(std::string text, std::chrono::milliseconds most) : description(std::move(text)), timeout(most) {}
    std::string description;
    std::chrono::milliseconds timeout;
    Event begin, end;
    std::optional<std::chrono::steady_clock::time_point> since;
  };
  std::mutex mutex_;
  std::unique_ptr<Entry> beginning_;  ///< its call of NCCL may not return
  std::deque<std::unique_ptr<Entry>> entries_;
};

/// NCCL's kernels wait for other ranks for ever: a thread looks at the age of the oldest collective and at what NCCL itself
/// has noticed, and aborts the communicator.
///
/// Of what is captured it knows the launches of the graph alone: the oldest collective is then one of that graph.
class NcclEngine final : public CollectiveEngine, public mtl::cuda::LaunchWatch {
 public:
  NcclEngine(int device, ncclComm_t communicator, int rank, int size, RollCall callRoll)
      : CollectiveEngine(rank, size),
        device_(device),
        communicator_(communicator),
        callRoll_(std::move(callRoll)) {
    const mtl::cuda::CurrentDevice current(device_);
    check(cudaStreamCreateWithFlags(&overlapping_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    watchdog_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  }
  ~NcclEngine() override {
    watchdog_.request_stop();
    watchdog_.join();
    if (!isAborted_.exchange(true)) Nccl::library().commDestroy(communicator_);
    cudaStreamDestroy(overlapping_);
  }
  NcclEngine(const NcclEngine&) = delete;
  NcclEngine& operator=(const NcclEngine&) = delete;

  [[nodiscard]] std::string name() const override { return "NCCL"; }
  void giveUp() override { abort(); }

  std::unique_ptr<PendingCollective> start(mtl::Stream& stream, Collective collective,
                                           bool overlaps) override {
    mtl::cuda::Stream& own = mtl::cuda::asCuda(stream);
    const cudaStream_t main = own.handle();
    if (own.isCaptured())
      own.watchLaunches(*this);
    else
      letFail();
    const auto enqueue = [&](cudaStream_t where) {
      own.isCaptured() ? capture(collective, where) : this->enqueue(collective, where);
    };
    if (!overlaps) {
      enqueue(main);
      return std::make_unique<Pending>();
    }
    Event begin;
    begin.record(main);
    begin.makeWait(overlapping_);
    enqueue(overlapping_);
    auto pending = std::make_unique<Pending>();
    pending->end.emplace();
    pending->end->record(overlapping_);
    return pending;
  }

  void willLaunch(mtl::cuda::Stream& stream, std::size_t count) override {
    letFail();
    outstanding_.begin("one of " + std::to_string(count) + " operations that are replayed", nextTimeout(),
                       stream.handle());
  }
  void didLaunch(mtl::cuda::Stream& stream) override { outstanding_.end(stream.handle()); }

  void gatherFromHost(mtl::Stream& stream, std::vector<std::byte>& own,
                      std::vector<std::byte>& all) override {
    const cudaStream_t main = mtl::cuda::asCuda(stream).handle();
    letFail();
    const DeviceBytes memory(all.size());
    const std::size_t place = own.size() * static_cast<std::size_t>(rank());
    check(cudaMemcpyAsync(memory.get() + place, own.data(), own.size(), cudaMemcpyHostToDevice, main),
          "cudaMemcpyAsync");
    Collective collective;
    collective.kind = CollectiveKind::AllGather;
    collective.arrays = {{memory.get(), all.size()}};
    collective.source = memory.get() + place;
    enqueue(collective, main);
    stream.read(memory.get(), all);
    throwIfFailed();
  }

 private:
  struct Pending final : PendingCollective {
    void finish(mtl::Stream& stream) override {
      if (end) end->makeWait(mtl::cuda::asCuda(stream).handle());
    }
    std::optional<Event> end;  ///< none: on the stream itself
  };

  /// What an aborted communicator leaves in memory is nothing: the command buffer fails behind it.
  void letFail() {
    throwIfFailed();
    mtl::cuda::checkAtEnd(failureCheck());
  }

  void watch(const std::stop_token& stop) {
    constexpr std::chrono::milliseconds pause(50);
    const mtl::cuda::CurrentDevice current(device_);
    while (!stop.stop_requested() && !isAborted_) {
      std::this_thread::sleep_for(pause);
      const auto oldest = outstanding_.oldest();
      if (oldest && oldest->age > oldest->timeout) return failWithout(*oldest);
      ncclResult_t noticed = ncclSuccess;
      if (isAborted_ || Nccl::library().commGetAsyncError(communicator_, &noticed) != ncclSuccess ||
          noticed == ncclSuccess || noticed == ncclInProgress)
        continue;
      fail({(oldest ? oldest->description + ": " : "") + "NCCL: " + Nccl::library().getErrorString(noticed),
            {}});
      return abort();
    }
  }

  void failWithout(const Outstanding::Oldest& oldest) {
    std::vector<int> missing;
    try {
      if (callRoll_) missing = callRoll_(timeOfRollCall(oldest.timeout));
    } catch (const Error&) {
      missing.clear();  // then it is not known who
    }
    fail({oldest.description + ": " + whoDidNotCome(missing, oldest.timeout), missing});
    abort();
  }

  /// Kernels that wait end, and so does a call that waits.
  void abort() {
    if (!isAborted_.exchange(true)) Nccl::library().commAbort(communicator_);
  }

  /// Several arrays are one operation for NCCL.
  void enqueue(const Collective& collective, cudaStream_t stream) {
    outstanding_.begin(collective.describe(), nextTimeout(), stream);
    call(collective, stream);
    outstanding_.end(stream);
  }

  /// NCCL reads the variables once, when it captures for the first time.
  void capture(const Collective& collective, cudaStream_t stream) const {
    static std::once_flag isFirst;
    bool isDone = false;
    std::call_once(isFirst, [&] {
      const NcclVariables variables;
      call(collective, stream);
      isDone = true;
    });
    if (!isDone) call(collective, stream);
  }

  void call(const Collective& collective, cudaStream_t stream) const {
    const Nccl& nccl = Nccl::library();
    const ncclDataType_t type = ncclTypeOf(collective.type);
    nccl.check(nccl.groupStart(), "ncclGroupStart");
    ncclResult_t result = ncclSuccess;
    for (const CollectiveArray& array : collective.arrays) {
      if (result != ncclSuccess) break;
      switch (collective.kind) {
        case CollectiveKind::AllReduce:
          result =
              nccl.allReduce(array.address, array.address, array.count, type, ncclSum, communicator_, stream);
          break;
        case CollectiveKind::AllGather:
          result =
              nccl.allGather(collective.source, array.address, array.count / static_cast<std::size_t>(size()),
                             type, communicator_, stream);
          break;
        case CollectiveKind::Broadcast:
          result = nccl.broadcast(array.address, array.address, array.count, type, collective.root,
                                  communicator_, stream);
          break;
      }
    }
    const ncclResult_t end = nccl.groupEnd();
    nccl.check(result != ncclSuccess ? result : end, collective.describe().c_str());
  }

  int device_;
  ncclComm_t communicator_;
  RollCall callRoll_;
  cudaStream_t overlapping_ = nullptr;
  Outstanding outstanding_;
  std::atomic<bool> isAborted_ = false;
  std::jthread watchdog_;  ///< uses all others
};

}  // namespace

NcclId makeNcclId(const std::string& meetingPlace) {
  const Nccl& nccl = Nccl::library();
  const NcclVariables variables(meetingPlace);
  ncclUniqueId own{};
  nccl.check(nccl.getUniqueId(&own), "ncclGetUniqueId");
  NcclId id{};
  std::memcpy(id.data(), &own, sizeof own);
  return id;
}

std::unique_ptr<CollectiveEngine> makeNcclEngine(const mtl::Device& device, int rank, int size,
                                                 const NcclId& id, const std::string& meetingPlace,
                                                 RollCall callRoll) {
  const Nccl& nccl = Nccl::library();
  const int index = mtl::cuda::deviceIndex(device.name());
  const mtl::cuda::CurrentDevice current(index);
  const NcclVariables variables(meetingPlace);
  ncclUniqueId own{};
  std::memcpy(&own, id.data(), sizeof own);
  ncclComm_t communicator = nullptr;
  nccl.check(nccl.commInitRank(&communicator, size, own, rank), "ncclCommInitRank");
  return std::make_unique<NcclEngine>(index, communicator, rank, size, std::move(callRoll));
}

std::vector<std::unique_ptr<CollectiveEngine>> makeNcclEngines(
    const std::vector<std::shared_ptr<mtl::Device>>& devices) {
  const Nccl& nccl = Nccl::library();
  const NcclVariables variables("");
  const int size = static_cast<int>(devices.size());
  std::vector<int> indices;
  for (const auto& device : devices) indices.push_back(mtl::cuda::deviceIndex(device->name()));
  std::vector<ncclComm_t> communicators(devices.size());
  nccl.check(nccl.commInitAll(communicators.data(), size, indices.data()), "ncclCommInitAll");
  std::vector<std::unique_ptr<CollectiveEngine>> engines;
  for (int rank = 0; rank < size; ++rank) {
    const auto i = static_cast<std::size_t>(rank);
    engines.push_back(std::make_unique<NcclEngine>(indices[i], communicators[i], rank, size, nullptr));
  }
  return engines;
}

std::string describeNccl() {
  const Nccl& nccl = Nccl::library();
  return "NCCL " + nccl.version() + " (" + nccl.path() + ")";
}

}  // namespace mps::detail
