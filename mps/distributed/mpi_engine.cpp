#include "mps/distributed/mpi_engine.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mps/core/types/float16.hpp"
#include "mps/distributed/mpi_functions.hpp"

namespace mps::detail {
namespace {

constexpr const char* moduleFile = "libunmetal_mpi.so";

/// The module, opened; stays so: MPI's threads may run until the process ends.
class MpiModule {
 public:
  /// @throws Error, every time, when it cannot be opened
  static const MpiModule& library() {
    static std::mutex& mutex = *new std::mutex;
    static const MpiModule*& opened = *new const MpiModule*(nullptr);
    const std::lock_guard lock(mutex);
    if (opened == nullptr) opened = new MpiModule;
    return *opened;
  }

  [[nodiscard]] const MpiFunctions& functions() const { return *functions_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  MpiModule() {
    void* const handle = open();
    const auto get =
        reinterpret_cast<const MpiFunctions* (*)()>(dlsym(handle, MpiFunctions::symbol));  // NOLINT
    functions_ = get != nullptr ? get() : nullptr;
    if (functions_ == nullptr || functions_->version != MpiFunctions::currentVersion)
      throw Error("MPI: " + path_ + " is of another version of unmetal; build the two together");
  }

  void* open() {
    // Open MPI's own plugins need its symbols.
    constexpr int flags = RTLD_NOW | RTLD_GLOBAL;
    const char* const told = std::getenv("UNMETAL_MPI");
    std::string why;
    const auto tryPath = [&](const std::string& path) -> void* {
      void* const handle = dlopen(path.c_str(), flags);
      if (handle != nullptr)
        path_ = path;
      else if (const char* const error = dlerror(); error != nullptr && why.empty())
        why = error;
      return handle;
    };
    if (told != nullptr && *told != '\0') {
      if (void* const handle = tryPath(told)) return handle;
      throw Error("MPI cannot be used: the module cannot be loaded from where UNMETAL_MPI says: " + why);
    }
    const std::string own = ownFolder();
    for (const std::string& folder : {own, own + "../lib/", own + "../lib64/", std::string()}) {
      why.clear();
      if (void* const handle = tryPath(folder + moduleFile)) return handle;
    }
    throw Error("MPI cannot be used: its module is missing (" + why +
                "); build unmetal where MPI is installed, or set UNMETAL_MPI to the path of " + moduleFile);
  }

  /// Of the file that this code is in.
  static std::string ownFolder() {
    Dl_info own{};
    if (dladdr(reinterpret_cast<const void*>(&makeMpiEngine), &own) == 0 || own.dli_fname == nullptr)
      return "";
    const std::string file = own.dli_fname;
    return file.substr(0, file.rfind('/') + 1);
  }

  const MpiFunctions* functions_ = nullptr;
  std::string path_;
};

void check(const char* failure) {
  if (failure != nullptr) throw Error(std::string("MPI: ") + failure);
}

/// More than one call of MPI takes.
constexpr std::size_t mostOfOneCall = std::size_t{1} << 28U;

/// The operations of MPI that one collective consists of.
class Requests {
 public:
  Requests(const MpiFunctions& functions, int rankCount) : functions_(functions), rankCount_(rankCount) {}
  ~Requests() {
    if (!requests_.empty()) functions_.giveUp();
  }
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  void start(const Collective& collective) {
    switch (collective.kind) {
      case CollectiveKind::AllReduce:
        for (const CollectiveArray& array : collective.arrays)
          forParts(array.count, [&](std::size_t first, int count, void** request) {
            const std::size_t size = sizeOf(collective.type);
            return functions_.startAllReduce(array.address + first * size, count, static_cast<int>(size),
                                             request);
          });
        break;
      case CollectiveKind::AllGather:
        // In one part: parts of ranks would not lie one after the other.
        add([&](void** request) {
          return functions_.startAllGather(collective.source, collective.arrays[0].address,
                                           static_cast<int>(gatheredBytes(collective)), request);
        });
        break;
      case CollectiveKind::Broadcast:
        for (const CollectiveArray& array : collective.arrays)
          forParts(array.count, [&](std::size_t first, int count, void** request) {
            return functions_.startBroadcast(array.address + first, count, collective.root, request);
          });
        break;
    }
  }

  /// Whether all have ended.
  bool test() {
    while (!requests_.empty()) {
      int isDone = 0;
      check(functions_.test(requests_.front(), &isDone));
      if (isDone == 0) return false;
      requests_.erase(requests_.begin());
    }
    return true;
  }

