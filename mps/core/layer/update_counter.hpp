#pragma once

#include <cstddef>

namespace mps::detail {

/// What counts the updates that it encodes, such as Adam: a graph puts the count back when an encode fails.
class UpdateCounter {
 public:
  virtual ~UpdateCounter() = default;
  [[nodiscard]] virtual std::size_t timeStep() const = 0;
  virtual void setTimeStep(std::size_t timeStep) = 0;

 protected:
  UpdateCounter() = default;
  UpdateCounter(const UpdateCounter&) = default;
  UpdateCounter& operator=(const UpdateCounter&) = default;
};

}  // namespace mps::detail
