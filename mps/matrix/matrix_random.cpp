#include "mps/matrix/matrix_random.hpp"

#include <array>
#include <cmath>

#include "mps/core/array/array_storage.hpp"
#include "mps/core/array/matrix_call.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/types/error.hpp"
#include "mps/matrix/matrix_problem.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"

namespace mps {

using detail::MatrixRandomProblem;
using detail::RandomGenerator;
using detail::RandomNumbers;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

const char* name(MatrixRandomDistribution distribution) {
  switch (distribution) {
    case MatrixRandomDistribution::Default:
      return "Default";
    case MatrixRandomDistribution::Uniform:
      return "Uniform";
    case MatrixRandomDistribution::Normal:
      return "Normal";
  }
  return "unknown";
}

std::string boundsText(const MatrixRandomDistributionDescriptor& distribution) {
  return std::to_string(distribution.minimum()) + " and " + std::to_string(distribution.maximum());
}

void checkDistribution(const char* className, const MatrixRandomDistributionDescriptor& distribution) {
  const float minimum = distribution.minimum();
  const float maximum = distribution.maximum();
  switch (distribution.distributionType()) {
    case MatrixRandomDistribution::Default:
      return;
    case MatrixRandomDistribution::Uniform:
      if (!(minimum <= maximum) || !std::isfinite(maximum - minimum))
        throw Error(className, "minimum and maximum", boundsText(distribution),
                    "in this order, with a finite difference");
      return;
    case MatrixRandomDistribution::Normal:
      if (!(minimum <= maximum) || minimum == kInfinity || maximum == -kInfinity)
        throw Error(className, "minimum and maximum", boundsText(distribution),
                    "in this order, with numbers between them");
      if (!std::isfinite(distribution.mean()))
        throw Error(className, "mean", std::to_string(distribution.mean()), "a finite number");
      if (!(distribution.standardDeviation() >= 0) || !std::isfinite(distribution.standardDeviation()))
        throw Error(className, "standardDeviation", std::to_string(distribution.standardDeviation()),
                    "a finite number from 0 on");
      return;
  }
  throw Error(className, "distributionType",
              std::to_string(static_cast<std::uint64_t>(distribution.distributionType())),
              "Default (1), Uniform (2) or Normal (3)");
}

RandomNumbers numbersOf(DataType dataType, MatrixRandomDistribution distribution) {
  if (dataType == DataType::UInt32) return RandomNumbers::Words;
  switch (distribution) {
    case MatrixRandomDistribution::Default:
      return RandomNumbers::UnitInterval;
    case MatrixRandomDistribution::Uniform:
      return RandomNumbers::Uniform;
    case MatrixRandomDistribution::Normal:
      break;
  }
  return RandomNumbers::Normal;
}

}  // namespace

MatrixRandomDistributionDescriptor MatrixRandomDistributionDescriptor::defaultDistributionDescriptor() {
  return {};
}

MatrixRandomDistributionDescriptor MatrixRandomDistributionDescriptor::uniformDistributionDescriptor(
    float minimum, float maximum) {
  MatrixRandomDistributionDescriptor descriptor;
  descriptor.distributionType_ = MatrixRandomDistribution::Uniform;
  descriptor.minimum_ = minimum;
  descriptor.maximum_ = maximum;
  descriptor.mean_ = (minimum + maximum) / 2;
  descriptor.standardDeviation_ = (maximum - minimum) / std::sqrt(12.0F);
  return descriptor;
}

MatrixRandomDistributionDescriptor MatrixRandomDistributionDescriptor::normalDistributionDescriptor(
    float mean, float standardDeviation) {
  return normalDistributionDescriptor(mean, standardDeviation, -kInfinity, kInfinity);
}

MatrixRandomDistributionDescriptor MatrixRandomDistributionDescriptor::normalDistributionDescriptor(
    float mean, float standardDeviation, float minimum, float maximum) {
  MatrixRandomDistributionDescriptor descriptor;
  descriptor.distributionType_ = MatrixRandomDistribution::Normal;
  descriptor.minimum_ = minimum;
  descriptor.maximum_ = maximum;
  descriptor.mean_ = mean;
  descriptor.standardDeviation_ = standardDeviation;
  return descriptor;
}

MatrixRandom::MatrixRandom(const char* className, std::shared_ptr<mtl::Device> device,
                           DataType destinationDataType,
                           const MatrixRandomDistributionDescriptor& distribution)
    : Kernel(std::move(device)), destinationDataType_(destinationDataType), distribution_(distribution) {
  check(className);
}

