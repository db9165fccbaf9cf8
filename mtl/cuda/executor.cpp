#include "mtl/cuda/executor.hpp"

#include <bit>
#include <cstdint>
#include <utility>

#include "mtl/command_queue.hpp"
#include "mtl/error.hpp"
#include "mtl/process_end.hpp"

namespace mtl::cuda {
namespace {

/// An exit handler of ours after those that the driver and the libraries have registered by then: when an encode has loaded
/// them, and while they work, most of them in the first launches. @param count of commits or launches
void watch(std::uint64_t& count) {
  constexpr std::uint64_t watched = 64;
  if (++count <= watched && std::has_single_bit(count)) ProcessEnd::watch();
}

/// The end waits for guards alone: what a guard finds behind its beginning must not call CUDA, whose own objects go.
CommandBufferError processIsEnding(const std::string& device) {
  return {CommandBufferErrorCode::AccessRevoked,
          device + ": the process is ending, before this work was done"};
}

/// Of the command buffer that this thread launches.
thread_local std::vector<std::function<void()>> checksOfCommands;

}  // namespace

void checkAtEnd(std::function<void()> check) {
  checksOfCommands.push_back(std::move(check));
}

class Engine::QueueExecutor final : public Executor {
 public:
  QueueExecutor(std::shared_ptr<Engine> engine, std::unique_ptr<Stream> stream)
      : engine_(std::move(engine)), stream_(std::move(stream)) {}
  /// All work of the queue has ended: each submission keeps its queue, and the queue keeps this.
  ~QueueExecutor() override {
    stream_->replays().clear();
    const std::lock_guard lock(engine_->mutex_);
    engine_->idleStreams_.push_back(std::move(stream_));
  }
  QueueExecutor(const QueueExecutor&) = delete;
  QueueExecutor& operator=(const QueueExecutor&) = delete;

  void checkProcess() const override { engine_->checkProcess(); }
  void submit(std::shared_ptr<Submission> submission) override {
    engine_->submit({std::move(submission), stream_.get(), nullptr, nullptr, std::nullopt, {}});
  }

 private:
  std::shared_ptr<Engine> engine_;
  std::unique_ptr<Stream> stream_;
};

Engine::Engine(int device, std::shared_ptr<MemoryPool> pool)
    : device_(device), name_("cuda:" + std::to_string(device)), pool_(std::move(pool)) {}

std::shared_ptr<Executor> Engine::newExecutor() {
  start();
  std::unique_ptr<Stream> stream;
  {
    const std::lock_guard lock(mutex_);
    if (!idleStreams_.empty()) {
      stream = std::move(idleStreams_.back());
      idleStreams_.pop_back();
    }
  }
  if (!stream) {
    const CurrentDevice current(device_);
    stream = std::make_unique<Stream>();
  }
  return std::make_shared<QueueExecutor>(shared_from_this(), std::move(stream));
}

void Engine::start() {
  checkProcess();
  const std::lock_guard lock(workersMutex_);
  launcher_.start("Device " + name_ + ": the launching thread",
                  [self = shared_from_this()] { self->launchLoop(); });
  completer_.start("Device " + name_ + ": the completing thread",
                   [self = shared_from_this()] { self->completionLoop(); });
  ProcessEnd::watch();
}

void Engine::checkProcess() const {
  const std::lock_guard lock(workersMutex_);
  if (launcher_.isOfParent())
    throw Error(
        "Device " + name_ +
        ": used in a child process of the one that has started its threads, which a fork does not copy");
}

void Engine::submit(Work work) {
  {
    const std::lock_guard lock(mutex_);
    watch(commits_);
    toLaunch_.push_back(std::move(work));
  }
  committed_.notify_one();
}

void Engine::launchLoop() {
  cudaSetDevice(device_);
  std::unique_lock lock(mutex_);
  while (true) {
    committed_.wait(lock, [&] { return !toLaunch_.empty(); });
    Work work = std::move(toLaunch_.front());
    toLaunch_.pop_front();
    lock.unlock();
    {
      const ProcessEnd::Guard guard(ProcessEnd::Guard::Kind::Work);
      launch(work);
    }
    watch(launches_);
    lock.lock();
    toFinish_.push_back(std::move(work));
    launched_.notify_one();
  }
}

void Engine::launch(Work& work) {
  work.submission->begin();
  {
    const std::lock_guard lock(mutex_);
    work.failure = fatal_;
  }
  if (work.failure) return;
  if (ProcessEnd::hasBegun()) {
    work.submission->runCommands(*work.stream);  // which names each as not run
    work.failure = processIsEnding(name_);
    return;
  }
  try {
    pool_->uploads().letWait(*work.stream);
    work.started = takeEvent();
    work.done = takeEvent();
    check(cudaEventRecord(work.started, work.stream->handle()), "cudaEventRecord");
    checksOfCommands.clear();  // of a command buffer that has failed on the way
    work.submission->runCommands(*work.stream);
    work.checks = std::exchange(checksOfCommands, {});
    check(cudaEventRecord(work.done, work.stream->handle()), "cudaEventRecord");
  } catch (const CudaError& error) {
    work.failure = report(error.code());
  } catch (const std::exception& error) {
    work.failure = CommandBufferError{CommandBufferErrorCode::Internal, name_ + ": " + error.what()};
  }
}

std::optional<CommandBufferError> Engine::finish(const Work& work) {
  if (work.failure) return work.failure;
  if (ProcessEnd::hasBegun()) return processIsEnding(name_);
  const cudaError_t code = cudaEventSynchronize(work.done);
  if (code != cudaSuccess) return report(code);
  try {
    for (const auto& check : work.checks) check();
  } catch (const std::exception& error) {
    return CommandBufferError{CommandBufferErrorCode::Internal, name_ + ": " + error.what()};
  }
  return std::nullopt;
}

std::optional<double> Engine::deviceSeconds(const Work& work) {
  float milliseconds = 0;
  if (cudaEventElapsedTime(&milliseconds, work.started, work.done) != cudaSuccess) return std::nullopt;
  return milliseconds * 1e-3;
}

CommandBufferError Engine::report(cudaError_t code) {
  CommandBufferError error{commandBufferError(code), name_ + ": " + describe(code)};
  const std::lock_guard lock(mutex_);
  if (isFatal(code) && !fatal_)
    fatal_ = CommandBufferError{
        CommandBufferErrorCode::DeviceRemoved,
        name_ + " cannot be used any more by this process, because earlier work failed: " + describe(code)};
  return error;
}

cudaEvent_t Engine::takeEvent() {
  {
    const std::lock_guard lock(mutex_);
    if (!idleEvents_.empty()) {
      const cudaEvent_t event = idleEvents_.back();
      idleEvents_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventBlockingSync), "cudaEventCreateWithFlags");
  return event;
}

void Engine::completionLoop() {
  cudaSetDevice(device_);
  std::unique_lock lock(mutex_);
  while (true) {
    launched_.wait(lock, [&] { return !toFinish_.empty(); });
    Work work = std::move(toFinish_.front());
    toFinish_.pop_front();
    lock.unlock();
    {
      const ProcessEnd::Guard guard(ProcessEnd::Guard::Kind::Work);
      const std::optional<CommandBufferError> failure = finish(work);
      work.submission->end(failure, failure ? std::nullopt : deviceSeconds(work));
      work.submission.reset();
    }
    lock.lock();
    for (const cudaEvent_t event : {work.started, work.done})
      if (event != nullptr) idleEvents_.push_back(event);
  }
}

}  // namespace mtl::cuda
