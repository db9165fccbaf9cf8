#include "mps/upsampling/crop_and_resize_problem.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace mps::detail {
namespace {

class RegionByRegion final : public Plan {
 public:
  RegionByRegion(const CropAndResizeProblem& problem, std::vector<std::shared_ptr<const Plan>> resizes)
      : resizes_(std::move(resizes)),
        inputBytes_(bytesOfImage(problem.input)),
        destinationBytes_(bytesOfImage(problem.destination)) {}

  [[nodiscard]] std::size_t scratchBytes() const override {
    std::size_t most = 0;
    for (const auto& resize : resizes_) most = std::max(most, resize->scratchBytes());
    return most;
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    Operands image = operands;
    for (const auto& resize : resizes_) {
      resize->run(stream, image);
      image.source += inputBytes_;
      image.destination += destinationBytes_;
    }
  }

 private:
  std::vector<std::shared_ptr<const Plan>> resizes_;
  std::int64_t inputBytes_;
  std::int64_t destinationBytes_;
};

}  // namespace

std::int64_t bytesOfImage(const TensorShape& shape) {
  return shape.imageStride * static_cast<std::int64_t>(bytesPerChannel(shape.format));
}

std::size_t CropAndResizeProblem::hash() const {
  std::size_t hash = hashOf(edgeMode, input.hash(), destination.hash());
  for (const Region& region : regions) hash = hashOf(hash, region.x.hash(), region.y.hash());
  return hash;
}

std::string CropAndResizeProblem::describe() const {
  std::string text = std::string("crop and resize, ") +
                     (edgeMode == ImageEdgeMode::Clamp ? "clamped" : "zero") + " edges, " + input.describe() +
                     " -> " + destination.describe() + ", regions";
  for (const Region& region : regions)
    text += " (" + std::to_string(region.x.start) + "," + std::to_string(region.y.start) + ") in steps of (" +
            std::to_string(region.x.step) + "," + std::to_string(region.y.step) + ")";
  return text;
}

UpsamplingProblem CropAndResizeProblem::resizeOf(std::size_t image) const {
  UpsamplingProblem problem;
  problem.sampling = UpsamplingSampling::BilinearRegion;
  problem.edgeMode = edgeMode;
  problem.x = regions[image].x;
  problem.y = regions[image].y;
  problem.input = input;
  problem.input.images = 1;
  problem.destination = destination;
  problem.destination.images = 1;
  return problem;
}

Preparation prepareCropAndResize(const CropAndResizeProblem& problem,
                                 std::span<const Implementation<UpsamplingProblem>> resizes) {
  std::vector<std::shared_ptr<const Plan>> plans;
  for (std::size_t n = 0; n < problem.regions.size(); ++n)
    plans.push_back(preparePlan(resizes, problem.resizeOf(n)).plan);
  return std::make_shared<const RegionByRegion>(problem, std::move(plans));
}

}  // namespace mps::detail
