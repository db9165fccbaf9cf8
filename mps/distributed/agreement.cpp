#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mps/distributed/collective.hpp"
#include "mps/distributed/communicator.hpp"
#include "mtl/buffer.hpp"
#include "mtl/command.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"
#include "mtl/memory.hpp"
#include "mtl/stream.hpp"

/// Communicator::agree: whether ranks have the same.
namespace mps {
namespace {

/// Of bytes in a device's memory, eight at a time (FNV-1a with a rotation).
std::uint64_t hashOf(mtl::Stream& stream, const std::byte* address, std::size_t bytes) {
  constexpr std::uint64_t basis = 0xcbf29ce484222325ULL;
  constexpr std::uint64_t prime = 0x100000001b3ULL;
  constexpr unsigned turn = 29;
  constexpr unsigned bits = 64;
  constexpr std::size_t most = std::size_t{1} << 20U;
  std::vector<std::uint64_t> words(std::min(bytes, most) / sizeof(std::uint64_t) + 1);
  std::uint64_t hash = basis;
  for (std::size_t first = 0; first < bytes; first += most) {
    const std::size_t count = std::min(most, bytes - first);
    words[count / sizeof(std::uint64_t)] = 0;
    stream.read(address + first, std::as_writable_bytes(std::span(words)).first(count));
    for (std::size_t i = 0; i * sizeof(std::uint64_t) < count; ++i) {
      hash = (hash ^ words[i]) * prime;
      hash = (hash << turn) | (hash >> (bits - turn));
    }
  }
  return hash;
}

/// The first rank whose bytes are not rank 0's, or 0. @param all the same number of bytes of each rank
std::size_t firstThatDiffers(std::span<const std::byte> all, std::size_t bytesOfRank, std::size_t offset,
                             std::size_t count) {
  const auto own = all.subspan(offset, count);
  for (std::size_t rank = 1; rank * bytesOfRank < all.size(); ++rank)
    if (!std::ranges::equal(own, all.subspan(rank * bytesOfRank + offset, count))) return rank;
  return 0;
}

}  // namespace

void Communicator::agree(const std::shared_ptr<mtl::CommandBuffer>& commandBuffer,
                         const std::vector<Named>& buffers) {
  mtl::CommandBuffer& recorded = checked(commandBuffer);
  mtl::Command command;
  command.label = "Communicator";
  std::vector<std::string> names;
  std::vector<Part> parts;
  for (const Named& named : buffers) {
    parts.push_back(partOf("buffers", named.buffer));
    names.push_back(named.name);
    command.reads.emplace_back(parts.back().memory);
  }
  if (!engine_) return;
  command.run = [engine = engine_, names = std::move(names), parts = std::move(parts)](mtl::Stream& stream) {
    std::vector<std::uint64_t> hashes;
    for (const Part& part : parts)
      hashes.push_back(hashOf(stream, part.memory->address() + part.byteOffset, part.bytes));
    const auto bytes = std::as_bytes(std::span(hashes));
    std::vector<std::byte> own(bytes.begin(), bytes.end());
    std::vector<std::byte> all(own.size() * static_cast<std::size_t>(engine->size()));
    engine->gatherFromHost(stream, own, all);
    for (std::size_t i = 0; i < names.size(); ++i)
      if (const std::size_t rank =
              firstThatDiffers(all, own.size(), i * sizeof(std::uint64_t), sizeof(std::uint64_t));
          rank > 0)
        throw Error(names[i] + " differs between ranks 0 and " + std::to_string(rank));
  };
  recorded.append(std::move(command));
}

std::vector<std::string> Communicator::gather(std::string_view value) {
  constexpr std::size_t most = 1000;
  using Text = std::array<char, most + 1>;
  if (value.size() > most)
    throw Error("Communicator", "value", std::to_string(value.size()) + " bytes long", "1000 at most");
  if (!engine_) return {std::string(value)};
  std::vector<std::byte> own(sizeof(Text));
  std::memcpy(own.data(), value.data(), value.size());
  std::vector<std::byte> all(own.size() * static_cast<std::size_t>(size_));
  const auto commandBuffer = device_->newCommandQueue()->commandBuffer();
  mtl::Command command;
  command.label = "Communicator";
  command.run = [&](mtl::Stream& stream) { engine_->gatherFromHost(stream, own, all); };
  commandBuffer->append(std::move(command));
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  std::vector<std::string> values;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(size_); ++rank)
    values.emplace_back(reinterpret_cast<const char*>(all.data() + rank * own.size()));
  return values;
}

void Communicator::exchangePlaces() {
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) host = {"a host without a name"};
  if (engine_) engine_->setPlaces(gather(std::string(host.data()) + ", " + device_->name()));
}

void Communicator::agree(const std::string& name, std::string_view value) {
  constexpr std::size_t most = 200;
  if (value.size() > most)
    throw Error("Communicator", name, std::to_string(value.size()) + " bytes long", "200 at most");
  const std::vector<std::string> values = gather(value);
  const auto other = std::ranges::find_if(values, [&](const auto& found) { return found != values[0]; });
  if (other != values.end())
    throw Error(name + " is " + values[0] + " on rank 0, but " + *other + " on rank " +
                std::to_string(other - values.begin()));
}

}  // namespace mps
