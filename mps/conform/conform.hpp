#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/conform/testing/test_images.hpp"
#include "mps/conform/testing/test_tensor.hpp"
#include "mps/core/plan/plan.hpp"
#include "mps/core/plan/plan_for.hpp"

namespace mtl {
class CommandBuffer;
class CommandQueue;
}  // namespace mtl

/// The self-check that `unmetal conform` and the tests share: every kernel against its float64 reference.
///
/// A family `pooling` offers `void conformPooling(Conform&)` in pooling_conform.cpp and is found by that
/// name. It asks for one row after the other; the harness repeats the row's cases with new values until the
/// row has seen enough of them, counts, catches what is thrown, and keeps the first failure. On a CPU it runs some of them
/// once more with non-temporal stores (NonTemporalFrom), which the row does not count.
///
///     for (const auto& implementation : conform.implementations(poolingBackEnds))
///       conform.row({"CNNPoolingMax", Direction::Forward, format, implementation.name, Tier::Exact}, cases,
///                   [&](const PoolingCase& c, ConformRun& run) {
///                     const PoolingProblem problem = c.problem(format);
///                     const auto plan = run.prepare(implementation, problem);
///                     if (!plan) return;  // refused: no case of this row
///                     TestTensor source = run.source(problem.source, RandomKind::SmallIntegers);
///                     TestTensor destination = run.destination(problem.destination);
///                     run.execute(*plan, {.source = source.address(), .destination = destination.address()});
///                     run.check(poolingForwardReference(problem, source.reference()), destination);
///                   });
namespace mps::detail {

enum class Direction { Forward, Gradient };
/// "forward", "gradient".
const char* name(Direction direction);

/// What a row is about.
struct ConformKey {
  std::string kernel;  ///< class name, e.g. "CNNPoolingMaxGradient"
  Direction direction = Direction::Forward;
  ImageFeatureChannelFormat format = ImageFeatureChannelFormat::Float32;
  std::string implementation;  ///< the one that is forced
  Tier tier = Tier::Exact;     ///< one row for each tier

  /// All words of the key; what a filter is looked for in.
  [[nodiscard]] std::string describe() const;
};

/// Result of a row.
struct ConformRow {
  ConformKey key;
  std::string device;
  std::int64_t cases = 0;
  std::int64_t refused = 0;  ///< cases that the implementation declined; they do not count
  std::int64_t elements = 0;
  double worst = 0;  ///< error over tolerance
  std::uint64_t seed = 0;
  std::int64_t place = 0;  ///< among the rows that the filter let pass
  bool passed = false;
  std::string report;  ///< the first failure, with the name of its case
};

struct ConformOptions {
  std::shared_ptr<mtl::Device> device;
  /// Only rows whose key has each of these words, upper and lower case alike; empty: all.
  std::string filter;
  std::vector<std::string> without;  ///< none of the rows whose key has all words of one of these
  std::string implementation;        ///< only rows of the implementation of this name; empty: all
  /// Where several Conform, each on a thread of its own, do these rows together (conformSideBySide): the next of them
  /// that nobody has taken. Null: one does them all.
  std::shared_ptr<std::atomic<std::int64_t>> nextRow;
  std::uint64_t seed = 1;
  std::int64_t casesPerRow = 100;
  std::int64_t elementsPerRow = 100'000;
  /// Above 0: only so many cases of a row, from all over its table, whatever the two numbers above say. For tools
  /// that make a program slow: no case runs again with non-temporal stores, and shared memory is not poisoned.
  std::int64_t mostCases = 0;
  std::function<void(const ConformRow&)> rowFinished;  ///< may be empty
};

/// One case of a row: what the case's code works with.
class ConformRun {
 public:
  /// @param isNonTemporal stores are non-temporal, for which half of the tensors lie on cache lines
  ConformRun(const ConformOptions& options, const ConformKey& key, std::uint64_t seed,
             bool isNonTemporal = false);

  [[nodiscard]] const std::shared_ptr<mtl::Device>& device() const { return options_.device; }
  [[nodiscard]] ImageFeatureChannelFormat format() const { return key_.format; }

  /// New values with every call; the same ones for the same seed.
  std::vector<double> values(std::size_t count, RandomKind kind);
  /// Another seed with every call, for kernels that take one.
  std::uint64_t nextSeed();

  /// @name Plans
  /// @{
  /// A plan, or null when the implementation refuses: then return from the case.
  template <class Problem>
  std::shared_ptr<const Plan> prepare(const Implementation<Problem>& implementation, const Problem& problem) {
    return accept(implementation.prepare(problem));
  }
  /// @param firstElement see TestTensor. On a GPU half of the cases begin at an address that is a multiple of
  /// 16 all the same: only there do kernels take 16 bytes at once.
  TestTensor source(const TensorShape& shape, RandomKind kind, std::size_t firstElement = 0);
  TestTensor source(const TensorShape& shape, std::span<const double> values, std::size_t firstElement = 0);
  TestTensor destination(const TensorShape& shape, std::size_t firstElement = 0);
  /// Runs the plan on the device with poisoned, guarded scratch memory and waits. @throws Error when it
  /// fails.
  void execute(const Plan& plan, Operands operands);
  /// @}