 private:
  template <class Start>
  void add(Start&& start) {
    void* request = nullptr;
    check(start(&request));
    requests_.push_back(request);
  }
  template <class Start>
  void forParts(std::size_t count, Start&& start) {
    for (std::size_t first = 0; first < count; first += mostOfOneCall)
      add([&](void** request) {
        return start(first, static_cast<int>(std::min(mostOfOneCall, count - first)), request);
      });
  }
  [[nodiscard]] std::size_t gatheredBytes(const Collective& collective) const {
    const std::size_t bytes = collective.arrays[0].count / static_cast<std::size_t>(rankCount_);
    if (bytes > mostOfOneCall)
      throw Error("MPI: an all-gather of " + std::to_string(bytes) + " bytes of each rank, at most " +
                  std::to_string(mostOfOneCall) + " are possible");
    return bytes;
  }

  const MpiFunctions& functions_;
  int rankCount_;
  std::vector<void*> requests_;
};

/// The arrays of a collective as one in memory of its own: one message, and memory that MPI may use for as long as it likes.
/// Float16 is summed as float32, which MPI knows.
class Staged {
 public:
  Staged(const Collective& collective, std::size_t rank, std::size_t size)
      : arrays_(collective.arrays), staged_(collective) {
    if (collective.type == CollectiveType::Float16) staged_.type = CollectiveType::Float32;
    const std::size_t elements = collective.elements();
    values_.resize(elements * sizeOf(staged_.type));
    staged_.arrays = {{values_.data(), elements}};
    if (collective.kind == CollectiveKind::AllGather) {
      const std::size_t bytes = elements / size;
      staged_.source = values_.data() + rank * bytes;
      std::memcpy(values_.data() + rank * bytes, collective.source, bytes);
    } else if (collective.type == CollectiveType::Float16) {
      forElements([](Float16& own, float& staged) { staged = toFloat(own); });
    } else {
      forArrays(
          [](std::byte* own, std::byte* staged, std::size_t bytes) { std::memcpy(staged, own, bytes); });
    }
    isFloat16_ = collective.type == CollectiveType::Float16;
  }

  [[nodiscard]] const Collective& collective() const { return staged_; }

  /// Back to where they came from.
  void unpack() {
    if (isFloat16_)
      forElements([](Float16& own, float& staged) { own = toFloat16(staged); });
    else
      forArrays(
          [](std::byte* own, std::byte* staged, std::size_t bytes) { std::memcpy(own, staged, bytes); });
  }

 private:
  template <class Function>
  void forElements(Function&& function) {
    auto* staged = reinterpret_cast<float*>(values_.data());
    for (const CollectiveArray& array : arrays_) {
      auto* own = reinterpret_cast<Float16*>(array.address);
      for (std::size_t i = 0; i < array.count; ++i) function(own[i], *staged++);
    }
  }
  template <class Function>
  void forArrays(Function&& function) {
    std::byte* staged = values_.data();
    for (const CollectiveArray& array : arrays_) {
      const std::size_t bytes = array.count * sizeOf(staged_.type);
      function(array.address, staged, bytes);
      staged += bytes;
    }
  }

