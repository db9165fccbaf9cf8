#pragma once

#include <cstdint>
#include <cstring>

#include "mps/upsampling/upsampling_cuda.cuh"

/// Nearest pixels of few channels: a thread has 16 bytes of a row of results, knows once and for all which element of a
/// row each is, and goes down some rows.
namespace mps::detail::cuda {

template <class T>
__global__ void __launch_bounds__(kStripThreads) repeatPixels(UpsamplingArguments a) {
  constexpr int lanes = kLanes<T>;
  const Work work(a);
  if (!work.isAny) return;
  std::int32_t elements[lanes];  // of a row of the input; below 0: none
#pragma unroll
  for (int lane = 0; lane < lanes; ++lane) {
    const std::uint32_t element = work.piece * lanes + lane;
    const std::uint32_t x = a.packs.divide(element);
    const Samples column = a.x.samples[x];
    const auto channel = static_cast<std::int32_t>(element - x * a.packs.divisor());
    elements[lane] = column.firstWeight != 0 ? column.first * a.input.pixel + channel : -1;
  }
  const T* const from = reinterpret_cast<const T*>(a.input.memory) + work.image * a.input.image;
  T* to = reinterpret_cast<T*>(a.destination.memory) + work.image * a.destination.image +
          work.begin * a.destination.row + static_cast<std::int64_t>(work.piece) * lanes;
  uint4 pack{};
  std::int32_t held = -1;  // the row of the input that the pack is of
  for (std::int32_t y = work.begin; y < work.end; ++y, to += a.destination.row) {
    const Samples row = a.y.samples[y];
    const std::int32_t wanted = row.firstWeight != 0 ? row.first : -1;
    if (wanted != held) {
      const T* const elementsOfRow = from + wanted * a.input.row;
      T values[lanes] = {};
#pragma unroll
      for (int lane = 0; lane < lanes; ++lane)
        if (wanted >= 0 && elements[lane] >= 0) values[lane] = elementsOfRow[elements[lane]];
      memcpy(&pack, values, sizeof pack);
      held = wanted;
    }
    *reinterpret_cast<uint4*>(to) = pack;
  }
}

}  // namespace mps::detail::cuda
