#include <mpi.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "mps/distributed/mpi_functions.hpp"

/// The module that stands between the library and one MPI. Calls come from one thread at a time.
namespace mps::detail {
namespace {

std::mutex& mpiMutex() {
  static std::mutex& mutex = *new std::mutex;
  return mutex;
}
std::atomic<bool> isGivenUp = false;

/// Null where a call succeeded, else MPI's words, valid until this thread's next failure.
const char* failureOf(int code) {
  if (code == MPI_SUCCESS) return nullptr;
  thread_local std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return text.data();
}

const char* libraryVersion() {
  static std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  return text.data();
}

/// Errors are returned, not fatal, on a communicator of our own: the program's stays as it is.
MPI_Comm& ranks() {
  static MPI_Comm communicator = MPI_COMM_NULL;
  return communicator;
}

void finalize() {
  int isOver = 0;
  MPI_Finalized(&isOver);
  if (isOver == 0 && !isGivenUp) MPI_Finalize();
}

const char* initialize(int* rank, int* size) {
  const std::lock_guard lock(mpiMutex());
  int isOver = 0;
  MPI_Finalized(&isOver);
  if (isOver != 0) return "MPI was finalised already";
  int isThere = 0;
  MPI_Initialized(&isThere);
  int level = MPI_THREAD_SINGLE;
  if (isThere == 0) {
    if (const char* const failure =
            failureOf(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level)))
      return failure;
    std::atexit(finalize);
    // What MPI notices outside of a call of ours, such as a connection that is gone, must not end the process.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  } else {
    MPI_Query_thread(&level);
  }
  if (level < MPI_THREAD_SERIALIZED)
    return "this MPI serves one thread only (MPI_THREAD_SERIALIZED is missing)";
  if (ranks() == MPI_COMM_NULL) {
    if (const char* const failure = failureOf(MPI_Comm_dup(MPI_COMM_WORLD, &ranks()))) return failure;
    MPI_Comm_set_errhandler(ranks(), MPI_ERRORS_RETURN);
  }
  MPI_Comm_rank(ranks(), rank);
  MPI_Comm_size(ranks(), size);
  return nullptr;
}

/// Calls start(MPI_Request*).
template <class Start>
const char* started(void** request, Start&& start) {
  const std::lock_guard lock(mpiMutex());
  auto own = std::make_unique<MPI_Request>(MPI_REQUEST_NULL);
  if (const char* const failure = failureOf(start(own.get()))) return failure;
  *request = own.release();
  return nullptr;
}

const char* startAllReduce(void* values, int elements, int bytesOfElement, void** request) {
  return started(request, [&](MPI_Request* own) {
    return MPI_Iallreduce(MPI_IN_PLACE, values, elements,
                          bytesOfElement == sizeof(float) ? MPI_FLOAT : MPI_DOUBLE, MPI_SUM, ranks(), own);
  });
}

const char* startAllGather(const void* own, void* all, int bytesOfRank, void** request) {
  int rank = 0;
  MPI_Comm_rank(ranks(), &rank);
  const auto* const place =
      static_cast<std::byte*>(all) + static_cast<std::size_t>(rank) * static_cast<std::size_t>(bytesOfRank);
  return started(request, [&](MPI_Request* made) {
    return MPI_Iallgather(own == place ? MPI_IN_PLACE : own, bytesOfRank, MPI_BYTE, all, bytesOfRank,
                          MPI_BYTE, ranks(), made);
  });
}

const char* startBroadcast(void* bytes, int count, int root, void** request) {
  return started(request,
                 [&](MPI_Request* own) { return MPI_Ibcast(bytes, count, MPI_BYTE, root, ranks(), own); });
}

const char* test(void* request, int* isDone) {
  const std::lock_guard lock(mpiMutex());
  auto* const own = static_cast<MPI_Request*>(request);
  const char* const failure = failureOf(MPI_Test(own, isDone, MPI_STATUS_IGNORE));
  if (failure == nullptr && *isDone != 0) delete own;
  return failure;
}

void giveUp() {
  isGivenUp = true;
}

/// Of messages of a roll call; collective operations have a context of their own.
constexpr int rollTag = 1;

void callRoll() {
  const std::lock_guard lock(mpiMutex());
  static bool isCalled = false;
  if (std::exchange(isCalled, true)) return;
  int own = 0;
  int size = 1;
  MPI_Comm_rank(ranks(), &own);
  MPI_Comm_size(ranks(), &size);
  for (int rank = 0; rank < size; ++rank) {
    if (rank == own) continue;
    MPI_Request request = MPI_REQUEST_NULL;  // a rank that is not there never takes it
    if (MPI_Isend(nullptr, 0, MPI_BYTE, rank, rollTag, ranks(), &request) == MPI_SUCCESS)
      MPI_Request_free(&request);
  }
}

int hearRoll(int* isHere) {
  const std::lock_guard lock(mpiMutex());
  static std::vector<int> heard;
  int own = 0;
  int size = 1;
  MPI_Comm_rank(ranks(), &own);
  MPI_Comm_size(ranks(), &size);
  heard.resize(static_cast<std::size_t>(size));
  heard[static_cast<std::size_t>(own)] = 1;
  for (int isThere = 1; isThere != 0;) {
    MPI_Status status{};
    if (MPI_Iprobe(MPI_ANY_SOURCE, rollTag, ranks(), &isThere, &status) != MPI_SUCCESS || isThere == 0) break;
    MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, rollTag, ranks(), MPI_STATUS_IGNORE);
    heard[static_cast<std::size_t>(status.MPI_SOURCE)] = 1;
  }
  std::ranges::copy(heard, isHere);
  return std::accumulate(heard.begin(), heard.end(), 0);
}

constexpr MpiFunctions functions{MpiFunctions::currentVersion,
                                 libraryVersion,
                                 initialize,
                                 startAllReduce,
                                 startAllGather,
                                 startBroadcast,
                                 test,
                                 giveUp,
                                 callRoll,
                                 hearRoll};

}  // namespace
}  // namespace mps::detail

extern "C" __attribute__((visibility("default"))) const mps::detail::MpiFunctions* unmetalMpiFunctions() {
  return &mps::detail::functions;
}
