#include "tools/terminal/signals.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <iostream>

namespace unmetal {
namespace {

std::atomic<int> receivedSignal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler sets it");

void note(int signal) {
  receivedSignal = signal;
  // The second one ends the process, whichever of the two it is.
  for (const int other : {SIGINT, SIGTERM}) {
    struct sigaction action {};
    ::sigaction(other, nullptr, &action);
    if (action.sa_handler != note) continue;
    action.sa_handler = SIG_DFL;
    ::sigaction(other, &action, nullptr);
  }
}

void catchOnce(int signal, struct sigaction& before) {
  ::sigaction(signal, nullptr, &before);
  if (before.sa_handler == SIG_IGN) return;
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

StopSignals::StopSignals() {
  receivedSignal = 0;
  catchOnce(SIGINT, interrupt_);
  catchOnce(SIGTERM, terminate_);
}

StopSignals::~StopSignals() {
  ::sigaction(SIGINT, &interrupt_, nullptr);
  ::sigaction(SIGTERM, &terminate_, nullptr);
}

int StopSignals::received() {
  return receivedSignal;
}

OutputWithoutReader::OutputWithoutReader() {
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, &before_);
}

OutputWithoutReader::~OutputWithoutReader() {
  discard();
  ::sigaction(SIGPIPE, &before_, nullptr);
}

void OutputWithoutReader::discard() {
  pollfd output{STDOUT_FILENO, 0, 0};
  if (::poll(&output, 1, 0) != 1 || (output.revents & POLLERR) == 0) return;
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) return;
  ::dup2(nowhere, STDOUT_FILENO);
  ::close(nowhere);
  std::clearerr(stdout);
  std::cout.clear();
}

}  // namespace unmetal
