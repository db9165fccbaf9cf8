#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "mps/core/image/image_descriptor.hpp"
#include "mps/core/types/batch_iterator.hpp"
#include "mtl/log.hpp"

namespace mtl {
class Buffer;
class CommandBuffer;
class Device;
class Heap;
}  // namespace mtl

namespace mps {

class Image;
class Kernel;
class StateBatch;
namespace detail {
struct ForwardRecord;
}

/// What a resource of a state is. Textures are not modelled; the value keeps Apple's numbers.
enum class StateResourceType : std::uint64_t { None = 0, Buffer = 1, Texture = 2 };

/// What a texture of a state is (MPSStateTextureInfo).
struct StateTextureInfo {
  std::size_t width = 0;
  std::size_t height = 0;
  std::size_t depth = 0;
  std::size_t arrayLength = 0;
  PixelFormat pixelFormat = PixelFormat::Invalid;
  TextureType textureType = TextureType::Type1D;
  TextureUsage usage = TextureUsage::Unknown;
  bool operator==(const StateTextureInfo&) const = default;
};

/// Sizes of the buffers of a state (MPSStateResourceList).
class StateResourceList {
 public:
  StateResourceList() = default;
  StateResourceList(std::initializer_list<std::size_t> bufferSizes) : bufferSizes_(bufferSizes) {}
  void appendBuffer(std::size_t size) { bufferSizes_.push_back(size); }
  [[nodiscard]] std::span<const std::size_t> bufferSizes() const { return bufferSizes_; }

 private:
  std::vector<std::size_t> bufferSizes_;
};

/// Data that flows between kernels beside images (MPSState).
///
/// A temporary state lives on one command buffer until its readCount is 0; each encode that reads it takes 1
/// off. A permanent state, and a state without resources, shows readCount 0 and is never counted.
class State : public std::enable_shared_from_this<State> {
 public:
  virtual ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Permanent, with zero-filled buffers that are allocated at first use.
  static std::shared_ptr<State> create(const std::shared_ptr<mtl::Device>& device,
                                       const StateResourceList& resources);
  /// Permanent, around buffers of the caller (which may be none). @throws Error when one is null, or two are of
  /// different devices
  static std::shared_ptr<State> create(std::vector<std::shared_ptr<mtl::Buffer>> resources);
  /// Temporary, with private buffers of undefined content.
  static std::shared_ptr<State> createTemporary(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                                const StateResourceList& resources = {});

  [[nodiscard]] std::size_t resourceCount() const { return resources_.size(); }
  /// The buffer, or null when it is not allocated and allocateMemory is false.
  /// @throws Error when index >= resourceCount() or the state was released.
  std::shared_ptr<mtl::Buffer> resource(std::size_t index, bool allocateMemory = true);
  /// None beyond the last resource.
  [[nodiscard]] StateResourceType resourceType(std::size_t index) const;
  /// Bytes of a buffer; 0 beyond the last resource. Does not allocate.
  [[nodiscard]] std::size_t bufferSize(std::size_t index) const;
  /// Zeros: no resource of a state is a texture.
  [[nodiscard]] StateTextureInfo textureInfo(std::size_t index) const;
  /// Bytes of backing storage; 0 when built around buffers of the caller.
  [[nodiscard]] std::size_t resourceSize() const;

  [[nodiscard]] std::size_t readCount() const;
  /// 0 frees the memory now. No effect on a state that is not temporary. @throws Error when it was 0 already.
  void setReadCount(std::size_t readCount);
  [[nodiscard]] bool isTemporary() const { return temporary_; }
  /// Whether a temporary state may be used with this command buffer.
  [[nodiscard]] bool belongsTo(const mtl::CommandBuffer& commandBuffer) const;
  [[nodiscard]] const std::shared_ptr<mtl::Device>& device() const { return device_; }
  [[nodiscard]] const std::string& label() const { return label_; }
  void setLabel(std::string label);

  /// Records the copy that makes device results visible on the host, for all resources. Nothing to do for
  /// private and temporary ones. @throws Error after commit, and for a command buffer of another device.
  virtual void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);

  /// Hook of a kernel's destinationImageDescriptor: may change the descriptor or the kernel's offset. The
  /// default returns the suggestion.
  virtual ImageDescriptor destinationImageDescriptor(std::span<const std::shared_ptr<Image>> sourceImages,
                                                     std::span<const std::shared_ptr<State>> sourceStates,
                                                     Kernel& kernel,
                                                     const ImageDescriptor& suggestedDescriptor);

  /// @name The library's own
  /// @{
  /// The kernel that made or wrote it, for messages.
  void setProducer(const std::string& kernel);
  /// For the log.
  [[nodiscard]] std::size_t readsLeft() const { return readCount(); }
  [[nodiscard]] std::string describeUnread() const;
  /// Whether its buffers begin with undefined content.
  [[nodiscard]] bool beginsUndefined() const { return !zeroFilled_; }
  /// Lets a resource be this buffer, of the same size, in place of a new one.
  void useBuffer(std::size_t index, std::shared_ptr<mtl::Buffer> buffer);
  /// @}

