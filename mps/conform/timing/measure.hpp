#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mtl {
class Device;
class Memory;
class Stream;
}  // namespace mtl

/// Times, and what this machine can do at best. What the words mean: copy bandwidth counts the bytes read and
/// the bytes written; GB are 1e9 bytes.
namespace mps::detail {

/// Of several runs.
struct Timing {
  double milliseconds = 0;  ///< median
  double spread = 0;        ///< distance between the quartiles, over the median
  int runs = 0;
};

/// Runs behind a median.
inline constexpr int kTimedRuns = 11;
/// One run repeats short work until it takes about so long.
inline constexpr double kLeastMillisecondsPerRun = 5;
/// The same by a GPU's own clock, which is exact to a microsecond.
inline constexpr double kLeastMillisecondsPerRunOnGpu = 2;

/// Median and spread of at least one value.
Timing summarize(std::span<const double> milliseconds);

/// Work that can be repeated inside a run: called with the number of repetitions, returns the milliseconds of
/// all of them together.
using RepeatedWork = std::function<double(int repetitions)>;

/// The number of repetitions that makes a run long enough. Runs the work to warm up, then once, then twice as often
/// each time until a twentieth of that length says how long one takes: steps that a pipeline has room for take no time.
int chooseRepetitions(const RepeatedWork& work, double leastMilliseconds = kLeastMillisecondsPerRun);

/// Time of one repetition.
Timing timeRepeated(const RepeatedWork& work, int runs = kTimedRuns,
                    double leastMilliseconds = kLeastMillisecondsPerRun);

/// Work that takes so long takes fewer turns: a median of three says enough of what is that slow.
inline constexpr double kSlowMilliseconds = 1000;
inline constexpr int kRunsOfSlowWork = 3;

/// The same of several works whose runs take turns, so that all meet the same disturbances.
std::vector<Timing> timeInTurns(std::span<const RepeatedWork> works, int runs = kTimedRuns,
                                double leastMilliseconds = kLeastMillisecondsPerRun);

/// Copies with all that a device has.
using DeviceCopy = void (*)(mtl::Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes);
void copyOnCpu(mtl::Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes);
void copyOnCuda(mtl::Stream& stream, std::byte* to, const std::byte* from, std::size_t bytes);

/// A copy by all threads of the device: the work that memory-bound kernels are compared with.
class CopyWork {
 public:
  /// Source and destination together are `workingSetBytes` large.
  CopyWork(std::shared_ptr<mtl::Device> device, std::size_t workingSetBytes);
  /// Milliseconds of `repetitions` copies.
  [[nodiscard]] double run(int repetitions) const;

 private:
  std::shared_ptr<mtl::Device> device_;
  DeviceCopy copy_;
  std::shared_ptr<mtl::Memory> source_;
  std::shared_ptr<mtl::Memory> destination_;
};

/// Bytes that such a copy reads and writes, over its time, in GB/s.
double copyBandwidth(const std::shared_ptr<mtl::Device>& device, std::size_t workingSetBytes);

/// GFLOP/s of a product of float32 matrices of 2048 x 2048 through oneDNN; 0, unknown, on a GPU.
double matmulRate(const std::shared_ptr<mtl::Device>& device);

/// Bytes of the largest cache that the processor reports; 32 MiB where it reports none.
std::size_t lastLevelCacheBytes();

/// Working set at which a copy comes from memory: four times the last-level cache, or what is more than that
/// on every GPU.
std::size_t largeWorkingSetBytes(const mtl::Device& device);

struct MachineFigures {
  std::string name;  ///< of the hardware
  std::string device;
  int threads = 1;
  double copyGBps = 0;      ///< at largeWorkingSetBytes()
  double matmulGflops = 0;  ///< 0: unknown
};
MachineFigures measureMachine(const std::shared_ptr<mtl::Device>& device);

/// @name Resident memory of this process, in bytes
/// @{
std::size_t residentBytes();
/// Largest value since the process began or resetPeakResidentBytes() was called.
std::size_t peakResidentBytes();
/// Makes the peak the present value, where the system allows it.
void resetPeakResidentBytes();
/// @}

}  // namespace mps::detail