  /// @name Kernels
  /// @{
  TestImages sources(BatchForm form, const ImageDescriptor& descriptor, std::size_t count, RandomKind kind);
  TestImages destinations(BatchForm form, const ImageDescriptor& descriptor, std::size_t count);
  /// Calls `encode` with the row's implementation forced, commits and waits. False when the implementation
  /// refuses: then return from the case. @throws Error when encoding or execution fails.
  bool encode(const std::function<void(const std::shared_ptr<mtl::CommandBuffer>&)>& encode);
  /// @}

  /// @name Verdicts; a case makes at least one. All outputs count: images, parameter gradients, saved fields.
  /// @{
  void check(const ReferenceTensor& expected, TestTensor& found, Zeros zeros = Zeros::Suspicious);
  void check(const ReferenceTensor& expected, const TestImages& found, Zeros zeros = Zeros::Suspicious);
  void check(const ReferenceTensor& expected, std::span<const double> found, ImageFeatureChannelFormat format,
             Zeros zeros = Zeros::Suspicious);
  /// Where the plan can add to its destination: runs it once more on known values and checks the sums.
  /// @param operands those of the run that left `expected` behind
  void checkAccumulated(const Plan& plan, Operands operands, ReferenceTensor expected,
                        TestTensor& destination);
  /// Something that must hold besides, e.g. "the source is unchanged".
  void require(bool holds, const std::string& what);
  /// @}

  /// The implementation declines this case; it does not count.
  void refuse(const std::string& reason);

  /// @name For the harness
  /// @{
  [[nodiscard]] bool isRefused() const { return !refusal_.empty(); }
  [[nodiscard]] const std::string& refusal() const { return refusal_; }
  [[nodiscard]] std::int64_t elements() const { return elements_; }
  [[nodiscard]] double worst() const { return worst_; }
  [[nodiscard]] std::int64_t verdicts() const { return verdicts_; }
  /// Empty, or what went wrong first.
  [[nodiscard]] const std::string& report() const { return report_; }
  void fail(const std::string& report);
  /// @}

 private:
  std::shared_ptr<const Plan> accept(Preparation preparation);
  void judge(const Comparison& comparison);

  const ConformOptions& options_;
  const ConformKey& key_;
  std::uint64_t seed_;
  bool isAligned_;
  std::string refusal_;
  std::int64_t elements_ = 0;
  std::int64_t verdicts_ = 0;
  double worst_ = 0;
  std::string report_;
};

/// Collects the rows.
class Conform {
 public:
  /// @throws Error without a device.
  explicit Conform(ConformOptions options);

  [[nodiscard]] const std::shared_ptr<mtl::Device>& device() const { return options_.device; }

  /// The device's implementations, in order of preference.
  template <class Problem>
  [[nodiscard]] std::span<const Implementation<Problem>> implementations(const BackEnds<Problem>& backEnds) {
    for (const auto& implementation : backEnds.of(*device())) names_.emplace(implementation.name);
    return backEnds.of(*device());
  }
  /// Of all implementations that were asked for.
  [[nodiscard]] const std::set<std::string>& implementationNames() const { return names_; }

  /// Runs a row unless the filter leaves it out.
  /// @param cases a range of structs with a member `name`: only those that belong to the row
  /// @param body  called as body(case, run)
  template <class Cases, class Body>
  void row(const ConformKey& key, const Cases& cases, Body body) {
    std::vector<std::string> names;
    for (const auto& oneCase : cases) names.emplace_back(oneCase.name);
    runRow(key, names, [&](std::size_t index, ConformRun& run) {
      body(*std::next(std::begin(cases), static_cast<std::ptrdiff_t>(index)), run);
    });
  }

  /// Whether the filter lets rows with this key run; for families whose cases are expensive to make.
  [[nodiscard]] bool isSelected(const ConformKey& key) const;

  [[nodiscard]] const std::vector<ConformRow>& rows() const { return rows_; }
  [[nodiscard]] std::int64_t passedCount() const;
  [[nodiscard]] std::int64_t failedCount() const;

 private:
  using CaseFunction = std::function<void(std::size_t, ConformRun&)>;
  void runRow(const ConformKey& key, std::span<const std::string> caseNames, const CaseFunction& runCase);
  /// Whether this object is the one to do a row that the filter let pass.
  [[nodiscard]] bool isOwn(std::int64_t place) const;
  void takeNextRow();
  [[nodiscard]] ConformRow runCases(const ConformKey& key, std::span<const std::string> caseNames,
                                    const CaseFunction& runCase) const;

  ConformOptions options_;
  std::int64_t selectedCount_ = 0;  ///< rows that the filter let pass
  std::int64_t taken_ = 0;          ///< of options_.nextRow
  std::vector<ConformRow> rows_;
  std::set<std::string> names_;
};

}  // namespace mps::detail
