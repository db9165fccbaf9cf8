#pragma once

#include <memory>
#include <string>
#include <utility>

#include "mps/core/plan/plan.hpp"
#include "mtl/cpu/onednn.hpp"

/// What families share whose plans call oneDNN.
namespace mps::detail {

/// A plan, refused where it isReference(), that is oneDNN has only its reference code for it, or where oneDNN has none.
template <class OneDnnPlan, class... Arguments>
Preparation prepareByOneDnn(Arguments&&... arguments) {
  try {
    auto plan = std::make_shared<const OneDnnPlan>(std::forward<Arguments>(arguments)...);
    if (plan->isReference()) return Refusal{"oneDNN has only its reference code for it"};
    return plan;
  } catch (const dnnl::error& error) {
    return Refusal{std::string("oneDNN: ") + error.what()};
  }
}

}  // namespace mps::detail
