#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mps/convolution/convolution_choice.hpp"
#include "mps/convolution/convolution_windows.hpp"
#include "mps/convolution/cuda/convolution_cuda.hpp"
#include "mps/convolution/cuda/convolution_staging_cuda.hpp"
#include "mps/convolution/cuda/convolution_timing_cuda.hpp"
#include "mps/core/plan/fallback_plan.hpp"
#include "mps/core/types/error.hpp"
#include "mtl/cuda/cublaslt.hpp"
#include "mtl/cuda/stream.hpp"

namespace mps::detail {
namespace {

using cuda::DenseArray;
using cuda::DenseWeights;
using mtl::cuda::CublasLtError;
using mtl::cuda::MatrixProduct;
using mtl::cuda::MatrixProductShape;
using Format = ImageFeatureChannelFormat;

/// What the operands of the product are.
struct Product {
  std::int64_t windows;
  std::int64_t inputs;
  Format format;        ///< of its inputs
  Format resultFormat;  ///< of what cuBLASLt writes
  bool hasBias;         ///< which cuBLASLt adds
};

/// Each window reads one row of a matrix X [windows][inputs]; W [outputs][inputs] are the weights as they are:
///
///     forward            X W^T + bias
///     data gradient      G W
///     weights gradient   G^T X
MatrixProductShape shapeOf(const ConvolutionProblem& problem, const Product& product) {
  const std::int64_t outputs = problem.outputFeatureChannels;
  const bool float16 = product.format == Format::Float16;
  const bool tf32 = problem.allowReducedPrecision && !float16;
  MatrixProductShape shape{.float16 = float16,
                           .float16Result = product.resultFormat == Format::Float16,
                           .tf32 = tf32,
                           .hasBias = product.hasBias};
  const auto set = [&](std::int64_t rows, std::int64_t depth, std::int64_t columns) {
    shape.rows = rows;
    shape.depth = depth;
    shape.columns = columns;
  };
  switch (problem.operation) {
    case ConvolutionOperation::Forward:
      set(product.windows, product.inputs, outputs);
      shape.transposedB = true;
      break;
    case ConvolutionOperation::DataGradient:
      set(product.windows, outputs, product.inputs);
      break;
    case ConvolutionOperation::WeightsGradient:
      set(outputs, product.windows, product.inputs);
      shape.transposedA = true;
      break;
  }
  return shape;
}

class MatmulPlan final : public SelectivePlan {
 public:
  /// @param algorithm for shapeOf(problem, product)
  MatmulPlan(const ConvolutionProblem& problem, const Product& product, const MatrixProduct& algorithm)
      : problem_(problem),
        weights_{product.format, problem.outputFeatureChannels, problem.inputChannelsPerGroup()},
        addsBias_(product.hasBias),
        product_(algorithm) {
    const bool isGradient = problem.operation == ConvolutionOperation::WeightsGradient;
    const auto input = [&](const TensorShape& tensor) {
      return cuda::StagedInput(tensor, DenseArray::of(tensor, product.format), ImageEdgeMode::Zero, scratch_);
    };
    if (problem.operation != ConvolutionOperation::DataGradient) source_ = input(problem.source);
    if (problem.operation != ConvolutionOperation::Forward) gradient_ = input(problem.gradient);
    if (!isGradient) {
      destination_ =
          cuda::StagedOutput(problem, DenseArray::of(problem.destination, product.resultFormat), scratch_);
      if (!weights_.areGiven(problem)) packedWeights_ = scratch_.reserve(weights_.bytes(problem));
    } else if (problem.hasBias) {
      biases_ = cuda::PixelSums(problem.gradient, true, scratch_);
    }
    workspace_ = cuda::Workspace(product_.workspaceBytes(), scratch_);
  }

  [[nodiscard]] std::size_t scratchBytes() const override { return scratch_.bytes(); }
  [[nodiscard]] bool canAccumulate() const override { return problem_.accumulate; }
  [[nodiscard]] std::string describe() const override {
    return product_.describe() + (weights_.format == Format::Float16 ? " float16" : "") +
           (addsBias_ ? " with bias" : "");
  }

