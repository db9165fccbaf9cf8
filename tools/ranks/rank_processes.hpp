#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace unmetal {

/// A process to start: what is in its environment beside ours, and its words, the first of which is the file.
struct RankProcess {
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> words;
};

/// This process, once more for each of so many ranks on this host: they meet as those of torchrun do, at a port that is free.
std::vector<RankProcess> rankProcesses(std::size_t count);

/// Starts them and waits for the end of all. When one has failed the others have so long to end, too, then they are made to; a
/// signal that ends this process is passed on to them. Their output is ours.
/// @return 0, or what the first one ended with that has failed, kExitRankMissing before all else, 128 more than a signal
/// @throws mps::Error when one cannot be started; those before it are ended
int runProcesses(const std::vector<RankProcess>& processes, std::chrono::milliseconds patience);

}  // namespace unmetal
