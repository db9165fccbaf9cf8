#pragma once

#include <cstddef>
#include <cstdint>

#include "mps/core/plan/plan.hpp"
#include "mps/upsampling/upsampling_taps.hpp"

namespace mps::detail {

/// Rows of a destination, by the processor's vectors: for plans that share them among threads.
class UpsamplingRows {
 public:
  explicit UpsamplingRows(const UpsamplingProblem& problem);

  /// Whether the working memory holds the columns that a pixel is the sum of; otherwise nothing can be computed.
  [[nodiscard]] bool fit() const { return layout_.channelStep > 0; }
  /// Whether results of a call that moves so many bytes are written by non-temporal stores.
  [[nodiscard]] bool stream(std::int64_t bytesMoved) const;
  /// Rows [begin, end), counted through all images. @param streams by non-temporal stores; finishNonTemporalStores() must follow
  void compute(const Operands& operands, bool streams, std::int64_t begin, std::int64_t end) const;
  /// Rows below which another thread does not pay.
  [[nodiscard]] std::int64_t grain() const;

  [[nodiscard]] const UpsamplingProblem& problem() const { return problem_; }

 private:
  UpsamplingProblem problem_;
  UpsamplingLayout layout_;
};

}  // namespace mps::detail
