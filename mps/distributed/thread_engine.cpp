#include "mps/distributed/thread_engine.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mps/core/types/float16.hpp"

namespace mps::detail {
namespace {

/// Where the threads meet, twice in each collective: when all have come, and when all have done their share.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : arrived_(static_cast<std::size_t>(size)) {}

  /// Makes a sentence of those that are missing.
  using Tell = std::function<std::string(const std::vector<int>& missing, std::chrono::milliseconds timeout)>;

  void run(int rank, const Collective& collective, std::chrono::milliseconds timeout, const Tell& tell) {
    arrive(rank, collective, timeout, tell);
    share(static_cast<std::size_t>(rank));
    leaveCollective();
  }

  /// The rank takes part in nothing more.
  void quit(int rank) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = "rank " + std::to_string(rank) + " has let go of its communicator";
    changed_.notify_all();
  }

  /// Ranks that did not come.
  [[nodiscard]] std::vector<int> missing() {
    const std::lock_guard lock(mutex_);
    return missing_;
  }

 private:
  [[nodiscard]] std::size_t size() const { return arrived_.size(); }

  void arrive(int rank, const Collective& collective, std::chrono::milliseconds timeout, const Tell& tell) {
    std::unique_lock lock(mutex_);
    throwIfFailed(collective);
    const std::uint64_t round = round_;
    arrived_[static_cast<std::size_t>(rank)] = &collective;
    if (++arrivedCount_ == size()) {
      checkMatch();
      ++round_;
      changed_.notify_all();
      throwIfFailed(collective);
      return;
    }
    const auto isDecided = [&] { return round_ != round || !failure_.empty(); };
    if (!changed_.wait_for(lock, timeout, isDecided)) {
      for (std::size_t i = 0; i < size(); ++i)
        if (arrived_[i] == nullptr) missing_.push_back(static_cast<int>(i));
      failure_ = tell(missing_, timeout);
      changed_.notify_all();
    }
    if (round_ == round || !matches_) throwIfFailed(collective);
  }

  void checkMatch() {
    const auto isLike = [](const Collective& a, const Collective& b) {
      return a.kind == b.kind && a.type == b.type && a.root == b.root &&
             std::ranges::equal(a.arrays, b.arrays, {}, &CollectiveArray::count, &CollectiveArray::count);
    };
    const auto other = std::ranges::find_if_not(
        arrived_, [&](const Collective* collective) { return isLike(*collective, *arrived_.front()); });
    matches_ = other == arrived_.end();
    if (matches_) return;
    failure_ = "rank 0 came with: " + arrived_.front()->describe() + "; rank " +
               std::to_string(other - arrived_.begin()) + " with: " + (*other)->describe();
  }

  void throwIfFailed(const Collective& collective) const {
    if (!failure_.empty()) throw Error(collective.describe() + ": " + failure_);
  }

  /// What this rank does for all while they wait.
  void share(std::size_t rank) const {
    switch (arrived_[rank]->kind) {
      case CollectiveKind::AllReduce:
        for (std::size_t i = 0; i < arrived_[rank]->arrays.size(); ++i) reduceSlice(rank, i);
        break;
      case CollectiveKind::AllGather: {
        const CollectiveArray& all = arrived_[rank]->arrays[0];
        const std::size_t bytes = all.count / size() * sizeOf(arrived_[rank]->type);
        for (const Collective* other : arrived_)
          std::memmove(other->arrays[0].address + rank * bytes, arrived_[rank]->source, bytes);
        break;
      }
      case CollectiveKind::Broadcast: {
        const Collective& root = *arrived_[static_cast<std::size_t>(arrived_[rank]->root)];
        if (&root == arrived_[rank]) break;
        for (std::size_t i = 0; i < root.arrays.size(); ++i)
          std::memcpy(arrived_[rank]->arrays[i].address, root.arrays[i].address,
                      root.arrays[i].count * sizeOf(root.type));
        break;
      }
    }
  }

  /// This rank's part of one array, for all ranks.
  void reduceSlice(std::size_t rank, std::size_t array) const {
    const std::size_t count = arrived_[rank]->arrays[array].count;
    const std::size_t begin = count * rank / size();
    const std::size_t end = count * (rank + 1) / size();
    switch (arrived_[rank]->type) {
      case CollectiveType::Float16:
        return reduce<Float16>(array, begin, end);
      case CollectiveType::Float32:
        return reduce<float>(array, begin, end);
      case CollectiveType::Float64:
      case CollectiveType::Byte:
        return reduce<double>(array, begin, end);
    }
  }

