#include "fuzz/random_calls/supervisor.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <system_error>
#include <thread>

#include "mps/core/types/error.hpp"

namespace unmetal::random_calls {
namespace {

[[noreturn]] void fail(const char* what) {
  throw mps::Error(std::string(what) + ": " + std::generic_category().message(errno));
}

[[noreturn]] void runChild(const std::function<ChildEnding(std::uint64_t)>& makeCalls, std::uint64_t first) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto ending = ChildEnding::CannotStart;
  try {
    ending = makeCalls(first);
  } catch (const std::exception& exception) {
    std::cerr << exception.what() << std::endl;
  }
  std::cout.flush();
  // Without what runs at an exit: the parent does that.
  ::_exit(static_cast<int>(ending));
}

/// Waits for a process, which it ends when a call takes longer than `longestCall`. @return its status
int await(pid_t process, const Progress& progress, double longestCall, bool& hung) {
  int status = 0;
  for (;;) {
    const pid_t ended = ::waitpid(process, &status, WNOHANG);
    if (ended == process) return status;
    if (ended < 0 && errno != EINTR) fail("cannot wait for a child process");
    if (!hung && steadySeconds() - progress.began > longestCall) {
      hung = true;
      ::kill(process, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

std::string describe(int status, bool hung, double longestCall) {
  if (hung) return "takes more than " + std::to_string(static_cast<int>(longestCall)) + " s";
  if (WIFSIGNALED(status)) return std::string("ends its process: ") + ::strsignal(WTERMSIG(status));
  return "ends its process with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

void UnmapProgress::operator()(Progress* progress) const {
  ::munmap(progress, sizeof(Progress));
}

std::unique_ptr<Progress, UnmapProgress> sharedProgress() {
  void* const memory =
      ::mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("cannot share memory with a child process");
  return std::unique_ptr<Progress, UnmapProgress>(new (memory) Progress());
}

bool superviseCalls(Progress& progress, double longestCall,
                    const std::function<ChildEnding(std::uint64_t)>& makeCalls,
                    const std::function<void(const LostCall&)>& report) {
  constexpr double secondsToStart = 60;  // the libraries of a GPU are loaded
  for (std::uint64_t first = 0;; first = progress.call + 1) {
    std::cout.flush();
    progress.call = first;
    progress.began = steadySeconds() + secondsToStart;
    const pid_t process = ::fork();
    if (process < 0) fail("cannot make a child process");
    if (process == 0) runChild(makeCalls, first);
    bool hung = false;
    const int status = await(process, progress, longestCall, hung);
    if (WIFEXITED(status)) {
      if (WEXITSTATUS(status) == static_cast<int>(ChildEnding::Done)) return true;
      if (WEXITSTATUS(status) == static_cast<int>(ChildEnding::CannotStart)) return false;
      if (WEXITSTATUS(status) == static_cast<int>(ChildEnding::StartAgain)) continue;
    }
    report({progress.call, describe(status, hung, longestCall)});
  }
}

}  // namespace unmetal::random_calls
