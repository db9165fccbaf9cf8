#include "mps/core/layer/loss_scale.hpp"

#include <cmath>

#include "mps/core/coding/coder.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/kernel/call.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/layer/loss_scale_problem.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/back_ends.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {

using detail::LossScaleNumbers;
using detail::LossScaleOperation;

namespace {

constexpr const char* lossScaleName = "LossScale";

LossScaleNumbers& numbersIn(const mtl::Buffer& buffer) {
  return buffer.contentsAs<LossScaleNumbers>()[0];
}

void check(bool isRight, const char* property, float found, const char* expected) {
  if (!isRight) throw Error(lossScaleName, property, std::to_string(found), expected);
}
bool isPositive(float value) {
  return std::isnormal(value) && value > 0;
}
void checkScale(const char* property, float scale) {
  check(isPositive(scale) && std::isnormal(1 / scale), property, scale, "a number from 2^-126 to 2^126");
}

struct Values {
  std::shared_ptr<mtl::Memory> memory;
  std::size_t byteOffset = 0;
  std::int64_t count = 0;
};

void record(mtl::CommandBuffer& commandBuffer, const LossScale& scale, LossScaleOperation operation,
            const Values& values = {}) {
  if (commandBuffer.device() != scale.device())
    throw Error(lossScaleName, "commandBuffer", "of " + mtl::nameForMessages(*commandBuffer.device()),
                "one of " + mtl::nameForMessages(*scale.device()));
  const auto& numbers = scale.numbers()->memory();
  detail::Operands operands;
  operands.destination = numbers->address();
  operands.scalars = {scale.options().growthFactor, scale.options().backoffFactor,
                      static_cast<double>(scale.options().growthInterval)};
  mtl::Command command;
  command.label = lossScaleName;
  command.reads = {numbers};
  command.writes = {numbers};
  command.retained = {numbers};
  if (values.memory) {
    operands.source = values.memory->address() + values.byteOffset;
    command.reads.push_back(values.memory);
    command.retained.push_back(values.memory);
  }
  const auto chosen = detail::planFor(*scale.device(), detail::lossScaleBackEnds,
                                      detail::LossScaleProblem{operation, values.count});
  detail::setRun(command, chosen.plan, operands);
  commandBuffer.append(std::move(command));
}

mtl::CommandBuffer& checked(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  if (!commandBuffer) throw Error(lossScaleName, "commandBuffer", "null", "a command buffer");
  return *commandBuffer;
}

}  // namespace

LossScale::LossScale(std::shared_ptr<mtl::Device> device, const LossScaleOptions& options)
    : device_(std::move(device)), options_(options), numbers_(device_->newBuffer(sizeof(LossScaleNumbers))) {}

LossScale::~LossScale() = default;

std::shared_ptr<LossScale> LossScale::create(const std::shared_ptr<mtl::Device>& device,
                                             const LossScaleOptions& options) {
  if (!device) throw Error(lossScaleName, "device", "null", "a device");
  check(isPositive(options.growthFactor), "growthFactor", options.growthFactor, "a number greater than 0");
  check(isPositive(options.backoffFactor) && options.backoffFactor < 1, "backoffFactor",
        options.backoffFactor, "a number between 0 and 1");
  if (options.growthInterval == 0 || options.growthInterval > 0xFFFFFFFF)
    throw Error(lossScaleName, "growthInterval", std::to_string(options.growthInterval), "1 to 2^32 - 1");
  checkScale("initialScale", options.initialScale);
  auto scale = std::shared_ptr<LossScale>(new LossScale(device, options));
  scale->set(options.initialScale, 0, 0);
  return scale;
}

void LossScale::inspect(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                        const std::shared_ptr<State>& state) {
  if (!state) throw Error(lossScaleName, "state", "null", "a gradient state");
  for (std::size_t i = 0; i < state->resourceCount(); ++i) {
    const auto& memory = state->resource(i)->memory();
    inspect(checked(commandBuffer), memory, 0, static_cast<std::int64_t>(memory->length() / sizeof(float)));
  }
}

