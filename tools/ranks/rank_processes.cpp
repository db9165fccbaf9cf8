#include "tools/ranks/rank_processes.hpp"

#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>

#include "mps/core/types/error.hpp"
#include "tools/terminal/exit_status.hpp"
#include "tools/terminal/signals.hpp"

namespace unmetal {
namespace {

/// The system's choice. NCCL takes the port after MASTER_PORT.
int freePort() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const bool isFound =
      socket >= 0 && ::bind(socket, generic, length) == 0 && ::getsockname(socket, generic, &length) == 0;
  const int error = errno;
  if (socket >= 0) ::close(socket);
  if (!isFound)
    throw mps::Error("there is no free port for the ranks to meet at: " +
                     std::generic_category().message(error));
  return ntohs(address.sin_port) - 1;
}

/// The words with which this process was started.
std::vector<std::string> ownWords() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> words;
  for (std::size_t first = 0; first < text.size();) {
    const std::size_t end = std::min(text.find('\0', first), text.size());
    words.push_back(text.substr(first, end - first));
    first = end + 1;
  }
  if (words.empty()) throw mps::Error("cannot read /proc/self/cmdline");
  words.front() = "/proc/self/exe";
  return words;
}

/// Ours, with some values of its own.
std::vector<std::string> environmentWith(const std::vector<std::pair<std::string, std::string>>& own) {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const auto isOwn = [&](const auto& pair) { return text.starts_with(pair.first + "="); };
    if (std::ranges::none_of(own, isOwn)) all.emplace_back(text);
  }
  for (const auto& [name, value] : own) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointersTo(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Processes that end with this object at the latest.
class Children {
 public:
  Children() = default;
  ~Children() {
    send(SIGKILL);
    while (!areGone()) std::this_thread::sleep_for(pause);
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  void start(const RankProcess& process) {
    std::vector<std::string> words = process.words;
    std::vector<std::string> environment = environmentWith(process.environment);
    pid_t child = 0;
    const int error = ::posix_spawn(&child, words.front().c_str(), nullptr, nullptr, pointersTo(words).data(),
                                    pointersTo(environment).data());
    if (error != 0)
      throw mps::Error("cannot start " + words.front() + ": " + std::generic_category().message(error));
    running_.push_back(child);
  }

  /// Looks who has ended. @return whether all have
  bool areGone() {
    std::erase_if(running_, [&](pid_t child) {
      int status = 0;
      const pid_t ended = ::waitpid(child, &status, WNOHANG);
      if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
      note(WIFSIGNALED(status) ? kExitSignal + WTERMSIG(status) : WEXITSTATUS(status));
      return true;
    });
    return running_.empty();
  }
  void send(int signal) const {
    for (const pid_t child : running_) ::kill(child, signal);
  }
  [[nodiscard]] int status() const { return status_; }

  static constexpr std::chrono::milliseconds pause{20};

 private:
  void note(int status) {
    if (status_ == 0 || status == kExitRankMissing) status_ = status;
  }

  std::vector<pid_t> running_;
  int status_ = 0;
};

}  // namespace

std::vector<RankProcess> rankProcesses(std::size_t count) {
  const std::string port = std::to_string(freePort());
  const std::string size = std::to_string(count);
  std::vector<RankProcess> processes;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string rank = std::to_string(i);
    processes.push_back({{{"RANK", rank},
                          {"WORLD_SIZE", size},
                          {"LOCAL_RANK", rank},
                          {"LOCAL_WORLD_SIZE", size},
                          {"MASTER_ADDR", "127.0.0.1"},
                          {"MASTER_PORT", port}},
                         ownWords()});
  }
  return processes;
}

int runProcesses(const std::vector<RankProcess>& processes, std::chrono::milliseconds patience) {
  const StopSignals signals;
  Children children;
  for (const RankProcess& process : processes) children.start(process);
  std::optional<std::chrono::steady_clock::time_point> end;
  bool isToldToStop = false;
  while (!children.areGone()) {
    if (StopSignals::received() == SIGTERM && !isToldToStop) {
      children.send(SIGTERM);  // Ctrl-C they get from the terminal
      isToldToStop = true;
    }
    if (children.status() != 0 && !end) end = std::chrono::steady_clock::now() + patience;
    if (end && std::chrono::steady_clock::now() > *end) break;
    std::this_thread::sleep_for(Children::pause);
  }
  return children.status();
}

}  // namespace unmetal
