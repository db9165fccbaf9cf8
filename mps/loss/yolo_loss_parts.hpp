#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "mps/loss/loss_problem.hpp"
#include "mps/loss/yolo_loss_problem.hpp"

/// How the plans of all back ends compute a YOLO loss: labels are assigned to anchors, which gives predictions, labels
/// and weights of the four losses in scratch memory; these run with reduction None; their gradients and values are put
/// together.
namespace mps::detail {

/// Dense float32 tensors of one part, [image][row][column][anchor][channel]. Null where the part has no channels.
struct YOLOPartTensors {
  float* predictions = nullptr;
  float* labels = nullptr;
  float* weights = nullptr;
  float* gradient = nullptr;
  float* loss = nullptr;
};
using YOLOTensors = std::array<YOLOPartTensors, kYOLOLossParts>;

class YOLOParts {
 public:
  /// @param implementations of CNNLoss, of the same back end
  YOLOParts(const YOLOLossProblem& problem, std::span<const Implementation<LossProblem>> implementations);

  /// Of the tensors and of the losses.
  [[nodiscard]] std::size_t scratchBytes() const { return scratchBytes_; }
  [[nodiscard]] YOLOTensors tensors(std::byte* scratch) const;
  /// Computes gradients and losses of all parts from their other tensors.
  void run(mtl::Stream& stream, std::byte* scratch) const;

 private:
  struct Part {
    std::shared_ptr<const Plan> plan;
    std::array<double, 8> scalars{};
    std::size_t offset = 0;  ///< of the first tensor
    std::size_t bytes = 0;   ///< of one
  };
  std::array<Part, kYOLOLossParts> parts_;
  std::size_t plansScratch_ = 0;  ///< where it begins
  std::size_t scratchBytes_ = 0;
};

}  // namespace mps::detail
