#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string_view>

/// Which passes a graph is compiled with. The library's own.
namespace mps::detail {

/// A pass that joins kernels or images (docs/architecture.md, "The graph"). None changes a result by more than rounding.
enum class GraphPass : std::uint8_t {
  FuseNeurons,
  FuseNeuronGradients,
  ForgetNeuronSources,
  ShareGradients,
  AccumulateGradients,
  AddInNeuronGradients,
  AddSecondSources,
  SplitInPairs,
  WorkInPlace,
};

/// The names of their functions, in the order of the enumeration.
inline constexpr std::array<std::string_view, 9> kGraphPassNames{
    "fuseNeurons",      "fuseNeuronGradients", "forgetNeuronSources",
    "shareGradients",   "accumulateGradients", "addInNeuronGradients",
    "addSecondSources", "splitInPairs",        "workInPlace"};

/// A set of passes, a bit for each.
using GraphPasses = std::bitset<kGraphPassNames.size()>;

/// What LeaveOutPasses set, in this thread; by default none.
GraphPasses leftOutPasses();

/// Graphs that this thread makes while it lives are compiled without these passes, and stay so. It tells which pass makes
/// a wrong result.
class LeaveOutPasses {
 public:
  explicit LeaveOutPasses(GraphPasses passes);
  ~LeaveOutPasses();
  LeaveOutPasses(const LeaveOutPasses&) = delete;
  LeaveOutPasses& operator=(const LeaveOutPasses&) = delete;

 private:
  GraphPasses previous_;
};

}  // namespace mps::detail
