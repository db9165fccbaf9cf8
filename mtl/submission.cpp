#include "mtl/submission.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include "mtl/command.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/error.hpp"
#include "mtl/memory.hpp"
#include "mtl/process_end.hpp"
#include "mtl/stream.hpp"

namespace mtl {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A number that no scope had before.
std::uint64_t newScope() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

/// What the commands wrote is good, or, after a failure, is not.
void mark(std::span<const Command> commands, const std::string& failure) {
  for (const Command& command : commands) {
    for (const ContentMark& write : command.writes) {
      if (failure.empty())
        write.clearFailure();
      else
        write.setFailure(failure);
    }
  }
}

/// Calls a function; returns what it threw, if anything.
template <class Function>
std::optional<CommandBufferError> failureOf(Function&& function) {
  try {
    function();
  } catch (const std::bad_alloc&) {
    return CommandBufferError{CommandBufferErrorCode::OutOfMemory, "out of memory"};
  } catch (const std::exception& exception) {
    return CommandBufferError{CommandBufferErrorCode::Internal, exception.what()};
  } catch (...) {
    return CommandBufferError{CommandBufferErrorCode::Internal, "an exception that is no std::exception"};
  }
  return std::nullopt;
}

}  // namespace

HandlerThread::~HandlerThread() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->changed.notify_all();
  worker_.join();
}

void HandlerThread::start() {
  const std::lock_guard lock(workerMutex_);
  worker_.start("CommandQueue: the thread for handlers", [state = state_] { loop(state); });
}

void HandlerThread::post(std::list<Due>& due) noexcept {
  {
    const std::lock_guard lock(state_->mutex);
    state_->due.splice(state_->due.end(), due);
  }
  state_->changed.notify_one();
}

bool HandlerThread::isCurrent() const {
  const std::lock_guard lock(workerMutex_);
  return worker_.isCurrent();
}

void HandlerThread::loop(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->changed.wait(lock, [&] { return state->stop || !state->due.empty(); });
    if (state->due.empty()) return;
    Due due = std::move(state->due.front());
    state->due.pop_front();
    lock.unlock();
    due.submission->runHandlers(due.scheduled);
    due.submission = nullptr;
    lock.lock();
  }
}

Submission::Submission(std::shared_ptr<CommandQueue> queue)
    : queue_(std::move(queue)), ownScope_(newScope()), scope_(ownScope_) {}

Submission::~Submission() {
  if (status_ >= CommandBufferStatus::Committed) return;
  log_->reportUnread();
  if (!runIfDropped()) queue_->submissionEnded();
  if (status_ != CommandBufferStatus::Enqueued) return;
  queue_->leave(*this);
  queue_->flush();  // those behind it need not wait any more
}

bool Submission::runIfDropped() noexcept {
  if (ifDropped_.empty()) return false;
  std::shared_ptr<Submission> instead;
  try {
    instead = std::make_shared<Submission>(queue_);  // takes over this one's share of the queue's limit
    if (std::exchange(status_, CommandBufferStatus::NotEnqueued) == CommandBufferStatus::Enqueued) {
      instead->status_ = CommandBufferStatus::Enqueued;
      queue_->replace(*this, instead);
    }
    CommandBuffer face(instead);
    for (const auto& record : ifDropped_) record(face);
    if (instead->commandCount() > 0) instead->commit();
  } catch (...) {  // a destructor has nobody to tell: what was not written stays marked invalid
  }
  return instead != nullptr;
}

void Submission::checkOpen() const {
  const std::lock_guard lock(mutex_);
  if (status_ >= CommandBufferStatus::Committed)
    throw Error("CommandBuffer \"" + label_ + "\": encode after commit; make a new command buffer");
}

void Submission::checkNoEncoder() const {
  const std::lock_guard lock(mutex_);
  if (encoderIsOpen_)
    throw Error("CommandBuffer \"" + label_ + "\": an encoder is open; call its endEncoding first");
}

void Submission::openEncoder() {
  checkOpen();
  checkNoEncoder();
  const std::lock_guard lock(mutex_);
  encoderIsOpen_ = true;
}

void Submission::closeEncoder() {
  const std::lock_guard lock(mutex_);
  encoderIsOpen_ = false;
}

void Submission::openEncode() {
  const std::lock_guard lock(mutex_);
  if (willRun_ || status_ >= CommandBufferStatus::Committed)
    throw Error("CommandBuffer \"" + label_ + "\": encode after commit; make a new command buffer");
  if (ProcessEnd::hasBegun())
    throw Error("CommandBuffer \"" + label_ +
                "\": encode while the process is ending, when nothing runs any more");
  ++openEncodes_;
}

