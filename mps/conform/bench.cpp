#include "mps/conform/bench.hpp"

#include <algorithm>
#include <utility>

#include "mps/conform/run_on_device.hpp"
#include "mps/conform/text.hpp"
#include "mps/core/no_implementation.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {

std::string BenchKey::describe() const {
  return kernel + " " + name(direction) + " " + mps::name(format) + " " + shape + " batch " +
         std::to_string(batch);
}

Bench::Bench(BenchOptions options) : options_(std::move(options)) {
  if (!options_.device) throw Error("Bench", "device", "null", "a device");
  machine_ = options_.machine ? *options_.machine : measureMachine(options_.device);
}

bool Bench::isSelected(const std::string& key) const {
  return containsIgnoringCase(key, options_.filter);
}

bool Bench::filterHas(const std::string& words) const {
  return containsIgnoringCase(options_.filter, words);
}

void Bench::family(void (*benchFamily)(Bench&)) {
  try {
    benchFamily(*this);
  } catch (const NoImplementation& error) {
    if (device()->kind() == mtl::DeviceKind::CPU) throw;
    missing_.emplace_back(error.what());
  }
}

std::int64_t Bench::batchFor(std::size_t bytesPerImage) const {
  const std::size_t wanted =
      options_.workingSetBytes > 0 ? options_.workingSetBytes : largeWorkingSetBytes(*device());
  return static_cast<std::int64_t>((wanted + bytesPerImage - 1) / std::max<std::size_t>(1, bytesPerImage));
}

void Bench::kernel(const BenchKey& key, const BenchWork& work,
                   const std::function<void(const std::shared_ptr<mtl::CommandBuffer>&)>& encode) {
  if (!isSelected(key.describe())) return;
  const auto queue = device()->newCommandQueue();
  time(key, work, [&](int repetitions) {
    const auto commandBuffer = queue->commandBuffer();
    for (int i = 0; i < repetitions; ++i) encode(commandBuffer);
    commandBuffer->commit();
    commandBuffer->throwIfFailed();
    return (commandBuffer->GPUEndTime() - commandBuffer->GPUStartTime()) * 1e3;
  });
}

void Bench::plan(const BenchKey& key, const BenchWork& work, const Plan& plan, Operands operands) {
  if (!isSelected(key.describe())) return;
  const auto scratch = device()->allocate(plan.scratchBytes());
  operands.scratch = scratch->address();
  const auto run = [&](mtl::Stream& stream) { plan.run(stream, operands); };
  time(key, work, [&](int repetitions) { return runOnDevice(device(), key.kernel, run, repetitions); });
}

void Bench::time(const BenchKey& key, const BenchWork& work, const RepeatedWork& repeated) {
  if (!(work.bytes > 0))
    throw Error("Bench", "bytes", std::to_string(work.bytes), "the bytes that must move");
  const CopyWork copy(device(), static_cast<std::size_t>(work.bytes));
  const bool isCpu = device()->kind() == mtl::DeviceKind::CPU;
  const TimingPair timing = timeAlternating(
      repeated, [&](int repetitions) { return copy.run(repetitions); }, options_.runs,
      isCpu ? kLeastMillisecondsPerRun : kLeastMillisecondsPerRunOnGpu);
  BenchRow row;
  row.kernel = key.kernel;
  row.direction = name(key.direction);
  row.format = mps::name(key.format);
  row.shape = key.shape;
  row.batch = key.batch;
  row.milliseconds = timing.first.milliseconds;
  row.spread = timing.first.spread;
  row.bytes = work.bytes;
  row.flops = work.flops;
  row.floorMilliseconds = std::max(timing.second.milliseconds, matmulMilliseconds(work.flops));
  add(std::move(row));
}

double Bench::matmulMilliseconds(double flops) const {
  return machine_.matmulGflops > 0 ? flops / machine_.matmulGflops * 1e-6 : 0;
}

void Bench::add(BenchRow row) {
  row.device = device()->name();
  if (row.floorMilliseconds == 0)
    row.floorMilliseconds = std::max(row.bytes / machine_.copyGBps * 1e-6, matmulMilliseconds(row.flops));
  if (row.milliseconds > 0) row.fractionOfFloor = row.floorMilliseconds / row.milliseconds;
  rows_.push_back(std::move(row));
  if (options_.rowFinished) options_.rowFinished(rows_.back());
}

}  // namespace mps::detail
