#pragma once

#include "mps/core/cpu/for_each_target.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "mps/conform/compare.hpp"
#include "mps/conform/guarded/guarded_memory.hpp"
#include "mps/conform/run_on_device.hpp"
#include "mps/conform/testing/test_tensor.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mtl/back_ends.hpp"
#include "mtl/cpu/stream.hpp"
#include "mtl/device.hpp"

/// What the families' tests of plans share: each implementation in turn, on each instruction set and device, and the
/// memory of one call.
namespace mps::detail::plan_testing {

inline constexpr int kThreads = 3;

/// One device for all tests of a program: they use its memory alone.
inline const std::shared_ptr<mtl::Device>& testDevice() {
  static const std::shared_ptr<mtl::Device> device = mtl::newCPUDevice(kThreads);
  return device;
}

/// An implementation; one of the CPU with vectors once for each instruction set.
struct Entry {
  std::string_view implementation;
  std::int64_t target = 0;  ///< 0: the best one
  std::shared_ptr<mtl::Device> device = testDevice();
  [[nodiscard]] bool isCpu() const { return device->kind() == mtl::DeviceKind::CPU; }
  [[nodiscard]] std::string name() const {
    std::string text = (isCpu() ? "" : "cuda_") + std::string(implementation) +
                       (target == 0 ? "" : std::string("_") + hwy::TargetName(target));
    // GoogleTest's names have letters, digits and underscores alone.
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
    return text;
  }
};
inline void PrintTo(const Entry& entry, std::ostream* stream) {
  *stream << entry.name();
}

/// All implementations of the CPU, and of the first GPU if there is one. @param plain the one without vectors, or none
template <class Problem>
std::vector<Entry> entriesOf(const BackEnds<Problem>& backEnds, std::string_view plain = {}) {
  std::vector<Entry> all;
  for (const auto& implementation : backEnds.of(*testDevice())) {
    if (implementation.name == plain)
      all.push_back({implementation.name});
    else
      for (const std::int64_t target : vectorTargets()) all.push_back({implementation.name, target});
  }
  if (const auto gpus = mtl::cudaDevices(); !gpus.empty())
    for (const auto& implementation : backEnds.of(*gpus.front()))
      all.push_back({implementation.name, 0, gpus.front()});
  return all;
}

/// Makes the vectors of an entry's instruction set be used while it lives.
class WithTarget {
 public:
  explicit WithTarget(const Entry& entry) { hwy::SetSupportedTargetsForTest(entry.target); }
  ~WithTarget() { hwy::SetSupportedTargetsForTest(0); }
  WithTarget(const WithTarget&) = delete;
  WithTarget& operator=(const WithTarget&) = delete;
};

/// The plan of an entry; null, or a failure for the last of its list, when it refuses.
template <class Problem>
std::shared_ptr<const Plan> preparedBy(const Entry& entry, const BackEnds<Problem>& backEnds,
                                       const Problem& problem) {
  const auto list = backEnds.of(*entry.device);
  for (const auto& implementation : list) {
    if (implementation.name != entry.implementation) continue;
    const Preparation preparation = implementation.prepare(problem);
    if (const auto* plan = std::get_if<std::shared_ptr<const Plan>>(&preparation)) return *plan;
    EXPECT_NE(implementation.name, list.back().name) << std::get<Refusal>(preparation).reason;
  }
  return nullptr;
}

/// Runs a plan with scratch memory of its own, poisoned, around which it must not write.
inline void runPlan(const Plan& plan, Operands operands,
                    const std::shared_ptr<mtl::Device>& device = testDevice(), int threads = kThreads) {
  GuardedMemory scratch(device, plan.scratchBytes());
  operands.scratch = scratch.address();
  if (device->kind() == mtl::DeviceKind::CPU) {
    mtl::cpu::Stream stream(threads);
    plan.run(stream, operands);
  } else {
    runOnDevice(device, "plan", [&](mtl::Stream& stream) { plan.run(stream, operands); });
    scratch.synchronize();
  }
  EXPECT_TRUE(scratch.guardsIntact()) << "memory around the scratch memory was written";
}

/// Random numbers, others for each call.
inline NewValues valuesFrom(std::uint64_t seed) {
  return
      [next = seed](std::size_t count, RandomKind kind) mutable { return randomValues(count, next++, kind); };
}

/// The numbers that an input gets.
enum class Values : std::uint8_t {
  Integers,
  Random,
  NonFinite,  ///< infinities and NaN among random ones
};

inline bool isCode(ImageFeatureChannelFormat format) {
  return format == ImageFeatureChannelFormat::Unorm8 || format == ImageFeatureChannelFormat::Unorm16;
}

/// @param share of NaN, and of infinities, where there are any
inline std::vector<double> makeValues(std::int64_t count, Values values, ImageFeatureChannelFormat format,
                                      std::uint64_t seed, double share = 0.1) {
  const auto size = static_cast<std::size_t>(count);
  if (isCode(format))
    return randomValues(size, seed,
                        values == Values::Integers ? RandomKind::ZeroOrOne : RandomKind::Positive);
  if (values == Values::Integers) return randomValues(size, seed, RandomKind::SmallIntegers);
  std::vector<double> result = randomValues(size, seed, RandomKind::Uniform);
  if (values != Values::NonFinite) return result;
  const std::vector<double> dice = randomValues(size, seed + 1, RandomKind::Positive);
  for (std::size_t i = 0; i < size; ++i) {
    if (dice[i] < share) result[i] = std::numeric_limits<double>::quiet_NaN();
    if (dice[i] > 1 - share) result[i] = dice[i] > 1 - share / 2 ? HUGE_VAL : -HUGE_VAL;
  }
  return result;
}

struct Formats {
  ImageFeatureChannelFormat source, destination;
};

/// What a test goes through a family's case table with. @tparam Direction an enumeration with Forward and Gradient
template <class Direction>
struct TablePass {
  Direction direction;
  Values values;
  Formats formats;
  [[nodiscard]] bool isForward() const { return direction == Direction::Forward; }
  [[nodiscard]] Tier tier() const { return values == Values::Integers ? Tier::Exact : Tier::Bounded; }
  /// Of a table whose cases make problems from two formats.
  template <class Case>
  [[nodiscard]] auto problem(const Case& item) const {
    return isForward() ? item.forward(formats.source, formats.destination)
                       : item.gradient(formats.source, formats.destination);
  }
  [[nodiscard]] std::string name() const {
    const char* const words[] = {"Integers", "Random", "NonFinite"};
    return std::string(isForward() ? "Forward" : "Gradient") + words[static_cast<std::size_t>(values)] + "_" +
           mps::name(formats.source) + "_" + mps::name(formats.destination);
  }
};
template <class Direction>
void PrintTo(const TablePass<Direction>& pass, std::ostream* stream) {
  *stream << pass.name();
}

/// Both directions with these formats and all values that the source's format can have.
template <class Direction>
std::vector<TablePass<Direction>> passesWith(std::initializer_list<Formats> pairs) {
  std::vector<TablePass<Direction>> all;
  for (const auto direction : {Direction::Forward, Direction::Gradient})
    for (const Formats& formats : pairs)
      for (const Values values : {Values::Integers, Values::Random, Values::NonFinite})
        if (values != Values::NonFinite || !isCode(formats.source))
          all.push_back({direction, values, formats});
  return all;
}

/// Every entry that accepts the problem, forced in turn, against the reference.
/// @param callOn the memory of the call on a device, with execute(plan) and found()
template <class Problem, class CallOn>
void expectAgreement(std::span<const Entry> entries, const BackEnds<Problem>& backEnds,
                     const Problem& problem, const ReferenceTensor& expected,
                     ImageFeatureChannelFormat format, Tier tier, CallOn callOn,
                     Zeros zeros = Zeros::Expected) {
  for (const Entry& entry : entries) {
    SCOPED_TRACE(entry.name());
    const WithTarget target(entry);
    const auto plan = preparedBy(entry, backEnds, problem);
    if (!plan) continue;
    auto call = callOn(entry.device);
    call.execute(*plan);
    const Comparison comparison = compare(expected, call.found(), format, tier, zeros);
    EXPECT_TRUE(comparison.passed()) << comparison.report;
  }
}

/// The plan adds to what the destination holds; the same bits whatever the number of threads.
/// @param call of integers  @param expected without what the destination holds
template <class SomeCall>
void expectAccumulation(const Plan& plan, SomeCall& call, ReferenceTensor expected, std::uint64_t seed) {
  ASSERT_TRUE(plan.canAccumulate());
  const std::vector<double> before = randomValues(expected.values.size(), seed, RandomKind::SmallIntegers);
  addTerms(expected, before);
  for (const int threads : {1, 7}) {
    call.destination().write(before);
    call.execute(plan, threads, true);
    const Comparison comparison =
        compare(expected, call.found(), ImageFeatureChannelFormat::Float32, Tier::Exact, Zeros::Expected);
    EXPECT_TRUE(comparison.passed()) << comparison.report;
  }
}

/// A change of one field of a problem: a kernel that overlooks it computes what the reference computes for another
/// value.
template <class Problem>
struct Perturbation {
  const char* field;
  std::function<void(Problem&)> change;
};

template <class Problem>
void expectHashAndEqualitySee(const Problem& problem, const std::vector<Perturbation<Problem>>& changes) {
  for (const auto& perturbation : changes) {
    Problem other = problem;
    perturbation.change(other);
    EXPECT_NE(other, problem) << perturbation.field;
    EXPECT_NE(other.hash(), problem.hash()) << perturbation.field;
  }
}

/// The memory of a call with one input, the forward source or the incoming gradient, and one destination.
class Call {
 public:
  struct Operand {
    TensorShape input, destination;
    bool isGradient = false;             ///< the input is the incoming gradient
    std::size_t destinationElement = 3;  ///< of the memory that the destination begins at; 0: aligned
  };
  Call(const Operand& operand, Values values, std::uint64_t seed,
       const std::shared_ptr<mtl::Device>& device = testDevice())
      : isGradient_(operand.isGradient),
        device_(device),
        input_(device, operand.input, 1),
        destination_(device, operand.destination, operand.destinationElement) {
    input_.write(makeValues(operand.input.elements(), values, operand.input.format, seed));
  }

  void execute(const Plan& plan, int threads = kThreads, bool accumulate = false) {
    Operands operands;
    (isGradient_ ? operands.gradient : operands.source) = input_.address();
    operands.destination = destination_.address();
    operands.accumulate = accumulate;
    runPlan(plan, operands, device_, threads);
    EXPECT_TRUE(input_.isUnchanged()) << "the input was written";
    EXPECT_TRUE(destination_.surroundingsIntact()) << "memory around the destination was written";
  }

  /// What the reference takes.
  [[nodiscard]] ReferenceTensor input() const { return input_.reference(); }
  TestTensor& destination() { return destination_; }
  [[nodiscard]] std::vector<double> found() { return destination_.read(); }

 private:
  bool isGradient_;
  std::shared_ptr<mtl::Device> device_;
  TestTensor input_;
  TestTensor destination_;
};

}  // namespace mps::detail::plan_testing
