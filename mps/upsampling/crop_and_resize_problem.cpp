#include "mps/upsampling/crop_and_resize_problem.hpp"

#include <string>

namespace mps::detail {

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

UpsamplingProblem CropAndResizeProblem::resizeOf(std::size_t region) const {
  UpsamplingProblem problem;
  problem.sampling = UpsamplingSampling::BilinearRegion;
  problem.edgeMode = edgeMode;
  problem.x = regions[region].x;
  problem.y = regions[region].y;
  problem.input = input;
  problem.input.images = 1;
  problem.destination = destination;
  problem.destination.images = 1;
  return problem;
}

}  // namespace mps::detail
