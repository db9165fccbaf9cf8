#include "train/ranks/ranks.hpp"

#include <algorithm>
#include <cmath>
#include <exception>

#include "mps/distributed/communicator.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace unmetal::train::detail {
namespace {

constexpr std::size_t longestSentence = 1000;

/// Empty where it does not fail.
std::string failureOf(const std::function<void()>& function) {
  try {
    function();
    return "";
  } catch (const std::exception& exception) {
    return std::string(exception.what()).substr(0, longestSentence);
  }
}

}  // namespace

bool areSeveral(const Ranks& ranks) {
  return ranks && ranks->size() > 1;
}

Part partOf(std::size_t pictures, std::size_t rank, std::size_t ranks) {
  const std::size_t first = pictures * rank / ranks;
  return {first, pictures * (rank + 1) / ranks - first};
}

Part partOf(std::size_t pictures, const Ranks& ranks) {
  if (!areSeveral(ranks)) return {0, pictures};
  return partOf(pictures, static_cast<std::size_t>(ranks->rank()), static_cast<std::size_t>(ranks->size()));
}

void together(const Ranks& ranks, const std::function<void()>& function) {
  if (!areSeveral(ranks)) return function();
  const std::vector<std::string> sentences = ranks->gather(failureOf(function));
  const auto first = std::ranges::find_if(sentences, [](const auto& sentence) { return !sentence.empty(); });
  if (first == sentences.end()) return;
  const bool areSame = std::ranges::all_of(sentences, [&](const auto& other) { return other == *first; });
  throw SharedError((areSame ? "" : "rank " + std::to_string(first - sentences.begin()) + ": ") + *first);
}

bool isTrueOnAny(const Ranks& ranks, bool own) {
  double value = own ? 1 : 0;
  sumOverRanks(ranks, {&value, 1});
  return value > 0;
}

void sumOverRanks(const Ranks& ranks, std::span<double> values) {
  if (!areSeveral(ranks) || values.empty()) return;
  const auto buffer = ranks->device()->newBuffer(std::as_bytes(values));
  const auto commandBuffer = ranks->device()->newCommandQueue()->commandBuffer();
  ranks->allReduceDoubles(commandBuffer, buffer);
  buffer->synchronize(*commandBuffer);
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  std::ranges::copy(buffer->contentsAs<double>(), values.begin());
}

void agree(const Ranks& ranks, const std::vector<std::pair<std::string, std::string>>& values) {
  constexpr std::size_t most = 200;
  if (!areSeveral(ranks)) return;
  try {
    for (const auto& [name, value] : values) ranks->agree(name, value.substr(0, most));
  } catch (const mps::Error& error) {
    throw SharedError(error.what());
  }
}

void waitForStep(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer, const Ranks& ranks,
                 const std::string& place) {
  try {
    commandBuffer->throwIfFailed();
  } catch (const mtl::Error& error) {
    if (!areSeveral(ranks)) throw;
    throw mps::Error(place + ": " + error.what());
  }
}

double Answer::loss() const {
  return -std::log(std::max(static_cast<double>(probability), 1e-45));
}

void Answers::set(std::size_t picture, std::uint32_t label, std::span<const float> probabilities) {
  const auto best = std::ranges::max_element(probabilities);
  double* const values = &values_[valuesOfPicture * picture];
  values[0] = label;
  values[1] = static_cast<double>(best - probabilities.begin());
  values[2] = static_cast<double>(probabilities[label]);
  values[3] = static_cast<double>(*best);
}

Answer Answers::at(std::size_t picture) const {
  const double* const values = &values_[valuesOfPicture * picture];
  return {static_cast<std::uint32_t>(values[0]), static_cast<std::uint32_t>(values[1]),
          static_cast<float>(values[2]), static_cast<float>(values[3])};
}

}  // namespace unmetal::train::detail