 protected:
  State(std::shared_ptr<mtl::Device> device, const StateResourceList& resources);
  explicit State(std::vector<std::shared_ptr<mtl::Buffer>> resources);
  State(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateResourceList& resources);
  /// Permanent buffers need not start with zeros: the first encode that writes them writes all.
  void leaveUninitialised() { zeroFilled_ = false; }

 private:
  struct Resource {
    std::size_t size = 0;
    std::shared_ptr<mtl::Buffer> buffer;
  };

  std::shared_ptr<mtl::Device> device_;
  std::shared_ptr<mtl::Heap> heap_;  ///< of a temporary state's command buffer, until released
  std::uint64_t scope_ = 0;
  mutable std::mutex mutex_;
  std::vector<Resource> resources_;
  bool ownsResources_ = true;
  bool zeroFilled_ = true;
  bool temporary_ = false;
  std::size_t readCount_ = 0;
  std::string label_;
  std::string producer_;
  mtl::Log::Watch watch_;  ///< by the log of a temporary state's command buffer
};

namespace detail {
/// What a family keeps for a whole batch of states.
class StateBlock {
 public:
  virtual ~StateBlock() = default;
  /// State::synchronize of all its states, with as few copies as it takes.
  virtual void synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) = 0;
};
}  // namespace detail

/// The states of a batch (MPSStateBatch): one per image, or one state that every image
/// shares. States of a batch that the library makes come into being when somebody asks for one. A small
/// value: copies share states.
class StateBatch {
 public:
  StateBatch() = default;
  /// No states, where a batch may be absent.
  StateBatch(std::nullptr_t) {}                                      // NOLINT
  StateBatch(std::vector<std::shared_ptr<State>> states);            // NOLINT: a list is a batch
  StateBatch(std::initializer_list<std::shared_ptr<State>> states);  // NOLINT
  /// Of a class of states, e.g. loss labels.
  template <std::derived_from<State> Derived>
  requires(!std::same_as<Derived, State>)
      StateBatch(const std::vector<std::shared_ptr<Derived>>& states)  // NOLINT
      : StateBatch(std::vector<std::shared_ptr<State>>(states.begin(), states.end())) {}
  /// `count` references to one state.
  StateBatch(std::shared_ptr<State> state, std::size_t count);

  [[nodiscard]] std::size_t count() const { return count_; }
  /// count() under the name that C++ gives it.
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  /// State number `index`; the same object each time. @throws Error when index >= count().
  [[nodiscard]] std::shared_ptr<State> operator[](std::size_t index) const { return element(index); }
  /// For `for (const auto& state : batch)`: all states, in order.
  using Iterator = detail::BatchIterator<StateBatch, State>;
  [[nodiscard]] Iterator begin() const { return {*this, 0}; }
  [[nodiscard]] Iterator end() const { return {*this, count_}; }
  /// States [first, first + count). @throws Error when the range leaves the batch.
  [[nodiscard]] StateBatch slice(std::size_t first, std::size_t count) const;
  /// The state that all share, or null when they differ.
  [[nodiscard]] std::shared_ptr<State> sharedState() const;
  /// Each distinct state once, in order of first position.
  [[nodiscard]] std::vector<std::shared_ptr<State>> distinct() const;

  /// @name The library's own
  /// @{
  /// State i is made by make(i) when asked for.
  StateBatch(std::function<std::shared_ptr<State>(std::size_t)> make, std::size_t count,
             std::shared_ptr<detail::StateBlock> block = nullptr);
  /// The record of a forward encode, for every state of this batch, made or not.
  void setRecord(const std::shared_ptr<const detail::ForwardRecord>& record) const;
  /// The record that all states have, as images first, first + 1, ... of it; else null.
  [[nodiscard]] std::shared_ptr<const detail::ForwardRecord> commonRecord(std::size_t& first) const;
  /// The family's block behind this batch, or null, and the position of state 0 in it.
  [[nodiscard]] std::shared_ptr<detail::StateBlock> block() const;
  [[nodiscard]] std::size_t firstInBlock() const { return first_; }
  /// The distinct states that must be looked at. Of states still to be made and not
  /// temporary the first stands for all.
  [[nodiscard]] std::vector<std::shared_ptr<State>> existing() const;
  /// @}

 private:
  struct Block;
  friend Iterator;
  /// Where the batch keeps the state.
  [[nodiscard]] const std::shared_ptr<State>& element(std::size_t index) const;
  friend std::size_t StateBatchIncrementReadCount(const StateBatch& batch, std::int64_t amount);
  std::shared_ptr<Block> block_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

/// Adds `amount` to readCount once per distinct temporary state whose count is not 0; never below 0. Returns
/// the number of distinct states (MPSStateBatchIncrementReadCount).
std::size_t StateBatchIncrementReadCount(const StateBatch& batch,
                                         std::int64_t amount);  // NOLINT: Apple's name
/// State::synchronize once per distinct state (MPSStateBatchSynchronize).
void StateBatchSynchronize(const StateBatch& batch,  // NOLINT: Apple's name
                           const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);
/// Sum of resourceSize over distinct states (MPSStateBatchResourceSize).
std::size_t StateBatchResourceSize(const StateBatch& batch);  // NOLINT: Apple's name

}  // namespace mps
