#include "mtl/cpu/device.hpp"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <mutex>

#include "mtl/cpu/memory_pool.hpp"
#include "mtl/cpu/processors.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/error.hpp"
#include "mtl/process_end.hpp"
#include "mtl/submission.hpp"
#include "mtl/worker.hpp"

namespace mtl::cpu {
namespace {

std::size_t physicalMemory() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
}

std::string processorName() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    if (const auto colon = line.find(": "); colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

/// The thread that runs the committed work of all queues of one device, in the order of commit.
class CpuExecutor final : public Executor {
 public:
  explicit CpuExecutor(int threadCount) : state_(std::make_shared<State>(threadCount)) {}

  ~CpuExecutor() override {
    {
      const std::lock_guard lock(state_->mutex);
      state_->stop = true;
    }
    state_->changed.notify_all();
    worker_.join();
  }
  CpuExecutor(const CpuExecutor&) = delete;
  CpuExecutor& operator=(const CpuExecutor&) = delete;

  /// For the first queue of the device: a device that nobody uses has no thread.
  void start() {
    checkProcess();
    const std::lock_guard lock(workerMutex_);
    worker_.start("Device cpu: the executing thread", [state = state_] { loop(state); });
    ProcessEnd::watch();
  }
  void checkProcess() const override {
    const std::lock_guard lock(workerMutex_);
    if (worker_.isOfParent())
      throw Error(
          "Device cpu: used in a child process of the one that has started its thread, which a fork does not "
          "copy; the child can use newCPUDevice");
  }
  void submit(std::shared_ptr<Submission> submission) override {
    {
      const std::lock_guard lock(state_->mutex);
      state_->submissions.push_back(std::move(submission));
    }
    state_->changed.notify_one();
  }

  [[nodiscard]] int threadCount() const { return state_->threadCount; }
  void setThreadCount(int count) { state_->threadCount = count; }

 private:
  struct State {
    explicit State(int threads) : threadCount(threads) {}
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::shared_ptr<Submission>> submissions;
    std::atomic<int> threadCount;
    bool stop = false;
  };

  static void loop(const std::shared_ptr<State>& state) {
    Stream stream(state->threadCount);
    std::unique_lock lock(state->mutex);
    while (true) {
      state->changed.wait(lock, [&] { return state->stop || !state->submissions.empty(); });
      if (state->submissions.empty()) return;
      auto submission = std::move(state->submissions.front());
      state->submissions.pop_front();
      lock.unlock();
      stream.setThreadCount(state->threadCount);
      {
        const ProcessEnd::Guard guard(ProcessEnd::Guard::Kind::Work);
        submission->begin();
        submission->runCommands(stream);
        submission->end();
        submission.reset();
      }
      lock.lock();
    }
  }

  std::shared_ptr<State> state_;
  mutable std::mutex workerMutex_;
  Worker worker_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(int threadCount, std::string nameForMessages)
      : Device("cpu"),
        nameForMessages_(std::move(nameForMessages)),
        pool_(std::make_shared<MemoryPool>(physicalMemory() / 8)),
        executor_(std::make_shared<CpuExecutor>(threadCount)) {}

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::CPU; }
  [[nodiscard]] std::string description() const override { return processorName(); }
  [[nodiscard]] std::size_t recommendedMaxWorkingSetSize() const override { return physicalMemory(); }
  [[nodiscard]] std::size_t currentAllocatedSize() const override { return pool_->liveBytes(); }
  [[nodiscard]] std::size_t systemAllocationCount() const override { return pool_->systemAllocations(); }
  [[nodiscard]] int threadCount() const override { return executor_->threadCount(); }
  void setThreadCount(int count) override {
    if (count < 1) throw Error("Device: threadCount is " + std::to_string(count) + ", expected at least 1");
    executor_->setThreadCount(count);
  }
  std::shared_ptr<Memory> allocate(std::size_t bytes) override { return pool_->allocate(bytes); }
  void releaseRecycledMemory() override { pool_->releaseRecycled(); }
  std::shared_ptr<Executor> newExecutor() override {
    executor_->start();
    return executor_;
  }

  [[nodiscard]] const std::string& nameForMessages() const { return nameForMessages_; }

 private:
  std::string nameForMessages_;
  std::shared_ptr<MemoryPool> pool_;
  std::shared_ptr<CpuExecutor> executor_;
};

}  // namespace

std::shared_ptr<Device> newDevice(int threadCount) {
  static std::atomic<int> made{0};
  return std::make_shared<CpuDevice>(threadCount, "cpu (newCPUDevice " + std::to_string(++made) + ")");
}

std::string nameForMessages(const Device& device) {
  return static_cast<const CpuDevice&>(device).nameForMessages();
}

std::shared_ptr<Device> defaultDevice() {
  static const std::shared_ptr<Device> device = std::make_shared<CpuDevice>(defaultThreadCount(), "cpu");
  return device;
}

}  // namespace mtl::cpu
