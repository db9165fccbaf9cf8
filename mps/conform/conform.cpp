#include "mps/conform/conform.hpp"

#include <algorithm>
#include <exception>
#include <functional>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <utility>

#include "mps/conform/families.hpp"
#include "mps/conform/run_on_device.hpp"
#include "mps/conform/shared_memory.hpp"
#include "mps/conform/text.hpp"
#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/core/plan/plan_for.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/command_queue.hpp"
#include "mtl/device.hpp"

namespace mps::detail {
namespace {

/// Rounds over the case table after which a row with too few elements is given up.
constexpr int kMostRounds = 100'000;
/// Between the cases of a sample: a prime, so that in the end each one has had its turn.
constexpr std::size_t kSampleStep = 7919;

/// One of so many cases runs once more with non-temporal stores, as large tensors have them; in each
/// round another one.
constexpr std::size_t kNonTemporalStep = 3;

/// Lets cases run side by side, but alone when their stores are non-temporal: that is a property of the process.
class CaseLocks {
 public:
  std::shared_lock<std::shared_mutex> beside() {
    const std::lock_guard turn(turn_);
    return std::shared_lock(cases_);
  }
  std::unique_lock<std::shared_mutex> alone() {
    const std::lock_guard turn(turn_);
    return std::unique_lock(cases_);
  }

 private:
  std::mutex turn_;  ///< whoever waits for `cases_` holds it, so that those who came later let him go first
  std::shared_mutex cases_;
};
CaseLocks caseLocks;

/// Makes kernels on a GPU find NaNs in shared memory.
void poison(const std::shared_ptr<mtl::Device>& device) {
  constexpr void (*onCuda)(mtl::Stream&) = UNMETAL_CUDA_LIST(poisonSharedMemory);
  if (device->kind() == mtl::DeviceKind::CUDA) runOnDevice(device, "poison", onCuda);
}

/// A seed that differs for each row, round and case; FNV-1a, so that it is the same on every machine.
std::uint64_t caseSeed(std::uint64_t seed, const std::string& row, std::uint64_t round, std::size_t index) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto mix = [&](std::uint64_t byte) { hash = (hash ^ byte) * 0x100000001b3ULL; };
  for (const char c : row) mix(static_cast<unsigned char>(c));
  for (std::uint64_t number : {seed, round, static_cast<std::uint64_t>(index)})
    for (int i = 0; i < 8; ++i) mix((number >> (8 * i)) & 0xFFU);
  return hash;
}

std::size_t elementCount(const ImageDescriptor& descriptor, std::size_t count) {
  return count * descriptor.width() * descriptor.height() * descriptor.featureChannels();
}

/// Whether an encode failed because the forced implementation declined (see throwNoImplementation), and not
/// because a kernel on the way has no implementation of that name.
bool isRefusal(const Error& error) {
  const std::string_view text = error.what();
  return text.find("no implementation accepts") != std::string_view::npos &&
         text.find("none is built for this device") == std::string_view::npos;
}

ConformRun runOnce(ConformRun run, std::size_t index,
                   const std::function<void(std::size_t, ConformRun&)>& runCase) {
  try {
    runCase(index, run);
    if (!run.isRefused() && run.verdicts() == 0) run.fail("the case checks nothing");
  } catch (const std::exception& error) {
    run.fail(error.what());
  }
  return run;
}

/// Worst error and first failure of a run, into its row.
void note(const ConformRun& run, const std::string& name, ConformRow& row) {
  row.worst = std::max(row.worst, run.worst());
  if (!run.report().empty() && row.report.empty()) row.report = name + ": " + run.report();
}

}  // namespace

const char* name(Direction direction) {
  return direction == Direction::Forward ? "forward" : "gradient";
}

std::string ConformKey::describe() const {
  return kernel + " " + name(direction) + " " + mps::name(format) + " " + implementation + " " + name(tier);
}

ConformRun::ConformRun(const ConformOptions& options, const ConformKey& key, std::uint64_t seed,
                       bool isNonTemporal)
    : options_(options),
      key_(key),
      seed_(seed),
      isAligned_((isNonTemporal || options.device->kind() != mtl::DeviceKind::CPU) &&
                 (seed >> 17U) % 2 == 0) {}

