#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mps/core/image/forward_record.hpp"
#include "mps/core/image/gradient_state.hpp"
#include "mps/core/image/image_allocator.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/kernel/batch_operand.hpp"
#include "mps/core/kernel/call_checks.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/plan/plan.hpp"
#include "mps/core/types/tensor_shape.hpp"
#include "mps/core/types/window_geometry.hpp"

#include "mtl/command.hpp"

/// How a kernel's call becomes a recorded command: the part that all kernels share. The library's own.
namespace mps::detail {

/// One forward call with all properties resolved; what a family turns into its problem.
struct ForwardCall {
  TensorShape source;       ///< channel range and images selected
  TensorShape destination;  ///< the clip rectangle
  WindowAxis x;
  WindowAxis y;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
  bool wantsSavedFields = false;  ///< a gradient state is there and the command will run
  KernelOptions options = KernelOptions::None;
  mtl::Region clipRect;  ///< that rectangle
  Offset offset;
  std::size_t sourceFeatureChannelOffset = 0;
  bool needsEdgeCopy = false;    ///< windowless, and the region at offset leaves the source
  std::shared_ptr<State> state;  ///< the (first) state of the encode, for families whose states hold buffers
};

/// One gradient call likewise.
struct GradientCall {
  TensorShape gradient;     ///< the incoming gradient image, channel range selected
  TensorShape source;       ///< the forward source image (or result), channel range selected
  TensorShape destination;  ///< the clip rectangle of the destination
  mtl::Region clipRect;     ///< that rectangle
  Offset primaryOffset;
  Offset secondaryOffset;
  std::int64_t kernelOffsetX = 0;
  std::int64_t kernelOffsetY = 0;
  std::int64_t kernelWidth = 1, kernelHeight = 1;
  std::int64_t strideInPixelsX = 1, strideInPixelsY = 1;
  std::int64_t dilationRateX = 1, dilationRateY = 1;
  ImageEdgeMode edgeMode = ImageEdgeMode::Zero;
  std::shared_ptr<const ForwardRecord> record;  ///< null in the inherited encodes without a state
  bool clipRectIsSet = false;                   ///< by the user: what lies outside of it stays as it is
  bool accumulate = false;                      ///< add to the destination
  bool stateDriven = false;  ///< the library made the destination: every pixel of the forward source counts
  bool savedFieldsFit = false;   ///< record->saved belongs to exactly this source
  std::size_t firstImage = 0;    ///< position in the forward batch of the first image
  std::shared_ptr<State> state;  ///< the (first) gradient state, for families whose states hold buffers
  StateBatch states;             ///< all of them
  KernelOptions options = KernelOptions::None;
};

/// Of a kernel that maps each channel to itself. @throws Error unless gradient, source and destination have as many
void checkSameChannels(const Kernel& kernel, const GradientCall& call);

/// What a family makes of a call: a plan and the operands that only it knows.
struct PreparedCall {
  struct Parameter {
    std::shared_ptr<mtl::Memory> memory;
    std::size_t byteOffset = 0;
    bool isWritten = false;
    bool isAddedTo = false;  ///< written by adding to what is there, which must be good
    bool isCounted =
        false;  ///< the host counts what is added: a call that a predicate leaves out makes it invalid
    std::optional<mtl::ByteRegion> bytes =
        std::nullopt;  ///< those of an image; else all of the memory counts

    static Parameter of(const TensorView& view, bool isWritten = false);
    [[nodiscard]] mtl::ContentMark mark() const;
  };
  ChosenPlan plan;
  std::size_t savedBytes = 0;  ///< of all images together, forward calls only
  double operations = 0;       ///< mtl::CommandTime::operations
  std::array<Parameter, 8> parameters;
  std::array<double, 8> scalars{};
  bool readsSource =
      true;  ///< false: only its size counts, no memory is taken for it (docs/decisions.md, D10)
  bool readsGradient = true;
  std::size_t sourceIndex = 0;  ///< of kernels with any number of sources: which one CallOperands::source is
  bool sourceIsSecondary = false;  ///< the plan takes the source image as Operands::secondary
  /// The plan takes the source image as Operands::gradient, and the gradient as Operands::source.
  bool exchangesSourceAndGradient = false;
  std::optional<std::size_t> destinationParameter;  ///< the plan takes the destination as that parameter
  bool readsSavedFields = false;
  bool writesDestination = true;
  bool accumulate = false;            ///< Operands::accumulate
  bool zeroDestinationFirst = false;  ///< the plan writes a part of the destination only
  /// Pixel, in the views of the call, that the plan's tensors begin at.
  mtl::Origin gradientOrigin, sourceOrigin, destinationOrigin;
};

/// The operands of one command.
struct CallOperands {
  const BatchOperand* source = nullptr;
  const BatchOperand* secondary = nullptr;
  const BatchOperand* gradient = nullptr;
  const BatchOperand* destination = nullptr;
  std::shared_ptr<mtl::Memory> saved;
  std::size_t savedByteOffset = 0;
  const BatchOperand* secondDestination = nullptr;  ///< the plan takes it as Operands::parameters[0]
};

/// While alive, the function sees every call that this thread records: for checks that compute calls again.
class CallObserver {
 public:
  using Function = std::function<void(const PreparedCall&, const CallOperands&)>;
  explicit CallObserver(Function function);
  ~CallObserver();
  CallObserver(const CallObserver&) = delete;
  CallObserver& operator=(const CallObserver&) = delete;
  /// Whether this thread has one.
  static bool isActive();

