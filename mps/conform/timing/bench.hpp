#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mps/conform/conform.hpp"
#include "mps/conform/timing/measure.hpp"

/// The timings behind `unmetal bench`: each kernel against what the machine could do at best.
///
/// A family `pooling` offers `void benchPooling(Bench&)` in pooling_bench.cpp and is found by that name.
///
///     const std::int64_t batch = bench.batchFor(bytesOfOneImage);
///     bench.kernel({"CNNPoolingMax", Direction::Forward, format, "56x56x64", batch},
///                  {.bytes = sourceBytes + resultBytes},
///                  [&](const auto& buffer) { kernel->encodeBatch(buffer, sources, destinations); });
namespace mps::detail {

struct BenchKey {
  std::string kernel;  ///< class name, e.g. "CNNPoolingMaxGradient"
  Direction direction = Direction::Forward;
  ImageFeatureChannelFormat format = ImageFeatureChannelFormat::Float32;
  std::string shape;  ///< in words, e.g. "56x56x64 kernel 3x3 stride 2"
  std::int64_t batch = 1;

  /// All words of the key; what a filter is looked for in.
  [[nodiscard]] std::string describe() const;
};

/// What has to happen at least.
struct BenchWork {
  double bytes = 0;  ///< each input that is needed read once, each output written once
  double flops = 0;  ///< 0 for kernels that memory bounds
};

/// Time and floor of a kernel, or of a training step of a net.
struct BenchRow {
  std::string kernel;  ///< or the net's name
  bool isNet = false;
  std::string direction;  ///< "forward", "gradient"; "step" for nets
  std::string format;
  std::string shape;
  std::int64_t batch = 1;
  std::string device;
  double milliseconds = 0;  ///< median
  double spread = 0;        ///< distance between the quartiles, over the median
  double bytes = 0;
  double flops = 0;
  double floorMilliseconds = 0;
  double fractionOfFloor = 0;  ///< floor over time: 1 is perfect
  /// What ran; of kernels that several plans serve their names, separated by commas. Nets: what was left out.
  std::string implementation;
  std::string refusal;  ///< why that implementation was not timed; empty where it was
  /// Time of the next implementation that accepts (nets: without this one), over this one's.
  std::optional<double> nextOverThis;
  std::optional<double> imagesPerSecond;  ///< nets
  std::optional<double> peakBytes;        ///< nets
  /// Nets: from the start of a process to the end of its first training step.
  std::optional<double> firstStepMilliseconds;
};

struct BenchOptions {
  std::shared_ptr<mtl::Device> device;
  /// Only rows whose key has each of these words, upper and lower case alike; empty: all.
  std::string filter;
  /// Only rows of kernels that have an implementation of this name, of it and of the next one; kAllImplementations: of each
  /// implementation. Empty: of what is chosen.
  std::string implementation;
  int runs = kTimedRuns;
  std::size_t workingSetBytes = 0;                   ///< of a row's batch; 0: largeWorkingSetBytes()
  std::optional<MachineFigures> machine;             ///< measured when it is not given
  std::function<void(const BenchRow&)> rowFinished;  ///< may be empty
};

constexpr const char* kAllImplementations = "all";

/// Collects the rows.
///
/// The floor of a kernel is the larger of two times: a copy that reads and writes as many bytes, timed in
/// turns with the kernel, and its operations at the machine's matrix rate.
class Bench {
 public:
  /// @throws Error without a device.
  explicit Bench(BenchOptions options);

  [[nodiscard]] const std::shared_ptr<mtl::Device>& device() const { return options_.device; }
  [[nodiscard]] const MachineFigures& machine() const { return machine_; }
  [[nodiscard]] const std::vector<BenchRow>& rows() const { return rows_; }
  /// Whether the filter lets this row run; ask before making large images.
  [[nodiscard]] bool isSelected(const std::string& key) const;
  /// As in BenchOptions.
  [[nodiscard]] const std::string& implementation() const { return options_.implementation; }
  /// Whether the filter contains these words: for rows that take too long to be run unasked.
  [[nodiscard]] bool filterHas(const std::string& words) const;

  /// Images to process together so that the working set comes from memory and not from a cache, or is as large as asked for.
  /// @param bytesPerImage that the kernel reads and writes
  [[nodiscard]] std::int64_t batchFor(std::size_t bytesPerImage) const;

  /// Times what `encode` records; a run records it several times in one command buffer.
  void kernel(const BenchKey& key, const BenchWork& work,
              const std::function<void(const std::shared_ptr<mtl::CommandBuffer>&)>& encode);

  /// Calls the bench function of a family. One whose kernels the device does not have ends early; what it
  /// lacks is remembered.
  void family(void (*benchFamily)(Bench&));
  /// A sentence for each family that ended early.
  [[nodiscard]] const std::vector<std::string>& missing() const { return missing_; }

  /// A row that somebody else measured, e.g. a training step. Floor and fraction are filled in here from the
  /// machine's figures when they are 0.
  void add(BenchRow row);

 private:
  /// Those of these names that accept what the work encodes. The others become rows of refusals.
  std::vector<std::string> accepting(const BenchKey& key, const std::vector<std::string>& names,
                                     const RepeatedWork& repeated);
  /// Rows of the implementations of these names, timed in turns. An empty name is what is chosen.
  void time(const BenchKey& key, const BenchWork& work, const RepeatedWork& repeated,
            const std::vector<std::string>& names, const std::string& chosen);
  /// At the machine's matrix rate; 0 where that is unknown.
  [[nodiscard]] double matmulMilliseconds(double flops) const;

  BenchOptions options_;
  MachineFigures machine_;
  std::vector<BenchRow> rows_;
  std::vector<std::string> missing_;
};

}  // namespace mps::detail
