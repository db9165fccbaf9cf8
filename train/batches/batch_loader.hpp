#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "mps/core/types/types.hpp"
#include "train/ranks/ranks.hpp"

namespace mtl {
class Device;
}

namespace unmetal::train {

/// The class of a picture that another one is mixed with.
struct OtherClass {
  std::uint32_t label = 0;
  float share = 0;  ///< of it in the mixture, up to 1/2
};

/// Some pictures of a data set, in the order of an epoch.
struct Batch {
  /// Counted from 0.
  std::uint64_t epoch = 0;
  /// Place in the epoch, counted in batches from 0.
  std::uint64_t index = 0;
  bool isLastOfEpoch = false;
  /// Where the first picture stands in the order of the epoch.
  std::size_t firstPlace = 0;
  /// One picture after the other (NHWC), in the format that the loader was asked for.
  std::vector<std::byte> images;
  std::vector<std::uint32_t> labels;
  /// Of pictures that are mixtures of two; otherwise empty.
  std::vector<OtherClass> others;

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
  /// Of so many ranks that share each batch, this one's part is handed out, which may be none; see detail::partOf(). @{
  std::size_t rank = 0;
  std::size_t ranks = 1;
  /// @}
  /// That make batches, whose bytes do not depend on it. 0: as many as there are processors for this process.
  std::size_t threads = 0;
};

namespace detail {
/// The same, with this rank's part of each batch.
[[nodiscard]] BatchOptions sharedOut(BatchOptions options, const Ranks& ranks);
}  // namespace detail

/// The class of a picture, and of the one that is mixed with it.
struct PictureClass {
  PictureClass(std::uint32_t ownClass, const OtherClass& otherClass = {})
      : label(ownClass), other(otherClass) {}

  std::uint32_t label;
  OtherClass other;
};

/// Where batches get their pictures from.
struct BatchSource {
  std::size_t pictureBytes = 0;
  /// Writes a picture as this epoch sees it. Called by several threads at once.
  std::function<PictureClass(std::uint32_t number, std::uint64_t epoch, std::span<std::byte> picture)> write;
  /// Whether pictures are mixtures of two.
  bool mixes = false;
};

/// Puts the pictures of these numbers into a batch, whose epoch is set, on this thread.
void fillBatch(const BatchSource& source, std::span<const std::uint32_t> numbers, Batch& batch);

/// The format in which pictures go to a device: Unorm8 to a GPU, where a step begins with their upload, Float32
/// on the CPU, whose kernels would convert them. The values are the same.
mps::ImageFeatureChannelFormat pictureFormat(const mtl::Device& device);

/// The numbers 0 to count - 1 in the order of an epoch: a Fisher-Yates shuffle with Philox numbers of key
/// `seed`. The same on every machine.
std::vector<std::uint32_t> shuffledOrder(std::size_t count, std::uint64_t seed, std::uint64_t epoch);

/// Makes batches ahead of their use, on threads of its own, which share the pictures of a batch; at most three wait.
class BatchLoader {
 public:
  /// @param count pictures in the data set, below 2^32
  /// Throws mps::Error when the batch size is 0 or gives no batch at all, or firstBatch lies beyond the
  /// epoch. firstBatch may equal batchesPerEpoch(): then it begins with the next epoch.
  BatchLoader(std::size_t count, BatchSource source, const BatchOptions& options);
  /// Stops the threads, whatever they have made ahead.
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  std::uint64_t batchesPerEpoch() const { return batchesPerEpoch_; }

  /// Puts the next batch into `batch`, whose memory serves a later one; false after the last batch. What the source throws
  /// comes out here, after the batches before it, and again in later calls: of several pictures what the first in the order
  /// of the batch has thrown, on any number of threads.
  bool next(Batch& batch);

 private:
  struct Making;
  struct Piece {
    Making* making = nullptr;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  void startThreads();
  void work();
  bool hasWork() const;
  bool mayBegin() const;
  Piece takePiece();
  void beginBatch();
  [[nodiscard]] std::vector<std::uint32_t> orderOf(std::uint64_t epoch) const;
  void finish(const Piece& piece, std::size_t failedPlace, std::exception_ptr error);

  std::size_t count_;
  BatchSource source_;
  BatchOptions options_;
  std::uint64_t batchesPerEpoch_ = 0;
  std::size_t piece_ = 1;  ///< pictures that a thread takes at a time

  std::mutex mutex_;
  std::condition_variable workWanted_;
  std::condition_variable batchDone_;
  std::deque<std::unique_ptr<Making>>
      making_;                        // guarded by mutex_, as all below; in the order of the batches
  std::vector<Batch> spares_;         // used batches, for their memory
  std::vector<std::uint32_t> order_;  // of the epoch that is being made
  std::uint64_t epoch_ = 0;           // of the batch that begins next
  std::uint64_t index_ = 0;
  bool stopped_ = false;
  bool failed_ = false;         // no batch begins after one that has failed
  std::exception_ptr failure_;  // of a batch that could not begin
  std::vector<std::jthread> threads_;
};

}  // namespace unmetal::train