  void run(mtl::Stream& stream, const Operands& operands) const override {
    switch (problem_.operation) {
      case ConvolutionOperation::Forward: {
        const std::byte* const source = source_.load(stream, operands.source, operands.scratch);
        const auto* const bias =
            problem_.hasBias ? reinterpret_cast<const float*>(operands.parameters[1]) : nullptr;
        multiply(stream, operands, source, loadWeights(stream, operands), addsBias_ ? bias : nullptr,
                 destination_.target(operands), false);
        return destination_.store(stream, operands, addsBias_ ? nullptr : bias);
      }
      case ConvolutionOperation::DataGradient: {
        const std::byte* const gradient = gradient_.load(stream, operands.gradient, operands.scratch);
        multiply(stream, operands, gradient, loadWeights(stream, operands), nullptr,
                 destination_.target(operands), false);
        return destination_.store(stream, operands, nullptr);
      }
      case ConvolutionOperation::WeightsGradient: {
        const std::byte* const source = source_.load(stream, operands.source, operands.scratch);
        const std::byte* const gradient = gradient_.load(stream, operands.gradient, operands.scratch);
        multiply(stream, operands, gradient, source, nullptr, operands.parameters[2], operands.accumulate);
        if (problem_.hasBias)
          biases_.run(stream, operands.gradient, reinterpret_cast<float*>(operands.parameters[3]),
                      operands.accumulate, operands.scratch);
        return;
      }
    }
  }

  [[nodiscard]] std::string_view objectionTo(const Operands& operands) const override {
    const bool isGradient = problem_.operation == ConvolutionOperation::WeightsGradient;
    return objectionToUnaligned({operands.source, operands.gradient, operands.parameters[isGradient ? 2 : 0],
                                 isGradient ? nullptr : operands.destination,
                                 addsBias_ ? operands.parameters[1] : nullptr});
  }

 private:
  const std::byte* loadWeights(mtl::Stream& stream, const Operands& operands) const {
    return weights_.load(stream, problem_, operands.parameters[0], operands.scratch + packedWeights_);
  }

  void multiply(mtl::Stream& stream, const Operands& operands, const std::byte* a, const std::byte* b,
                const float* bias, std::byte* result, bool accumulate) const {
    product_.run(mtl::cuda::asCuda(stream).handle(), a, b, bias, result, accumulate,
                 workspace_.address(operands.scratch));
  }

  ConvolutionProblem problem_;
  DenseWeights weights_;
  bool addsBias_;
  MatrixProduct product_;
  ScratchLayout scratch_;
  cuda::StagedInput source_;
  cuda::StagedInput gradient_;
  cuda::StagedOutput destination_;
  cuda::PixelSums biases_;
  std::size_t packedWeights_ = 0;
  cuda::Workspace workspace_;
};

/// Weights lose bits in float16, two images of float16 lose none.
Format formatOfProduct(const ConvolutionProblem& problem) {
  const bool source = problem.source.format == Format::Float16;
  const bool gradient = problem.gradient.format == Format::Float16;
  const bool areFloat16 = problem.operation == ConvolutionOperation::WeightsGradient
                              ? source && gradient
                              : problem.allowReducedPrecision && (source || gradient);
  return areFloat16 ? Format::Float16 : Format::Float32;
}

/// Sums of float16 numbers that are the whole result are rounded by cuBLASLt, and never in memory as float32.
Format formatOfResult(const ConvolutionProblem& problem) {
  const bool isWhole = problem.operation != ConvolutionOperation::WeightsGradient && !problem.accumulate &&
                       problem.neuron.neuronType() == CNNNeuronType::None &&
                       !(problem.operation == ConvolutionOperation::Forward && problem.hasBias);
  const bool isGiven = DenseArray::of(problem.destination, Format::Float16).isTensor(problem.destination);
  return isWhole && isGiven && formatOfProduct(problem) == Format::Float16 ? Format::Float16
                                                                           : Format::Float32;
}

/// All of cuBLASLt's algorithms for a problem: those that add the bias, then those after which it is added.
class MatmulCandidates final : public cuda::CudaCandidates {
 public:
  MatmulCandidates(const ConvolutionProblem& problem, const Product& product)
      : CudaCandidates(problem), products_{product} {
    if (!product.hasBias) return;
    products_.push_back(product);
    products_.back().hasBias = false;
  }

