#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace mtl {

/// What CommandBuffer::logs returns, and the temporary objects of the buffer, which are to be read a number of times.
/// Engine-internal. Thread safe.
class Log {
 public:
  /// Watches the object that it is a part of, from begin() to end().
  class Watch {
   public:
    Watch() = default;
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    /// @param object tells with readsLeft() how often it is still to be read, and with describeUnread() what it is, with
    /// label and producer; called on any thread
    template <class Object>
    void begin(std::shared_ptr<Log> log, const Object& object) {
      object_ = &object;
      readsLeft_ = [](const void* watched) { return static_cast<const Object*>(watched)->readsLeft(); };
      describe_ = [](const void* watched) { return static_cast<const Object*>(watched)->describeUnread(); };
      log_ = std::move(log);
      log_->add(*this);
    }
    /// First thing in the object's destructor. With reads left that is a line, unless it was one before.
    void end() noexcept;

   private:
    friend class Log;
    std::shared_ptr<Log> log_;
    const void* object_ = nullptr;
    std::size_t (*readsLeft_)(const void*) =
        nullptr;  ///< functions, because virtual ones change while an object ends
    std::string (*describe_)(const void*) = nullptr;
    Watch* previous_ = nullptr;
    Watch* next_ = nullptr;
    bool isReported_ = false;
  };

  /// Nobody can read any more: a line for each watched object that has reads left and no line yet.
  void reportUnread() noexcept;
  [[nodiscard]] std::vector<std::string> lines() const;

 private:
  void add(Watch& watch);
  /// None after a failed encode, whose objects nobody could have read. Out of memory the line is lost. Under the lock.
  void report(Watch& watch) noexcept;

  static constexpr std::size_t most = 100;
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;  ///< the first `most`; UNMETAL_VERBOSE=reads prints all
  Watch* first_ = nullptr;
};

}  // namespace mtl
