#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "mps/core/types.hpp"

namespace mtl {
class Device;
}

namespace unmetal::train {

/// Some pictures of a data set, in the order of an epoch.
struct Batch {
  /// Counted from 0.
  std::uint64_t epoch = 0;
  /// Place in the epoch, counted in batches from 0.
  std::uint64_t index = 0;
  bool isLastOfEpoch = false;
  /// One picture after the other (NHWC), in the format that the loader was asked for.
  std::vector<std::byte> images;
  std::vector<std::uint32_t> labels;

  std::size_t count() const { return labels.size(); }
};

/// What becomes of the pictures that are left when an epoch does not divide into whole batches.
enum class LastBatch {
  /// They are left out (others in each shuffled epoch), so that all batches have one shape. For training.
  Drop,
  /// They make a smaller batch, so that each picture is seen once. For evaluation.
  Keep,
};

struct BatchOptions {
  std::size_t batchSize = 64;
  LastBatch lastBatch = LastBatch::Drop;
  /// A new order in each epoch, a function of seed and epoch alone; otherwise the order of the data set.
  bool shuffle = true;
  std::uint64_t seed = 0;
  /// The first batch that is handed out, to go on where a checkpoint was written.
  std::uint64_t firstEpoch = 0;
  std::uint64_t firstBatch = 0;
  /// Where it ends; firstEpoch itself is included, this one is not.
  std::uint64_t endEpoch = 1;
};

/// Puts the pictures of these numbers into a batch. Called on the loader's thread.
using BatchFill = std::function<void(std::span<const std::uint32_t> numbers, Batch& batch)>;

/// The format in which pictures go to a device: Unorm8 to a GPU, where a step begins with their upload, Float32
/// on the CPU, whose kernels would convert them. The values are the same.
mps::ImageFeatureChannelFormat pictureFormat(const mtl::Device& device);

/// The numbers 0 to count - 1 in the order of an epoch: a Fisher-Yates shuffle with Philox numbers of key
/// `seed`. The same on every machine.
std::vector<std::uint32_t> shuffledOrder(std::size_t count, std::uint64_t seed, std::uint64_t epoch);

/// Makes batches ahead of their use, on a thread of its own; at most three wait.
class BatchLoader {
 public:
  /// @param count pictures in the data set, below 2^32
  /// Throws mps::Error when the batch size is 0 or gives no batch at all, or firstBatch lies beyond the
  /// epoch. firstBatch may equal batchesPerEpoch(): then it begins with the next epoch.
  BatchLoader(std::size_t count, BatchFill fill, const BatchOptions& options);
  /// Stops the thread, whatever it has made ahead.
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  std::uint64_t batchesPerEpoch() const { return batchesPerEpoch_; }

  /// Puts the next batch into `batch`, whose memory serves a later one; false after the last batch. An
  /// exception of the fill function comes out here, after the batches before it, and again in later calls.
  bool next(Batch& batch);

 private:
  void run();
  bool makeEpoch(std::uint64_t epoch, std::uint64_t firstBatch);
  bool takeSpare(Batch& batch);
  void finish(std::exception_ptr error);

  std::size_t count_;
  BatchFill fill_;
  BatchOptions options_;
  std::uint64_t batchesPerEpoch_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;    // guarded by mutex_, as all below
  std::vector<Batch> spares_;  // used batches, for their memory
  bool stopped_ = false;
  bool finished_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace unmetal::train
