#include "mps/graph/run/gradient_reduction.hpp"

#include <string>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"
#include "mtl/stream.hpp"

namespace mps::detail {

GradientReduction::GradientReduction(std::shared_ptr<Communicator> communicator, std::size_t count,
                                     std::size_t total)
    : communicator_(std::move(communicator)), count_(count), total_(total) {}

void GradientReduction::add(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                            const std::vector<std::shared_ptr<mtl::Buffer>>& gradients) {
  for (const auto& gradient : gradients) {
    bucket_.push_back(gradient);
    bytes_ += gradient->length();
  }
  if (bytes_ >= bucketBytes) start(commandBuffer);
}

void GradientReduction::start(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  begun_.push_back(communicator_->startAllReduce(commandBuffer, bucket_));
  bucket_.clear();
  bytes_ = 0;
}

void GradientReduction::recordProgress(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) const {
  if (!begun_.empty()) communicator_->recordProgress(commandBuffer);
}

void GradientReduction::finish(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  if (begun_.empty() && bucket_.empty()) return;
  std::shared_ptr<mtl::Buffer> count;
  if (commandBuffer->device()->kind() == mtl::DeviceKind::CPU) {
    count = commandBuffer->device()->newBuffer(sizeof(float));
    count->contentsAs<float>()[0] = static_cast<float>(count_);
    bucket_.push_back(count);
  }
  if (!bucket_.empty()) start(commandBuffer);
  for (const auto& sum : begun_) communicator_->finish(commandBuffer, sum);
  if (count) recordCheck(*commandBuffer, count);
}

void GradientReduction::recordCheck(mtl::CommandBuffer& commandBuffer,
                                    const std::shared_ptr<mtl::Buffer>& count) const {
  mtl::Command command;
  command.label = "NNGraph";
  command.reads = {count->memory()};
  command.run = [count, total = static_cast<float>(total_)](mtl::Stream& /*stream*/) {
    const float found = count->contentsAs<float>()[0];
    if (found != total)
      throw Error("the ranks have " + std::to_string(static_cast<std::size_t>(found)) +
                  " images together, expected " + std::to_string(static_cast<std::size_t>(total)) +
                  ": setBatchShare tells a graph which part of the batch its rank has");
  };
  commandBuffer.append(std::move(command));
}

}  // namespace mps::detail
