#pragma once

#include <csignal>

namespace unmetal {

/// While it lives, the first Ctrl-C (SIGINT) or SIGTERM is noted; a second one ends the process as usual. A signal that
/// the process was told to ignore when it started stays ignored.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The signal that came, or 0.
  [[nodiscard]] static int received();

 private:
  struct sigaction interrupt_ {};
  struct sigaction terminate_ {};
};

/// While it lives, output that nobody reads any more, of a pipe whose reader has gone, goes nowhere instead of ending the
/// process.
class OutputWithoutReader {
 public:
  OutputWithoutReader();
  ~OutputWithoutReader();
  OutputWithoutReader(const OutputWithoutReader&) = delete;
  OutputWithoutReader& operator=(const OutputWithoutReader&) = delete;

  /// Turns the standard output to /dev/null if its reader has gone, and forgets that writing has failed.
  static void discard();

 private:
  struct sigaction before_ {};
};

}  // namespace unmetal
