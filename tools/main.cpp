#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>
#include <csignal>
#include <cstddef>

#include "tools/commands/program.hpp"

namespace {

/// What was closed would be the number of the next file that is opened, and the progress would be written into it.
void openClosedStandardStreams() {
  int descriptor = -1;
  do {
    descriptor = ::open("/dev/null", O_RDWR);  // the lowest number that is free
  } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  if (descriptor >= 0) ::close(descriptor);
}

constexpr std::size_t stackBytes = std::size_t{8} << 20;

struct Run {
  int argumentCount;
  char** arguments;
  int status;
};

void* runOnThread(void* argument) {
  Run& run = *static_cast<Run*>(argument);
  run.status = unmetal::runProgram(run.argumentCount, run.arguments);
  return nullptr;
}

/// Where the stack is small (ulimit -s), kernels would write beyond its end: then all threads get a larger one, OpenMP's,
/// too, and the program runs on one of them.
int runWithEnoughStack(int argumentCount, char** arguments) {
  Run run{argumentCount, arguments, 0};
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < stackBytes) {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, stackBytes);
    ::pthread_setattr_default_np(&attributes);
    pthread_t thread{};
    const bool isStarted = ::pthread_create(&thread, &attributes, runOnThread, &run) == 0;
    ::pthread_attr_destroy(&attributes);
    if (isStarted) {
      ::pthread_join(thread, nullptr);
      return run.status;
    }
  }
  runOnThread(&run);
  return run.status;
}

}  // namespace

int main(int argumentCount, char** arguments) {
  openClosedStandardStreams();
  // A file that may not grow any more is an error of the write, as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  return runWithEnoughStack(argumentCount, arguments);
}
