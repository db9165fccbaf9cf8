#include "mtl/cuda/stream.hpp"

#include <algorithm>

#include "mtl/command.hpp"
#include "mtl/cuda/captured_graph.hpp"
#include "mtl/cuda/cudnn.hpp"

namespace mtl::cuda {
namespace {

class Event final : public mtl::Stream::Moment {
 public:
  explicit Event(cudaStream_t stream) {
    check(cudaEventCreate(&event_), "cudaEventCreate");
    if (const cudaError_t code = cudaEventRecord(event_, stream); code != cudaSuccess) {
      cudaEventDestroy(event_);
      check(code, "cudaEventRecord");
    }
  }
  ~Event() override { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  [[nodiscard]] double secondsAfter(const Moment& earlier) const override {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, static_cast<const Event&>(earlier).event_, event_),
          "cudaEventElapsedTime");
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

Stream::Stream() : replays_([this](std::span<Command> commands) { return capture(*this, commands); }) {
  check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}

Stream::~Stream() {
  replays_.clear();
  cudnn_.reset();
  cudaStreamDestroy(handle_);
}

void Stream::read(const std::byte* address, std::span<std::byte> bytes) {
  if (nodes_ != nullptr || update_ != nullptr) throw Error("a result is read inside a captured graph");
  check(cudaMemcpyAsync(bytes.data(), address, bytes.size(), cudaMemcpyDeviceToHost, handle_),
        "cudaMemcpyAsync");
  check(cudaStreamSynchronize(handle_), "cudaStreamSynchronize");
}

void Stream::copy(const std::byte* from, std::byte* to, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, handle_), "cudaMemcpyAsync");
}

void Stream::fill(std::byte* to, std::size_t bytes, std::uint8_t value) {
  check(cudaMemsetAsync(to, value, bytes, handle_), "cudaMemsetAsync");
}

std::unique_ptr<mtl::Stream::Moment> Stream::moment() {
  return std::make_unique<Event>(handle_);
}

const CudnnHandle& Stream::cudnn() {
  if (!cudnn_) cudnn_ = std::make_unique<CudnnHandle>(handle_);
  return *cudnn_;
}

void Stream::watchLaunches(LaunchWatch& watch) {
  const auto found = std::ranges::find(*watches_, &watch, &LaunchWatches::value_type::first);
  if (found == watches_->end())
    watches_->emplace_back(&watch, 1);
  else
    ++found->second;
}

void Stream::launch(const void* kernel, dim3 grid, dim3 block, void** arguments, std::size_t sharedBytes,
                    bool together) {
  if (update_ != nullptr) {
    if (update_->nodes.empty()) throw Error("a captured command launches more kernels than before");
    cudaKernelNodeParams node{};
    node.func = const_cast<void*>(kernel);
    node.gridDim = grid;
    node.blockDim = block;
    node.sharedMemBytes = static_cast<unsigned>(sharedBytes);
    node.kernelParams = arguments;
    check(cudaGraphExecKernelNodeSetParams(update_->graph, update_->nodes.front(), &node),
          "cudaGraphExecKernelNodeSetParams");
    update_->nodes = update_->nodes.subspan(1);
    return;
  }
  if (together)
    check(cudaLaunchCooperativeKernel(kernel, grid, block, arguments, sharedBytes, handle_),
          "cudaLaunchCooperativeKernel");
  else
    check(cudaLaunchKernel(kernel, grid, block, arguments, sharedBytes, handle_), "cudaLaunchKernel");
  if (nodes_ != nullptr) collectNodesOf(handle_, *nodes_);
}

}  // namespace mtl::cuda
