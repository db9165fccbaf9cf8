#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "mps/core/array/matrix_call.hpp"
#include "mps/core/array/matrix_kernel.hpp"
#include "mps/core/plan/tensor_copy.hpp"
#include "mtl/command.hpp"

/// One encode of a matrix kernel, from its arguments to recorded calls.
namespace mps::detail {

/// A matrix or vector that an encode was given.
struct MatrixArgument {
  const char* name = "";
  ArrayStorage* storage = nullptr;
  DataType dataType = DataType::Invalid;
  TensorShape whole;

  /// MIN(limit, what there is from the origin on).
  [[nodiscard]] std::size_t rowsFrom(const mtl::Origin& origin, std::size_t limit) const;
  [[nodiscard]] std::size_t columnsFrom(const mtl::Origin& origin, std::size_t limit) const;
};

/// What a kernel works on of an argument.
struct MatrixPart {
  MatrixArgument argument;
  MatrixRegion region;

  [[nodiscard]] BatchOperand operand() const { return operandOf(*argument.storage, region); }
  /// The same elements as images of one row, whose pixels are the rows of the matrices.
  [[nodiscard]] TensorShape pixels() const;
  /// One of the matrices.
  [[nodiscard]] MatrixPart matrix(std::size_t index) const;
  /// Null where there is none.
  static const MatrixPart* of(const std::optional<MatrixPart>& part) { return part ? &*part : nullptr; }
  /// In all matrices together.
  [[nodiscard]] bool isEmpty() const { return region.isEmpty(); }
};

/// The parts that a plan takes; null where it takes none.
struct MatrixOperands {
  const MatrixPart* source = nullptr;
  const MatrixPart* secondary = nullptr;
  const MatrixPart* gradient = nullptr;
  const MatrixPart* destination = nullptr;
};

/// Checks the arguments of one encode, cuts out what it works on and records calls; unless finish() is reached, nothing
/// stays recorded.
class MatrixEncoding {
 public:
  /// Matrices `batchStart` to `batchStart + batchSize - 1` of each argument; the first one where there is no batch.
  /// @throws Error for a command buffer that is null, of another device or committed.
  MatrixEncoding(const Kernel& kernel, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                 std::size_t batchStart = 0, std::size_t batchSize = 1);
  MatrixEncoding(const MatrixKernel& kernel, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer)
      : MatrixEncoding(kernel, commandBuffer, kernel.batchStart(), kernel.batchSize()) {}

  [[nodiscard]] const Kernel& kernel() const { return kernel_; }
  [[nodiscard]] mtl::CommandBuffer& commandBuffer() const { return commandBuffer_; }

  /// An argument that is read. @throws Error as tensorOf does.
  template <class Array>
  MatrixArgument reads(const char* name, const std::shared_ptr<Array>& array) {
    MatrixArgument argument = argumentOf(name, array, true);
    read_.push_back(argument.storage);
    return argument;
  }
  template <class Array>
  std::optional<MatrixArgument> readsOptional(const char* name, const std::shared_ptr<Array>& array) {
    return array ? std::optional(reads(name, array)) : std::nullopt;
  }
  /// `count` elements of a vector of numbers of a given type, from element `first` on. @throws Error for another type or
  /// a vector that is too short
  std::optional<MatrixPart> readsNumbers(const char* name, const std::shared_ptr<Vector>& vector,
                                         DataType dataType, std::size_t first, std::size_t count);
  /// An argument that is written. @param isRead its old content is an input, too, which takes no read off
  template <class Array>
  MatrixArgument writes(const char* name, const std::shared_ptr<Array>& array, bool isRead = false) {
    const MatrixArgument argument = argumentOf(name, array, isRead);
    written_.push_back(argument.storage);
    return argument;
  }
  template <class Array>
  std::optional<MatrixArgument> writesOptional(const char* name, const std::shared_ptr<Array>& array) {
    return array ? std::optional(writes(name, array)) : std::nullopt;
  }

  /// @throws Error unless the result is Float32 or Float16 and the arguments so far are of its type.
  void checkTypes(const MatrixArgument& result) const;

  /// How many matrices all arguments so far let it work on. @throws Error when batchStart leaves them.
  [[nodiscard]] std::size_t count() const;
  /// `rows` x `columns` elements of those matrices from an origin on. @throws Error as regionOf does.
  [[nodiscard]] MatrixPart part(const MatrixArgument& argument, const mtl::Origin& origin, std::size_t rows,
                                std::size_t columns) const;
  /// The first `length` elements of each vector.
  [[nodiscard]] MatrixPart partOf(const MatrixArgument& vector, std::size_t length) const {
    return part(vector, {}, 1, length);
  }
  [[nodiscard]] std::optional<MatrixPart> partOf(const std::optional<MatrixArgument>& vector,
                                                 std::size_t length) const {
    return vector ? std::optional(partOf(*vector, length)) : std::nullopt;
  }

  /// @throws Error when results share elements with sources or one another; null parts do not count.
  /// @param aliasing whether a result may be a very source
  enum class Aliasing : bool { None, SameElements };
  void checkApart(std::initializer_list<const MatrixPart*> results,
                  std::initializer_list<const MatrixPart*> sources, Aliasing aliasing = Aliasing::None) const;

  void record(const PreparedCall& prepared, const MatrixOperands& operands) const;

  /// @name Float32 numbers that calls take as parameters, in memory without gaps
  /// @{
  /// Memory that lives until the object is gone and the calls that use it have run.
  [[nodiscard]] BatchOperand scratch(const TensorShape& shape) const;
  /// `count` times a number.
  [[nodiscard]] BatchOperand repeated(std::size_t count, float number) const;
  /// The elements of a vector: where they are, or a copy of those that are Float16.
  [[nodiscard]] BatchOperand asFloat32(const MatrixPart& vector) const;
  /// Where to write what is to become a vector; storeFloat32() must follow.
  [[nodiscard]] BatchOperand float32Target(const MatrixPart& vector) const;
  void storeFloat32(const BatchOperand& target, const MatrixPart& vector) const;
  [[nodiscard]] static PreparedCall::Parameter parameter(const BatchOperand& numbers, bool isWritten = false);
  /// @}
  /// Writes a number to all elements.
  void fill(const BatchOperand& destination, float number) const;
  /// Copies elements, to the nearest value where the formats differ.
  void copy(const BatchOperand& source, const BatchOperand& destination) const;

  /// The recorded calls stay; takes one read off each distinct temporary that was read.
  void finish();

 private:
  template <class Array>
  MatrixArgument argumentOf(const char* name, const std::shared_ptr<Array>& array, bool isRead) {
    const TensorShape whole = tensorOf(kernel_, name, commandBuffer_, array, isRead);
    available_ = std::min(available_, static_cast<std::size_t>(whole.images));
    return arguments_.emplace_back(MatrixArgument{name, &array->storage(), array->dataType(), whole});
  }

  void checkApart(const MatrixPart& result, const MatrixPart& other, Aliasing aliasing) const;
  void recordCopy(TensorCopyProblem problem, const BatchOperand* source, const BatchOperand& destination,
                  float number) const;

  const Kernel& kernel_;
  mtl::CommandBuffer& commandBuffer_;
  mtl::RecordingGuard guard_;
  std::size_t batchStart_;
  std::size_t batchSize_;
  std::size_t available_ = std::numeric_limits<std::size_t>::max();
  std::vector<MatrixArgument> arguments_;
  std::vector<ArrayStorage*> read_;
  std::vector<ArrayStorage*> written_;
};

}  // namespace mps::detail