  std::vector<CollectiveArray> arrays_;
  Collective staged_;
  std::vector<std::byte> values_;
  bool isFloat16_ = false;
};

/// Tells the others that this rank is there, and listens. @return who is not
std::vector<int> missingRanks(const MpiFunctions& functions, int size, std::chrono::milliseconds most) {
  const auto end = std::chrono::steady_clock::now() + most;
  functions.callRoll();
  std::vector<int> isHere(static_cast<std::size_t>(size));
  while (functions.hearRoll(isHere.data()) < size && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::vector<int> missing;
  for (int rank = 0; rank < size; ++rank)
    if (isHere[static_cast<std::size_t>(rank)] == 0) missing.push_back(rank);
  return missing;
}

class MpiEngine final : public CollectiveEngine {
 public:
  MpiEngine(const MpiFunctions& functions, int rank, int size)
      : CollectiveEngine(rank, size), functions_(functions) {}

  [[nodiscard]] std::string name() const override { return "MPI"; }
  [[nodiscard]] bool needsProgress() const override { return true; }
  void giveUp() override { functions_.giveUp(); }
  void progress() override {
    for (Pending* pending : underWay_) pending->test();
  }

  std::unique_ptr<PendingCollective> start(mtl::Stream& /*stream*/, Collective collective,
                                           bool /*overlaps*/) override {
    throwIfFailed();
    return std::make_unique<Pending>(*this, collective, nextTimeout());
  }

 private:
  class Pending final : public PendingCollective {
   public:
    Pending(MpiEngine& engine, const Collective& collective, std::chrono::milliseconds timeout)
        : engine_(engine),
          description_(collective.describe()),
          timeout_(timeout),
          staged_(std::make_unique<Staged>(collective, static_cast<std::size_t>(engine.rank()),
                                           static_cast<std::size_t>(engine.size()))),
          requests_(engine.functions_, engine.size()) {
      requests_.start(staged_->collective());
      engine_.underWay_.push_back(this);
    }
    ~Pending() override {
      std::erase(engine_.underWay_, this);
      if (isDone_) return;
      engine_.fail({description_ + ": this rank's command buffer failed before its end", {}});
      (void)staged_.release();  // MPI goes on to use the memory
    }
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;

    bool test() {
      try {
        isDone_ = isDone_ || requests_.test();
      } catch (const Error& error) {
        engine_.fail({description_ + ": " + error.what(), {}});
        throw;
      }
      return isDone_;
    }

    void finish(mtl::Stream& /*stream*/) override {
      wait();
      staged_->unpack();
    }

   private:
    void wait() {
      constexpr auto busy = std::chrono::microseconds(100);  // then others need the processor more
      constexpr auto listening = std::chrono::milliseconds(50);
      const auto begin = std::chrono::steady_clock::now();
      auto nextListening = listening;
      while (!test()) {
        const auto waited = std::chrono::steady_clock::now() - begin;
        if (waited > nextListening) {
          if (waited > timeout_ || engine_.ranksHeard() > 1) engine_.failByRollCall(description_, timeout_);
          nextListening += listening;
        }
        if (waited > busy)
          std::this_thread::sleep_for(busy);
        else
          std::this_thread::yield();
      }
    }

    MpiEngine& engine_;
    std::string description_;
    std::chrono::milliseconds timeout_;
    std::unique_ptr<Staged> staged_;
    Requests requests_;
    bool isDone_ = false;
  };

  /// How many ranks have called the roll, with this one.
  [[nodiscard]] int ranksHeard() const {
    std::vector<int> isHere(static_cast<std::size_t>(size()));
    return functions_.hearRoll(isHere.data());
  }

  /// Finds out who is missing. @throws Error that says it
  void failByRollCall(const std::string& description, std::chrono::milliseconds timeout) {
    const bool isLate =
        ranksHeard() > 1;  // where nobody is missing in the end, others have waited for this one
    const std::vector<int> missing = missingRanks(functions_, size(), timeOfRollCall(timeout));
    if (missing.empty() && isLate)
      fail({description + ": this rank came too late, the others have ended without it", {rank()}});
    else
      fail({description + ": " + whoDidNotCome(missing, timeout), missing});
    throwIfFailed();
  }

  const MpiFunctions& functions_;
  std::vector<Pending*> underWay_;
};

/// Initialises MPI. @return rank and number of ranks
std::pair<int, int> initializeMpi() {
  int rank = 0;
  int size = 1;
  check(MpiModule::library().functions().initialize(&rank, &size));
  return {rank, size};
}

}  // namespace

std::unique_ptr<CollectiveEngine> makeMpiEngine() {
  const auto [rank, size] = initializeMpi();
  return std::make_unique<MpiEngine>(MpiModule::library().functions(), rank, size);
}

std::vector<std::string> gatherByMpi(const std::string& text) {
  constexpr std::size_t bytesOfRank = 1024;
  constexpr auto most = std::chrono::minutes(5);
  const auto [rank, size] = initializeMpi();
  std::vector<char> all(bytesOfRank * static_cast<std::size_t>(size));
  const auto length = static_cast<std::uint32_t>(std::min(text.size(), bytesOfRank - sizeof(std::uint32_t)));
  char* const own = all.data() + bytesOfRank * static_cast<std::size_t>(rank);
  std::memcpy(own, &length, sizeof length);
  std::ranges::copy(text.substr(0, length), own + sizeof length);
  Requests requests(MpiModule::library().functions(), size);
  Collective collective;
  collective.kind = CollectiveKind::AllGather;
  collective.arrays = {{reinterpret_cast<std::byte*>(all.data()), all.size()}};
  collective.source = reinterpret_cast<const std::byte*>(own);
  requests.start(collective);
  const auto end = std::chrono::steady_clock::now() + most;
  while (!requests.test()) {
    if (std::chrono::steady_clock::now() > end)
      throw Error("MPI: not all of the " + std::to_string(size) + " ranks have begun within 5 minutes");
    std::this_thread::yield();
  }
  std::vector<std::string> texts;
  for (std::size_t first = 0; first < all.size(); first += bytesOfRank) {
    std::uint32_t count = 0;
    std::memcpy(&count, &all[first], sizeof count);
    texts.emplace_back(&all[first + sizeof count], count);
  }
  return texts;
}

std::vector<int> callRollByMpi(std::chrono::milliseconds most) {
  const int size = initializeMpi().second;
  return missingRanks(MpiModule::library().functions(), size, most);
}

std::string describeMpi() {
  const MpiModule& module = MpiModule::library();
  const std::string version = module.functions().libraryVersion();
  return version.substr(0, version.find('\n')) + " (" + module.path() + ")";
}

}  // namespace mps::detail
