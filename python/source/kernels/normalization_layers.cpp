#include <cstdint>
#include <memory>
#include <utility>

#include "mps/batch_normalization/batch_normalization.hpp"
#include "mps/distributed/communicator.hpp"
#include "mps/instance_normalization/group_normalization.hpp"
#include "mps/instance_normalization/instance_normalization.hpp"
#include "mtl/buffer.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/kernels/kernels.hpp"

namespace python {
namespace {

using mps::CNNBatchNormalization;
using mps::CNNBatchNormalizationGradient;
using mps::CNNBatchNormalizationState;
using mps::CNNBatchNormalizationStatistics;
using mps::CNNBatchNormalizationStatisticsGradient;
using mps::ImageBatch;
using BatchState = std::shared_ptr<CNNBatchNormalizationState>;
using GammaAndBeta = std::shared_ptr<mps::CNNNormalizationGammaAndBetaState>;

constexpr const char* reloadStateDocumentation =
    "Encodes from now on use the state's values as they are when the recorded copy runs. Takes one read off "
    "the state. Raises "
    "Error when its length differs.";
constexpr const char* reloadDocumentation =
    "Reads the data source again, now; encoded work keeps the old values. Raises Error as the constructor "
    "does.";

void bindBatch(nb::module_& module) {
  auto normalization = kernelClass<CNNBatchNormalization, mps::CNNKernel>(
      module, "CNNBatchNormalization",
      "Batch normalisation. Per feature channel, over all m pixels of all images:\n\n"
      "    mean = 1/m sum x                         variance = 1/m sum (x - mean)^2\n"
      "    r    = 1 / sqrt(variance + epsilon)      h = (x - mean) r\n"
      "    y    = f(gamma h + beta), f the fused neuron\n\n"
      "Encodes without a state use the kernel's own statistics (inference), with one those of the batch. A "
      "training step:\n\n"
      "    state = normalization.result_state(x[0])\n"
      "    statistics.encode_batch(command_buffer, x, state)\n"
      "    normalization.encode_batch(command_buffer, x, state, y)\n"
      "    ...\n"
      "    statistics_gradient.encode_batch(command_buffer, dy, x, state)\n"
      "    gradient.encode_batch(command_buffer, dy, x, state, dx)\n\n"
      "Statistics and gradients take whole images: no clip rectangle, no offset. The destination may be the "
      "source.");
  normalization.def(
      nb::new_(&CNNBatchNormalization::create), "device"_a, "data_source"_a,
      "fused_neuron_descriptor"_a = mps::NNNeuronDescriptor(), Released(),
      "Reads the data source once. Raises Error when it fails to load, or an array has another length than "
      "number_of_feature_channels.");
  readOnly(normalization, "number_of_feature_channels", &CNNBatchNormalization::numberOfFeatureChannels,
           "Channels of the images.");
  property(normalization, "epsilon", &CNNBatchNormalization::epsilon, &CNNBatchNormalization::setEpsilon,
           "Added to the variance. The data source's. A state keeps what its last normalisation used.");
  readOnly(normalization, "data_source", &CNNBatchNormalization::dataSource,
           "Where the parameters come from.");
  readOnly(normalization, "fused_neuron_descriptor", &CNNBatchNormalization::fusedNeuronDescriptor, "f.");
  bindUnaryEncodes(normalization);
  bindEncode<Batch, ImageBatch, BatchState, ImageBatch>(normalization, encodeIntoDocumentation,
                                                        "source_images"_a, "batch_normalization_state"_a,
                                                        "destination_images"_a);
  normalization
      .def("reload_gamma_and_beta_from_data_source", &CNNBatchNormalization::reloadGammaAndBetaFromDataSource,
           Released(), reloadDocumentation)
      .def("reload_mean_and_variance_from_data_source",
           &CNNBatchNormalization::reloadMeanAndVarianceFromDataSource, Released(), reloadDocumentation)
      .def("reload_from_data_source", &CNNBatchNormalization::reloadFromDataSource, Released(),
           reloadDocumentation)
      .def("reload_data_source", &CNNBatchNormalization::reloadDataSource, "data_source"_a, Released(),
           "All of another data source. Raises Error also for another number of channels.")
      .def("reload_gamma_and_beta", &CNNBatchNormalization::reloadGammaAndBeta, "command_buffer"_a,
           "gamma_and_beta_state"_a, Released(), reloadStateDocumentation)
      .def("reload_mean_and_variance", &CNNBatchNormalization::reloadMeanAndVariance, "command_buffer"_a,
           "mean_and_variance_state"_a, Released(), reloadStateDocumentation);

  auto statistics = kernelClass<CNNBatchNormalizationStatistics, mps::CNNKernel>(
      module, "CNNBatchNormalizationStatistics",
      "Adds the mean and variance of images to a state. The inherited encodes raise Error: there is no "
      "destination.");
  statistics.def(nb::new_(&CNNBatchNormalizationStatistics::create), "device"_a);
  bindUnaryEncodes(statistics);
  bindEncode<Batch, ImageBatch, BatchState>(
      statistics, "Images of other sizes go into encodes of their own; each pixel counts once.",
      "source_images"_a, "batch_normalization_state"_a);
  statistics.def(
      "import_statistics", &CNNBatchNormalizationStatistics::importStatistics, "command_buffer"_a,
      "accumulated_statistics"_a, "element_count"_a, "batch_normalization_state"_a, Released(),
      "Sets the state's statistics to those of a batch on several devices, as they are when the "
      "recorded copy runs: a "
      "buffer as CNNBatchNormalizationState.accumulated_statistics, and the elements of all devices "
      "together.");
  statistics.def("gather_statistics", &CNNBatchNormalizationStatistics::gatherStatistics, "command_buffer"_a,
                 "communicator"_a, "element_count"_a, "batch_normalization_state"_a, Released(),
                 "Sets the state's statistics to those of the batch of all ranks. Encode this rank's part "
                 "first. `element_count`: of all ranks, for each feature channel.");
}

void bindBatchGradients(nb::module_& module) {
  using Base = mps::detail::BatchNormalizationGradientKernel;
  nb::class_<Base, mps::CNNGradientKernel> base(
      module, "BatchNormalizationGradientKernel",
      "What the two gradient kernels of batch normalisation share.");
  readOnly(base, "fused_neuron_descriptor", &Base::fusedNeuronDescriptor, "The forward kernel's.");

  auto sums = kernelClass<CNNBatchNormalizationStatisticsGradient, Base>(
      module, "CNNBatchNormalizationStatisticsGradient",
      "Adds the gradients of images to a state: dL/dgamma = sum(g h), dL/dbeta = sum g with g = dy f'(z), "
      "dL/dmean and "
      "dL/dvariance. The inherited encodes with gradient states compute the data gradient, too, once all "
      "elements of the "
      "statistics have come; before they raise Error and say how many are missing.");
  sums.def(nb::new_(&CNNBatchNormalizationStatisticsGradient::create), "device"_a,
           "fused_neuron_descriptor"_a = mps::NNNeuronDescriptor(),
           "`fused_neuron_descriptor`: that of the forward kernel, else encodes raise Error.");
  bindGradientEncodes(sums);
  bindEncode<Batch, ImageBatch, ImageBatch, BatchState>(sums, "The statistics gradient alone.",
                                                        "source_gradients"_a, "source_images"_a,
                                                        "batch_normalization_state"_a);
  sums.def("import_gradients", &CNNBatchNormalizationStatisticsGradient::importGradients, "command_buffer"_a,
           "accumulated_gradients"_a, "batch_normalization_state"_a, Released(),
           "Sets the sums that the data gradient uses to those of a batch on several devices: a buffer as "
           "CNNBatchNormalizationState.accumulated_gradients. Encode this device's part first.")
      .def("reduce_gradients", &CNNBatchNormalizationStatisticsGradient::reduceGradients, "command_buffer"_a,
           "communicator"_a, "batch_normalization_state"_a, Released(),
           "Sets the sums that the data gradient uses to those over the ranks. Encode this rank's part "
           "first.");

  auto gradient = kernelClass<CNNBatchNormalizationGradient, Base>(
      module, "CNNBatchNormalizationGradient",
      "dx = gamma r (g - 1/m sum g - h 1/m sum(g h)), from a state whose statistics gradient has seen the "
      "whole batch; with "
      "constant statistics dx = gamma r g.");
  gradient.def(nb::new_(&CNNBatchNormalizationGradient::create), "device"_a,
               "fused_neuron_descriptor"_a = mps::NNNeuronDescriptor(),
               "`fused_neuron_descriptor`: that of the forward kernel, else encodes raise Error.");
  bindGradientEncodes(gradient);
  bindEncode<Batch, ImageBatch, ImageBatch, BatchState>(gradient, encodeGradientDocumentation,
                                                        "source_gradients"_a, "source_images"_a,
                                                        "batch_normalization_state"_a);
  bindEncode<Batch, ImageBatch, ImageBatch, BatchState, ImageBatch>(
      gradient, encodeGradientDocumentation, "source_gradients"_a, "source_images"_a,
      "batch_normalization_state"_a, "destination_gradients"_a);
}

void bindImageNormalizations(nb::module_& module) {
  using Base = mps::detail::ImageNormalizationKernel;
  nb::class_<Base, mps::CNNKernel> base(module, "ImageNormalizationKernel",
                                        "What instance and group normalisation have in common.");
  readOnly(base, "number_of_feature_channels", &Base::numberOfFeatureChannels, "Channels of the images.");
  property(base, "epsilon", &Base::epsilon, &Base::setEpsilon,
           "Added to the variance. The data source's. States keep what their forward pass used.");
  base.def("reload_gamma_and_beta_from_data_source", &Base::reloadGammaAndBetaFromDataSource, Released(),
           reloadDocumentation)
      .def("reload_gamma_and_beta", &Base::reloadGammaAndBeta, "command_buffer"_a, "gamma_and_beta_state"_a,
           Released(), reloadStateDocumentation);

  using mps::CNNInstanceNormalization;
  auto instance = kernelClass<CNNInstanceNormalization, Base>(
      module, "CNNInstanceNormalization",
      "Instance normalisation: each channel of each image with its own mean and variance over the m = width "
      "height pixels, in "
      "training and inference alike.\n\n"
      "    mean = 1/m sum x                         variance = 1/m sum (x - mean)^2\n"
      "    r    = 1 / sqrt(variance + epsilon)      h = (x - mean) r\n"
      "    y    = gamma h + beta\n\n"
      "Images are taken whole. The destination may be the source. Gradient states are "
      "CNNInstanceNormalizationGradientState, "
      "one for each image.");
  instance
      .def(nb::new_(&CNNInstanceNormalization::create), "device"_a, "data_source"_a, Released(),
           "Reads the data source once. Raises Error when it fails to load, has no channels, or an array has "
           "another length "
           "than number_of_feature_channels.")
      .def("reload_data_source", &CNNInstanceNormalization::reloadDataSource, "data_source"_a, Released(),
           "All of another data source. Raises Error also for another number of channels.");
  readOnly(instance, "data_source", &CNNInstanceNormalization::dataSource, "Where the parameters come from.");
  auto instanceGradient = kernelClass<mps::CNNInstanceNormalizationGradient, mps::CNNGradientKernel>(
      module, "CNNInstanceNormalizationGradient",
      "dx = gamma r (dy - 1/m sum dy - h 1/m sum(dy h)); dL/dbeta = sum dy and dL/dgamma = sum dy h of each "
      "image go into its "
      "state. Needs gradient states.");
  instanceGradient.def(nb::new_(&mps::CNNInstanceNormalizationGradient::create), "device"_a);

  using mps::CNNGroupNormalization;
  auto group = kernelClass<CNNGroupNormalization, Base>(
      module, "CNNGroupNormalization",
      "Group normalisation: as instance normalisation, but mean and variance are those of a group of "
      "adjacent channels; gamma "
      "and beta stay per channel. One group is layer normalisation.");
  group.def(nb::new_(&CNNGroupNormalization::create), "device"_a, "data_source"_a, Released(),
            "Reads the data source once. Raises Error when its groups do not divide its channels, or an "
            "array has another "
            "length than number_of_feature_channels.");
  readOnly(group, "data_source", &CNNGroupNormalization::dataSource, "Where the parameters come from.");
  readOnly(group, "number_of_groups", &CNNGroupNormalization::numberOfGroups,
           "As the data source said when the kernel was made.");
  auto groupGradient = kernelClass<mps::CNNGroupNormalizationGradient, mps::CNNGradientKernel>(
      module, "CNNGroupNormalizationGradient",
      "With e = gamma dy: dx = r (e - 1/m sum e - h 1/m sum(e h)), the sums over the group; dL/dgamma and "
      "dL/dbeta of each "
      "image go into its state. Needs gradient states.");
  groupGradient.def(nb::new_(&mps::CNNGroupNormalizationGradient::create), "device"_a);
}

}  // namespace

void bindNormalizationLayers(nb::module_& module) {
  using Flags = mps::CNNBatchNormalizationFlags;
  nb::enum_<Flags> flags(module, "CNNBatchNormalizationFlags",
                         "Whether a node computes the statistics of its batch.");
  flags
      .value("Default", Flags::Default,
             "CalculateStatisticsAutomatic: when a gradient node of the graph reads its state; otherwise the "
             "data source's are used.")
      .value("CalculateStatisticsAlways", Flags::CalculateStatisticsAlways)
      .value("CalculateStatisticsNever", Flags::CalculateStatisticsNever,
             "The data source's are used, in training too: they are constants.")
      .value("CalculateStatisticsMask", Flags::CalculateStatisticsMask);
  flags.attr("CalculateStatisticsAutomatic") = flags.attr("Default");
  bindBatch(module);
  bindBatchGradients(module);
  bindImageNormalizations(module);
}

}  // namespace python
