#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mtl {

class BlitCommandEncoder;
struct Command;
class CommandQueue;
class Device;
class Heap;
class Log;
struct RecordingMark;
class Submission;

enum class CommandBufferStatus : unsigned {
  NotEnqueued = 0,
  Enqueued = 1,
  Committed = 2,
  Scheduled = 3,
  Completed = 4,
  Error = 5
};

enum class CommandBufferErrorCode : unsigned {
  None = 0,
  Internal = 1,
  Timeout = 2,
  PageFault = 3,
  AccessRevoked = 4,
  NotPermitted = 7,
  OutOfMemory = 8,
  InvalidResource = 9,
  Memoryless = 10,
  DeviceRemoved = 11
};

/// Why a command buffer stopped. The message begins with the label of the command.
struct CommandBufferError {
  CommandBufferErrorCode code = CommandBufferErrorCode::Internal;
  std::string message;
};

/// When one command of a buffer was at work (what Metal's counter sample buffers tell of the borders of encoders).
struct CommandTime {
  std::string label;  ///< class and label of the kernel, e.g. CNNConvolution "conv1"
  double start = 0;   ///< seconds of the clock of GPUStartTime
  double end = 0;
  double bytes = 0;       ///< of the memory that it reads and writes, each once
  double operations = 0;  ///< multiplications and additions of convolutions and matrix products; 0 of others
};

/// A list of recorded work (Metal's MTLCommandBuffer).
///
/// Encoding records; nothing runs before commit(). Work inside one buffer behaves as if executed in the order
/// of encoding. Encode from one thread at a time; the other members are thread safe.
///
/// When a command fails, the buffer's error() is set, its later commands are skipped and what they would have
/// written is marked invalid: using it later throws (or fails) with the first message. Later buffers of the
/// queue run.
///
/// A buffer that its last owner lets go uncommitted never runs: what it would have written stays as it was.
///
/// A process that ends does not wait for what it has committed. The command that runs then is finished; those behind it
/// fail, as does what static objects commit while they are destroyed, and handlers are not called any more.
class CommandBuffer : public std::enable_shared_from_this<CommandBuffer> {
 public:
  using Handler = std::function<void(CommandBuffer&)>;

  /// Use CommandQueue::commandBuffer.
  explicit CommandBuffer(std::shared_ptr<Submission> submission);
  virtual ~CommandBuffer() = default;
  CommandBuffer(const CommandBuffer&) = delete;
  CommandBuffer& operator=(const CommandBuffer&) = delete;

  [[nodiscard]] const std::shared_ptr<Device>& device() const;
  [[nodiscard]] const std::shared_ptr<CommandQueue>& commandQueue() const { return commandQueue_; }
  [[nodiscard]] std::string label() const;
  void setLabel(std::string label);

  /// Copies and fills of buffers, until its endEncoding. @throws Error after commit, and while another is open.
  std::shared_ptr<BlitCommandEncoder> blitCommandEncoder();

  /// Reserves the place in the queue. Later calls have no effect.
  void enqueue();
  /// Hands the buffer to its queue, enqueued first when it was not. @throws Error on a second call, while an
  /// encoder is open, and inside an encode to this buffer: a data source, an allocator or a padding policy that such an
  /// encode calls cannot commit it.
  void commit();
  /// Returns when the buffer was handed to the device and its scheduled handlers have run.
  /// @throws Error before commit, and inside a scheduled handler of this buffer.
  void waitUntilScheduled();
  /// Returns when the buffer has run and its completed handlers have run. Does not throw for a failed buffer:
  /// see error(). @throws Error before commit, and inside a completed handler of this buffer.
  void waitUntilCompleted();
  /// Handlers run on the queue's handler thread, in the order in which they were added, also after an error.
  /// A handler may wait for a later buffer of its queue. An exception that leaves a handler is reported in
  /// error() of the buffer if that was still empty. @throws Error after commit, for an empty handler, and when the
  /// queue's handler thread, which begins with the first handler, cannot be started.
  void addScheduledHandler(Handler handler);
  void addCompletedHandler(Handler handler);

  [[nodiscard]] CommandBufferStatus status() const;
  /// Set when status() is Error.
  [[nodiscard]] std::optional<CommandBufferError> error() const;
  /// What is no error and yet worth a look (Metal's logs): temporary objects that have reads left (docs/decisions.md,
  /// D15) when they are let go or when the buffer has completed. Of a buffer that is committed in pieces the last piece
  /// counts. One sentence each, with the object, its label, who wrote it and the reads; the first 100, of all pieces. The
  /// environment variable UNMETAL_VERBOSE=reads prints all of them on stderr.
  [[nodiscard]] std::vector<std::string> logs() const;
  /// Waits and throws Error with the message of error(), if there is one.
  void throwIfFailed();

  /// Seconds of a steady clock; 0 until known. The end is when the host learned of it. The start is when the device took
  /// the buffer. On CUDA, once the buffer has completed, it is the end less the time that the device was at work, which
  /// the device measures itself: the difference has no waiting in it.
  [[nodiscard]] double GPUStartTime() const;  // NOLINT: Metal's name
  [[nodiscard]] double GPUEndTime() const;    // NOLINT: Metal's name

  /// Whether the device notes when each command begins and ends. false. A GPU then runs the commands one by one, not as a
  /// captured graph, so that the buffer takes longer than usual. Of a buffer that is committed in pieces all later pieces
  /// follow. @throws Error after commit
  void setRecordsCommandTimes(bool records);
  /// In the order in which they ran; those that a predicate has left out are missing. Empty unless they are recorded, until the
  /// buffer has completed, and when it has failed. Of a buffer that is committed in pieces those of all pieces that have completed.
  [[nodiscard]] std::vector<CommandTime> commandTimes() const;

  /// @name The library's own
  /// @{
  /// Appends work. @throws Error after commit.
  virtual void append(Command command);
  /// Throws Error when the buffer was committed already or an encoder is open.
  void checkOpen() const;
  /// Throws Error, for something that is synchronized or the like, unless it is of this device.
  void checkDevice(const char* what, const std::shared_ptr<Device>& device) const;
  /// Number of commands recorded so far.
  [[nodiscard]] std::size_t commandCount() const;
  /// Should the buffer be let go uncommitted, another one runs in its place, with what the
  /// function records there: before those that were enqueued behind it, or as one that is committed then. For what
  /// encoding has changed on the host already. Called in the order of encoding; destroyed by commit before any command
  /// runs.
  void ifDropped(std::function<void(CommandBuffer&)> record);
  /// How much is recorded; rollback() takes back what came later.
  [[nodiscard]] RecordingMark recorded() const;
  void rollback(const RecordingMark& mark);
  /// Where temporary objects of this buffer live.
  [[nodiscard]] const std::shared_ptr<Heap>& heap() const;
  /// What is recorded; all faces of one buffer share it.
  [[nodiscard]] virtual const std::shared_ptr<Submission>& submission() const { return submission_; }
  /// Whether a recorded command may be left out without failing.
  [[nodiscard]] virtual bool mayLeaveOut() const { return false; }
  /// Submission() for what is thread safe, while another thread encodes.
  [[nodiscard]] virtual std::shared_ptr<Submission> current() const { return submission_; }
  /// @}

 protected:
  std::shared_ptr<Submission> submission_;

 private:
  std::shared_ptr<CommandQueue> commandQueue_;  ///< that of every submission behind this
};

}  // namespace mtl
