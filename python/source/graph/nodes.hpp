#pragma once

#include <memory>

#include "mps/core/kernel/node.hpp"
#include "python/source/binding/bind.hpp"

/// What the files that bind graph nodes share.
namespace python {

using ImageNode = std::shared_ptr<mps::NNImageNode>;
using ImageNodes = std::vector<ImageNode>;
using StateNode = std::shared_ptr<mps::NNStateNode>;

template <class Node>
using FilterClass = nb::class_<Node, mps::NNFilterNode>;
template <class Node>
using GradientClass = nb::class_<Node, mps::NNGradientFilterNode>;

/// A class without members of its own.
template <class Node, class Base>
void emptyClass(nb::module_& module, const char* name, const char* documentation) {
  const nb::class_<Node, Base> bound(module, name, documentation);
}

/// Of nodes with weights.
template <class Class>
void bindTrainingStyle(Class& bound) {
  using Node = typename Class::Type;
  property(
      bound, "training_style", [](const Node& self) { return self.trainingStyle(); },
      [](Node& self, mps::NNTrainingStyle style) { self.setTrainingStyle(style); },
      "When the weights are updated. UpdateDeviceGPU. A gradient node takes the style of its forward node "
      "when it is made; "
      "the gradient node's style decides when a graph is compiled.");
}

/// A gradient node that is made of gradient, forward source and state alone.
template <class Node>
GradientClass<Node> plainGradient(nb::module_& module, const char* name, const char* documentation) {
  GradientClass<Node> bound(module, name, documentation);
  bound.def(nb::new_(&Node::create), "source_gradient"_a, "source_image"_a, "gradient_state"_a,
            "`source_image`: the forward source.");
  return bound;
}

}  // namespace python
