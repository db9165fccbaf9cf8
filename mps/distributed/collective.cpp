#include "mps/distributed/collective.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "mps/core/types/error.hpp"

namespace mps::detail {

std::size_t sizeOf(CollectiveType type) {
  constexpr std::array<std::size_t, 4> sizes{2, 4, 8, 1};
  return sizes.at(static_cast<std::size_t>(type));
}

std::size_t Collective::elements() const {
  std::size_t count = 0;
  for (const CollectiveArray& array : arrays) count += array.count;
  return count;
}

std::string Collective::describe() const {
  constexpr std::array<const char*, 3> kinds{"all-reduce", "all-gather", "broadcast"};
  constexpr std::array<const char*, 4> types{"float16", "float32", "float64", "bytes"};
  std::string text = std::string(kinds.at(static_cast<std::size_t>(kind))) + " of " +
                     std::to_string(elements()) + " " + types.at(static_cast<std::size_t>(type));
  if (arrays.size() > 1) text += " in " + std::to_string(arrays.size()) + " arrays";
  if (kind == CollectiveKind::Broadcast) text += " from rank " + std::to_string(root);
  return text;
}

std::shared_ptr<const CollectiveWork> CollectiveEngine::workOf(
    const std::shared_ptr<CollectiveEngine>& engine, Collective collective) {
  const std::lock_guard lock(engine->worksMutex_);
  std::erase_if(engine->works_, [](const auto& work) { return work.expired(); });
  for (const auto& known : engine->works_)
    if (auto work = known.lock(); work && work->collective == collective) return work;
  auto work = std::make_shared<const CollectiveWork>(CollectiveWork{engine, std::move(collective)});
  engine->works_.push_back(work);
  return work;
}

void CollectiveEngine::gatherFromHost(mtl::Stream& stream, std::vector<std::byte>& own,
                                      std::vector<std::byte>& all) {
  Collective collective;
  collective.kind = CollectiveKind::AllGather;
  collective.arrays = {{all.data(), all.size()}};
  collective.source = own.data();
  start(stream, std::move(collective), false)->finish(stream);
}

void CollectiveEngine::State::throwIfFailed() {
  const std::lock_guard lock(mutex);
  if (failure) throw Error(failure->sentence);
}

std::optional<CollectiveFailure> CollectiveEngine::failure() const {
  const std::lock_guard lock(state_->mutex);
  return state_->failure;
}

void CollectiveEngine::fail(CollectiveFailure failure) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->failure) state_->failure = std::move(failure);
}

void CollectiveEngine::throwIfFailed() const {
  state_->throwIfFailed();
}

std::function<void()> CollectiveEngine::failureCheck() const {
  return [state = state_] { state->throwIfFailed(); };
}

std::chrono::milliseconds CollectiveEngine::timeOfRollCall(std::chrono::milliseconds timeout) {
  using std::chrono::milliseconds;
  return std::clamp(timeout, milliseconds(1000), milliseconds(10000));
}

std::string CollectiveEngine::whoDidNotCome(const std::vector<int>& missing,
                                            std::chrono::milliseconds timeout) const {
  const std::string when = std::to_string(timeout.count()) + " ms";
  if (missing.empty()) return "not all of the " + std::to_string(size_) + " ranks came to it within " + when;
  std::string ranks;
  for (std::size_t i = 0; i < missing.size(); ++i) {
    if (i > 0) ranks += i + 1 == missing.size() ? " and " : ", ";
    ranks += std::to_string(missing[i]);
    if (!places_.empty()) ranks += " (" + places_[static_cast<std::size_t>(missing[i])] + ")";
  }
  return (missing.size() == 1 ? "rank " : "ranks ") + ranks + " of " + std::to_string(size_) +
         " did not come to it within " + when;
}

std::chrono::milliseconds CollectiveEngine::nextTimeout() {
  constexpr int firstTakes = 5;  // connections are made then
  return std::exchange(isFirst_, false) ? firstTakes * timeout_ : timeout_;
}

}  // namespace mps::detail
