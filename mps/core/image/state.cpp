#include "mps/core/image/state.hpp"

#include <unordered_set>

#include "mps/core/image/forward_record.hpp"
#include "mps/core/image/gradient_state.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"
#include "mtl/submission.hpp"

namespace mps {

State::State(std::shared_ptr<mtl::Device> device, const StateResourceList& resources)
    : device_(std::move(device)) {
  if (!device_) throw Error("State", "device", "null", "a device");
  for (const std::size_t size : resources.bufferSizes()) resources_.push_back({size, nullptr});
}

State::State(std::vector<std::shared_ptr<mtl::Buffer>> resources) : ownsResources_(false) {
  for (auto& buffer : resources) {
    if (!buffer) throw Error("State", "resource", "null", "a buffer");
    if (!device_) device_ = buffer->device();
    if (buffer->device() != device_)
      throw Error("State", "resource", "of another device than the first", "buffers of one device");
    resources_.push_back({buffer->length(), std::move(buffer)});
  }
}

State::State(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const StateResourceList& resources) {
  if (!commandBuffer) throw Error("State", "commandBuffer", "null", "a command buffer");
  commandBuffer->checkOpen();
  device_ = commandBuffer->device();
  for (const std::size_t size : resources.bufferSizes()) resources_.push_back({size, nullptr});
  temporary_ = !resources_.empty();
  if (!temporary_) return;
  // Not the command buffer: what that holds may hold this state, and when it is dropped neither would go.
  heap_ = commandBuffer->heap();
  scope_ = commandBuffer->submission()->scope();
  readCount_ = 1;
  watch_.begin(commandBuffer->submission()->log(), *this);
}

State::~State() {
  watch_.end();
}

std::string State::describeUnread() const {
  const std::lock_guard lock(mutex_);
  return "temporary state" + (label_.empty() ? std::string() : " \"" + label_ + "\"") +
         (producer_.empty() ? std::string() : " of " + producer_);
}

void State::setLabel(std::string label) {
  const std::lock_guard lock(mutex_);
  label_ = std::move(label);
}

void State::setProducer(const std::string& kernel) {
  const std::lock_guard lock(mutex_);
  producer_ = kernel;
}

std::size_t State::readCount() const {
  const std::lock_guard lock(mutex_);
  return readCount_;
}

std::shared_ptr<State> State::create(const std::shared_ptr<mtl::Device>& device,
                                     const StateResourceList& resources) {
  return std::shared_ptr<State>(new State(device, resources));
}

std::shared_ptr<State> State::create(std::vector<std::shared_ptr<mtl::Buffer>> resources) {
  return std::shared_ptr<State>(new State(std::move(resources)));
}

std::shared_ptr<State> State::createTemporary(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                                              const StateResourceList& resources) {
  return std::shared_ptr<State>(new State(commandBuffer, resources));
}

std::shared_ptr<mtl::Buffer> State::resource(std::size_t index, bool allocateMemory) {
  const std::lock_guard lock(mutex_);
  if (index >= resources_.size())
    throw Error("State", "index", std::to_string(index), "less than " + std::to_string(resources_.size()));
  if (temporary_ && readCount_ == 0)
    throw Error("temporary state" + (label_.empty() ? std::string() : " \"" + label_ + "\"") +
                ": its readCount is 0 and its memory serves others; raise readCount before the last read");
  Resource& resource = resources_[index];
  if (!resource.buffer && allocateMemory) {
    if (temporary_)
      resource.buffer =
          std::make_shared<mtl::Buffer>(device_, heap_->allocate(resource.size), mtl::StorageMode::Private);
    else if (zeroFilled_)
      resource.buffer = device_->newBuffer(resource.size);
    else
      resource.buffer =
          std::make_shared<mtl::Buffer>(device_, device_->allocate(resource.size), mtl::StorageMode::Managed);
  }
  return resource.buffer;
}

void State::useBuffer(std::size_t index, std::shared_ptr<mtl::Buffer> buffer) {
  const std::lock_guard lock(mutex_);
  resources_[index].buffer = std::move(buffer);
}

StateResourceType State::resourceType(std::size_t index) const {
  return index < resources_.size() ? StateResourceType::Buffer : StateResourceType::None;
}

std::size_t State::bufferSize(std::size_t index) const {
  return index < resources_.size() ? resources_[index].size : 0;
}

StateTextureInfo State::textureInfo(std::size_t /*index*/) const {
  return {};
}

std::size_t State::resourceSize() const {
  std::size_t bytes = 0;
  if (ownsResources_)
    for (const Resource& resource : resources_) bytes += resource.size;
  return bytes;
}

void State::setReadCount(std::size_t readCount) {
  if (!temporary_) return;
  const std::lock_guard lock(mutex_);
  if (readCount_ == 0)
    throw Error("temporary state" + (label_.empty() ? std::string() : " \"" + label_ + "\"") +
                ": readCount is set after it reached 0");
  readCount_ = readCount;
  if (readCount > 0) return;
  for (Resource& resource : resources_) resource.buffer.reset();
  heap_.reset();
}

bool State::belongsTo(const mtl::CommandBuffer& commandBuffer) const {
  return !temporary_ || commandBuffer.submission()->isOfScope(scope_);
}

void State::synchronize(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  if (!commandBuffer) throw Error("State", "commandBuffer", "null", "a command buffer");
  commandBuffer->checkOpen();
  if (device_) commandBuffer->checkDevice("State", device_);
  if (temporary_) return;
  for (Resource& resource : resources_)
    if (resource.buffer) resource.buffer->synchronize(*commandBuffer);
}

ImageDescriptor State::destinationImageDescriptor(std::span<const std::shared_ptr<Image>> /*sourceImages*/,
                                                  std::span<const std::shared_ptr<State>> /*sourceStates*/,
                                                  Kernel& /*kernel*/,
                                                  const ImageDescriptor& suggestedDescriptor) {
  return suggestedDescriptor;
}

/// States made so far; those still to be made come from `make`.
struct StateBatch::Block {
  std::mutex mutex;
  std::vector<std::shared_ptr<State>> states;
  std::function<std::shared_ptr<State>(std::size_t)> make;
  std::shared_ptr<const detail::ForwardRecord>
      record;  ///< for states made later; its images are theirs in order
  std::shared_ptr<State> shared;
  std::shared_ptr<detail::StateBlock> family;

