#include "mps/arithmetic/arithmetic.hpp"
#include "mps/arithmetic/compare.hpp"
#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/concatenation/concatenation.hpp"
#include "mps/convolution/convolution.hpp"
#include "mps/convolution/convolution_transpose.hpp"
#include "mps/convolution/fully_connected.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/dropout/dropout.hpp"
#include "mps/gram_matrix/gram_matrix.hpp"
#include "mps/graph/graph_coding.hpp"
#include "mps/instance_normalization/group_normalization.hpp"
#include "mps/instance_normalization/instance_normalization.hpp"
#include "mps/loss/forward_loss.hpp"
#include "mps/loss/loss.hpp"
#include "mps/loss/yolo_loss.hpp"
#include "mps/neuron/neuron.hpp"
#include "mps/normalization/normalization.hpp"
#include "mps/pooling/pooling.hpp"
#include "mps/reduction/reduce_binary.hpp"
#include "mps/reduction/reduction.hpp"
#include "mps/reshape/pad.hpp"
#include "mps/reshape/reshape.hpp"
#include "mps/softmax/softmax.hpp"
#include "mps/upsampling/crop_and_resize.hpp"
#include "mps/upsampling/grid_sample.hpp"
#include "mps/upsampling/image_scale.hpp"
#include "mps/upsampling/resize.hpp"
#include "mps/upsampling/upsampling.hpp"

