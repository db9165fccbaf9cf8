#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "mps/reduction/reduction_problem.hpp"

/// The problems that tests and conform share.
namespace mps::detail {

struct ReductionCase {
  std::string name;
  ReductionOperation operation = ReductionOperation::Sum;
  ReductionAxis axis = ReductionAxis::Row;
  std::int64_t images = 1, height = 1, width = 1, channels = 1;
  bool isStrided = false;  ///< gaps between pixels, rows and images

  [[nodiscard]] ReductionProblem forward(ImageFeatureChannelFormat sourceFormat,
                                         ImageFeatureChannelFormat resultFormat) const {
    ReductionProblem problem;
    problem.direction = ReductionDirection::Forward;
    problem.operation = operation;
    problem.axis = axis;
    if (operation == ReductionOperation::Sum) problem.scale = 0.5F;
    problem.source = strided(TensorShape::dense(images, height, width, channels, sourceFormat));
    problem.result = strided(reducedShape(problem.source, axis, resultFormat));
    return problem;
  }
  [[nodiscard]] ReductionProblem gradient(ImageFeatureChannelFormat gradientFormat,
                                          ImageFeatureChannelFormat destinationFormat) const {
    ReductionProblem problem = forward(destinationFormat, gradientFormat);
    problem.direction = ReductionDirection::Gradient;
    problem.destination = problem.source;
    return problem;
  }
  [[nodiscard]] bool hasGradient() const { return !traitsOf(operation).isArgument; }
  [[nodiscard]] bool takesExtremum() const { return !traitsOf(operation).sums; }
  /// Whether all of its partial sums are representable for small integers: a mean divides.
  [[nodiscard]] bool isExact() const {
    const std::int64_t count =
        forward(ImageFeatureChannelFormat::Float32, ImageFeatureChannelFormat::Float32).count();
    return !traitsOf(operation).divides || (count & (count - 1)) == 0;
  }

 private:
  [[nodiscard]] TensorShape strided(TensorShape shape) const {
    if (!isStrided) return shape;
    shape.pixelStride += 3;
    shape.rowStride = shape.width * shape.pixelStride + 5;
    shape.imageStride = shape.height * shape.rowStride + 7;
    return shape;
  }
};

/// For GoogleTest's messages.
inline void PrintTo(const ReductionCase& reduction, std::ostream* stream) {
  *stream << reduction.name;
}

/// Awkward on purpose; small enough for a float64 reference.
inline std::vector<ReductionCase> reductionCases() {
  struct Size {
    const char* name;
    std::int64_t images, height, width, channels;
    bool isStrided = false;
  };
  const std::vector<Size> sizes = {{"Channels3", 3, 4, 5, 3},       {"Channels16", 2, 3, 4, 16},
                                   {"Channels21", 1, 7, 6, 21},     {"OnePixel", 2, 1, 1, 5},
                                   {"OneElement", 1, 1, 1, 1},      {"PowersOfTwo", 2, 4, 8, 32},
                                   {"Channels67", 2, 3, 4, 67},     {"Channels1000", 1, 3, 2, 1000},
                                   {"ManyChannels", 1, 2, 2, 1100}, {"Strided", 3, 3, 4, 6, true}};
  std::vector<ReductionCase> cases;
  for (const auto axis :
       {ReductionAxis::Row, ReductionAxis::Column, ReductionAxis::FeatureChannels, ReductionAxis::Spatial})
    for (const auto operation :
         {ReductionOperation::Min, ReductionOperation::Max, ReductionOperation::Sum, ReductionOperation::Mean,
          ReductionOperation::ArgumentMin, ReductionOperation::ArgumentMax}) {
      if (traitsOf(operation).isArgument && axis != ReductionAxis::FeatureChannels) continue;
      if (axis == ReductionAxis::Spatial && operation != ReductionOperation::Mean) continue;
      for (const Size& size : sizes)
        cases.push_back({std::string(size.name) + "Axis" + std::to_string(static_cast<int>(axis)) +
                             "Operation" + std::to_string(static_cast<int>(operation)),
                         operation, axis, size.images, size.height, size.width, size.channels,
                         size.isStrided});
    }
  return cases;
}

}  // namespace mps::detail
