#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "mtl/command.hpp"
#include "mtl/log.hpp"
#include "mtl/stream.hpp"
#include "mtl/worker.hpp"

namespace mtl {

/// Runs handlers one after the other on a thread of its own. Engine-internal.
class HandlerThread {
 public:
  /// Handlers of one kind that a submission has. Made when the first of them is added, where a lack of memory can be
  /// told; the submission is filled in when they are due.
  struct Due {
    std::shared_ptr<Submission> submission;
    bool scheduled = false;
  };

  HandlerThread() = default;
  ~HandlerThread();
  HandlerThread(const HandlerThread&) = delete;
  HandlerThread& operator=(const HandlerThread&) = delete;

  /// Later calls have no effect. @throws Error when the system gives no thread
  void start();
  /// Hands over what is due and leaves the list empty. After start().
  void post(std::list<Due>& due) noexcept;
  [[nodiscard]] bool isCurrent() const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::list<Due> due;
    bool stop = false;
  };
  static void loop(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_ = std::make_shared<State>();
  mutable std::mutex workerMutex_;
  Worker worker_;
};

/// What a command buffer holds and a queue runs. Engine-internal; CommandBuffer is its public face.
class Submission : public std::enable_shared_from_this<Submission> {
 public:
  explicit Submission(std::shared_ptr<CommandQueue> queue);
  ~Submission();
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  [[nodiscard]] const std::shared_ptr<CommandQueue>& queue() const { return queue_; }

  /// Temporary objects belong to a scope: that of one submission, or that of several which continue one
  /// another.
  [[nodiscard]] bool isOfScope(std::uint64_t scope) const { return scope == ownScope_ || scope == scope_; }
  /// The scope and the memory of temporary objects that are made now.
  [[nodiscard]] std::uint64_t scope() const { return scope_; }
  [[nodiscard]] const std::shared_ptr<Heap>& heap() const;
  /// From now on temporary objects may be used in a successor too: they get a scope and a heap of their own,
  /// because another buffer that runs in between must not overwrite what crosses.
  void allowSuccessor();
  [[nodiscard]] const std::shared_ptr<Log>& log() const { return log_; }
  /// Takes over label, scope, heap and log of the submission that this one continues.
  void continueFrom(const Submission& previous);
  /// commit() for a submission that another one will continue, which may still read temporary objects.
  void commitToContinue();

  void append(Command command);
  void checkOpen() const;
  /// While an encoder of the user's is open, nothing but the encoder appends, and commit throws.
  void openEncoder();
  void closeEncoder();
  void checkNoEncoder() const;
  /// Called on the executing thread before the next command that is appended runs, or is replayed together with others:
  /// looks at what the host wrote. What it throws makes that command fail.
  void checkBeforeNext(std::function<void()> check);
  /// An encode begins, perhaps inside another one: until closeEncode() commit throws, because what is recorded so far may
  /// yet be taken back. @throws Error after commit, and when the process is ending
  void openEncode();
  void closeEncode();
  [[nodiscard]] std::size_t commandCount() const;
  void ifDropped(std::function<void(CommandBuffer&)> record);
  /// Whether commit was called and can no longer throw: what is recorded will run.
  [[nodiscard]] bool willRun() const;
  [[nodiscard]] RecordingMark recorded() const { return {commands_.size(), ifDropped_.size()}; }
  [[nodiscard]] std::span<const Command> commandsSince(const RecordingMark& mark) const;
  /// Lets another heap serve until it is exchanged again. @param heap null: the queue's @return what served before
  std::shared_ptr<Heap> exchangeHeap(std::shared_ptr<Heap> heap);
  /// Keeps something alive until all work is done, or the submission is let go.
  void retain(std::shared_ptr<const void> object);
  void rollback(const RecordingMark& mark);
  void enqueue();
  void commit();
  /// The device takes over from here: nothing of its own keeps it alive any more.
  void releaseSelf();
  void addHandler(CommandBuffer::Handler handler, bool scheduled);
  /// @param most how long at most; unset: as long as it takes. @return whether that is over which was waited for
  bool wait(bool scheduledOnly, std::optional<std::chrono::milliseconds> most = std::nullopt);

  /// Waits until all commands have run, if nothing is needed for that but the device: not where this one or one before it
  /// in its queue is not committed. @param most as in wait() @return whether they have run
  bool waitIfHandedOver(std::optional<std::chrono::milliseconds> most);

