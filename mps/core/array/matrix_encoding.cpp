#include "mps/core/array/matrix_encoding.hpp"

#include <array>
#include <string>

#include "mps/core/array/array_storage.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/memory.hpp"

namespace mps::detail {
namespace {

mtl::CommandBuffer& checked(const Kernel& kernel, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  checkCommandBuffer(kernel, commandBuffer);
  return *commandBuffer;
}

std::size_t availableFrom(std::int64_t size, std::size_t origin, std::size_t limit) {
  const auto whole = static_cast<std::size_t>(size);
  return std::min(limit, whole - std::min(origin, whole));
}

/// Whether both are the same elements in the same order.
bool areSame(const MatrixPart& one, const MatrixPart& other) {
  if (one.isEmpty() || other.isEmpty()) return false;
  return one.argument.storage->buffer()->memory() == other.argument.storage->buffer()->memory() &&
         one.region.shape.format == other.region.shape.format &&
         areSame(rowsOf(*one.argument.storage, one.region), rowsOf(*other.argument.storage, other.region));
}

TensorShape rowOf(std::size_t count) {
  return TensorShape::dense(1, 1, 1, static_cast<std::int64_t>(count));
}

}  // namespace

std::size_t MatrixArgument::rowsFrom(const mtl::Origin& origin, std::size_t limit) const {
  return availableFrom(whole.height, origin.x, limit);
}

std::size_t MatrixArgument::columnsFrom(const mtl::Origin& origin, std::size_t limit) const {
  return availableFrom(whole.channels, origin.y, limit);
}

TensorShape MatrixPart::pixels() const {
  TensorShape shape = region.shape;
  shape.width = shape.height;
  shape.height = 1;
  shape.pixelStride = shape.rowStride;
  shape.rowStride = shape.width * shape.pixelStride;
  return shape;
}

MatrixPart MatrixPart::matrix(std::size_t index) const {
  MatrixPart one = *this;
  one.region.firstElement += static_cast<std::int64_t>(index) * region.shape.imageStride;
  one.region.shape.images = 1;
  return one;
}

MatrixEncoding::MatrixEncoding(const Kernel& kernel, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                               std::size_t batchStart, std::size_t batchSize)
    : kernel_(kernel),
      commandBuffer_(checked(kernel, commandBuffer)),
      guard_(commandBuffer_),
      batchStart_(batchStart),
      batchSize_(batchSize) {}

std::optional<MatrixPart> MatrixEncoding::readsNumbers(const char* name,
                                                       const std::shared_ptr<Vector>& vector,
                                                       DataType dataType, std::size_t first,
                                                       std::size_t count) {
  if (!vector) return std::nullopt;
  const MatrixArgument argument = reads(name, vector);
  if (argument.dataType != dataType)
    throw Error(kernel_.describe(), name, mps::name(argument.dataType), mps::name(dataType));
  return part(argument, {0, first, 0}, 1, count);
}

void MatrixEncoding::checkTypes(const MatrixArgument& result) const {
  const auto isFloat = [](DataType type) { return type == DataType::Float32 || type == DataType::Float16; };
  for (const MatrixArgument& argument : arguments_) {
    if (isFloat(argument.dataType) && (argument.dataType == result.dataType || !isFloat(result.dataType)))
      continue;
    throw Error(kernel_.describe(), argument.name, mps::name(argument.dataType),
                isFloat(argument.dataType) ? std::string(mps::name(result.dataType)) + ", as the result"
                                           : "Float32 or Float16");
  }
}

std::size_t MatrixEncoding::count() const {
  return batchCount(kernel_, batchStart_, batchSize_, available_);
}

MatrixPart MatrixEncoding::part(const MatrixArgument& argument, const mtl::Origin& origin, std::size_t rows,
                                std::size_t columns) const {
  return {argument,
          regionOf(kernel_, argument.name, argument.whole, origin, batchStart_, count(), rows, columns)};
}

void MatrixEncoding::checkApart(std::initializer_list<const MatrixPart*> results,
                                std::initializer_list<const MatrixPart*> sources, Aliasing aliasing) const {
  for (auto result = results.begin(); result != results.end(); ++result) {
    if (*result == nullptr) continue;
    for (const MatrixPart* source : sources)
      if (source != nullptr) checkApart(**result, *source, aliasing);
    for (auto other = results.begin(); other != result; ++other)
      if (*other != nullptr) checkApart(**result, **other, Aliasing::None);
  }
}

void MatrixEncoding::checkApart(const MatrixPart& result, const MatrixPart& other, Aliasing aliasing) const {
  if (aliasing == Aliasing::SameElements && areSame(result, other)) return;
  if (!overlap(*other.argument.storage, other.region, *result.argument.storage, result.region)) return;
  throw Error(
      kernel_.describe(), result.argument.name, std::string("sharing elements with ") + other.argument.name,
      aliasing == Aliasing::None ? "elements of its own" : "elements of its own, or the very same region");
}

void MatrixEncoding::record(const PreparedCall& prepared, const MatrixOperands& operands) const {
  std::array<BatchOperand, 4> memory;
  const auto operandOf = [](BatchOperand& operand, const MatrixPart* part) -> const BatchOperand* {
    if (part == nullptr) return nullptr;
    operand = part->operand();
    return &operand;
  };
  CallOperands call;
  call.source = operandOf(memory[0], operands.source);
  call.secondary = operandOf(memory[1], operands.secondary);
  call.gradient = operandOf(memory[2], operands.gradient);
  call.destination = operandOf(memory[3], operands.destination);
  recordCall(commandBuffer_, kernel_, prepared, call);
}

BatchOperand MatrixEncoding::scratch(const TensorShape& shape) const {
  return BatchOperand::ofScratch(shape,
                                 commandBuffer_.heap()->allocate(static_cast<std::size_t>(shape.bytes())));
}

BatchOperand MatrixEncoding::repeated(std::size_t count, float number) const {
  BatchOperand numbers = scratch(rowOf(count));
  fill(numbers, number);
  return numbers;
}

void MatrixEncoding::fill(const BatchOperand& destination, float number) const {
  TensorCopyProblem problem;
  problem.fills = true;
  recordCopy(problem, nullptr, destination, number);
}

BatchOperand MatrixEncoding::asFloat32(const MatrixPart& vector) const {
  BatchOperand target = float32Target(vector);
  if (vector.argument.dataType != DataType::Float32) copy(vector.operand(), target);
  return target;
}

BatchOperand MatrixEncoding::float32Target(const MatrixPart& vector) const {
  if (vector.argument.dataType == DataType::Float32) return vector.operand();
  return scratch(rowOf(static_cast<std::size_t>(vector.region.shape.channels)));
}

void MatrixEncoding::storeFloat32(const BatchOperand& target, const MatrixPart& vector) const {
  if (vector.argument.dataType != DataType::Float32) copy(target, vector.operand());
}

PreparedCall::Parameter MatrixEncoding::parameter(const BatchOperand& numbers, bool isWritten) {
  const TensorView view = numbers.memoryView();
  return {view.memory, view.byteOffset, isWritten};
}

void MatrixEncoding::copy(const BatchOperand& source, const BatchOperand& destination) const {
  recordCopy({}, &source, destination, 0);
}

void MatrixEncoding::recordCopy(TensorCopyProblem problem, const BatchOperand* source,
                                const BatchOperand& destination, float number) const {
  if (source != nullptr) problem.source = source->shape();
  problem.destination = destination.shape();
  PreparedCall prepared;
  prepared.plan = planFor(*kernel_.device(), tensorCopyBackEnds, problem);
  prepared.scalars[0] = static_cast<double>(number);
  CallOperands operands;
  operands.source = source;
  operands.destination = &destination;
  recordCall(commandBuffer_, kernel_, prepared, operands);
}

void MatrixEncoding::finish() {
  guard_.keep();
  for (ArrayStorage* const array : written_) array->setProducer(kernel_.describe());
  consumeRead(read_);
}

}  // namespace mps::detail
