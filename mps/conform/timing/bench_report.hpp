#pragma once

#include <string>

#include "mps/conform/timing/bench.hpp"

namespace mps::detail {

/// "cpu, AMD EPYC, 2 threads: copy 16.8 GB/s, matrix product 190.2 GFLOP/s".
std::string machineLine(const MachineFigures& machine);

/// One line, in columns: kernel, direction, format, shape, batch, time, spread, bytes or operations, floor,
/// floor over time; for nets images per second and peak memory.
std::string benchLine(const BenchRow& row);

/// An array. First the machine: name, device, threads, copy_GBps, matmul_GFLOPs. Then an object for each row:
/// kernel (or net), direction, format, shape, batch, device, ms, spread, bytes, flops, floor_ms,
/// fraction_of_floor; for nets also images_per_s, peak_bytes and, for one batch size, first_step_ms.
std::string benchJson(const Bench& bench);

}  // namespace mps::detail
