#include "tools/terminal/child_program.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <system_error>

#include "mps/core/types/error.hpp"
#include "tools/terminal/progress.hpp"

namespace unmetal {
namespace {

[[noreturn]] void fail(int errorNumber) {
  throw mps::Error("cannot start this program once more: " + std::generic_category().message(errorNumber));
}

class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) fail(errno);
  }
  ~Pipe() {
    closeWriting();
    ::close(ends_[0]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  [[nodiscard]] int writing() const { return ends_[1]; }
  void closeWriting() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  /// Appends what comes next; false at the end.
  bool read(std::string& text) const {
    std::array<char, 4096> piece{};
    ssize_t count = 0;
    do {
      count = ::read(ends_[0], piece.data(), piece.size());
    } while (count < 0 && errno == EINTR);
    if (count > 0) text.append(piece.data(), static_cast<std::size_t>(count));
    return count > 0;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

class FileActions {
 public:
  FileActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  void connect(const Pipe& pipe, int descriptor) {
    ::posix_spawn_file_actions_adddup2(&actions_, pipe.writing(), descriptor);
  }
  [[nodiscard]] const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

}  // namespace

ChildOutput runThisProgram(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{"unmetal"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  Pipe output;
  Pipe errors;
  FileActions actions;
  actions.connect(output, STDOUT_FILENO);
  actions.connect(errors, STDERR_FILENO);
  pid_t process = 0;
  const double start = steadySeconds();
  const int result =
      ::posix_spawn(&process, "/proc/self/exe", actions.get(), nullptr, pointers.data(), environ);
  if (result != 0) fail(result);
  output.closeWriting();
  errors.closeWriting();

  ChildOutput child;
  while (output.read(child.text))
    if (child.secondsToFirstLine == 0 && child.text.find('\n') != std::string::npos)
      child.secondsToFirstLine = steadySeconds() - start;
  std::string trouble;
  while (errors.read(trouble)) {
  }
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw mps::Error("\"unmetal " + arguments.front() + "\" failed: " + trouble);
  return child;
}

}  // namespace unmetal
