#include "train/batches/batch_loader.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <system_error>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mps/core/types/philox.hpp"
#include "mps/distributed/communicator.hpp"
#include "mtl/cpu/processors.hpp"
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

BatchOptions detail::sharedOut(BatchOptions options, const Ranks& ranks) {
  if (!areSeveral(ranks)) return options;
  options.rank = static_cast<std::size_t>(ranks->rank());
  options.ranks = static_cast<std::size_t>(ranks->size());
  return options;
}

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

namespace {

void makeRoom(const BatchSource& source, std::size_t count, Batch& batch) {
  batch.images.resize(count * source.pictureBytes);
  batch.labels.resize(count);
  batch.others.resize(source.mixes ? count : 0);
}

void writePicture(const BatchSource& source, std::uint32_t number, std::size_t place, Batch& batch) {
  const std::span picture = std::span(batch.images).subspan(place * source.pictureBytes, source.pictureBytes);
  const PictureClass found = source.write(number, batch.epoch, picture);
  batch.labels[place] = found.label;
  if (source.mixes) batch.others[place] = found.other;
}

}  // namespace

void fillBatch(const BatchSource& source, std::span<const std::uint32_t> numbers, Batch& batch) {
  makeRoom(source, numbers.size(), batch);
  for (std::size_t place = 0; place < numbers.size(); ++place)
    writePicture(source, numbers[place], place, batch);
}

/// A batch that threads are writing.
struct BatchLoader::Making {
  Batch batch;
  std::vector<std::uint32_t> numbers;
  std::size_t taken = 0;    ///< pictures that a thread has begun
  std::size_t written = 0;  ///< pictures that threads are done with
  std::size_t failedPlace = 0;
  std::exception_ptr error;

  [[nodiscard]] bool hasPictures() const { return taken < numbers.size() && !error; }
  [[nodiscard]] bool isDone() const { return written == taken && !hasPictures(); }
};

BatchLoader::BatchLoader(std::size_t count, BatchSource source, const BatchOptions& options)
    : count_(count),
      source_(std::move(source)),
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
  epoch_ = options_.firstEpoch;
  index_ = options_.firstBatch;
  if (index_ == batchesPerEpoch_) {
    index_ = 0;
    ++epoch_;
  }
  startThreads();
}

BatchLoader::~BatchLoader() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  workWanted_.notify_all();
}

/// No more of them than there are pieces in all batches that wait.
void BatchLoader::startThreads() {
  // Small pictures are written faster than threads agree on who does it.
  constexpr std::size_t leastBytes = std::size_t{1} << 15;
  piece_ = std::max<std::size_t>(1, leastBytes / std::max<std::size_t>(1, source_.pictureBytes));
  const std::size_t pieces = mostReady * ((std::min(options_.batchSize, count_) + piece_ - 1) / piece_);
  const std::size_t wanted =
      options_.threads != 0 ? options_.threads : static_cast<std::size_t>(mtl::cpu::defaultThreadCount());
  for (std::size_t i = 0; i < std::min(wanted, pieces); ++i) {
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;
      return;  // those that there are do the work
    }
  }
}

bool BatchLoader::next(Batch& batch) {
  {
    std::unique_lock lock(mutex_);
    batchDone_.wait(lock, [this] { return making_.empty() ? !mayBegin() : making_.front()->isDone(); });
    if (making_.empty()) {
      if (failure_) std::rethrow_exception(failure_);
      return false;
    }
    Making& first = *making_.front();
    if (first.error) std::rethrow_exception(first.error);
    std::swap(batch, first.batch);
    spares_.push_back(std::move(first.batch));
    making_.pop_front();
  }
  workWanted_.notify_all();
  return true;
}

void BatchLoader::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    workWanted_.wait(lock, [this] { return stopped_ || hasWork(); });
    if (stopped_) return;
    Piece piece;
    try {
      piece = takePiece();
    } catch (...) {
      failure_ = std::current_exception();
      failed_ = true;
      batchDone_.notify_all();
      continue;
    }
    // A batch without pictures of this rank is done, and gone once the lock is.
    if (piece.begin == piece.end) {
      batchDone_.notify_all();
      continue;
    }
    lock.unlock();
    std::size_t place = piece.begin;
    std::exception_ptr error;
    try {
      Making& making = *piece.making;
      for (; place < piece.end; ++place) writePicture(source_, making.numbers[place], place, making.batch);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    finish(piece, place, std::move(error));
  }
}

bool BatchLoader::mayBegin() const {
  return epoch_ < options_.endEpoch && !failed_;
}

bool BatchLoader::hasWork() const {
  if (making_.size() < mostReady && mayBegin()) return true;
  return std::ranges::any_of(making_, [](const auto& making) { return making->hasPictures(); });
}

BatchLoader::Piece BatchLoader::takePiece() {
  const auto hasPictures = [](const auto& making) { return making->hasPictures(); };
  auto found = std::ranges::find_if(making_, hasPictures);
  if (found == making_.end()) {
    beginBatch();
    found = std::prev(making_.end());
  }
  Making& making = **found;
  const std::size_t begin = making.taken;
  making.taken = std::min(begin + piece_, making.numbers.size());
  return {&making, begin, making.taken};
}

void BatchLoader::beginBatch() {
  if (order_.empty() || (index_ == 0 && options_.shuffle)) order_ = orderOf(epoch_);
  auto making = std::make_unique<Making>();
  if (!spares_.empty()) {
    making->batch = std::move(spares_.back());
    spares_.pop_back();
  }
  const auto begin = static_cast<std::size_t>(index_) * options_.batchSize;
  const detail::Part part =
      detail::partOf(std::min(options_.batchSize, count_ - begin), options_.rank, options_.ranks);
  const auto numbers = std::span(order_).subspan(begin + part.first, part.count);
  making->numbers.assign(numbers.begin(), numbers.end());
  Batch& batch = making->batch;
  batch.epoch = epoch_;
  batch.index = index_;
  batch.firstPlace = begin + part.first;
  batch.isLastOfEpoch = index_ + 1 == batchesPerEpoch_;
  makeRoom(source_, numbers.size(), batch);
  making_.push_back(std::move(making));
  if (++index_ < batchesPerEpoch_) return;
  index_ = 0;
  ++epoch_;
}

std::vector<std::uint32_t> BatchLoader::orderOf(std::uint64_t epoch) const {
  if (options_.shuffle) return shuffledOrder(count_, options_.seed, epoch);
  std::vector<std::uint32_t> order(count_);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

/// What was taken before a place that has failed is written to its end: one of a lower place may fail, too.
void BatchLoader::finish(const Piece& piece, std::size_t failedPlace, std::exception_ptr error) {
  Making& making = *piece.making;
  making.written += piece.end - piece.begin;
  if (error && (!making.error || failedPlace < making.failedPlace)) {
    making.error = std::move(error);
    making.failedPlace = failedPlace;
    failed_ = true;
  }
  if (making.isDone()) batchDone_.notify_all();
}

}  // namespace unmetal::train