/// The list of the kernels that graphs are made of; a new one adds its line.
namespace mps::detail {
namespace {

template <class KernelType>
void add(Coder& coder, const char* className) {
  coder.setDecoder(className, [](Coder& data, const std::shared_ptr<mtl::Device>& device) {
    return KernelType::decode(data, device);
  });
}

}  // namespace

void addKernelDecoders(Coder& coder) {
  add<CNNAdd>(coder, "CNNAdd");
  add<CNNAddGradient>(coder, "CNNAddGradient");
  add<CNNSubtract>(coder, "CNNSubtract");
  add<CNNSubtractGradient>(coder, "CNNSubtractGradient");
  add<CNNMultiply>(coder, "CNNMultiply");
  add<CNNMultiplyGradient>(coder, "CNNMultiplyGradient");
  add<CNNDivide>(coder, "CNNDivide");
  add<CNNDivideGradient>(coder, "CNNDivideGradient");
  add<CNNBatchNormalization>(coder, "CNNBatchNormalization");
  add<CNNBatchNormalizationStatistics>(coder, "CNNBatchNormalizationStatistics");
  add<CNNBatchNormalizationStatisticsGradient>(coder, "CNNBatchNormalizationStatisticsGradient");
  add<CNNBatchNormalizationGradient>(coder, "CNNBatchNormalizationGradient");
  add<NNConcatenation>(coder, "NNConcatenation");
  add<NNConcatenationGradient>(coder, "NNConcatenationGradient");
  add<CNNConvolution>(coder, "CNNConvolution");
  add<CNNConvolutionGradient>(coder, "CNNConvolutionGradient");
  add<CNNConvolutionTranspose>(coder, "CNNConvolutionTranspose");
  add<CNNConvolutionTransposeGradient>(coder, "CNNConvolutionTransposeGradient");
  add<CNNFullyConnected>(coder, "CNNFullyConnected");
  add<CNNFullyConnectedGradient>(coder, "CNNFullyConnectedGradient");
  add<CNNDropout>(coder, "CNNDropout");
  add<CNNDropoutGradient>(coder, "CNNDropoutGradient");
  add<NNGramMatrixCalculation>(coder, "NNGramMatrixCalculation");
  add<NNGramMatrixCalculationGradient>(coder, "NNGramMatrixCalculationGradient");
  add<CNNGroupNormalization>(coder, "CNNGroupNormalization");
  add<CNNGroupNormalizationGradient>(coder, "CNNGroupNormalizationGradient");
  add<CNNInstanceNormalization>(coder, "CNNInstanceNormalization");
  add<CNNInstanceNormalizationGradient>(coder, "CNNInstanceNormalizationGradient");
  add<CNNLoss>(coder, "CNNLoss");
  add<CNNYOLOLoss>(coder, "CNNYOLOLoss");
  add<NNForwardLoss>(coder, "NNForwardLoss");
  add<NNLossGradient>(coder, "NNLossGradient");
  add<NNInitialGradient>(coder, "NNInitialGradient");
  add<NNCompare>(coder, "NNCompare");
  add<NNReduceFeatureChannelsAndWeightsMean>(coder, "NNReduceFeatureChannelsAndWeightsMean");
  add<NNReduceFeatureChannelsAndWeightsSum>(coder, "NNReduceFeatureChannelsAndWeightsSum");
  add<ImageBilinearScale>(coder, "ImageBilinearScale");
  add<ImageBilinearScaleGradient>(coder, "ImageBilinearScaleGradient");
  add<ImageLanczosScale>(coder, "ImageLanczosScale");
  add<ImageLanczosScaleGradient>(coder, "ImageLanczosScaleGradient");
  add<NNCropAndResizeBilinear>(coder, "NNCropAndResizeBilinear");
  add<NNGridSample>(coder, "NNGridSample");
  add<NNResizeBilinear>(coder, "NNResizeBilinear");
  add<NNResizeBilinearGradient>(coder, "NNResizeBilinearGradient");
  add<CNNNeuron>(coder, "CNNNeuron");
  add<CNNNeuronGradient>(coder, "CNNNeuronGradient");
  add<CNNSpatialNormalization>(coder, "CNNSpatialNormalization");
  add<CNNSpatialNormalizationGradient>(coder, "CNNSpatialNormalizationGradient");
  add<CNNLocalContrastNormalization>(coder, "CNNLocalContrastNormalization");
  add<CNNLocalContrastNormalizationGradient>(coder, "CNNLocalContrastNormalizationGradient");
  add<CNNCrossChannelNormalization>(coder, "CNNCrossChannelNormalization");
  add<CNNCrossChannelNormalizationGradient>(coder, "CNNCrossChannelNormalizationGradient");
  add<CNNPoolingMax>(coder, "CNNPoolingMax");
  add<CNNPoolingMaxGradient>(coder, "CNNPoolingMaxGradient");
  add<CNNPoolingAverage>(coder, "CNNPoolingAverage");
  add<CNNPoolingAverageGradient>(coder, "CNNPoolingAverageGradient");
  add<CNNPoolingL2Norm>(coder, "CNNPoolingL2Norm");
  add<CNNPoolingL2NormGradient>(coder, "CNNPoolingL2NormGradient");
  add<CNNDilatedPoolingMax>(coder, "CNNDilatedPoolingMax");
  add<CNNDilatedPoolingMaxGradient>(coder, "CNNDilatedPoolingMaxGradient");
  add<NNReduceRowMin>(coder, "NNReduceRowMin");
  add<NNReduceRowMax>(coder, "NNReduceRowMax");
  add<NNReduceRowSum>(coder, "NNReduceRowSum");
  add<NNReduceRowMean>(coder, "NNReduceRowMean");
  add<NNReduceColumnMin>(coder, "NNReduceColumnMin");
  add<NNReduceColumnMax>(coder, "NNReduceColumnMax");
  add<NNReduceColumnSum>(coder, "NNReduceColumnSum");
  add<NNReduceColumnMean>(coder, "NNReduceColumnMean");
  add<NNReduceFeatureChannelsMin>(coder, "NNReduceFeatureChannelsMin");
  add<NNReduceFeatureChannelsMax>(coder, "NNReduceFeatureChannelsMax");
  add<NNReduceFeatureChannelsMean>(coder, "NNReduceFeatureChannelsMean");
  add<NNReduceFeatureChannelsArgumentMin>(coder, "NNReduceFeatureChannelsArgumentMin");
  add<NNReduceFeatureChannelsArgumentMax>(coder, "NNReduceFeatureChannelsArgumentMax");
  add<NNReduceFeatureChannelsSum>(coder, "NNReduceFeatureChannelsSum");
  add<NNReduceSpatialMean>(coder, "NNReduceSpatialMean");
  add<NNReduceUnaryGradient>(coder, "NNReduceUnaryGradient");
  add<NNPad>(coder, "NNPad");
  add<NNPadGradient>(coder, "NNPadGradient");
  add<NNSlice>(coder, "NNSlice");
  add<NNReshape>(coder, "NNReshape");
  add<NNReshapeGradient>(coder, "NNReshapeGradient");
  add<CNNSoftMax>(coder, "CNNSoftMax");
  add<CNNSoftMaxGradient>(coder, "CNNSoftMaxGradient");
  add<CNNLogSoftMax>(coder, "CNNLogSoftMax");
  add<CNNLogSoftMaxGradient>(coder, "CNNLogSoftMaxGradient");
  add<CNNUpsamplingNearest>(coder, "CNNUpsamplingNearest");
  add<CNNUpsamplingNearestGradient>(coder, "CNNUpsamplingNearestGradient");
  add<CNNUpsamplingBilinear>(coder, "CNNUpsamplingBilinear");
  add<CNNUpsamplingBilinearGradient>(coder, "CNNUpsamplingBilinearGradient");
}

}  // namespace mps::detail
