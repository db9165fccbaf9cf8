#pragma once

#include <cuda_runtime_api.h>
#if __has_include(<nccl.h>)
#include <nccl.h>
#else
#include <cstddef>
// What we use of NCCL 2's header, for building where it is not installed.
extern "C" {
using ncclComm_t = struct ncclComm*;
inline constexpr int unmetalNcclIdBytes = 128;
struct ncclUniqueId {
  char internal[unmetalNcclIdBytes];
};
enum ncclResult_t { ncclSuccess = 0, ncclInProgress = 7 };
enum ncclDataType_t { ncclInt8 = 0, ncclFloat16 = 6, ncclFloat32 = 7, ncclFloat64 = 8 };
enum ncclRedOp_t { ncclSum = 0 };
ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int size, ncclUniqueId id, int rank);
ncclResult_t ncclCommInitAll(ncclComm_t* communicators, int count, const int* devices);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);
ncclResult_t ncclCommAbort(ncclComm_t communicator);
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t communicator);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream);
}
#endif

#include <string>
#include <vector>

#include "mtl/cuda/shared_library.hpp"

/// NCCL 2, found at run time. Engine-internal.
namespace mtl::cuda {

/// The functions that we call.
class Nccl {
 public:
  /// The library of this process, loaded by the first call. @throws Error, every time, when it cannot be loaded, and where
  /// the process has another one.
  static const Nccl& library();
  static LibrarySearch search();

  explicit Nccl(const LibrarySearch& search);

  /// @throws Error that names `call`, with NCCL's last words, when it did not succeed.
  void check(ncclResult_t result, const char* call) const;
  /// "2.28.3".
  [[nodiscard]] std::string version() const;
  [[nodiscard]] const std::string& path() const { return library_.path(); }

  decltype(::ncclGetVersion)* getVersion = nullptr;
  decltype(::ncclGetUniqueId)* getUniqueId = nullptr;
  decltype(::ncclCommInitRank)* commInitRank = nullptr;
  decltype(::ncclCommInitAll)* commInitAll = nullptr;
  decltype(::ncclCommDestroy)* commDestroy = nullptr;
  decltype(::ncclCommAbort)* commAbort = nullptr;
  decltype(::ncclCommGetAsyncError)* commGetAsyncError = nullptr;
  decltype(::ncclGetErrorString)* getErrorString = nullptr;
  decltype(::ncclGetLastError)* getLastError = nullptr;
  decltype(::ncclGroupStart)* groupStart = nullptr;
  decltype(::ncclGroupEnd)* groupEnd = nullptr;
  decltype(::ncclAllReduce)* allReduce = nullptr;
  decltype(::ncclBroadcast)* broadcast = nullptr;
  decltype(::ncclAllGather)* allGather = nullptr;

 private:
  SharedLibrary library_;
};

/// Paths of the files in this process whose name begins so: copies of one library. Each file once.
std::vector<std::string> loadedFiles(const std::string& nameBegin);

/// @throws Error that names both when there are several copies of a library, which share no state
void checkSingle(const LibrarySearch& search, const std::vector<std::string>& files);

}  // namespace mtl::cuda
