#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/types/types.hpp"
#include "mtl/command_buffer.hpp"

/// What every kernel checks of a call before anything is recorded. Each throws Error that names the kernel and the argument.
/// The library's own.
namespace mps::detail {

void checkCommandBuffer(const Kernel& kernel, const std::shared_ptr<mtl::CommandBuffer>& commandBuffer);
/// Device, read counts, uniformity, valid content.
void checkSources(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                  const ImageBatch& images);
void checkDestinations(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                       const ImageBatch& images);
/// No destination shares elements with a source. @param inPlace a destination may be the source itself,
/// element for element
void checkNoAlias(const Kernel& kernel, const char* sourceArgument, const ImageBatch& sources,
                  const ImageBatch& destinations, bool inPlace = false);
void checkStates(const Kernel& kernel, const char* argument, mtl::CommandBuffer& commandBuffer,
                 const StateBatch& states, std::size_t imageCount);
void checkCount(const Kernel& kernel, const char* argument, std::size_t found, std::size_t expected);
/// At least one image.
void checkNotEmpty(const Kernel& kernel, const char* argument, const ImageBatch& images);
void checkChannelOffset(const Kernel& kernel, const char* property, std::size_t offset);
/// At most 2^31 either way: products of positions and strides stay within 64 bits.
void checkPosition(const Kernel& kernel, const char* property, std::int64_t position);
void checkOffset(const Kernel& kernel, const char* property, const Offset& offset);
/// At most 2^31 likewise.
void checkStride(const Kernel& kernel, const char* property, std::size_t stride);
/// numberOfImages is 1 in every image: batches and encodes that return an image.
void checkNotStacked(const Kernel& kernel, const char* argument, const ImageBatch& images);

}  // namespace mps::detail