void Submission::closeEncode() {
  const std::lock_guard lock(mutex_);
  --openEncodes_;
}

void Submission::append(Command command) {
  checkOpen();
  commands_.push_back(std::move(command));
}

void Submission::checkBeforeNext(std::function<void()> check) {
  checkOpen();
  checks_.push_back({commands_.size(), std::move(check)});
}

std::size_t Submission::commandCount() const {
  return commands_.size();
}

void Submission::ifDropped(std::function<void(CommandBuffer&)> record) {
  checkOpen();
  ifDropped_.push_back(std::move(record));
}

std::span<const Command> Submission::commandsSince(const RecordingMark& mark) const {
  return std::span(commands_).subspan(std::min(mark.commands, commands_.size()));
}

std::shared_ptr<Heap> Submission::exchangeHeap(std::shared_ptr<Heap> heap) {
  return std::exchange(heap_, std::move(heap));
}

void Submission::retain(std::shared_ptr<const void> object) {
  retained_.push_back(std::move(object));
}

void Submission::rollback(const RecordingMark& mark) {
  if (mark.commands < commands_.size()) commands_.resize(mark.commands);
  std::erase_if(checks_, [&](const Check& check) { return check.command >= mark.commands; });
  if (mark.ifDropped < ifDropped_.size()) ifDropped_.resize(mark.ifDropped);
}

const std::shared_ptr<Heap>& Submission::heap() const {
  return heap_ ? heap_ : queue_->heap();
}

void Submission::allowSuccessor() {
  if (heap_) return;
  heap_ = queue_->leaseHeap();
  scope_ = newScope();
}

void Submission::continueFrom(const Submission& previous) {
  setLabel(previous.label());
  heap_ = previous.heap_;
  scope_ = previous.scope_;
  log_ = previous.log_;
  commandTimes_ = previous.commandTimes_;
}

void Submission::setRecordsCommandTimes(bool records) {
  checkOpen();
  commandTimes_ = records ? std::make_shared<CommandTimes>() : nullptr;
}

std::vector<CommandTime> Submission::commandTimes() const {
  if (!commandTimes_) return {};
  const std::lock_guard lock(commandTimes_->mutex);
  return commandTimes_->times;
}

void Submission::enqueue() {
  {
    const std::lock_guard lock(mutex_);
    if (status_ != CommandBufferStatus::NotEnqueued) return;
    status_ = CommandBufferStatus::Enqueued;
  }
  queue_->reserve(shared_from_this());
  queue_->flush();  // another thread may have committed meanwhile
}

void Submission::commit() {
  commit(false);
}

void Submission::commitToContinue() {
  commit(true);
}

void Submission::commit(bool willContinue) {
  const auto checkOnce = [this] {
    if (willRun_ || status_ >= CommandBufferStatus::Committed)
      throw Error("CommandBuffer \"" + label_ +
                  "\": committed twice; make a new command buffer for more work");
    if (openEncodes_ > 0)
      throw Error(
          "CommandBuffer \"" + label_ +
          "\": committed inside an encode to it, by a data source, an allocator or a padding policy; commit "
          "when that encode has returned");
  };
  {
    const std::lock_guard lock(mutex_);
    checkOnce();
  }
  checkNoEncoder();
  enqueue();
  {
    const std::lock_guard lock(mutex_);
    checkOnce();
    willRun_ = true;
    willContinue_ = willContinue;
  }
  ifDropped_.clear();  // before another thread's flush can hand the commands over
  {
    const std::lock_guard lock(mutex_);
    status_ = CommandBufferStatus::Committed;
    self_ = shared_from_this();
  }
  queue_->flush();
}

bool Submission::willRun() const {
  const std::lock_guard lock(mutex_);
  return willRun_;
}

void Submission::releaseSelf() {
  const std::lock_guard lock(mutex_);
  self_ = nullptr;
}

void Submission::addHandler(CommandBuffer::Handler handler, bool scheduled) {
  if (!handler) throw Error("CommandBuffer \"" + label() + "\": handler is empty");
  queue_->handlerThread().start();  // here, where it can be told that there is no thread
  const std::lock_guard lock(mutex_);
  if (status_ >= CommandBufferStatus::Committed)
    throw Error("CommandBuffer \"" + label_ + "\": handler added after commit");
  auto& due = scheduled ? scheduledDue_ : completedDue_;
  if (due.empty()) due.push_back({nullptr, scheduled});
  (scheduled ? scheduledHandlers_ : completedHandlers_).push_back(std::move(handler));
}