std::uint64_t ConformRun::nextSeed() {
  return seed_++;
}

std::vector<double> ConformRun::values(std::size_t count, RandomKind kind) {
  return randomValues(count, nextSeed(), kind);
}

TestTensor ConformRun::source(const TensorShape& shape, std::span<const double> values,
                              std::size_t firstElement) {
  TestTensor tensor(device(), shape, isAligned_ ? 0 : firstElement);
  tensor.write(values);
  return tensor;
}

TestTensor ConformRun::source(const TensorShape& shape, RandomKind kind, std::size_t firstElement) {
  return source(shape, values(static_cast<std::size_t>(shape.elements()), kind), firstElement);
}

TestTensor ConformRun::destination(const TensorShape& shape, std::size_t firstElement) {
  return {device(), shape, isAligned_ ? 0 : firstElement};
}

std::shared_ptr<const Plan> ConformRun::accept(Preparation preparation) {
  if (auto* plan = std::get_if<std::shared_ptr<const Plan>>(&preparation)) return std::move(*plan);
  refuse(std::get<Refusal>(preparation).reason);
  return nullptr;
}

void ConformRun::execute(const Plan& plan, Operands operands) {
  GuardedMemory scratch(device(), plan.scratchBytes());
  operands.scratch = scratch.address();
  runOnDevice(device(), key_.kernel, [&](mtl::Stream& stream) { plan.run(stream, operands); });
  scratch.synchronize();
  require(scratch.guardsIntact(),
          "scratch memory was written outside its " + std::to_string(plan.scratchBytes()) + " bytes");
}

TestImages ConformRun::sources(BatchForm form, const ImageDescriptor& descriptor, std::size_t count,
                               RandomKind kind) {
  TestImages images(device(), form, descriptor, count);
  images.write(values(elementCount(descriptor, count), kind));
  return images;
}

TestImages ConformRun::destinations(BatchForm form, const ImageDescriptor& descriptor, std::size_t count) {
  return {device(), form, descriptor, count};
}

bool ConformRun::encode(const std::function<void(const std::shared_ptr<mtl::CommandBuffer>&)>& encode) {
  const auto commandBuffer = device()->newCommandQueue()->commandBuffer();
  try {
    const ForceImplementation force(key_.implementation);
    encode(commandBuffer);
  } catch (const Error& error) {
    if (!isRefusal(error)) throw;
    refuse(error.what());
    return false;
  }
  commandBuffer->commit();
  commandBuffer->throwIfFailed();
  return true;
}

void ConformRun::check(const ReferenceTensor& expected, std::span<const double> found,
                       ImageFeatureChannelFormat format, Zeros zeros) {
  judge(compare(expected, found, format, key_.tier, zeros));
}

void ConformRun::judge(const Comparison& comparison) {
  ++verdicts_;
  elements_ += comparison.elements;
  worst_ = std::max(worst_, comparison.worst);
  if (!comparison.passed()) fail(comparison.report);
}

void ConformRun::check(const ReferenceTensor& expected, TestTensor& found, Zeros zeros) {
  check(expected, found.read(), found.shape().format, zeros);
  require(found.surroundingsIntact(), "memory around the destination was written");
}

void ConformRun::check(const ReferenceTensor& expected, const TestImages& found, Zeros zeros) {
  check(expected, found.read(), found.format(), zeros);
  require(found.surroundingsIntact(), "images or channels beside the destination were written");
}

void ConformRun::checkAccumulated(const Plan& plan, Operands operands, ReferenceTensor expected,
                                  TestTensor& destination) {
  if (!plan.canAccumulate()) return;
  const std::vector<double> before = values(expected.values.size(), RandomKind::SmallIntegers);
  destination.write(before);
  operands.accumulate = true;
  execute(plan, operands);
  addTerms(expected, before);
  // A result that needs no rounding may need one when something is added to it.
  const Tier tier = key_.tier == Tier::Exact ? Tier::Bounded : key_.tier;
  judge(compare(expected, destination.read(), destination.shape().format, tier, Zeros::Expected));
  require(destination.surroundingsIntact(), "memory around the destination was written");
}

void ConformRun::require(bool holds, const std::string& what) {
  ++verdicts_;
  if (!holds) fail(what);
}

