#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "mps/core/cpu/non_temporal_stores.hpp"
#include "mps/upsampling/cpu/upsampling_rows.hpp"
#include "mps/upsampling/crop_and_resize_problem.hpp"
#include "mtl/cpu/stream.hpp"

namespace mps::detail {
namespace {

/// The rows of all regions in one loop.
class AllRegions final : public Plan {
 public:
  AllRegions(const CropAndResizeProblem& problem, std::vector<UpsamplingRows> regions)
      : regions_(std::move(regions)), input_(problem.input), destination_(problem.destination) {}

  void run(mtl::Stream& stream, const Operands& operands) const override {
    const bool streams = regions_.front().stream(input_.bytes() + destination_.bytes());
    mtl::cpu::asCpu(stream).parallelFor(destination_.images * destination_.height, regions_.front().grain(),
                                        [&](std::int64_t begin, std::int64_t end) {
                                          compute(operands, streams, begin, end);
                                          if (streams) finishNonTemporalStores();
                                        });
  }

 private:
  void compute(const Operands& operands, bool streams, std::int64_t begin, std::int64_t end) const {
    const std::int64_t height = destination_.height;
    const auto count = static_cast<std::int64_t>(regions_.size());
    while (begin < end) {
      const std::int64_t n = begin / height;
      const std::int64_t last = std::min(end, (n + 1) * height);
      Operands image = operands;
      image.source += n / count * bytesOfImage(input_);
      image.destination += n * bytesOfImage(destination_);
      regions_[static_cast<std::size_t>(n % count)].compute(image, streams, begin - n * height,
                                                            last - n * height);
      begin = last;
    }
  }

  std::vector<UpsamplingRows> regions_;  // of each image of the input
  TensorShape input_;
  TensorShape destination_;
};

/// A pixel of a region is the sum of two columns at most, for which the working memory always suffices.
Preparation prepareRows(const CropAndResizeProblem& problem) {
  std::vector<UpsamplingRows> regions;
  for (std::size_t n = 0; n < problem.regions.size(); ++n) regions.emplace_back(problem.resizeOf(n));
  return std::make_shared<const AllRegions>(problem, std::move(regions));
}

constexpr Implementation<CropAndResizeProblem> implementations[] = {{"vectors", prepareRows}};

}  // namespace

std::span<const Implementation<CropAndResizeProblem>> cropAndResizeImplementationsCpu() {
  return implementations;
}

}  // namespace mps::detail