  template <class Element>
  void reduce(std::size_t array, std::size_t begin, std::size_t end) const {
    constexpr std::size_t mostElements = 1024;
    for (std::size_t first = begin; first < end; first += mostElements) {
      const std::size_t count = std::min(mostElements, end - first);
      std::array<double, mostElements> sums{};
      for (const Collective* rank : arrived_) {
        const Element* values = elements<Element>(*rank, array) + first;
        for (std::size_t i = 0; i < count; ++i) sums[i] += valueOf(values[i]);
      }
      for (const Collective* rank : arrived_) {
        Element* values = elements<Element>(*rank, array) + first;
        for (std::size_t i = 0; i < count; ++i) store(sums[i], values[i]);
      }
    }
  }

  template <class Element>
  static Element* elements(const Collective& collective, std::size_t array) {
    return reinterpret_cast<Element*>(collective.arrays[array].address);
  }
  static double valueOf(double value) { return value; }
  static double valueOf(float value) { return static_cast<double>(value); }
  static double valueOf(Float16 value) { return static_cast<double>(toFloat(value)); }
  static void store(double sum, double& value) { value = sum; }
  static void store(double sum, float& value) { value = static_cast<float>(sum); }
  static void store(double sum, Float16& value) { value = toFloat16(sum); }

  void leaveCollective() {
    std::unique_lock lock(mutex_);
    const std::uint64_t round = round_;
    if (++doneCount_ == size()) {
      std::ranges::fill(arrived_, nullptr);
      arrivedCount_ = doneCount_ = 0;
      ++round_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return round_ != round; });  // the others are at work, not away
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<const Collective*> arrived_;  ///< by rank; null: not yet
  std::size_t arrivedCount_ = 0;
  std::size_t doneCount_ = 0;
  std::uint64_t round_ = 0;  ///< counts the meetings
  bool matches_ = true;
  std::string failure_;  ///< why no collective can run any more
  std::vector<int> missing_;
};

class ThreadEngine final : public CollectiveEngine {
 public:
  ThreadEngine(std::shared_ptr<ThreadGroup> group, int rank, int size)
      : CollectiveEngine(rank, size), group_(std::move(group)) {}
  ~ThreadEngine() override { group_->quit(rank()); }
  ThreadEngine(const ThreadEngine&) = delete;
  ThreadEngine& operator=(const ThreadEngine&) = delete;

  [[nodiscard]] std::string name() const override { return "threads"; }

  /// All work is in finish(): the processors are busy with the stream's work until then.
  std::unique_ptr<PendingCollective> start(mtl::Stream& /*stream*/, Collective collective,
                                           bool /*overlaps*/) override {
    return std::make_unique<Pending>(*this, std::move(collective), nextTimeout());
  }

 private:
  void run(const Collective& collective, std::chrono::milliseconds timeout) {
    try {
      group_->run(rank(), collective, timeout,
                  [this](const auto& missing, auto waited) { return whoDidNotCome(missing, waited); });
    } catch (const Error& error) {
      fail({error.what(), group_->missing()});
      throw;
    }
  }

  class Pending final : public PendingCollective {
   public:
    Pending(ThreadEngine& engine, Collective collective, std::chrono::milliseconds timeout)
        : engine_(engine), collective_(std::move(collective)), timeout_(timeout) {}
    void finish(mtl::Stream& /*stream*/) override { engine_.run(collective_, timeout_); }

   private:
    ThreadEngine& engine_;
    Collective collective_;
    std::chrono::milliseconds timeout_;
  };

  std::shared_ptr<ThreadGroup> group_;
};

}  // namespace

std::vector<std::unique_ptr<CollectiveEngine>> makeThreadEngines(int size) {
  const auto group = std::make_shared<ThreadGroup>(size);
  std::vector<std::unique_ptr<CollectiveEngine>> engines;
  for (int rank = 0; rank < size; ++rank)
    engines.push_back(std::make_unique<ThreadEngine>(group, rank, size));
  return engines;
}

}  // namespace mps::detail