void ConformRun::refuse(const std::string& reason) {
  refusal_ = reason.empty() ? "no reason given" : reason;
}

void ConformRun::fail(const std::string& report) {
  if (report_.empty()) report_ = report;
}

Conform::Conform(ConformOptions options) : options_(std::move(options)) {
  if (!options_.device) throw Error("Conform", "device", "null", "a device");
  takeNextRow();
}

void Conform::takeNextRow() {
  if (options_.nextRow) taken_ = options_.nextRow->fetch_add(1);
}

bool Conform::isOwn(std::int64_t place) const {
  return !options_.nextRow || place == taken_;
}

bool Conform::isSelected(const ConformKey& key) const {
  const std::string words = key.describe();
  return (options_.implementation.empty() || key.implementation == options_.implementation) &&
         hasWords(words, options_.filter) &&
         std::ranges::none_of(options_.without,
                              [&](const std::string& other) { return hasWords(words, other); });
}

void Conform::runRow(const ConformKey& key, std::span<const std::string> caseNames,
                     const CaseFunction& runCase) {
  if (!isSelected(key)) return;
  const std::int64_t place = selectedCount_++;
  if (!isOwn(place)) return;
  ConformRow row = runCases(key, caseNames, runCase);
  takeNextRow();
  if (row.cases == 0 && !caseNames.empty()) return;  // the implementation takes none of the cases
  row.place = place;
  rows_.push_back(row);
  if (options_.rowFinished) options_.rowFinished(rows_.back());
}

ConformRow Conform::runCases(const ConformKey& key, std::span<const std::string> caseNames,
                             const CaseFunction& runCase) const {
  ConformRow row;
  row.key = key;
  row.device = options_.device->name();
  row.seed = options_.seed;
  const bool isSample = options_.mostCases > 0;
  const bool streams = !isSample && options_.device->kind() == mtl::DeviceKind::CPU;
  const CaseFunction runPoisoned = [&](std::size_t i, ConformRun& run) {
    if (!isSample) poison(options_.device);
    runCase(i, run);
  };
  const auto isFull = [&] {
    return row.cases >= options_.casesPerRow &&
           (row.elements >= options_.elementsPerRow || !row.report.empty());
  };
  for (std::uint64_t round = 0; !isFull() && round < kMostRounds; ++round) {
    const std::int64_t casesBefore = row.cases;
    for (std::size_t k = 0; k < caseNames.size(); ++k) {
      if (isSample && row.cases == options_.mostCases) break;
      const std::size_t i = isSample ? k * kSampleStep % caseNames.size() : k;
      const std::uint64_t seed = caseSeed(options_.seed, key.describe(), round, i);
      const std::string name = "case \"" + caseNames[i] + "\", round " + std::to_string(round);
      const ConformRun run = [&] {
        const auto lock = caseLocks.beside();
        return runOnce({options_, row.key, seed}, i, runPoisoned);
      }();
      if (run.isRefused() && run.report().empty()) {
        ++row.refused;
        continue;
      }
      ++row.cases;
      row.elements += run.elements();
      note(run, name, row);
      if (!streams || (i + round) % kNonTemporalStep != 0) continue;
      const auto lock = caseLocks.alone();
      const NonTemporalFrom always(0);
      note(runOnce({options_, row.key, ~seed, true}, i, runCase), name + ", non-temporal stores", row);
    }
    if (isSample || row.cases == casesBefore) break;
  }
  if (!isSample && !isFull() && row.report.empty())
    row.report =
        "only " + std::to_string(row.cases) + " cases with " + std::to_string(row.elements) + " elements";
  row.passed = row.report.empty();
  return row;
}

std::int64_t Conform::passedCount() const {
  return std::ranges::count_if(rows_, &ConformRow::passed);
}
std::int64_t Conform::failedCount() const {
  return static_cast<std::int64_t>(rows_.size()) - passedCount();
}

std::vector<std::string> implementationNames(const std::shared_ptr<mtl::Device>& device) {
  ConformOptions options;
  options.device = device;
  options.without = {""};  // every row, so that none runs
  Conform conform(options);
  conformAllFamilies(conform);
  return {conform.implementationNames().begin(), conform.implementationNames().end()};
}

}  // namespace mps::detail