  [[nodiscard]] std::string library() const override { return "cuBLASLt"; }
  [[nodiscard]] std::string version() const override { return mtl::cuda::CublasLt::library().version(); }

  std::shared_ptr<const Plan> first() override {
    for (const Product& product : products_) {
      try {
        return plan(product, MatrixProduct(shapeOf(problem(), product)));
      } catch (const CublasLtError& error) {
        why_ = error.what();
      }
    }
    return nullptr;
  }
  void find(const Wanted& wanted, const Take& take) override {
    std::int64_t number = -1;
    for (const Product& product : products_)
      for (const MatrixProduct& algorithm : algorithmsFor(product)) {
        if (!wanted(++number)) continue;
        try {
          if (!take(number, plan(product, algorithm))) return;
        } catch (const CublasLtError& error) {
          why_ = error.what();  // in a run
        }
      }
  }
  /// cuBLASLt's last words about what it cannot do.
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  std::vector<MatrixProduct> algorithmsFor(const Product& product) {
    try {
      return MatrixProduct::candidates(shapeOf(problem(), product));
    } catch (const CublasLtError& error) {
      why_ = error.what();
      return {};
    }
  }
  [[nodiscard]] std::shared_ptr<const Plan> plan(const Product& product,
                                                 const MatrixProduct& algorithm) const {
    return std::make_shared<const MatmulPlan>(problem(), product, algorithm);
  }

  std::vector<Product> products_;
  std::string why_;
};

}  // namespace

Preparation prepareConvolutionMatmulCuda(const ConvolutionProblem& problem) {
  const bool wholeSource = coversSource(problem.x) && coversSource(problem.y);
  const bool eachPixel = readsEachPixel(problem.x) && readsEachPixel(problem.y);
  if (!wholeSource && !eachPixel)
    return Refusal{"the windows are neither the whole source nor single pixels"};
  if (problem.groups != 1) return Refusal{"groups of channels make several products"};
  if (problem.transposed) return Refusal{"the weights of a transposed convolution have another order"};
  if (problem.sumsNothing()) return Refusal{kSumsNothing};
  for (const TensorShape* shape : {&problem.source, &problem.gradient, &problem.destination})
    if (shape->channels > 0 && !cuda::canStage(*shape)) return Refusal{"a tensor is too large"};

  const bool ends = problem.accumulate || problem.neuron.neuronType() != CNNNeuronType::None;
  const Product product{
      problem.images() * problem.y.destinationSize * problem.x.destinationSize,
      problem.inputFeatureChannels * (wholeSource ? problem.y.kernelSize * problem.x.kernelSize : 1),
      formatOfProduct(problem), formatOfResult(problem),
      problem.operation == ConvolutionOperation::Forward && problem.hasBias && !ends};
  try {
    const mtl::cuda::CurrentDevice device(mtl::cuda::deviceIndex(problem.deviceName));
    MatmulCandidates candidates(problem, product);
    if (auto plan = chooseConvolutionPlan(candidates, problem))
      return withFallback(std::static_pointer_cast<const SelectivePlan>(std::move(plan)),
                          convolutionImplementationsCuda().back(), problem);
    return Refusal{candidates.why()};
  } catch (const Error&) {
    throw;  // about a plan file
  } catch (const mtl::Error& error) {
    return Refusal{error.what()};
  }
}

}  // namespace mps::detail
