#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "mps/core/array/matrix.hpp"
#include "mps/core/array/vector.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/kernel/kernel_class.hpp"
#include "mps/core/types/types.hpp"

/// Random numbers in vectors and matrices (MPSMatrixRandom.h).
///
///     auto uniform = mps::MatrixRandomDistributionDescriptor::uniformDistributionDescriptor(-0.05F, 0.05F);
///     auto random = mps::MatrixRandomPhilox::create(device, mps::DataType::Float32, seed, uniform);
///     random->encode(commandBuffer, weights);
namespace mtl {
class Buffer;
class CommandBuffer;
}  // namespace mtl

namespace mps {

namespace detail {
class BatchOperand;
struct MatrixRandomProblem;
}  // namespace detail

/// How the numbers are distributed. Values are Apple's; they are no bits, although Apple declares them so.
enum class MatrixRandomDistribution : std::uint64_t {
  /// UInt32: the generator's words w. Float32: t = floor(w / 2^9) / 2^23, in [0, 1).
  Default = 1,
  /// fma(maximum - minimum, t, minimum), in [minimum, maximum); equal bounds give the bound.
  Uniform = 2,
  /// mean + standardDeviation InvPhi(t), with 2^-24 for t = 0: from -5.2947 to 5.1666 deviations. With
  /// bounds, the part of that distribution between them: InvPhi(a + (b - a)(t + 2^-24)) with a and b the
  /// Phi of the bounds. mean and standardDeviation are those of the whole distribution. Bounds so far out
  /// that a = b give the bound next to the mean; standardDeviation 0 gives the mean, inside the bounds.
  Normal = 3,
};

/// Distribution of random numbers (MPSMatrixRandomDistributionDescriptor). A value.
class MatrixRandomDistributionDescriptor {
 public:
  /// Default; the four numbers are 0.
  static MatrixRandomDistributionDescriptor defaultDistributionDescriptor();
  /// mean and standardDeviation are filled in with those of the distribution; nothing uses them.
  static MatrixRandomDistributionDescriptor uniformDistributionDescriptor(float minimum, float maximum);
  /// Without bounds: minimum -infinity, maximum infinity.
  static MatrixRandomDistributionDescriptor normalDistributionDescriptor(float mean, float standardDeviation);
  static MatrixRandomDistributionDescriptor normalDistributionDescriptor(float mean, float standardDeviation,
                                                                         float minimum, float maximum);

  [[nodiscard]] MatrixRandomDistribution distributionType() const { return distributionType_; }
  void setDistributionType(MatrixRandomDistribution type) { distributionType_ = type; }
  [[nodiscard]] float minimum() const { return minimum_; }
  void setMinimum(float minimum) { minimum_ = minimum; }
  [[nodiscard]] float maximum() const { return maximum_; }
  void setMaximum(float maximum) { maximum_ = maximum; }
  [[nodiscard]] float mean() const { return mean_; }
  void setMean(float mean) { mean_ = mean; }
  [[nodiscard]] float standardDeviation() const { return standardDeviation_; }
  void setStandardDeviation(float standardDeviation) { standardDeviation_ = standardDeviation; }
  void encode(Coder& coder) const;
  static MatrixRandomDistributionDescriptor decode(Coder& coder);

 private:
  MatrixRandomDistributionDescriptor() = default;
  MatrixRandomDistribution distributionType_ = MatrixRandomDistribution::Default;
  float minimum_ = 0;
  float maximum_ = 0;
  float mean_ = 0;
  float standardDeviation_ = 0;
};

/// Base of the generators (MPSMatrixRandom).
///
/// An encode fills all elements of matrices batchStart to batchStart + batchSize - 1, in the order matrix,
/// row, column, and nothing else: gaps stay. The numbers depend on the seed and on what this object encoded
/// before, not on the device or its number of threads. Each encode goes on where the last one stopped;
/// another object with the same seed repeats the numbers.
class MatrixRandom : public Kernel {
 public:
  /// UInt32 or Float32.
  [[nodiscard]] DataType destinationDataType() const { return destinationDataType_; }
  [[nodiscard]] MatrixRandomDistribution distributionType() const { return distribution_.distributionType(); }
  /// First matrix (vector) that is filled. 0.
  [[nodiscard]] std::size_t batchStart() const { return batchStart_; }
  void setBatchStart(std::size_t batchStart) { batchStart_ = batchStart; }
  /// How many are filled; more than there are means all. All.
  [[nodiscard]] std::size_t batchSize() const { return batchSize_; }
  void setBatchSize(std::size_t batchSize) { batchSize_ = batchSize; }

  using Kernel::encode;
  /// @throws Error when the destination is null, of another device or type, or a temporary one that cannot be
  /// used, or when batchStart leaves it.
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Vector>& destinationVector);
  void encode(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
              const std::shared_ptr<Matrix>& destinationMatrix);

