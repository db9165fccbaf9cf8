#include "mps/conform/testing/kernel_samples.hpp"
#include "mps/reduction/reduce_binary.hpp"
#include "mps/reduction/reduction.hpp"

namespace mps::test {

void addReductionSamples(KernelSamples& samples) {
  const Device& device = samples.device();
  samples.add(NNReduceRowMin::create(device));
  samples.add(NNReduceRowSum::create(device));
  samples.add(NNReduceRowMean::create(device));
  samples.add(NNReduceColumnMin::create(device));
  samples.add(NNReduceColumnMax::create(device));
  samples.add(NNReduceColumnSum::create(device));
  samples.add(NNReduceColumnMean::create(device));
  samples.add(NNReduceFeatureChannelsMin::create(device));
  samples.add(NNReduceFeatureChannelsMax::create(device));
  samples.add(NNReduceFeatureChannelsMean::create(device));
  samples.add(NNReduceFeatureChannelsArgumentMin::create(device));
  samples.add(NNReduceFeatureChannelsArgumentMax::create(device));
  const auto sum = NNReduceFeatureChannelsSum::create(device);
  sum->setWeight(3);
  samples.add(sum);
  samples.add(NNReduceSpatialMean::create(device));
  samples.addPair(
      [](const Device& d) {
        auto kernel = NNReduceRowMax::create(d);
        kernel->setClipRectSource({{1, 0, 0}, {2, 3, 1}});
        return kernel;
      },
      [](const Device& d) {
        return NNReduceUnaryGradient::create(d, ReductionOperation::Max, ReductionAxis::Row);
      });
  samples.add(NNReduceFeatureChannelsAndWeightsMean::create(device), ofTwo);
  samples.add(NNReduceFeatureChannelsAndWeightsSum::create(device, true), ofTwo);
}

}  // namespace mps::test