bool Submission::isReached(bool scheduledOnly, bool withHandlers) const {
  if (scheduledOnly)
    return status_ >= CommandBufferStatus::Scheduled && (scheduledHandlersDone_ || !withHandlers);
  return status_ >= CommandBufferStatus::Completed && (completedHandlersDone_ || !withHandlers);
}

bool Submission::wait(bool scheduledOnly, std::optional<std::chrono::milliseconds> most) {
  std::unique_lock lock(mutex_);
  if (status_ < CommandBufferStatus::Committed)
    throw Error("CommandBuffer \"" + label_ + "\": waits before commit and would never return");
  if (runningHandlersOf_ == std::this_thread::get_id() && !isReached(scheduledOnly, true))
    throw Error("CommandBuffer \"" + label_ +
                "\": waits inside one of its own handlers and would never return");
  // On the handler thread only the execution can be waited for: the other buffer's handlers come after this
  // one.
  const bool onHandlerThread = queue_->handlerThread().isCurrent();
  const auto isOver = [&] { return isReached(scheduledOnly, !onHandlerThread); };
  if (most) return changed_.wait_for(lock, *most, isOver);
  changed_.wait(lock, isOver);
  return true;
}

bool Submission::waitIfHandedOver(std::optional<std::chrono::milliseconds> most) {
  std::unique_lock lock(mutex_);
  const auto haveRun = [&] { return status_ >= CommandBufferStatus::Completed; };
  const bool isHandedOver = status_ >= CommandBufferStatus::Committed && !self_;
  if (!isHandedOver) return haveRun();
  if (most) return changed_.wait_for(lock, *most, haveRun);
  changed_.wait(lock, haveRun);
  return true;
}

void Submission::fail(CommandBufferErrorCode code, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = CommandBufferError{code, message};
  if (status_ == CommandBufferStatus::Completed) status_ = CommandBufferStatus::Error;
}

void Submission::runChecks(std::span<const Command> commands) const {
  const auto first = static_cast<std::size_t>(commands.data() - commands_.data());
  for (const Check& check : checks_)
    if (check.command >= first && check.command < first + commands.size()) check.function();
}

void Submission::runTimed(Command& command, Stream& stream) {
  if (!commandTimes_) return command.run(stream);
  TimedCommand timed{{command.label, 0, 0, 0, command.operations}, stream.moment(), nullptr};
  for (const auto* marks : {&command.reads, &command.writes})
    for (const ContentMark& mark : *marks) timed.time.bytes += static_cast<double>(mark.region.byteCount());
  command.run(stream);
  timed.end = stream.moment();
  timedCommands_.push_back(std::move(timed));
}

void Submission::keepCommandTimes(bool isGood) {
  std::vector<CommandTime> times;
  const auto failure = failureOf([&] {
    if (!isGood) return;
    for (TimedCommand& timed : timedCommands_) {
      timed.time.start = startTime_ + timed.begin->secondsAfter(*firstMoment_);
      timed.time.end = startTime_ + timed.end->secondsAfter(*firstMoment_);
      times.push_back(std::move(timed.time));
    }
  });
  timedCommands_.clear();
  firstMoment_.reset();
  if (failure) return;
  const std::lock_guard lock(commandTimes_->mutex);
  commandTimes_->times.insert(commandTimes_->times.end(), times.begin(), times.end());
}

bool Submission::runCommand(Command& command, Stream& stream, std::string& failure) {
  bool isLeftOut = false;
  const auto thrown = failureOf([&] {
    isLeftOut = command.condition && !command.condition(stream);
    if (isLeftOut) return;
    if (auto invalid = command.invalidRead(); !invalid.empty()) {
      failure = std::move(invalid);
      fail(CommandBufferErrorCode::InvalidResource, failure);
      return;
    }
    runChecks({&command, 1});
    runTimed(command, stream);
  });
  if (thrown) {
    failure = command.label + ": " + thrown->message;
    fail(thrown->code, failure);
  }
  return isLeftOut;
}

bool Submission::replay(std::span<Command> commands, Stream& stream, std::string& failure) {
  if (!failure.empty() || commands.empty()) return false;
  // One by one they run up to the one whose check fails.
  if (failureOf([&] { runChecks(commands); })) return false;
  bool isDone = false;
  if (const auto thrown = failureOf([&] { isDone = stream.replay(commands); })) {
    failure = commands.front().label + " to " + commands.back().label + ": " + thrown->message;
    fail(thrown->code, failure);
    isDone = true;
  }
  if (isDone) mark(commands, failure);
  return isDone;
}

