#pragma once

namespace mtl {

/// What happens to work in flight when the process ends. Engine-internal.
///
/// At its end static objects go, also those of libraries that our threads use (oneDNN's among them). So from then on no
/// command begins: those that are left fail with a sentence, nothing new is encoded, handlers are not called. The end
/// waits for the command that runs, and at most a second for a handler, which may itself wait for something. Memory of
/// what did not run is left to the system.
///
/// The thread that loaded the library, usually the main one, comes here before any static object goes. When another
/// thread ends the process, an exit handler does, which comes before the static objects that were made before the first
/// work. A main thread that ends alone (pthread_exit) counts as the end. In a child process only what the child itself
/// runs counts.
class ProcessEnd {
 public:
  /// Whether it has begun.
  [[nodiscard]] static bool hasBegun() noexcept;
  /// Registers the exit handler. Later calls register it again, up to `most` in all: each comes before what was made
  /// since the earlier one.
  static void watch() noexcept;

  /// While it lives the end waits. Never on the thread that it is made on, which may be the one that ends the process.
  class Guard {
   public:
    enum class Kind { Work, Handler };
    explicit Guard(Kind kind) noexcept;
    ~Guard();
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Kind kind_;
  };

 private:
  static constexpr int most = 32;
};

}  // namespace mtl
