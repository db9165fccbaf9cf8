#include <fcntl.h>
#include <unistd.h>
#include <csignal>

#include "tools/program.hpp"

namespace {

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
  // A file that may not grow any more is an error of the write, as a full disk is.
  std::signal(SIGXFSZ, SIG_IGN);
  return unmetal::runProgram(argumentCount, arguments);
}
