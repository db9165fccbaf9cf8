#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mtl {
class Stream;
}

/// What a communicator asks of the library that moves data between ranks. The library's own.
namespace mps::detail {

enum class CollectiveKind : std::uint8_t { AllReduce, AllGather, Broadcast };
enum class CollectiveType : std::uint8_t { Float16, Float32, Float64, Byte };

[[nodiscard]] std::size_t sizeOf(CollectiveType type);

/// Some elements in a device's memory.
struct CollectiveArray {
  std::byte* address = nullptr;
  std::size_t count = 0;

  bool operator==(const CollectiveArray&) const = default;
};

/// One collective operation as one rank takes part in it.
struct Collective {
  CollectiveKind kind = CollectiveKind::AllReduce;
  CollectiveType type = CollectiveType::Byte;
  /// AllReduce: each becomes the sum over the ranks. Broadcast: each becomes what it is on the root. AllGather: one, which
  /// becomes the sources of all ranks, one after the other.
  std::vector<CollectiveArray> arrays;
  const std::byte* source =
      nullptr;   ///< AllGather: this rank's part, which may lie at its place in the array
  int root = 0;  ///< Broadcast

  bool operator==(const Collective&) const = default;
  /// "all-reduce of 10 float32 in 2 arrays"
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::size_t elements() const;
};

/// A collective under way. Used on the thread that runs the commands.
class PendingCollective {
 public:
  virtual ~PendingCollective() = default;
  PendingCollective(const PendingCollective&) = delete;
  PendingCollective& operator=(const PendingCollective&) = delete;

  /// The arrays hold the result for what the stream runs afterwards. Called once.
  virtual void finish(mtl::Stream& stream) = 0;

 protected:
  PendingCollective() = default;
};

/// Why no collective can run any more.
struct CollectiveFailure {
  std::string sentence;      ///< without the class' name in front
  std::vector<int> missing;  ///< ranks that did not come, where it is known
};

class CollectiveEngine;

/// What the commands of a collective do; equal collectives of an engine share one, so that a device knows them again and can
/// replay them.
struct CollectiveWork {
  std::shared_ptr<CollectiveEngine> engine;
  Collective collective;
  /// Stand for its two commands, where it overlaps others.
  char begin = 0, end = 0;
};

/// Where one rank's collectives run. All ranks start the same ones in the same order.
class CollectiveEngine {
 public:
  virtual ~CollectiveEngine() = default;
  CollectiveEngine(const CollectiveEngine&) = delete;
  CollectiveEngine& operator=(const CollectiveEngine&) = delete;

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return size_; }
  /// "threads", "MPI", "NCCL": for messages.
  [[nodiscard]] virtual std::string name() const = 0;

  /// Begins behind what the stream was given before. The arrays, and the source, are not touched until finish().
  /// @param overlaps whether the stream's next work may run meanwhile
  virtual std::unique_ptr<PendingCollective> start(mtl::Stream& stream, Collective collective,
                                                   bool overlaps) = 0;
  /// Of this engine, which the caller has shared. For any thread.
  [[nodiscard]] static std::shared_ptr<const CollectiveWork> workOf(
      const std::shared_ptr<CollectiveEngine>& engine, Collective collective);
  /// Whether progress() must be called now and then while collectives overlap other work.
  [[nodiscard]] virtual bool needsProgress() const { return false; }
  virtual void progress() {}
  /// Host memory of each rank, one after the other; waits. @param all size() times as many bytes as `own`
  virtual void gatherFromHost(mtl::Stream& stream, std::vector<std::byte>& own, std::vector<std::byte>& all);

  /// How long a rank waits for the others; the first time five times as long.
  void setTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  /// The first one; nothing while collectives can run. For any thread.
  [[nodiscard]] std::optional<CollectiveFailure> failure() const;
  /// The process is about to end without waiting for the others.
  virtual void giveUp() {}
  /// Host and device of each rank, for messages.
  void setPlaces(std::vector<std::string> places) {
    places_ = std::move(places);
    isFirst_ = true;  // to exchange them was no operation of the user's
  }

 protected:
  CollectiveEngine(int rank, int size) : rank_(rank), size_(size) {}
  /// For the collective that starts now.
  [[nodiscard]] std::chrono::milliseconds nextTimeout();
  /// No collective runs from now on; the first failure stays.
  void fail(CollectiveFailure failure);
  /// @throws Error with the failure's sentence, where there is one
  void throwIfFailed() const;
  /// The same, for whoever may outlive this object.
  [[nodiscard]] std::function<void()> failureCheck() const;
  /// How long the ranks that have waited in vain tell each other that they are there.
  [[nodiscard]] static std::chrono::milliseconds timeOfRollCall(std::chrono::milliseconds timeout);
  /// "rank 1 (host, cpu) of 3 did not come to it within 100 ms". @param missing empty: it is not known who
  [[nodiscard]] std::string whoDidNotCome(const std::vector<int>& missing,
                                          std::chrono::milliseconds timeout) const;

 private:
  int rank_;
  int size_;
  std::vector<std::string> places_;  ///< empty: they are not known
  struct State {
    std::mutex mutex;
    std::optional<CollectiveFailure> failure;  // guarded by mutex
    void throwIfFailed();
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::chrono::milliseconds timeout_ = std::chrono::seconds(60);
  bool isFirst_ = true;
  std::mutex worksMutex_;
  std::vector<std::weak_ptr<const CollectiveWork>> works_;  ///< kept by commands and replays
};

}  // namespace mps::detail
