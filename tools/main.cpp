#include <unistd.h>
#include <csignal>
#include <cstdlib>

#include "tools/program.hpp"

namespace {

/// OpenMP's idle threads spin before they sleep; beside other work on the same processors that makes training
/// ten times slower. The run time reads its environment when it is loaded, so the program starts once more.
void letIdleThreadsSleep(char** arguments) {
  constexpr const char* policy = "OMP_WAIT_POLICY";
  if (std::getenv(policy) != nullptr) return;
  if (::setenv(policy, "passive", 1) == 0) ::execv("/proc/self/exe", arguments);
  // Where that cannot be done, it is slower, not wrong.
}

}  // namespace

int main(int argumentCount, char** arguments) {
  letIdleThreadsSleep(arguments);
  // A file that may not grow any more is an error of the write, as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  return unmetal::runProgram(argumentCount, arguments);
}