void Submission::runCommands(std::span<Command> commands, Stream& stream, std::string& failure) {
  for (Command& command : commands) {
    if (failure.empty() && ProcessEnd::hasBegun()) {
      failure = command.label + ": not run, because the process is ending";
      fail(CommandBufferErrorCode::AccessRevoked, failure);
    }
    if (failure.empty() && runCommand(command, stream, failure)) {
      command.writes.clear();  // whatever the device finds out later, this command wrote nothing
      for (const ContentMark& mark : command.lacking)
        mark.setFailure(command.label + ": left out by its predicate, so that a part is missing");
    } else {
      mark({&command, 1}, failure);
    }
  }
}

void Submission::runCommands(Stream& stream) {
  std::string failure;
  if (commandTimes_) {
    firstMoment_ = stream.moment();
    runCommands(std::span(commands_), stream, failure);
    return;
  }
  const auto isReplayable = [](const Command& command) {
    return command.replay.work != nullptr && !command.condition;
  };
  auto first = commands_.begin();
  while (first != commands_.end()) {
    const auto end = std::find_if_not(first, commands_.end(), isReplayable);
    if (ProcessEnd::hasBegun() || !replay({first, end}, stream, failure))
      runCommands({first, end}, stream, failure);
    first = std::find_if(end, commands_.end(), isReplayable);
    runCommands({end, first}, stream, failure);
  }
}

void Submission::runHandlers(bool scheduled) {
  auto& handlers = scheduled ? scheduledHandlers_ : completedHandlers_;
  CommandBuffer face(shared_from_this());
  {
    const std::lock_guard lock(mutex_);
    runningHandlersOf_ = std::this_thread::get_id();
  }
  const ProcessEnd::Guard guard(ProcessEnd::Guard::Kind::Handler);
  for (auto& handler : handlers) {
    if (ProcessEnd::hasBegun()) break;
    if (const auto thrown = failureOf([&] { handler(face); }))
      fail(thrown->code, "handler: " + thrown->message);
  }
  handlers.clear();
  {
    const std::lock_guard lock(mutex_);
    runningHandlersOf_ = std::thread::id();
    (scheduled ? scheduledHandlersDone_ : completedHandlersDone_) = true;
  }
  changed_.notify_all();
}

void Submission::begin() {
  const auto self = shared_from_this();
  {
    const std::lock_guard lock(mutex_);
    status_ = CommandBufferStatus::Scheduled;
    startTime_ = now();
    scheduledHandlersDone_ = scheduledHandlers_.empty();
  }
  changed_.notify_all();
  if (scheduledHandlers_.empty()) return;
  scheduledDue_.front().submission = self;
  queue_->handlerThread().post(scheduledDue_);
}

void Submission::end(const std::optional<CommandBufferError>& failure, std::optional<double> deviceSeconds) {
  const auto self = shared_from_this();
  if (failure) {
    fail(failure->code, failure->message);
    for (const Command& command : commands_)
      for (const ContentMark& write : command.writes) write.setFailure(failure->message);
  }
  commands_.clear();
  checks_.clear();
  retained_.clear();
  if (!willContinue_) log_->reportUnread();
  {
    const std::lock_guard lock(mutex_);
    endTime_ = now();
    if (deviceSeconds) startTime_ = endTime_ - *deviceSeconds;
    if (commandTimes_) keepCommandTimes(!error_);
    status_ = error_ ? CommandBufferStatus::Error : CommandBufferStatus::Completed;
    completedHandlersDone_ = completedHandlers_.empty();
  }
  changed_.notify_all();
  queue_->submissionEnded();
  if (completedHandlers_.empty()) return;
  completedDue_.front().submission = self;
  queue_->handlerThread().post(completedDue_);
}

CommandBufferStatus Submission::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

std::optional<CommandBufferError> Submission::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

double Submission::startTime() const {
  const std::lock_guard lock(mutex_);
  return startTime_;
}

double Submission::endTime() const {
  const std::lock_guard lock(mutex_);
  return endTime_;
}

std::string Submission::label() const {
  const std::lock_guard lock(mutex_);
  return label_;
}

void Submission::setLabel(std::string label) {
  const std::lock_guard lock(mutex_);
  label_ = std::move(label);
}

}  // namespace mtl
