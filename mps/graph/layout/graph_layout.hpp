#pragma once

#include <any>
#include <cstddef>
#include <memory>
#include <vector>

#include "mps/core/image/image_batch.hpp"
#include "mps/core/kernel/image_kernel.hpp"
#include "mps/graph/compile/graph_program.hpp"
#include "mps/graph/layout/image_reuse.hpp"
#include "mps/graph/layout/memory_plan.hpp"

namespace mtl {
class CommandQueue;
class Submission;
}  // namespace mtl

/// Sizes and places of a program's images. The library's own.
namespace mps::detail {

class StepScratch;

/// What depends on the sizes of one encode: geometry and memory. Compiled once per key, then walked.
struct GraphLayout {
  /// What it was made for.
  std::size_t count = 0;
  ImageFeatureChannelFormat format = ImageFeatureChannelFormat::None;
  std::vector<ImageDescriptor> sources;

  std::vector<ImageDescriptor> images;  ///< of every image of the program
  std::vector<Offset> placements;       ///< ImageKernel::placement of every step
  /// ImageKernel::sourceOffsets of every step that is no gradient.
  std::vector<std::vector<Offset>> sourceOffsets;
  /// ImageKernel::geometry of every step that the user's own policy sizes; else nothing.
  std::vector<std::any> geometries;
  ImageReuse reuse;
  std::vector<MemoryRequest> requests;    ///< of the planned images
  std::vector<std::size_t> requestOf;     ///< image to request, nowhere when it is not planned
  std::vector<std::size_t> scratchBytes;  ///< of every step, in large blocks, as encodes have shown
  MemoryPlan plan;
  std::vector<MemoryGap> gaps;  ///< of every step: what of the plan's block is free while it runs

  /// The planned images in memory, one block per queue: commands of one queue run in order. So are copies of
  /// the sources on devices that replay commands with the same addresses.
  struct Bound {
    std::weak_ptr<mtl::CommandQueue> queue;
    std::vector<ImageBatch> images;
    std::shared_ptr<StepScratch> scratch;
    std::weak_ptr<mtl::Submission> lastUse;
  };
  std::vector<Bound> bound;
};

/// Sizes all images, asks kernels where their windows begin, runs the passes that say which images share memory, and gives the
/// rest a place each. Kernels are as they were afterwards.
/// @param copiesSources steps read copies of the graph's sources, which may have another format
void resolveLayout(GraphLayout& layout, const GraphProgram& program,
                   const std::shared_ptr<mtl::Device>& device, bool copiesSources);

/// Places the planned images so that every step has room for its scratch memory beside those that live then.
void placeImages(GraphLayout& layout);

/// Sets where the kernel of a step reads its sources, as sizing for this layout found it. Gradient kernels read it from their
/// states. For a GeometryScope.
void placeSources(const GraphLayout& layout, StepIndex index, ImageKernel& kernel);

/// Whether the user's own policy sizes the kernel's result: it is asked once for each layout.
bool hasCustomPadding(const ImageKernel& kernel);

}  // namespace mps::detail
