#include <fcntl.h>
#include <unistd.h>
#include <csignal>
#include <cstdlib>

#include "tools/child_program.hpp"
#include "tools/program.hpp"

namespace {

/// OpenMP's idle threads spin for milliseconds before they sleep; beside other work on the same processors that makes
/// training ten times slower. When they sleep at once, each kernel waits some 50 microseconds for them, a third of the step
/// of a small network. The run time reads its environment when it is loaded, so the program starts once more.
void letIdleThreadsSleepSoon(char** arguments) {
  if (std::getenv(unmetal::kIdleThreads[0].name) != nullptr) return;
  for (const auto& [name, value] : unmetal::kIdleThreads)
    if (::setenv(name, value, 0) != 0) return;  // then it is slower, not wrong
  ::execv("/proc/self/exe", arguments);
}

/// What was closed would be the number of the next file that is opened, and the progress would be written into it.
void openClosedStandardStreams() {
  int descriptor = -1;
  do {
    descriptor = ::open("/dev/null", O_RDWR);  // the lowest number that is free
  } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  if (descriptor >= 0) ::close(descriptor);
}

}  // namespace

int main(int argumentCount, char** arguments) {
  openClosedStandardStreams();
  letIdleThreadsSleepSoon(arguments);
  // A file that may not grow any more is an error of the write, as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  return unmetal::runProgram(argumentCount, arguments);
}
