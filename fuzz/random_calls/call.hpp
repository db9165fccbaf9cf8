#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "fuzz/random_calls/element.hpp"
#include "fuzz/random_calls/random_numbers.hpp"
#include "mps/core/image/image_descriptor.hpp"

namespace mtl {
class Buffer;
class CommandBuffer;
class CommandQueue;
class Device;
}  // namespace mtl

namespace unmetal::random_calls {

using CommandBufferPointer = std::shared_ptr<mtl::CommandBuffer>;

/// How far results of two devices may be apart. `conform` has bounds for each element from a float64 reference; here whole
/// tensors have one, which is enough for what this program looks for: wrong pixels, wrong sizes, wrong formulas.
struct Tolerance {
  /// Times a few roundings of the element's format at `leastScale` or the largest number, whichever is larger. Kernels that
  /// sum in another order, or whose results are read by another kernel, take more than 1.
  double factor = 1;
  /// Sums of numbers around 1 may cancel to anything; their error does not.
  double leastScale = 0.1;
  /// The share of elements that may differ by anything: where a function jumps (the derivative of ReLU at 0, a comparison,
  /// a position just outside of an image), a rounding before it decides.
  double jumps = 0;
  /// Format of numbers on the way, whose last place may be another on each device: of a result that the kernel read again,
  /// or of inputs that reduced precision rounds (TF32 has as many digits as float16).
  std::optional<ElementFormat> intermediate = std::nullopt;
  bool isExact = false;  ///< numbers that are moved, not computed
};

enum class Role {
  Source,   ///< must be as before
  Result,   ///< is written by the call, where the other device writes it
  Updated,  ///< is read and written
};

/// Memory that is compared after a call.
struct Observation {
  std::string name;
  ElementFormat format = ElementFormat::Float32;
  Role role = Role::Result;
  Tolerance tolerance;
  Bytes before;  ///< empty: memory that the call made
  std::function<void(const CommandBufferPointer&)> synchronize;
  std::function<Bytes()> read;
  Bytes after;
};

/// Which numbers a source holds.
enum class Numbers {
  Uniform,        ///< from -1 to 1
  Positive,       ///< 0.05 to 1
  Integers,       ///< -3 to 3: ties for maxima
  AwayFromZero,   ///< 0.5 to 2 of either sign: divisors
  ZeroOrOne,      ///< labels
  Probabilities,  ///< 0.02 to 0.98
};
const char* name(Numbers numbers);

/// The most that a call may be.
struct Limits {
  std::size_t elements = 200'000;  ///< of all sources of one kind
  std::size_t longestSide = 5'000;
  /// Beyond 65535, the most blocks of a GPU's grid in its second direction.
  static Limits large() { return {2'000'000, 70'000}; }
};

/// One random call on one device: what it draws, what it says about itself, what is compared afterwards. The same seed gives
/// the same call on each device, so nothing that is drawn may depend on the device.
class Call {
 public:
  Call(std::shared_ptr<mtl::Device> device, std::shared_ptr<mtl::CommandQueue> queue, std::uint64_t seed,
       const Limits& limits);

  std::shared_ptr<mtl::Device> device;
  std::shared_ptr<mtl::CommandQueue> queue;
  RandomNumbers random;
  Limits limits;
  std::string stage = "setup";  ///< where an exception came from
  std::ostringstream description;
  std::deque<Observation> observations;  ///< their addresses stay
  std::string error;
  std::string errorType;

  /// Adds a parameter to the description; returns it.
  template <class T>
  T noted(const char* parameter, T value) {
    description << ' ' << parameter << '=';
    if constexpr (std::is_enum_v<T>)
      description << static_cast<std::uint64_t>(value);
    else
      description << value;
    return value;
  }

  double number(Numbers numbers);
  std::vector<float> vector(std::size_t count, Numbers numbers);
  /// Uniform ones, or integers.
  Numbers anyNumbers() { return random.chance(0.2) ? Numbers::Integers : Numbers::Uniform; }

  /// A width or height.
  std::size_t side();
  /// A side of a matrix, which may be longer.
  std::size_t matrixSide();
  std::size_t channels();
  std::size_t imageCount() { return random.chance(0.4) ? 1 : random.size(1, 5); }
  mps::ImageFeatureChannelFormat anyFormat();
  mps::ImageFeatureChannelFormat floatFormat();
  /// A format of a result; at times one that must be refused.
  mps::ImageFeatureChannelFormat resultFormat();
  /// Format and sizes of a source, such that `images` of them have at most `elements`.
  mps::ImageDescriptor imageSizes(std::size_t images, std::size_t elements);
  mps::ImageDescriptor imageSizes() { return imageSizes(5, limits.elements); }

  [[nodiscard]] CommandBufferPointer begin() const;
  /// Commits and waits. @throws what failed
  void finish(const CommandBufferPointer& commandBuffer);

  Observation& observe(Observation observation);
  /// A buffer that the call writes; null is not observed.
  void observeBuffer(const char* buffersName, const std::shared_ptr<mtl::Buffer>& buffer,
                     const Tolerance& tolerance, ElementFormat format = ElementFormat::Float32);
};

/// Divides the larger of two sizes by 2 until their product, times a factor, is at most `most`.
void reduceTo(std::size_t most, std::size_t& first, std::size_t& second, std::size_t factor = 1);

}  // namespace unmetal::random_calls