  /// Of a mutex that the caller holds.
  const std::shared_ptr<State>& made(std::size_t index);
};

namespace {

void attach(State& state, const std::shared_ptr<const detail::ForwardRecord>& record, std::size_t image) {
  if (auto* holder = dynamic_cast<detail::RecordHolder*>(&state)) holder->setRecord(record, image);
}

}  // namespace

const std::shared_ptr<State>& StateBatch::Block::made(std::size_t index) {
  auto& state = states[index];
  if (!state) {
    state = make(index);
    if (record) attach(*state, record, index);
  }
  return state;
}

StateBatch::StateBatch(std::vector<std::shared_ptr<State>> states)
    : block_(std::make_shared<Block>()), count_(states.size()) {
  for (const auto& state : states)
    if (!state) throw Error("StateBatch", "state", "null", "a state");
  block_->states = std::move(states);
}

StateBatch::StateBatch(std::initializer_list<std::shared_ptr<State>> states)
    : StateBatch(std::vector<std::shared_ptr<State>>(states)) {}

StateBatch::StateBatch(std::shared_ptr<State> state, std::size_t count)
    : block_(std::make_shared<Block>()), count_(count) {
  if (!state) throw Error("StateBatch", "state", "null", "a state");
  block_->shared = std::move(state);
}

StateBatch::StateBatch(std::function<std::shared_ptr<State>(std::size_t)> make, std::size_t count,
                       std::shared_ptr<detail::StateBlock> block)
    : block_(std::make_shared<Block>()), count_(count) {
  block_->make = std::move(make);
  block_->family = std::move(block);
  block_->states.resize(count);
}

const std::shared_ptr<State>& StateBatch::element(std::size_t index) const {
  if (index >= count_)
    throw Error("StateBatch", "index", std::to_string(index), "less than " + std::to_string(count_));
  if (block_->shared) return block_->shared;
  const std::lock_guard lock(block_->mutex);
  return block_->made(first_ + index);
}

StateBatch StateBatch::slice(std::size_t first, std::size_t count) const {
  if (first > count_ || count > count_ - first)
    throw Error("StateBatch", "slice", std::to_string(first) + " + " + std::to_string(count),
                "within " + std::to_string(count_) + " states");
  StateBatch part = *this;
  part.first_ += first;
  part.count_ = count;
  return part;
}

std::shared_ptr<detail::StateBlock> StateBatch::block() const {
  return block_ ? block_->family : nullptr;
}

std::shared_ptr<State> StateBatch::sharedState() const {
  if (empty()) return nullptr;
  if (block_->shared) return block_->shared;
  const auto states = distinct();
  return states.size() == 1 ? states.front() : nullptr;
}

void StateBatch::setRecord(const std::shared_ptr<const detail::ForwardRecord>& record) const {
  if (empty()) return;
  if (block_->shared) return attach(*block_->shared, record, 0);
  const std::lock_guard lock(block_->mutex);
  // A part of a batch has a record of its own, which states made later would not know.
  const bool isWhole = count_ == block_->states.size();
  for (std::size_t i = first_; i < first_ + count_; ++i)
    if (!isWhole || block_->states[i]) attach(*block_->made(i), record, i - first_);
  if (isWhole && block_->make) block_->record = record;
}

std::shared_ptr<const detail::ForwardRecord> StateBatch::commonRecord(std::size_t& first) const {
  if (empty() || block_->shared) return nullptr;
  const std::lock_guard lock(block_->mutex);
  if (!block_->record) return nullptr;
  for (std::size_t i = first_; i < first_ + count_; ++i) {
    const auto* holder = dynamic_cast<const detail::RecordHolder*>(block_->states[i].get());
    if (holder != nullptr && (holder->record() != block_->record || holder->imageIndex() != i))
      return nullptr;
  }
  first = first_;
  return block_->record;
}

std::vector<std::shared_ptr<State>> StateBatch::distinct() const {
  if (empty()) return {};
  if (block_->shared) return {block_->shared};
  std::vector<std::shared_ptr<State>> states;
  std::unordered_set<const State*> seen;
  for (std::size_t i = 0; i < count_; ++i)
    if (auto state = (*this)[i]; seen.insert(state.get()).second) states.push_back(std::move(state));
  return states;
}

std::vector<std::shared_ptr<State>> StateBatch::existing() const {
  if (empty() || !block_->make || (*this)[0]->isTemporary()) return distinct();
  std::vector<std::shared_ptr<State>> states;
  const std::lock_guard lock(block_->mutex);
  for (std::size_t i = first_; i < first_ + count_; ++i)
    if (block_->states[i]) states.push_back(block_->states[i]);
  return states;
}

std::size_t StateBatchIncrementReadCount(const StateBatch& batch, std::int64_t amount) {
  const auto states = batch.existing();
  for (const auto& state : states) {
    const std::size_t count = state->readCount();
    if (!state->isTemporary() || count == 0 || amount == 0) continue;
    const auto bits = static_cast<std::size_t>(amount);
    const std::size_t magnitude = amount < 0 ? 0 - bits : bits;  // -amount need not be an int64
    state->setReadCount(amount > 0 ? count + magnitude : count - std::min(count, magnitude));
  }
  return !batch.empty() && batch.block_->make ? batch.count() : states.size();
}

void StateBatchSynchronize(const StateBatch& batch,
                           const std::shared_ptr<mtl::CommandBuffer>& commandBuffer) {
  if (const auto block = batch.block(); block && !batch.empty()) return block->synchronize(commandBuffer);
  for (const auto& state : batch.distinct()) state->synchronize(commandBuffer);
}

std::size_t StateBatchResourceSize(const StateBatch& batch) {
  std::size_t bytes = 0;
  for (const auto& state : batch.distinct()) bytes += state->resourceSize();
  return bytes;
}

}  // namespace mps
