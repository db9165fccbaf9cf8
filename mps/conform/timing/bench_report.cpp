#include "mps/conform/timing/bench_report.hpp"

#include <iomanip>
#include <nlohmann/json.hpp>

#include "mps/core/types/text_stream.hpp"

namespace mps::detail {
namespace {

nlohmann::ordered_json rowObject(const BenchRow& row) {
  nlohmann::ordered_json object = {{row.isNet ? "net" : "kernel", row.kernel},
                                   {"direction", row.direction},
                                   {"format", row.format},
                                   {"shape", row.shape},
                                   {"batch", row.batch},
                                   {"device", row.device}};
  if (!row.isNet || !row.implementation.empty()) object["implementation"] = row.implementation;
  if (!row.refusal.empty()) {
    object["refused"] = row.refusal;
    return object;
  }
  object.update({{"ms", row.milliseconds},
                 {"spread", row.spread},
                 {"bytes", row.bytes},
                 {"flops", row.flops},
                 {"floor_ms", row.floorMilliseconds},
                 {"fraction_of_floor", row.fractionOfFloor}});
  if (row.nextOverThis) object[row.isNet ? "without_over_with" : "next_over_this"] = *row.nextOverThis;
  if (row.imagesPerSecond) object["images_per_s"] = *row.imagesPerSecond;
  if (row.peakBytes) object["peak_bytes"] = *row.peakBytes;
  if (row.firstStepMilliseconds) object["first_step_ms"] = *row.firstStepMilliseconds;
  return object;
}

}  // namespace

std::string machineLine(const MachineFigures& machine) {
  TextStream line;
  line << std::fixed << std::setprecision(1) << machine.device << ", " << machine.name << ", "
       << machine.threads << (machine.threads == 1 ? " thread" : " threads") << ": copy " << machine.copyGBps
       << " GB/s";
  if (machine.matmulGflops > 0) line << ", matrix product " << machine.matmulGflops << " GFLOP/s";
  return line.str();
}

std::string benchLine(const BenchRow& row) {
  TextStream line;
  line << std::left << std::setw(34) << row.kernel << ' ' << std::setw(8) << row.direction << ' '
       << std::setw(7) << row.format << ' ' << std::setw(30) << row.shape << std::right << " batch"
       << std::setw(5) << row.batch;
  if (!row.refusal.empty()) {
    line << "  refused by " << row.refusal;
    return line.str();
  }
  line << std::fixed << std::setprecision(3) << std::setw(10) << row.milliseconds << " ms +-"
       << std::setprecision(0) << std::setw(3) << 100 * row.spread << " %" << std::setprecision(1);
  if (row.bytes > 0) line << std::setw(9) << row.bytes / row.milliseconds * 1e-6 << " GB/s";
  if (row.flops > 0) line << std::setw(9) << row.flops / row.milliseconds * 1e-6 << " GFLOP/s";
  line << "  floor" << std::setprecision(3) << std::setw(10) << row.floorMilliseconds << " ms"
       << std::setprecision(0) << std::setw(5) << 100 * row.fractionOfFloor << " %";
  if (row.imagesPerSecond) line << std::setw(9) << *row.imagesPerSecond << " images/s";
  if (row.peakBytes) line << std::setw(7) << *row.peakBytes * 1e-6 << " MB";
  if (!row.implementation.empty()) line << "  by " << row.implementation;
  if (row.nextOverThis)
    line << std::setprecision(3) << (row.isNet ? ", without it over with it " : ", the next takes ")
         << *row.nextOverThis << (row.isNet ? "" : " of its time") << std::setprecision(0);
  if (row.firstStepMilliseconds) line << ", first step after " << *row.firstStepMilliseconds << " ms";
  return line.str();
}

std::string benchJson(const Bench& bench) {
  const MachineFigures& machine = bench.machine();
  auto list = nlohmann::ordered_json::array();
  list.push_back({{"name", machine.name},
                  {"device", machine.device},
                  {"threads", machine.threads},
                  {"copy_GBps", machine.copyGBps},
                  {"matmul_GFLOPs", machine.matmulGflops}});
  for (const BenchRow& row : bench.rows()) list.push_back(rowObject(row));
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace mps::detail
