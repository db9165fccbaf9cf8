#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mps/convolution/convolution_choice.hpp"
#include "mtl/cuda/stream.hpp"

namespace mtl {
class Device;
class Memory;
}  // namespace mtl

namespace mps::detail::cuda {

/// Times plans of one problem on the current GPU, with a stream and memory of its own.
class ConvolutionTimer {
 public:
  ConvolutionTimer(std::shared_ptr<mtl::Device> device, const ConvolutionProblem& problem);

  /// Milliseconds of a run, the median of some; of one alone when that takes three times `best`.
  /// @throws CudaError when a run fails.
  double milliseconds(const Plan& plan, double best);

 private:
  std::byte* allocate(std::size_t bytes);

  std::shared_ptr<mtl::Device> device_;
  std::vector<std::shared_ptr<mtl::Memory>> memory_;
  Operands operands_;
  mtl::cuda::Stream stream_;
};

/// Candidates that are timed on the problem's GPU, which must be the current one.
class CudaCandidates : public ConvolutionCandidates {
 public:
  explicit CudaCandidates(const ConvolutionProblem& problem) : problem_(problem) {}

  [[nodiscard]] std::string device() const final;
  double milliseconds(const Plan& plan, double best) final;

 protected:
  [[nodiscard]] const ConvolutionProblem& problem() const { return problem_; }

 private:
  const ConvolutionProblem& problem_;
  std::optional<ConvolutionTimer> timer_;
};

}  // namespace mps::detail::cuda