void MatrixRandom::check(const char* className) const {
  if (destinationDataType_ != DataType::UInt32 && destinationDataType_ != DataType::Float32)
    throw Error(className, "destinationDataType", name(destinationDataType_), "UInt32 or Float32");
  checkDistribution(className, distribution_);
  if (destinationDataType_ == DataType::UInt32 && distributionType() != MatrixRandomDistribution::Default)
    throw Error(className, "distributionType", std::string(name(distributionType())) + " with UInt32",
                "Default, or the type Float32");
}

template <class Array>
void MatrixRandom::encodeArray(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const char* argument,
                               const std::shared_ptr<Array>& destination) {
  detail::checkCommandBuffer(*this, commandBuffer);
  const detail::TensorShape whole =
      detail::tensorOf(*this, argument, *commandBuffer, destination, /*isRead=*/false);
  if (destination->dataType() != destinationDataType_)
    throw Error(describe(), argument, name(destination->dataType()),
                std::string(name(destinationDataType_)) + ", the kernel's destinationDataType");
  const std::size_t count =
      detail::batchCount(*this, batchStart_, batchSize_, static_cast<std::size_t>(whole.images));
  const detail::MatrixRegion region =
      detail::regionOf(*this, argument, whole, {}, batchStart_, count, static_cast<std::size_t>(whole.height),
                       static_cast<std::size_t>(whole.channels));
  if (region.isEmpty()) return;
  MatrixRandomProblem problem;
  problem.numbers = numbersOf(destinationDataType_, distributionType());
  if (problem.numbers == RandomNumbers::Uniform || problem.numbers == RandomNumbers::Normal) {
    problem.minimum = distribution_.minimum();
    problem.maximum = distribution_.maximum();
  }
  if (problem.numbers == RandomNumbers::Normal) {
    problem.mean = distribution_.mean();
    problem.standardDeviation = distribution_.standardDeviation();
  }
  problem.destination = region.shape;
  mtl::RecordingGuard guard(*commandBuffer);
  record(*commandBuffer, problem, detail::operandOf(destination->storage(), region));
  guard.keep();
}

void MatrixRandom::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                          const std::shared_ptr<Vector>& destinationVector) {
  encodeArray(commandBuffer, "destinationVector", destinationVector);
}

void MatrixRandom::encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                          const std::shared_ptr<Matrix>& destinationMatrix) {
  encodeArray(commandBuffer, "destinationMatrix", destinationMatrix);
}

MatrixRandomPhilox::MatrixRandomPhilox(std::shared_ptr<mtl::Device> device, DataType destinationDataType,
                                       std::uint64_t seed,
                                       const MatrixRandomDistributionDescriptor& distribution)
    : KernelClass("MatrixRandomPhilox", std::move(device), destinationDataType, distribution), seed_(seed) {}

std::shared_ptr<MatrixRandomPhilox> MatrixRandomPhilox::create(
    const std::shared_ptr<mtl::Device>& device, DataType destinationDataType, std::uint64_t seed,
    const MatrixRandomDistributionDescriptor& distributionDescriptor) {
  return std::shared_ptr<MatrixRandomPhilox>(
      new MatrixRandomPhilox(device, destinationDataType, seed, distributionDescriptor));
}

void MatrixRandomPhilox::record(mtl::CommandBuffer& commandBuffer, MatrixRandomProblem problem,
                                const detail::BatchOperand& destination) {
  problem.generator = RandomGenerator::Philox;
  problem.seed = seed_;
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::matrixRandomBackEnds, problem);
  prepared.scalars[0] = static_cast<double>(block_);
  detail::CallOperands operands;
  operands.destination = &destination;
  detail::recordCall(commandBuffer, *this, prepared, operands);
  block_ += (static_cast<std::uint64_t>(problem.destination.elements()) + 3) / 4;
}

MatrixRandomMTGP32::MatrixRandomMTGP32(std::shared_ptr<mtl::Device> device, DataType destinationDataType,
                                       std::uint64_t seed,
                                       const MatrixRandomDistributionDescriptor& distribution)
    : KernelClass("MatrixRandomMTGP32", std::move(device), destinationDataType, distribution) {
  std::array<std::uint32_t, detail::kMTGP32StateWords> state{};
  detail::seedMTGP32(static_cast<std::uint32_t>(seed) ^ static_cast<std::uint32_t>(seed >> 32U), state);
  start(std::as_bytes(std::span(state)));
}

