#include "mps/conform/conform_report.hpp"

#include <algorithm>
#include <iomanip>
#include <limits>
#include <nlohmann/json.hpp>

#include "mps/core/types/text_stream.hpp"

namespace mps::detail {

std::string conformLine(const ConformRow& row) {
  TextStream line;
  line << std::left << std::setw(36) << row.key.kernel << ' ' << std::setw(8) << name(row.key.direction)
       << ' ' << std::setw(7) << mps::name(row.key.format) << ' ' << std::setw(14) << row.key.implementation
       << ' ' << std::setw(7) << name(row.key.tier) << std::right << std::setw(6) << row.cases << " cases"
       << std::setw(10) << row.elements << " elements  worst " << std::setw(9) << std::setprecision(3)
       << row.worst << (row.passed ? "  passed" : "  FAILED");
  if (row.refused > 0) line << "  (" << row.refused << " cases refused)";
  if (!row.report.empty()) line << "\n    " << row.report;
  return line.str();
}

std::string conformSummary(std::span<const ConformRow> rows) {
  const auto passed = std::ranges::count_if(rows, &ConformRow::passed);
  return std::to_string(passed) + " passed, " + std::to_string(std::ssize(rows) - passed) + " failed";
}

std::string conformJson(std::span<const ConformRow> rows) {
  auto list = nlohmann::ordered_json::array();
  for (const ConformRow& row : rows) {
    nlohmann::ordered_json object = {{"kernel", row.key.kernel},
                                     {"direction", name(row.key.direction)},
                                     {"format", mps::name(row.key.format)},
                                     {"implementation", row.key.implementation},
                                     {"device", row.device},
                                     {"tier", name(row.key.tier)},
                                     {"cases", row.cases},
                                     {"refused", row.refused},
                                     {"elements", row.elements},
                                     {"worst", std::min(row.worst, std::numeric_limits<double>::max())},
                                     {"seed", row.seed},
                                     {"passed", row.passed}};
    if (!row.passed) object["report"] = row.report;
    list.push_back(std::move(object));
  }
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace mps::detail
