#include "tools/commands/gradient_check_report.hpp"

#include <algorithm>
#include <iomanip>
#include <limits>
#include <nlohmann/json.hpp>

#include "mps/core/types/text_stream.hpp"

namespace unmetal {

std::string gradientCheckLine(const NetworkGradientRow& networkRow) {
  const auto& [network, without, row] = networkRow;
  mps::detail::TextStream line;
  line << std::left << std::setw(9) << network << ' ';
  if (!without.empty()) line << "without " << std::setw(20) << without << ' ';
  line << std::setw(46) << row.node << ' ' << std::setw(15) << row.tensor << std::right << std::setw(8)
       << row.elements << " elements  worst " << std::setw(9) << std::setprecision(3) << row.worst;
  if (row.derivatives > 0 || row.skipped > 0)
    line << std::setw(4) << row.derivatives << " derivatives  worst " << std::setw(9) << row.worstDerivative;
  line << (row.passed() ? "  passed" : "  FAILED");
  if (row.skipped > 0) line << "  (" << row.skipped << " next to a kink)";
  if (!row.passed()) line << "\n  " << row.kernel << ":\n" << row.report;
  return line.str();
}

std::string gradientCheckJson(std::span<const NetworkGradientRow> rows) {
  // JSON has no infinity.
  const auto finite = [](double value) { return std::min(value, std::numeric_limits<double>::max()); };
  auto list = nlohmann::ordered_json::array();
  for (const auto& [network, without, row] : rows) {
    nlohmann::ordered_json object = {{"net", network},
                                     {"node", row.node},
                                     {"kernel", row.kernel},
                                     {"tensor", row.tensor},
                                     {"elements", row.elements},
                                     {"worst", finite(row.worst)},
                                     {"derivatives", row.derivatives},
                                     {"skipped", row.skipped},
                                     {"worstDerivative", finite(row.worstDerivative)},
                                     {"passed", row.passed()}};
    if (!without.empty()) object["without"] = without;
    if (!row.passed()) object["report"] = row.report;
    list.push_back(std::move(object));
  }
  return list.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace unmetal
