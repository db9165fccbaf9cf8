#include <atomic>
#include <cstdio>
#include <thread>
#include <utility>

#include "mtl/command.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

/// A mistake that the thread sanitizer must report, or its silence about the tests means nothing: the host
/// touches what a command wrote without waiting for the command buffer. ctest runs it under that sanitizer and
/// expects the report.
int main() {
  const auto device = mtl::newCPUDevice(1);
  const auto buffer = device->newCommandQueue()->commandBuffer();
  alignas(64) int shared = 0;
  // Relaxed: the flags make the order certain without making it known to the memory model. The command waits
  // until commit() has returned, whose locks would order the two accesses where it runs at once. And since the
  // sanitizer remembers four accesses of each 8 bytes, flags that are read many times lie elsewhere.
  alignas(64) std::atomic<bool> isCommitted = false;
  alignas(64) std::atomic<bool> hasRun = false;
  mtl::Command command;
  command.label = "planted race";
  command.run = [&](mtl::Stream&) {
    while (!isCommitted.load(std::memory_order_relaxed)) std::this_thread::yield();
    ++shared;
    hasRun.store(true, std::memory_order_relaxed);
  };
  buffer->append(std::move(command));
  buffer->commit();
  isCommitted.store(true, std::memory_order_relaxed);
  while (!hasRun.load(std::memory_order_relaxed)) std::this_thread::yield();
  ++shared;
  buffer->waitUntilCompleted();
  std::printf("%d without a report\n", shared);
  return 0;
}
