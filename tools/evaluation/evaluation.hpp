#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "mps/core/image/image_batch.hpp"
#include "tools/data/data.hpp"
#include "tools/evaluation/confusion_matrix.hpp"
#include "tools/evaluation/worst_pictures.hpp"
#include "tools/networks/networks.hpp"
#include "train/ranks/ranks.hpp"

namespace mtl {
class CommandQueue;
}

namespace unmetal {

/// How many pictures a network classifies in one command buffer: as many as fit in 32 MiB of float32, at least those
/// of a step of its training, at most 500.
std::size_t picturesAtOnce(const NetworkOptions& network);

/// Class probabilities by the network's inference graph, image after image. @throws mps::Error when one is not finite
std::vector<float> classify(const Network& network, const std::shared_ptr<mtl::CommandQueue>& queue,
                            const mps::ImageBatch& images);

/// Classifies every picture of a data set. @throws mps::Error when its pictures have another size or its classes other
/// names than the network's (generated pictures may), or a probability is not finite
/// @param worst gets all of them; null: nobody asks
/// @param ranks that call it together and share the pictures out; all have the result
ConfusionMatrix evaluate(const Network& network, const std::shared_ptr<mtl::CommandQueue>& queue,
                         const NamedData& data, WorstPictures* worst = nullptr,
                         const train::detail::Ranks& ranks = nullptr);

}  // namespace unmetal
