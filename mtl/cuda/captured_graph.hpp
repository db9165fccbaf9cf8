#pragma once

#include <memory>
#include <span>
#include <vector>

#include "mtl/command.hpp"
#include "mtl/cuda/stream.hpp"
#include "mtl/replay_cache.hpp"

namespace mtl::cuda {

/// Commands as one CUDA graph, captured from a stream in thread-local mode; null when one of them does what no
/// graph can hold, which UNMETAL_VERBOSE=dispatch tells. Engine-internal.
std::unique_ptr<ReplayCache::Recording> capture(Stream& stream, std::span<Command> commands);

/// Adds the node that the stream's last launch became, while it is captured.
void collectNodesOf(cudaStream_t stream, std::vector<cudaGraphNode_t>& nodes);

/// Waits until all that a device was given before has run, on every stream. No thread captures meanwhile: a device must not
/// be waited for while one of its streams captures, or both fail.
void waitForDevice(int device);

}  // namespace mtl::cuda
