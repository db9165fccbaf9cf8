#include "train/ranks.hpp"

#include <algorithm>

#include "mps/core/error.hpp"
#include "mps/distributed/communicator.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace unmetal::train::detail {
namespace {

constexpr std::size_t longestSentence = 1000;

std::string sentenceOf(const std::exception_ptr& error) {
  if (!error) return "";
  std::string sentence = "an error that is none of C++";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    sentence = exception.what();
  } catch (...) {
  }
  return sentence.substr(0, longestSentence);
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
  std::exception_ptr error;
  try {
    function();
  } catch (...) {
    error = std::current_exception();
  }
  failTogether(ranks, error);
}

void failTogether(const Ranks& ranks, const std::exception_ptr& own) {
  if (areSeveral(ranks)) {
    const std::string sentence = sentenceOf(own);
    const std::vector<std::string> sentences = ranks->gather(sentence);
    const auto first = std::ranges::find_if(sentences, [](const auto& found) { return !found.empty(); });
    if (first != sentences.end() && *first != sentence)
      throw mps::Error("rank " + std::to_string(first - sentences.begin()) + ": " + *first);
  }
  if (own) std::rethrow_exception(own);
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
  for (const auto& [name, value] : values) ranks->agree(name, value.substr(0, most));
}

void Answers::set(std::size_t picture, std::uint32_t label, std::uint32_t answer, double loss) {
  double* const values = &values_[valuesOfPicture * picture];
  values[0] = label;
  values[1] = answer;
  values[2] = loss;
}

}  // namespace unmetal::train::detail