void LossScale::inspect(mtl::CommandBuffer& commandBuffer, const std::shared_ptr<mtl::Memory>& memory,
                        std::size_t byteOffset, std::int64_t count) {
  record(commandBuffer, *this, LossScaleOperation::Inspect, {memory, byteOffset, count});
}

void LossScale::update(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  update(checked(commandBuffer));
}

void LossScale::update(mtl::CommandBuffer& commandBuffer) {
  record(commandBuffer, *this, LossScaleOperation::Update);
}

void LossScale::synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  numbers_->synchronize(*commandBuffer);
}

float LossScale::scale() const {
  return numbersIn(*numbers_).scale;
}
std::size_t LossScale::finiteSteps() const {
  return numbersIn(*numbers_).finiteSteps;
}
std::size_t LossScale::skippedSteps() const {
  return numbersIn(*numbers_).skippedSteps;
}

void LossScale::set(float scale, std::size_t finiteSteps, std::size_t skippedSteps) {
  checkScale("scale", scale);
  LossScaleNumbers& numbers = numbersIn(*numbers_);
  numbers = {};
  numbers.scale = scale;
  numbers.inverse = 1 / scale;
  numbers.finiteSteps = static_cast<std::uint32_t>(finiteSteps);
  numbers.skippedSteps = static_cast<std::uint32_t>(skippedSteps);
  numbers_->didModifyRange(0, sizeof(LossScaleNumbers));
}

void LossScale::synchronizeNow() const {
  const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
  numbers_->synchronize(*commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
}

std::shared_ptr<LossScale> LossScale::copy(const std::shared_ptr<mtl::Device>& device) const {
  synchronizeNow();
  auto other = create(device ? device : device_, options_);
  other->set(scale(), finiteSteps(), skippedSteps());
  return other;
}

std::shared_ptr<LossScale> LossScale::sharedCopy(const std::shared_ptr<mtl::Device>& device) {
  const std::lock_guard lock(copiesMutex_);
  std::erase_if(copies_, [](const std::weak_ptr<LossScale>& each) { return each.expired(); });
  for (const auto& each : copies_)
    if (auto shared = each.lock(); shared && shared->device() == device) return shared;
  auto made = copy(device);
  copies_.emplace_back(made);
  return made;
}

void LossScale::encode(Coder& coder) const {
  synchronizeNow();
  coder.codeClass(className());
  coder.encode("initialScale", options_.initialScale);
  coder.encode("growthFactor", options_.growthFactor);
  coder.encode("backoffFactor", options_.backoffFactor);
  coder.encode("growthInterval", options_.growthInterval);
  coder.encode("scale", scale());
  coder.encode("finiteSteps", static_cast<std::uint32_t>(finiteSteps()));
  coder.encode("skippedSteps", static_cast<std::uint32_t>(skippedSteps()));
}

std::shared_ptr<LossScale> LossScale::decode(Coder& coder, const std::shared_ptr<mtl::Device>& device) {
  coder.codeClass(lossScaleName);
  LossScaleOptions options;
  coder.decode("initialScale", options.initialScale);
  coder.decode("growthFactor", options.growthFactor);
  coder.decode("backoffFactor", options.backoffFactor);
  coder.decode("growthInterval", options.growthInterval);
  float scale = 0;
  std::uint32_t finiteSteps = 0;
  std::uint32_t skippedSteps = 0;
  coder.decode("scale", scale);
  coder.decode("finiteSteps", finiteSteps);
  coder.decode("skippedSteps", skippedSteps);
  auto decoded = create(detail::deviceToDecodeOn(coder, device), options);
  decoded->set(scale, finiteSteps, skippedSteps);
  return decoded;
}

}  // namespace mps
