#pragma once

#include <cstddef>

/// What libunmetal_mpi.so offers to the library, which is built without MPI. The library's own; plain C, so that the module
/// can be built with another MPI.
namespace mps::detail {

struct MpiFunctions {
  static constexpr int currentVersion = 2;
  static constexpr const char* symbol = "unmetalMpiFunctions";

  /// Of this struct; first, and never moved.
  int version;
  /// MPI's own name and version.
  const char* (*libraryVersion)();
  /// Initialises MPI, unless the program has, and finalises it at the end of the process then.
  /// @return null, or why it failed
  const char* (*initialize)(int* rank, int* size);
  /// @name Start an operation among all ranks; `elements` of float32 (4 bytes) or float64 (8 bytes), in place
  /// @return null, or why it failed. @param[out] request for test()
  /// @{
  const char* (*startAllReduce)(void* values, int elements, int bytesOfElement, void** request);
  const char* (*startAllGather)(const void* own, void* all, int bytesOfRank, void** request);
  const char* (*startBroadcast)(void* bytes, int count, int root, void** request);
  /// @}
  /// Goes on with an operation. @param[out] isDone whether it has ended; the request is gone then
  const char* (*test)(void* request, int* isDone);
  /// An operation will never end, or need not: MPI is not finalised, because that would wait for others.
  void (*giveUp)();
  /// @name A roll call, with which ranks that have waited too long find out which others are there
  /// @{
  /// Tells all other ranks once that this one is there.
  void (*callRoll)();
  /// Sets isHere[rank] to 1 for each rank that has told so, and for this one. @return how many these are
  int (*hearRoll)(int* isHere);
  /// @}
};

}  // namespace mps::detail