 private:
  Function function_;
  const Function* previous_;
};

/// Lets a command run a plan, and a device replay it.
void setRun(mtl::Command& command, std::shared_ptr<const Plan> plan, const Operands& operands);

/// Records the plan's run, with the gathers, scatters and fills around it. Takes memory; throws before
/// anything is recorded or leaves what it recorded to the caller's RecordingGuard.
void recordCall(mtl::CommandBuffer& commandBuffer, const std::string& label, const PreparedCall& prepared,
                const CallOperands& operands);
/// The same for a call of a kernel, with its commentary when it is verbose.
void recordCall(mtl::CommandBuffer& commandBuffer, const Kernel& kernel, const PreparedCall& prepared,
                const CallOperands& operands);
/// Says which implementation a verbose kernel uses.
void comment(const Kernel& kernel, const ChosenPlan& chosen);

/// Memory of an input as one tensor; loose images are gathered by recorded copies into heap memory, which the
/// view keeps alive.
TensorView gather(mtl::CommandBuffer& commandBuffer, const std::string& label, const BatchOperand& operand);
/// Records the copies of an input's images into one tensor of the same shape.
void gatherInto(mtl::CommandBuffer& commandBuffer, const std::string& label, const BatchOperand& operand,
                const TensorView& tensor);
/// Records the copies from one tensor into the images of an output that is loose.
void scatter(mtl::CommandBuffer& commandBuffer, const std::string& label, const TensorView& tensor,
             const BatchOperand& operand);

/// Records a copy of bytes from one block of memory to another; both stay alive until it ran.
void recordMemoryCopy(mtl::CommandBuffer& commandBuffer, const std::string& label,
                      const std::shared_ptr<mtl::Memory>& source, std::size_t sourceOffset,
                      const std::shared_ptr<mtl::Memory>& destination, std::size_t destinationOffset,
                      std::size_t bytes);

/// Some bytes of a block of memory; no block stands for zeros.
struct MemoryPlace {
  std::shared_ptr<mtl::Memory> memory;
  std::size_t byteOffset = 0;
};
/// Memory that takes the place of `present` as soon as the recorded copy of `source` has run. It holds the values of
/// `present` where the copy is left out by a predicate, and where the buffer is let go uncommitted; until one of the
/// three has run, commands that read it fail.
std::shared_ptr<mtl::Memory> recordReload(mtl::CommandBuffer& commandBuffer, const std::string& label,
                                          const MemoryPlace& source, const MemoryPlace& present,
                                          std::size_t bytes);
/// Records a fill of a block with zeros, which no predicate leaves out: what later calls add to.
void recordZerosAlways(mtl::CommandBuffer& commandBuffer, const std::string& label,
                       const std::shared_ptr<mtl::Memory>& memory);

/// Records a fill of all elements of the operand with zeros.
void recordZeros(mtl::CommandBuffer& commandBuffer, const std::string& label,
                 const BatchOperand& destination);

/// A copy of the region [x, x + width) x [y, y + height) of a source, edges filled as asked; for kernels
/// without a window whose region leaves the source.
BatchOperand recordEdgeCopy(mtl::CommandBuffer& commandBuffer, const std::string& label,
                            const BatchOperand& source, std::int64_t x, std::int64_t y, std::int64_t width,
                            std::int64_t height, ImageEdgeMode edgeMode);

/// Of a decoded kernel (CodingLimits). @throws Error for a destination that is too large
void checkDecodedSize(const Kernel& kernel, const ImageDescriptor& descriptor);

/// `count` destination images from an allocator, checked.
ImageBatch allocateImages(const Kernel& kernel, ImageAllocator& allocator,
                          const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                          const ImageDescriptor& descriptor, std::size_t count);

/// The batch of one image. @throws Error when it is null.
ImageBatch batchOf(const Kernel& kernel, const char* argument, const std::shared_ptr<Image>& image);

/// Images of that size whose memory is never taken, for questions about an encode.
ImageBatch standIns(const std::shared_ptr<mtl::Device>& device, const ImageDescriptor& size,
                    std::size_t count);

/// The state, which remembers who made it, for messages.
std::shared_ptr<State> producedBy(const Kernel& kernel, std::shared_ptr<State> state);
/// Remembers who writes the images, for messages.
void setProducer(const ImageBatch& images, const std::string& producer);
/// Takes one read off each distinct temporary image (state) of the batch; `reader` is remembered for
/// messages.
void consumeRead(const ImageBatch& images, const std::string& reader);
void consumeRead(const StateBatch& states);

}  // namespace mps::detail
