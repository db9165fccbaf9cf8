#include "mps/convolution/cuda/convolution_timing_cuda.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "mtl/cuda/device.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail::cuda {
namespace {

std::size_t bytesOf(const TensorShape& shape) {
  if (shape.elements() == 0) return 0;
  const std::int64_t last =
      shape.offset(shape.images - 1, shape.height - 1, shape.width - 1, shape.channels - 1);
  return static_cast<std::size_t>(last + 1) * bytesPerChannel(shape.format);
}

/// A moment on a stream.
class Event {
 public:
  Event() { mtl::cuda::check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const mtl::cuda::Stream& stream) {
    mtl::cuda::check(cudaEventRecord(event_, stream.handle()), "cudaEventRecord");
  }
  /// Waits for this one.
  [[nodiscard]] double millisecondsSince(const Event& start) const {
    float milliseconds = 0;
    mtl::cuda::check(cudaEventSynchronize(event_), "cudaEventSynchronize");
    mtl::cuda::check(cudaEventElapsedTime(&milliseconds, start.event_, event_), "cudaEventElapsedTime");
    return milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

ConvolutionTimer::ConvolutionTimer(std::shared_ptr<mtl::Device> device, const ConvolutionProblem& problem)
    : device_(std::move(device)) {
  const auto floats = [&](std::int64_t count) {
    return allocate(static_cast<std::size_t>(count) * sizeof(float));
  };
  operands_.source = allocate(bytesOf(problem.source));
  operands_.gradient = allocate(bytesOf(problem.gradient));
  operands_.destination = allocate(bytesOf(problem.destination));
  operands_.parameters = {floats(problem.weightCount()), floats(problem.biasCount()),
                          floats(problem.weightCount()), floats(problem.biasCount())};
  operands_.accumulate = problem.accumulate;
}

std::byte* ConvolutionTimer::allocate(std::size_t bytes) {
  // Small numbers, as float32 and as float16: zeros would take less power.
  constexpr int kPattern = 0x2C;
  memory_.push_back(device_->allocate(std::max<std::size_t>(bytes, 1)));
  mtl::cuda::check(cudaMemset(memory_.back()->address(), kPattern, bytes), "cudaMemset");
  return memory_.back()->address();
}

double ConvolutionTimer::milliseconds(const Plan& plan, double best) {
  constexpr double kHopeless = 3;
  const std::shared_ptr<mtl::Memory> scratch =
      device_->allocate(std::max<std::size_t>(plan.scratchBytes(), 1));
  Operands operands = operands_;
  operands.scratch = scratch->address();
  Event start;
  Event end;
  const auto run = [&] {
    start.record(stream_);
    plan.run(stream_, operands);
    end.record(stream_);
    return end.millisecondsSince(start);
  };
  run();
  const double second = run();
  if (second > kHopeless * best) return second;
  std::array<double, 11> times{};
  for (double& time : times) time = run();
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

std::string CudaCandidates::device() const {
  return mtl::cuda::device(mtl::cuda::deviceIndex(problem_.deviceName))->description();
}

double CudaCandidates::milliseconds(const Plan& plan, double best) {
  if (!timer_) timer_.emplace(mtl::cuda::device(mtl::cuda::deviceIndex(problem_.deviceName)), problem_);
  return timer_->milliseconds(plan, best);
}

}  // namespace mps::detail::cuda