 protected:
  /// @throws Error for another type, a distribution other than Default with UInt32, bounds that are NaN or in
  /// the wrong order, uniform bounds whose difference is not finite, a mean that is not finite or a
  /// standardDeviation that is negative or not finite.
  MatrixRandom(const char* className, std::shared_ptr<mtl::Device> device, DataType destinationDataType,
               const MatrixRandomDistributionDescriptor& distribution);
  using Kernel::Kernel;
  MatrixRandom(const MatrixRandom&) = default;
  void codeProperties(Coder& coder) override;

  /// Records the fill and goes on by its number of elements. The generator and its seed are still to be set.
  virtual void record(mtl::CommandBuffer& commandBuffer, detail::MatrixRandomProblem problem,
                      const detail::BatchOperand& destination) = 0;

 private:
  void check(const char* className) const;
  template <class Array>
  void encodeArray(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const char* argument,
                   const std::shared_ptr<Array>& destination);

  DataType destinationDataType_ = DataType::UInt32;
  MatrixRandomDistributionDescriptor distribution_ =
      MatrixRandomDistributionDescriptor::defaultDistributionDescriptor();
  std::size_t batchStart_ = 0;
  std::size_t batchSize_ = std::numeric_limits<std::size_t>::max();
};

/// Philox4x32-10 with the key (low, high half of the seed) (MPSMatrixRandomPhilox). Element e of an encode is
/// word e mod 4 of block b + floor(e / 4), counter (0, 0, high, low half of the block's number); the next
/// encode begins with a new block.
///
/// A copy goes on from the same position.
class MatrixRandomPhilox
    : public detail::KernelClass<MatrixRandomPhilox, MatrixRandom, "MatrixRandomPhilox"> {
 public:
  static std::shared_ptr<MatrixRandomPhilox> create(
      const std::shared_ptr<mtl::Device>& device, DataType destinationDataType = DataType::UInt32,
      std::uint64_t seed = 0,
      const MatrixRandomDistributionDescriptor& distributionDescriptor =
          MatrixRandomDistributionDescriptor::defaultDistributionDescriptor());

 protected:
  using KernelClass::KernelClass;
  MatrixRandomPhilox(std::shared_ptr<mtl::Device> device, DataType destinationDataType, std::uint64_t seed,
                     const MatrixRandomDistributionDescriptor& distribution);
  MatrixRandomPhilox(const MatrixRandomPhilox&) = default;
  void codeProperties(Coder& coder) override;
  void record(mtl::CommandBuffer& commandBuffer, detail::MatrixRandomProblem problem,
              const detail::BatchOperand& destination) override;

 private:
  friend KernelClass;
  std::uint64_t seed_ = 0;
  std::uint64_t block_ = 0;
};

/// MTGP32, the Mersenne Twister for graphics processors of Saito (arXiv:1005.4973), period 2^11213 - 1
/// (MPSMatrixRandomMTGP32). One stream of parameter set 1 of the list by Saito and Matsumoto, seeded as their
/// program does; a seed above 2^32 counts as low half ^ high half. Apple's parameters are not public, so its
/// numbers are others.
///
/// The state lives on the device and is advanced when the work runs. With one queue that makes no difference;
/// encodes into buffers of several queues draw in the order in which they run.
///
/// A copy, and so what is decoded, goes on from the state of the last synchronizeState() that has run, otherwise from
/// the seed.
/// Records the copy of the state to the host, for copy() and encode(coder). @throws Error after commit.
class MatrixRandomMTGP32
    : public detail::KernelClass<MatrixRandomMTGP32, MatrixRandom, "MatrixRandomMTGP32"> {
 public:
  static std::shared_ptr<MatrixRandomMTGP32> create(
      const std::shared_ptr<mtl::Device>& device, DataType destinationDataType = DataType::UInt32,
      std::uint64_t seed = 0,
      const MatrixRandomDistributionDescriptor& distributionDescriptor =
          MatrixRandomDistributionDescriptor::defaultDistributionDescriptor());
  void synchronizeState(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);

 protected:
  using KernelClass::KernelClass;
  MatrixRandomMTGP32(std::shared_ptr<mtl::Device> device, DataType destinationDataType, std::uint64_t seed,
                     const MatrixRandomDistributionDescriptor& distribution);
  MatrixRandomMTGP32(const MatrixRandomMTGP32& other);
  void codeProperties(Coder& coder) override;
  void didCopy(bool hasMoved) override;
  void record(mtl::CommandBuffer& commandBuffer, detail::MatrixRandomProblem problem,
              const detail::BatchOperand& destination) override;

 private:
  friend KernelClass;
  /// Makes the buffers on device() and starts from a state.
  void start(std::span<const std::byte> state);
  std::shared_ptr<mtl::Buffer> state_;
  std::shared_ptr<mtl::Buffer> synchronizedState_;
};

}  // namespace mps
