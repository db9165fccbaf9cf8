#include "mps/arithmetic/arithmetic_classes.hpp"
#include "mps/batch_normalization/batch_normalization_classes.hpp"
#include "mps/concatenation/concatenation_classes.hpp"
#include "mps/convolution/convolution_classes.hpp"
#include "mps/core/coding/coder.hpp"
#include "mps/dropout/dropout_classes.hpp"
#include "mps/gram_matrix/gram_matrix_classes.hpp"
#include "mps/graph/coding/graph_coding.hpp"
#include "mps/instance_normalization/instance_normalization_classes.hpp"
#include "mps/loss/loss_classes.hpp"
#include "mps/neuron/neuron_classes.hpp"
#include "mps/normalization/normalization_classes.hpp"
#include "mps/pooling/pooling_classes.hpp"
#include "mps/reduction/reduction_classes.hpp"
#include "mps/reshape/reshape_classes.hpp"
#include "mps/softmax/softmax_classes.hpp"
#include "mps/trainable/trainable_layer.hpp"
#include "mps/upsampling/upsampling_classes.hpp"

/// The families whose kernels graphs are made of; a new one adds its line.
namespace mps::detail {
namespace {

template <class Classes>
void add(Coder& coder) {
  Classes::forEach([&]<class KernelType>() {
    coder.setDecoder(KernelType::nameOfClass(), [](Coder& data, const std::shared_ptr<mtl::Device>& device) {
      return KernelType::decode(data, device);
    });
  });
}

}  // namespace

void addGraphDecoders(Coder& coder) {
  addTrainableDecoders(coder);
  add<ArithmeticClasses>(coder);
  add<BatchNormalizationClasses>(coder);
  add<ConcatenationClasses>(coder);
  add<ConvolutionClasses>(coder);
  add<DropoutClasses>(coder);
  add<GramMatrixClasses>(coder);
  add<InstanceNormalizationClasses>(coder);
  add<LossClasses>(coder);
  add<NeuronClasses>(coder);
  add<NormalizationClasses>(coder);
  add<PoolingClasses>(coder);
  add<ReductionClasses>(coder);
  add<ReshapeClasses>(coder);
  add<SoftmaxClasses>(coder);
  add<UpsamplingClasses>(coder);
}

}  // namespace mps::detail
