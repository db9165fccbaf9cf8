#include "mtl/cuda/nccl.hpp"

#include <link.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace mtl::cuda {
namespace {

constexpr const char* ncclFile = "libnccl.so.2";

struct LoadedFiles {
  std::string nameBegin;
  std::vector<std::string> paths;
};

int addLoadedFile(dl_phdr_info* info, std::size_t /*size*/, void* data) {
  auto& files = *static_cast<LoadedFiles*>(data);
  const std::filesystem::path path = info->dlpi_name == nullptr ? "" : info->dlpi_name;
  if (!path.filename().string().starts_with(files.nameBegin)) return 0;
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  const std::string name = error ? path.string() : real.string();
  if (std::ranges::find(files.paths, name) == files.paths.end()) files.paths.push_back(name);
  return 0;
}

}  // namespace

std::vector<std::string> loadedFiles(const std::string& nameBegin) {
  LoadedFiles files{nameBegin, {}};
  dl_iterate_phdr(addLoadedFile, &files);
  return files.paths;
}

void checkSingle(const LibrarySearch& search, const std::vector<std::string>& files) {
  if (files.size() < 2) return;
  throw Error("there are two copies of " + search.name + " in this process, " + files[0] + " and " +
              files[1] + ": set " + search.variable + " to the one that is loaded first, or leave it unset");
}

LibrarySearch Nccl::search() {
  return {"NCCL 2", ncclFile, "UNMETAL_NCCL", {"nvidia/nccl/lib"}};
}

Nccl::Nccl(const LibrarySearch& search) : library_(search) {
  library_.find(getVersion, "ncclGetVersion");
  library_.find(getUniqueId, "ncclGetUniqueId");
  library_.find(commInitRank, "ncclCommInitRank");
  library_.find(commInitAll, "ncclCommInitAll");
  library_.find(commDestroy, "ncclCommDestroy");
  library_.find(commAbort, "ncclCommAbort");
  library_.find(commGetAsyncError, "ncclCommGetAsyncError");
  library_.find(getErrorString, "ncclGetErrorString");
  library_.find(getLastError, "ncclGetLastError");
  library_.find(groupStart, "ncclGroupStart");
  library_.find(groupEnd, "ncclGroupEnd");
  library_.find(allReduce, "ncclAllReduce");
  library_.find(broadcast, "ncclBroadcast");
  library_.find(allGather, "ncclAllGather");
  checkSingle(search, loadedFiles("libnccl.so"));
}

const Nccl& Nccl::library() {
  return loadedOnce<Nccl>();
}

std::string Nccl::version() const {
  int number = 0;
  check(getVersion(&number), "ncclGetVersion");
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

void Nccl::check(ncclResult_t result, const char* call) const {
  if (result == ncclSuccess) return;
  std::string text = std::string(call) + ": " + getErrorString(result);
  if (const char* const details = getLastError(nullptr); details != nullptr && *details != '\0')
    text += std::string(" (") + details + ")";
  throw Error(text);
}

}  // namespace mtl::cuda
