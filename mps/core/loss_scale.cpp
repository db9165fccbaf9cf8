#include "mps/core/loss_scale.hpp"

#include <cmath>

#include "mps/core/call.hpp"
#include "mps/core/error.hpp"
#include "mps/core/loss_scale_problem.hpp"
#include "mps/core/state.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {

using detail::LossScaleNumbers;
using detail::LossScaleOperation;

namespace {

constexpr const char* className = "LossScale";

LossScaleNumbers& numbersIn(const mtl::Buffer& buffer) {
  return buffer.contentsAs<LossScaleNumbers>()[0];
}

void check(bool isRight, const char* property, float found, const char* expected) {
  if (!isRight) throw Error(className, property, std::to_string(found), expected);
}
bool isPositive(float value) {
  return std::isnormal(value) && value > 0;
}
void checkScale(const char* property, float scale) {
  check(isPositive(scale) && std::isnormal(1 / scale), property, scale, "a number from 2^-126 to 2^126");
}

void record(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const LossScale& scale,
            LossScaleOperation operation, const std::shared_ptr<mtl::Memory>& values) {
  if (!commandBuffer) throw Error(className, "commandBuffer", "null", "a command buffer");
  if (commandBuffer->device() != scale.device())
    throw Error(className, "commandBuffer", "of " + commandBuffer->device()->name(),
                "one of " + scale.device()->name());
  detail::LossScaleProblem problem;
  problem.operation = operation;
  if (values) problem.count = static_cast<std::int64_t>(values->length() / sizeof(float));
  const auto& numbers = scale.numbers()->memory();
  detail::Operands operands;
  operands.destination = numbers->address();
  operands.scalars = {scale.options().growthFactor, scale.options().backoffFactor,
                      static_cast<double>(scale.options().growthInterval)};
  mtl::Command command;
  command.label = className;
  command.reads = {numbers};
  command.writes = {numbers};
  command.retained = {numbers};
  if (values) {
    operands.source = values->address();
    command.reads.push_back(values);
    command.retained.push_back(values);
  }
  const auto chosen = detail::planFor(*scale.device(), detail::lossScaleBackEnds, problem);
  command.run = [plan = chosen.plan, operands](mtl::Stream& stream) { plan->run(stream, operands); };
  commandBuffer->append(std::move(command));
}

}  // namespace

LossScale::LossScale(std::shared_ptr<mtl::Device> device, const LossScaleOptions& options)
    : device_(std::move(device)), options_(options), numbers_(device_->newBuffer(sizeof(LossScaleNumbers))) {}

LossScale::~LossScale() = default;

std::shared_ptr<LossScale> LossScale::create(const std::shared_ptr<mtl::Device>& device,
                                             const LossScaleOptions& options) {
  if (!device) throw Error(className, "device", "null", "a device");
  check(isPositive(options.growthFactor), "growthFactor", options.growthFactor, "a number greater than 0");
  check(isPositive(options.backoffFactor) && options.backoffFactor < 1, "backoffFactor",
        options.backoffFactor, "a number between 0 and 1");
  if (options.growthInterval == 0 || options.growthInterval > 0xFFFFFFFF)
    throw Error(className, "growthInterval", std::to_string(options.growthInterval), "1 to 2^32 - 1");
  checkScale("initialScale", options.initialScale);
  const auto scale = std::shared_ptr<LossScale>(new LossScale(device, options));
  scale->set(options.initialScale, 0, 0);
  return scale;
}

void LossScale::inspect(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                        const std::shared_ptr<State>& state) {
  if (!state) throw Error(className, "state", "null", "a gradient state");
  for (std::size_t i = 0; i < state->resourceCount(); ++i)
    record(commandBuffer, *this, LossScaleOperation::Inspect, state->resource(i)->memory());
}

void LossScale::update(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  record(commandBuffer, *this, LossScaleOperation::Update, nullptr);
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

}  // namespace mps