MatrixRandomMTGP32::MatrixRandomMTGP32(const MatrixRandomMTGP32& other) : KernelClass(other) {
  start(std::as_bytes(other.synchronizedState_->contentsAs<const std::byte>()));
}

std::shared_ptr<MatrixRandomMTGP32> MatrixRandomMTGP32::create(
    const std::shared_ptr<mtl::Device>& device, DataType destinationDataType, std::uint64_t seed,
    const MatrixRandomDistributionDescriptor& distributionDescriptor) {
  return std::shared_ptr<MatrixRandomMTGP32>(
      new MatrixRandomMTGP32(device, destinationDataType, seed, distributionDescriptor));
}

void MatrixRandomMTGP32::start(std::span<const std::byte> state) {
  state_ = device()->newBuffer(state);
  synchronizedState_ = device()->newBuffer(state);
}

void MatrixRandomMTGP32::didCopy(bool hasMoved) {
  if (!hasMoved) return;
  const auto old = synchronizedState_;
  start(std::as_bytes(old->contentsAs<const std::byte>()));
}

void MatrixRandomMTGP32::record(mtl::CommandBuffer& commandBuffer, MatrixRandomProblem problem,
                                const detail::BatchOperand& destination) {
  problem.generator = RandomGenerator::MTGP32;
  detail::PreparedCall prepared;
  prepared.plan = detail::planFor(*device(), detail::matrixRandomBackEnds, problem);
  // Read and written: the second entry only says so.
  prepared.parameters[0] = {.memory = state_->memory(), .isWritten = true};
  prepared.parameters[1] = {.memory = state_->memory(), .isWritten = false};
  detail::CallOperands operands;
  operands.destination = &destination;
  detail::recordCall(commandBuffer, *this, prepared, operands);
}

void MatrixRandomMTGP32::synchronizeState(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  detail::checkCommandBuffer(*this, commandBuffer);
  detail::recordMemoryCopy(*commandBuffer, describe(), state_->memory(), 0, synchronizedState_->memory(), 0,
                           state_->length());
  synchronizedState_->synchronize(*commandBuffer);
}

void MatrixRandomDistributionDescriptor::encode(Coder& coder) const {
  coder.codeClass("MatrixRandomDistributionDescriptor");
  coder.encode("distributionType", static_cast<std::uint64_t>(distributionType_));
  coder.encode("minimum", minimum_);
  coder.encode("maximum", maximum_);
  coder.encode("mean", mean_);
  coder.encode("standardDeviation", standardDeviation_);
}

MatrixRandomDistributionDescriptor MatrixRandomDistributionDescriptor::decode(Coder& coder) {
  coder.codeClass("MatrixRandomDistributionDescriptor");
  MatrixRandomDistributionDescriptor descriptor;
  coder.codeEnumeration("distributionType", descriptor.distributionType_, MatrixRandomDistribution::Normal);
  coder.decode("minimum", descriptor.minimum_);
  coder.decode("maximum", descriptor.maximum_);
  coder.decode("mean", descriptor.mean_);
  coder.decode("standardDeviation", descriptor.standardDeviation_);
  return descriptor;
}

void MatrixRandom::codeProperties(Coder& coder) {
  Kernel::codeProperties(coder);
  coder.codeEnumeration("destinationDataType", destinationDataType_, DataType::Float32);
  coder.code("distribution", distribution_);
  coder.code("batchStart", batchStart_);
  coder.code("batchSize", batchSize_);
  check(className().c_str());
}

void MatrixRandomPhilox::codeProperties(Coder& coder) {
  MatrixRandom::codeProperties(coder);
  coder.code("seed", seed_);
  coder.code("block", block_);
}

void MatrixRandomMTGP32::codeProperties(Coder& coder) {
  MatrixRandom::codeProperties(coder);
  constexpr std::size_t size = detail::kMTGP32StateWords * sizeof(std::uint32_t);
  std::vector<std::byte> state(size);
  if (!coder.isDecoding())
    std::ranges::copy(synchronizedState_->contentsAs<const std::byte>(), state.begin());
  coder.code("state", state);
  if (state.size() != size)
    coder.refuse("state", std::to_string(state.size()) + " bytes", std::to_string(size));
  if (coder.isDecoding()) start(state);
}

}  // namespace mps
