#include "mps/core/cpu/channel_layout.hpp"

#include <cmath>

namespace mps::detail {

void loadShifts(const ChannelLayout& layout, const TensorShape& shape, const std::byte* memory,
                std::int64_t chunk, float* shifts, std::int64_t origin) {
  for (std::int64_t c = 0; c < layout.channels; c += layout.slabChannels) {
    alignas(64) float buffer[Tiling::capacity];
    const Tile tile{origin + layout.firstPixel(chunk), 1, c,
                    std::min(layout.slabChannels, layout.channels - c)};
    std::copy_n(loadTile(shape, memory, tile, buffer), tile.channels, shifts + c);
  }
  // An infinite one would make NaN of every difference.
  for (std::int64_t c = 0; c < layout.channels; ++c) shifts[c] = std::isfinite(shifts[c]) ? shifts[c] : 0;
  layout.repeat(shifts);
}

void joinMoments(std::int64_t channels, double count, const ChannelMoments& moments, double added,
                 const ChannelMoments& others) {
  if (count == 0) {
    std::copy_n(others.mean, channels, moments.mean);
    std::copy_n(others.squares, channels, moments.squares);
    return;
  }
  const double part = added / (count + added);
  const double weight = count * part;
  for (std::int64_t c = 0; c < channels; ++c) {
    const double difference = others.mean[c] - moments.mean[c];
    moments.mean[c] += difference * part;
    moments.squares[c] += others.squares[c] + difference * difference * weight;
  }
}

}  // namespace mps::detail
