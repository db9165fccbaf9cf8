#include "mps/graph/run/held_reads.hpp"

#include <limits>
#include <unordered_set>
#include <utility>

namespace mps::detail {
namespace {

/// More reads than the steps of a graph take.
constexpr std::size_t held = std::numeric_limits<std::size_t>::max() / 4;

}  // namespace

template <class Object>
HeldReads::Entry<Object>& HeldReads::entryOf(Entries<Object>& entries, std::shared_ptr<Object> object) {
  const auto [found, inserted] = entries.try_emplace(object.get());
  Entry<Object>& entry = found->second;
  if (inserted) {
    entry.before = object->readCount();
    if (entry.before > 0) object->setReadCount(entry.before + held);
    entry.object = std::move(object);
  }
  return entry;
}

void HeldReads::hold(const ImageBatch& images, std::size_t taken) {
  if (images.blockStorage() && !images.isTemporary()) return;
  std::unordered_set<const Image*> seen;
  for (std::size_t i = 0; i < images.count(); ++i) {
    if (!images[i]->isTemporary()) continue;
    auto image = std::static_pointer_cast<TemporaryImage>(images[i]);
    if (seen.insert(image.get()).second) entryOf(images_, std::move(image)).taken += taken;
  }
}

void HeldReads::hold(const StateBatch& states, std::size_t taken) {
  for (const auto& state : states.existing())
    if (state->isTemporary()) entryOf(states_, state).taken += taken;
}

template <class Object>
void HeldReads::set(const Entry<Object>& entry, bool hasSucceeded) {
  if (entry.object->readCount() == 0) return;  // the user has let it go meanwhile
  const std::size_t taken = hasSucceeded ? entry.taken : 0;
  entry.object->setReadCount(entry.before > taken ? entry.before - taken : 0);
}

void HeldReads::finish(bool hasSucceeded) {
  // A view that comes to 0 takes a read off its parent, which has to have its own count then.
  for (const bool areViews : {false, true})
    for (const auto& [image, entry] : images_)
      if ((image->parent() != nullptr) == areViews) set(entry, hasSucceeded);
  for (const auto& [state, entry] : states_) set(entry, hasSucceeded);
  images_.clear();
  states_.clear();
}

}  // namespace mps::detail