  [[nodiscard]] CommandBufferStatus status() const;
  [[nodiscard]] std::optional<CommandBufferError> error() const;
  [[nodiscard]] double startTime() const;
  [[nodiscard]] double endTime() const;
  [[nodiscard]] std::string label() const;
  void setLabel(std::string label);
  void setRecordsCommandTimes(bool records);
  [[nodiscard]] std::vector<CommandTime> commandTimes() const;

  /// @name The executor's side, in this order
  /// @{
  /// The device takes the work: sets the status and posts the handlers.
  void begin();
  /// Runs the commands, or hands them to the device.
  void runCommands(Stream& stream);
  /// All work is done: lets go of what the commands kept alive, sets the status and posts the handlers.
  /// @param failure what the device found out after the commands were handed over; nothing that they wrote is
  /// valid then
  /// @param deviceSeconds how long the device was at work, where it knows
  void end(const std::optional<CommandBufferError>& failure = std::nullopt,
           std::optional<double> deviceSeconds = std::nullopt);
  /// On the handler thread: all handlers of one kind.
  void runHandlers(bool scheduled);
  /// @}

 private:
  /// Calls the checks before these commands. What they throw goes on.
  void runChecks(std::span<const Command> commands) const;
  /// Runs one command, or leaves it out. Returns whether it was left out; sets `failure` when it fails.
  bool runCommand(Command& command, Stream& stream, std::string& failure);
  void runCommands(std::span<Command> commands, Stream& stream, std::string& failure);
  void commit(bool willContinue);
  /// Lets the device replay them. False: nothing has run.
  bool replay(std::span<Command> commands, Stream& stream, std::string& failure);
  /// Runs it, and notes when, if that is wanted.
  void runTimed(Command& command, Stream& stream);
  /// Turns the moments into times; without any after a failure.
  void keepCommandTimes(bool isGood);
  void fail(CommandBufferErrorCode code, const std::string& message);
  /// Runs what ifDropped was given, in this submission's place. False: there is nothing, or no memory for it.
  bool runIfDropped() noexcept;
  /// Whether handlers and all that comes before them are done. Under the lock.
  [[nodiscard]] bool isReached(bool scheduledOnly, bool withHandlers) const;

  std::shared_ptr<CommandQueue> queue_;
  std::uint64_t ownScope_;
  std::uint64_t scope_;
  std::shared_ptr<Heap> heap_;  ///< leased; null while the queue's serves
  std::shared_ptr<Log> log_ = std::make_shared<Log>();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Command> commands_;
  struct Check {
    std::size_t command;  ///< its index
    std::function<void()> function;
  };
  std::vector<Check> checks_;
  std::vector<std::function<void(CommandBuffer&)>> ifDropped_;
  std::vector<std::shared_ptr<const void>> retained_;
  std::vector<CommandBuffer::Handler> scheduledHandlers_;
  std::vector<CommandBuffer::Handler> completedHandlers_;
  std::list<HandlerThread::Due> scheduledDue_;  ///< at most one, once there are such handlers
  std::list<HandlerThread::Due> completedDue_;
  CommandBufferStatus status_ = CommandBufferStatus::NotEnqueued;
  std::shared_ptr<Submission> self_;  ///< from commit until the device has it: its user may let go meanwhile
  std::optional<CommandBufferError> error_;
  std::string label_;
  bool encoderIsOpen_ = false;
  std::size_t openEncodes_ = 0;
  bool willContinue_ = false;
  bool willRun_ = false;
  bool scheduledHandlersDone_ = false;
  bool completedHandlersDone_ = false;
  std::thread::id runningHandlersOf_;
  double startTime_ = 0;
  double endTime_ = 0;

  /// Of the buffer's pieces, which share it.
  struct CommandTimes {
    std::mutex mutex;
    std::vector<CommandTime> times;
  };
  struct TimedCommand {
    CommandTime time;
    std::unique_ptr<Stream::Moment> begin;
    std::unique_ptr<Stream::Moment> end;
  };
  std::shared_ptr<CommandTimes> commandTimes_;  ///< null: they are not recorded
  std::unique_ptr<Stream::Moment> firstMoment_;
  std::vector<TimedCommand> timedCommands_;
};

/// Runs the committed work of a queue, in order. Engine-internal; Device::newExecutor makes it.
class Executor {
 public:
  Executor() = default;
  virtual ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// @throws Error in a child process of the one that has started its threads: a fork does not copy them
  virtual void checkProcess() const = 0;
  virtual void submit(std::shared_ptr<Submission> submission) = 0;
};

}  // namespace mtl
