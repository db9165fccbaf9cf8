#include <gtest/gtest.h>
#include <sys/resource.h>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/tree_mutator.hpp"
#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/device.hpp"

/// Changed data of kernels of every class: what decodes is encoded and run, within bounds of memory and time, because
/// of CodingLimits. A mistake of the data is an exception, at the decode or at the encode.
namespace unmetal::coded_mutants {
namespace {

using mps::test::KernelSample;
using nlohmann::json;

constexpr std::uint64_t kImageBytes = std::uint64_t{4} << 20U;
/// Far above what images of these sizes take in all.
constexpr std::uint64_t kAddressSpace = std::uint64_t{1} << 30U;
/// The bound that libFuzzer has for one input, of processor time: the machine may be busy.
constexpr double kMostSeconds = 10;

double processorSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::uint64_t addressSpaceInUse() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * 4096;
}

/// There with the address sanitizer alone.
extern "C" __attribute__((weak)) void __asan_init();  // NOLINT: its name

/// Memory beyond the bound cannot be had while it lives; but what that sanitizer takes for itself is more than any bound.
class BoundedMemory {
 public:
  BoundedMemory() {
    ::getrlimit(RLIMIT_AS, &before_);
    const rlimit bound{addressSpaceInUse() + kAddressSpace, before_.rlim_max};
    if (&__asan_init == nullptr) ::setrlimit(RLIMIT_AS, &bound);
  }
  ~BoundedMemory() { ::setrlimit(RLIMIT_AS, &before_); }
  BoundedMemory(const BoundedMemory&) = delete;
  BoundedMemory& operator=(const BoundedMemory&) = delete;

 private:
  rlimit before_{};
};

class CodedMutants : public ::testing::Test {
 protected:
  /// Decodes and runs. What is not refused must be done within the bounds.
  void run(const KernelSample& one, const json& tree) {
    const std::vector<std::uint8_t> bytes = json::to_cbor(tree);
    mps::CodingLimits limits;
    limits.bytes = kImageBytes;
    const double start = processorSeconds();
    try {
      mps::KeyedUnarchiver coder(std::as_bytes(std::span(bytes)), device_, limits);
      const auto kernel = one.decode(coder, device_);
      ++decoded_;
      static_cast<void>(one.compute(*kernel, 1));
      ++done_;
    } catch (const mps::Error& error) {
      countRefusal(error);
    } catch (const mtl::Error&) {
      // One of the device: memory of a size that nothing has.
    } catch (const std::bad_alloc&) {
      ADD_FAILURE() << one.kernel->className() << " takes more than " << kAddressSpace << " bytes: " << tree;
    }
    const double seconds = processorSeconds() - start;
    EXPECT_LT(seconds, kMostSeconds) << one.kernel->className() << ": " << tree;
    slowest_ = std::max(slowest_, seconds);
  }

  void countRefusal(const std::exception& error) {
    for (auto& [limit, count] : refusals_)
      if (std::string_view(error.what()).find(limit) != std::string_view::npos) ++count;
  }

  /// Bounds of memory alone would hold by chance on a machine with much of it: each limit has refused something.
  void TearDown() override {
    for (const auto& [limit, count] : refusals_) EXPECT_GT(count, 0) << limit << " refuses nothing";
  }

  ~CodedMutants() override {
    std::cout << decoded_ << " decoded, " << done_ << " of them ran, " << slowest_ << " s for the slowest\n";
  }

  std::shared_ptr<mtl::Device> device_ = mtl::newCPUDevice(1);
  std::vector<KernelSample> kernels_ = mps::test::everyKernel(device_);
  BoundedMemory bounded_;
  std::map<std::string, int> refusals_{
      {"CodingLimits::size", 0}, {"CodingLimits::windowElements", 0}, {"CodingLimits::bytes", 0}};
  int decoded_ = 0, done_ = 0;
  double slowest_ = 0;
};

json treeOf(const KernelSample& one) {
  const auto bytes = mps::test::encoded(*one.kernel);
  const auto* first = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return json::from_cbor(first, first + bytes.size());
}

constexpr std::uint64_t kSizes[] = {8,
                                    1000,
                                    65536,
                                    std::uint64_t{1} << 20U,
                                    std::uint64_t{1} << 31U,
                                    std::uint64_t{1} << 62U,
                                    std::numeric_limits<std::uint64_t>::max()};

/// Every number of every kernel, one at a time.
TEST_F(CodedMutants, EveryNumberMayBeHuge) {
  for (const KernelSample& one : kernels_) {
    const json tree = treeOf(one);
    json copy = tree;
    const std::size_t count = fuzz::TreeMutator::valuesOf(copy).size();
    for (std::size_t i = 0; i < count; ++i) {
      for (const std::uint64_t size : kSizes) {
        json changed = tree;
        json& value = *fuzz::TreeMutator::valuesOf(changed)[i];
        if (value.is_number_float())
          value = static_cast<double>(static_cast<float>(size));
        else if (value.is_number())
          value = size;
        else
          break;
        run(one, changed);
      }
    }
  }
}

/// Several values at once, so that the one check does not always hide the other.
TEST_F(CodedMutants, ValuesMayBeAnything) {
  const char* const chosen = std::getenv("UNMETAL_TEST_SEED");
  const auto seed = static_cast<unsigned>(chosen != nullptr ? std::strtoul(chosen, nullptr, 10) : 1);
  SCOPED_TRACE("UNMETAL_TEST_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr int kMutantsOfAKernel = 150;
  for (const KernelSample& one : kernels_) {
    const json tree = treeOf(one);
    for (int i = 0; i < kMutantsOfAKernel; ++i) {
      json changed = tree;
      const auto values = fuzz::TreeMutator::valuesOf(changed);
      for (unsigned change = 0; change <= random() % 4; ++change) {
        json& value = *values[random() % values.size()];
        if (value.is_number_unsigned()) value = kSizes[random() % std::size(kSizes)];
      }
      if (random() % 2 == 0) fuzz::TreeMutator(static_cast<unsigned>(random())).change(changed);
      run(one, changed);
    }
  }
}

}  // namespace
}  // namespace unmetal::coded_mutants
