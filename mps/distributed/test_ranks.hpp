#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "mps/distributed/communicator.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

/// Ranks for tests: threads of one process, each with a CPU device.
namespace mps::test {

inline std::vector<std::shared_ptr<Communicator>> ranks(std::size_t size) {
  std::vector<std::shared_ptr<mtl::Device>> devices;
  for (std::size_t i = 0; i < size; ++i) devices.push_back(mtl::newCPUDevice(1));
  return Communicator::createGroup(devices);
}

/// Calls the function for each rank on a thread of its own. @return what each threw; empty where nothing
inline std::vector<std::string> runRanks(
    const std::vector<std::shared_ptr<Communicator>>& communicators,
    const std::function<void(const std::shared_ptr<Communicator>&)>& function) {
  std::vector<std::string> errors(communicators.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < communicators.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        function(communicators[rank]);
      } catch (const std::exception& exception) {
        errors[rank] = exception.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void runAll(const std::vector<std::shared_ptr<Communicator>>& communicators,
                   const std::function<void(const std::shared_ptr<Communicator>&)>& function) {
  for (const std::string& error : runRanks(communicators, function)) EXPECT_EQ(error, "");
}

/// Encodes on a command buffer of the rank's device, and waits.
inline void encodeNow(
    const Communicator& communicator,
    const std::function<void(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer)>& encode) {
  const auto commandBuffer = communicator.device()->newCommandQueue()->commandBuffer();
  encode(commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

}  // namespace mps::test
