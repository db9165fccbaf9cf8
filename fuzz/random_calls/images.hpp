#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "fuzz/random_calls/call.hpp"
#include "mps/core/image/image_batch.hpp"

namespace unmetal::random_calls {

/// The number of an element, counted through all images in the layout height x width x channels.
using ElementValue = std::function<double(std::size_t)>;

/// Images of one size whose memory is arranged in one of many ways: a block, a part of one, one by one, in another order,
/// some channels of wider images, over a buffer with gaps, a stack.
struct Images {
  mps::ImageBatch batch;              ///< one by one
  std::shared_ptr<mps::Image> image;  ///< of a batch of one, or the stack
  Observation* observation = nullptr;
};

enum class Stacked : bool { No, Yes };

/// Images of random numbers, which the call must leave as they are.
Images makeSources(Call& call, const char* name, const mps::ImageDescriptor& size, std::size_t count,
                   Numbers numbers, Stacked stacked = Stacked::No);
Images makeSources(Call& call, const char* name, const mps::ImageDescriptor& size, std::size_t count,
                   const ElementValue& values);
/// Images that hold sentinels, as does all memory around them.
Images makeDestinations(Call& call, const char* name, const mps::ImageDescriptor& size, std::size_t count,
                        const Tolerance& tolerance, Stacked stacked = Stacked::No);
/// Images that the call has made; their sizes become part of the description, which both devices must agree on.
void observeImages(Call& call, const char* name, const mps::ImageBatch& images, const Tolerance& tolerance);

/// Images [first, first + count) as a list of their own.
mps::ImageBatch partOf(const mps::ImageBatch& images, std::size_t first, std::size_t count);

/// The size with another format of channels.
mps::ImageDescriptor withFormat(mps::ImageDescriptor size, mps::ImageFeatureChannelFormat format);

/// A clip rectangle: origins up to `farthest`, sides up to `longest`.
mtl::Region clipRectangle(Call& call, std::size_t farthest, std::size_t shortest, std::size_t longest);

}  // namespace unmetal::random_calls
