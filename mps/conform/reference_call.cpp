#include "mps/conform/reference_call.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/types/error.hpp"

namespace mps::detail {
namespace {

/// Element of the tensor of a step's images that a view begins at.
BatchOperand::Position positionOf(const GraphTrace::Call& call, const BatchOperand& operand,
                                  const mtl::Origin& origin) {
  BatchOperand::Position first = operand.first();
  first.image += static_cast<std::int64_t>(call.firstImage);
  first.y += static_cast<std::int64_t>(origin.y);
  first.x += static_cast<std::int64_t>(origin.x);
  return first;
}

/// Calls visit(index in the part, index in the whole image).
template <class Visit>
void forEachElement(const ReferenceTensor& part, const ReferenceTensor& whole,
                    const BatchOperand::Position& first, Visit visit) {
  for (std::int64_t n = 0; n < part.images; ++n)
    for (std::int64_t y = 0; y < part.height; ++y)
      for (std::int64_t x = 0; x < part.width; ++x) {
        const std::size_t from = part.index(n, y, x, 0);
        const std::size_t to = whole.index(first.image + n, first.y + y, first.x + x, first.channel);
        for (std::size_t c = 0; c < static_cast<std::size_t>(part.channels); ++c) visit(from + c, to + c);
      }
}

bool fits(const TensorShape& shape, const ReferenceTensor& whole, const BatchOperand::Position& first) {
  return first.image + shape.images <= whole.images && first.y + shape.height <= whole.height &&
         first.x + shape.width <= whole.width && first.channel + shape.channels <= whole.channels;
}

}  // namespace

bool ReferenceCall::isGradient() const {
  return dynamic_cast<const CNNGradientKernel*>(step_.kernel.get()) != nullptr;
}

ReferenceTensor ReferenceCall::view(const std::optional<BatchOperand>& operand, std::size_t source,
                                    const mtl::Origin& origin, const TensorShape& shape) const {
  if (!operand || source >= inputs_.sources.size())
    throw Error(step_.name + ": its reference asks for an operand that the call does not have");
  if (!operand->storage() && !operand->isLoose())
    throw Error(step_.name +
                ": reads beyond the edges of an image, which the float64 reference of a graph cannot follow");
  const ReferenceTensor& whole = *inputs_.sources[source];
  const BatchOperand::Position first = positionOf(call_, *operand, origin);
  if (!fits(shape, whole, first))
    throw Error(step_.name, "operand", shape.describe(), "a part of the image that the graph names");
  ReferenceTensor part(shape.images, shape.height, shape.width, shape.channels);
  forEachElement(part, whole, first,
                 [&](std::size_t to, std::size_t from) { part.values[to] = whole.values[from]; });
  return part;
}

ReferenceTensor ReferenceCall::sourceImage(const TensorShape& shape) const {
  return view(call_.source, isGradient() ? 1 : call_.prepared.sourceIndex, call_.prepared.sourceOrigin,
              shape);
}

ReferenceTensor ReferenceCall::gradientImage(const TensorShape& shape) const {
  return view(call_.gradient, 0, call_.prepared.gradientOrigin, shape);
}

ReferenceTensor ReferenceCall::source(const TensorShape& shape) const {
  return call_.prepared.exchangesSourceAndGradient ? gradientImage(shape) : sourceImage(shape);
}

ReferenceTensor ReferenceCall::secondary(const TensorShape& shape) const {
  if (call_.prepared.sourceIsSecondary) return sourceImage(shape);
  return view(call_.secondary, call_.prepared.sourceIndex + 1, {}, shape);
}

ReferenceTensor ReferenceCall::gradient(const TensorShape& shape) const {
  return call_.prepared.exchangesSourceAndGradient ? sourceImage(shape) : gradientImage(shape);
}

std::span<const double> ReferenceCall::parameter(std::size_t index, std::int64_t count) const {
  const auto size = static_cast<std::size_t>(count);
  return inputs_.parameter(call_.prepared.parameters.at(index), index, size).first(size);
}

const StateBatch& ReferenceCall::sourceStates() const {
  if (inputs_.sourceStates == nullptr) throw Error(step_.name + ": has no source states");
  return *inputs_.sourceStates;
}

void ReferenceCall::setDestination(const ReferenceTensor& tensor) {
  ReferenceTensor& whole = outputs_.result;
  const BatchOperand::Position first =
      positionOf(call_, *call_.destination, call_.prepared.destinationOrigin);
  const TensorShape shape = TensorShape::dense(tensor.images, tensor.height, tensor.width, tensor.channels);
  if (!fits(shape, whole, first))
    throw Error(step_.name, "destination", shape.describe(), "a part of the image that the graph names");
  if (whole.magnitude.empty()) whole.magnitude.resize(whole.values.size());
  forEachElement(tensor, whole, first, [&](std::size_t from, std::size_t to) {
    whole.values[to] = tensor.values[from];
    whole.magnitude[to] = tensor.magnitude.empty() ? std::abs(tensor.values[from]) : tensor.magnitude[from];
  });
  whole.roundings = std::max(whole.roundings, tensor.roundings);
  whole.transcendental = std::max(whole.transcendental, tensor.transcendental);
}

void ReferenceCall::setParameterGradient(std::size_t index, std::size_t forwardIndex, std::string name,
                                         ReferenceTensor gradient, bool isPerImage) {
  if (call_.prepared.accumulate)
    throw Error(step_.name + ": adds to the gradients of another node with the same state");
  outputs_.parameterGradients.push_back(
      {std::move(name), forwardIndex, call_.prepared.parameters.at(index), std::move(gradient), isPerImage});
}

}  // namespace mps::detail
