#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "mtl/types.hpp"

/// Value types and enumerations that every kernel shares (MPSCoreTypes.h, MPSNeuralNetworkTypes.h). Values are
/// Apple's, so that coded files and ported code agree.
namespace mps {

/// Signed position in pixels; z is the index of the first image of a stack.
struct Offset {
  std::int64_t x = 0;
  std::int64_t y = 0;
  std::int64_t z = 0;
  bool operator==(const Offset&) const = default;
};

/// A pixel and a channel, all counted from 0.
struct ImageCoordinate {
  std::size_t x = 0;
  std::size_t y = 0;
  std::size_t channel = 0;
  bool operator==(const ImageCoordinate&) const = default;
};

/// Pixels and channels of an image, from `offset` on.
struct ImageRegion {
  ImageCoordinate offset;
  ImageCoordinate size;
  bool operator==(const ImageRegion&) const = default;
};

/// Window of feature channels for Image::readBytes and writeBytes.
/// The offset is a multiple of 4; the count is positive, and a multiple of 4 or up to the last channel.
struct ImageReadWriteParams {
  std::size_t featureChannelOffset = 0;
  std::size_t numberOfFeatureChannelsToReadWrite = 0;
};

/// "No clip": the whole destination. Always intersect it with an image; never add to its sizes.
inline constexpr mtl::Region RectNoClip{
    {0, 0, 0},
    {std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max(),
     std::numeric_limits<std::size_t>::max()}};

/// Bit field of Kernel::options().
enum class KernelOptions : std::uint64_t {
  None = 0,
  /// Skip argument checks (never those for memory). Bad arguments are then undefined behaviour.
  SkipAPIValidation = 1,
  /// Let the kernel compute in TF32, bfloat16 or float16 where the back end has it. Off by default.
  AllowReducedPrecision = 2,
  /// Without effect: how work is split among threads is the plan's own, and results do not depend on it.
  DisableInternalTiling = 4,
  /// Without effect: commands carry class name and label already.
  InsertDebugGroups = 8,
  /// Commentary on stderr: of a kernel which implementation each encode uses, of a graph its
  /// debugDescription() when it meets new sizes. On by default when the environment has MPS_LOG_INFO.
  Verbose = 16,
};
constexpr KernelOptions operator|(KernelOptions a, KernelOptions b) {
  return static_cast<KernelOptions>(static_cast<std::uint64_t>(a) | static_cast<std::uint64_t>(b));
}
/// True when `options` has the bit `option`.
constexpr bool has(KernelOptions options, KernelOptions option) {
  return (static_cast<std::uint64_t>(options) & static_cast<std::uint64_t>(option)) != 0;
}

/// What a read outside the source gives. The CNN kernels take Zero and Clamp; the others belong to padding.
enum class ImageEdgeMode : std::uint64_t {
  Zero = 0,
  Clamp = 1,
  Mirror = 2,
  MirrorWithEdge = 3,
  Constant = 4
};
/// "Mirror"; "unknown" for what is none of them.
const char* name(ImageEdgeMode mode);

/// Storage of one feature channel. None means "let the library choose": see ImageDescriptor and
/// NNGraph::format.
enum class ImageFeatureChannelFormat : std::uint64_t {
  None = 0,
  Unorm8 = 1,
  Unorm16 = 2,
  Float16 = 3,
  Float32 = 4
};

/// Bytes of one channel: 1, 2, 2, 4; 0 for None.
constexpr std::size_t bytesPerChannel(ImageFeatureChannelFormat format) {
  switch (format) {
    case ImageFeatureChannelFormat::Unorm8:
      return 1;
    case ImageFeatureChannelFormat::Unorm16:
    case ImageFeatureChannelFormat::Float16:
      return 2;
    case ImageFeatureChannelFormat::Float32:
      return 4;
    case ImageFeatureChannelFormat::None:
      return 0;
  }
  return 0;
}
/// "unorm8", "unorm16", "float16", "float32", "none".
const char* name(ImageFeatureChannelFormat format);

/// Element types of vectors, matrices and weights; the low bits are the width in bits.
enum class DataType : std::uint32_t {
  Invalid = 0,
  FloatBit = 0x10000000,
  Float32 = FloatBit | 32,
  Float16 = FloatBit | 16,
  SignedBit = 0x20000000,
  Int8 = SignedBit | 8,
  Int16 = SignedBit | 16,
  Int32 = SignedBit | 32,
  Int64 = SignedBit | 64,
  UInt8 = 8,
  UInt16 = 16,
  UInt32 = 32,
  UInt64 = 64,
  NormalizedBit = 0x40000000,
  Unorm1 = NormalizedBit | 1,
  Unorm8 = NormalizedBit | 8,
};
/// Bytes of one element; 0 for Invalid.
constexpr std::size_t sizeInBytes(DataType type) {
  return (static_cast<std::uint32_t>(type) & 0xFFFFU) / 8;
}
/// "Float32", "UInt8", ...
const char* name(DataType type);

/// Order of elements in the user's memory, slowest first: [image][y][x][channel] or [image][channel][y][x].
enum class DataLayout : std::uint64_t { HeightxWidthxFeatureChannels = 0, FeatureChannelsxHeightxWidth = 1 };

/// When a training graph updates the weights of a layer.
enum class NNTrainingStyle : std::uint64_t {
  /// Never: the layer is frozen.
  UpdateDeviceNone = 0,
  /// In the completion handler of the command buffer, by the data source's CPU method.
  UpdateDeviceCPU = 1,
  /// Right after the gradient pass is encoded, by the data source's device method. The default.
  UpdateDeviceGPU = 2,
};

/// Width of the sums of a convolution. Half is a permission; we always accumulate in float32.
enum class NNConvolutionAccumulatorPrecisionOption : std::uint64_t { Half = 0, Float = 1 };

}  // namespace mps
