#include "train/batch_loader.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "mps/core/error.hpp"
#include "mps/core/philox.hpp"
#include "mtl/device.hpp"

namespace unmetal::train {
namespace {

constexpr std::size_t mostReady = 3;

/// Keeps these numbers apart from others that are drawn with the same seed.
constexpr std::uint32_t shuffleStream = 0x53485546;  // "SHUF"

std::uint64_t countBatches(std::size_t count, const BatchOptions& options) {
  if (options.batchSize == 0) throw mps::Error("the batch size is 0, expected at least 1");
  const std::uint64_t whole = count / options.batchSize;
  const bool hasRest = count % options.batchSize != 0;
  return options.lastBatch == LastBatch::Keep && hasRest ? whole + 1 : whole;
}

}  // namespace

mps::ImageFeatureChannelFormat pictureFormat(const mtl::Device& device) {
  using enum mps::ImageFeatureChannelFormat;
  return device.kind() == mtl::DeviceKind::CPU ? Float32 : Unorm8;
}

std::vector<std::uint32_t> shuffledOrder(std::size_t count, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  const mps::detail::PhiloxKey key = mps::detail::philoxKey(seed);
  for (std::size_t remaining = count; remaining > 1; --remaining) {
    const auto [low, high, unused0, unused1] =
        mps::detail::philox({static_cast<std::uint32_t>(remaining), static_cast<std::uint32_t>(epoch),
                             static_cast<std::uint32_t>(epoch >> 32), shuffleStream},
                            key);
    // The remainder of 64 bits prefers some numbers by less than 2^-32 of their share.
    const std::uint64_t random = std::uint64_t{high} << 32 | low;
    std::swap(order[remaining - 1], order[static_cast<std::size_t>(random % remaining)]);
  }
  return order;
}

BatchLoader::BatchLoader(std::size_t count, BatchFill fill, const BatchOptions& options)
    : count_(count),
      fill_(std::move(fill)),
      options_(options),
      batchesPerEpoch_(countBatches(count, options)) {
  if (count_ > std::numeric_limits<std::uint32_t>::max()) {
    throw mps::Error("the data set has " + std::to_string(count_) + " images, more than 4294967295");
  }
  if (batchesPerEpoch_ == 0) {
    throw mps::Error("the batch size is " + std::to_string(options.batchSize) +
                     ", but the data set has only " + std::to_string(count_) + " images");
  }
  if (options_.firstBatch > batchesPerEpoch_) {
    throw mps::Error("there is no batch " + std::to_string(options_.firstBatch) + " in an epoch of " +
                     std::to_string(batchesPerEpoch_));
  }
  if (options_.firstBatch == batchesPerEpoch_) {
    options_.firstBatch = 0;
    ++options_.firstEpoch;
  }
  thread_ = std::thread([this] { run(); });
}

BatchLoader::~BatchLoader() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool BatchLoader::next(Batch& batch) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !ready_.empty() || finished_; });
  if (ready_.empty()) {
    if (error_) std::rethrow_exception(error_);
    return false;
  }
  std::swap(batch, ready_.front());
  spares_.push_back(std::move(ready_.front()));
  ready_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return true;
}

void BatchLoader::run() {
  try {
    std::uint64_t firstBatch = options_.firstBatch;
    for (std::uint64_t epoch = options_.firstEpoch; epoch < options_.endEpoch; ++epoch) {
      if (!makeEpoch(epoch, firstBatch)) break;
      firstBatch = 0;
    }
    finish(nullptr);
  } catch (...) {
    finish(std::current_exception());
  }
}

/// False when the loader was stopped meanwhile.
bool BatchLoader::makeEpoch(std::uint64_t epoch, std::uint64_t firstBatch) {
  std::vector<std::uint32_t> order;
  if (options_.shuffle) {
    order = shuffledOrder(count_, options_.seed, epoch);
  } else {
    order.resize(count_);
    std::iota(order.begin(), order.end(), 0U);
  }
  for (std::uint64_t index = firstBatch; index < batchesPerEpoch_; ++index) {
    Batch batch;
    if (!takeSpare(batch)) return false;
    batch.epoch = epoch;
    batch.index = index;
    batch.isLastOfEpoch = index + 1 == batchesPerEpoch_;
    const auto begin = static_cast<std::size_t>(index) * options_.batchSize;
    fill_(std::span(order).subspan(begin, std::min(options_.batchSize, count_ - begin)), batch);
    {
      const std::lock_guard lock(mutex_);
      ready_.push_back(std::move(batch));
    }
    changed_.notify_all();
  }
  return true;
}

/// Waits until another batch is wanted; false when none will be.
bool BatchLoader::takeSpare(Batch& batch) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ready_.size() < mostReady || stopped_; });
  if (stopped_) return false;
  if (!spares_.empty()) {
    batch = std::move(spares_.back());
    spares_.pop_back();
  }
  return true;
}

void BatchLoader::finish(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    finished_ = true;
  }
  changed_.notify_all();
}

}  // namespace unmetal::train
