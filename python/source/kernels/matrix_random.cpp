#include "mps/matrix/matrix_random.hpp"

#include <limits>

#include "python/source/binding/areas.hpp"
#include "python/source/kernels/kernels.hpp"

namespace python {
namespace {

using mps::MatrixRandom;
using Descriptor = mps::MatrixRandomDistributionDescriptor;

void bindDistribution(nb::module_& module) {
  nb::enum_<mps::MatrixRandomDistribution>(module, "MatrixRandomDistribution",
                                           "How random numbers are distributed.")
      .value("Default", mps::MatrixRandomDistribution::Default,
             "UInt32: the generator's words; Float32: t in [0, 1), multiples of 2^-23.")
      .value("Uniform", mps::MatrixRandomDistribution::Uniform, "In [minimum, maximum).")
      .value("Normal", mps::MatrixRandomDistribution::Normal,
             "Mean and standard deviation; with bounds the part of that distribution between them.");
  nb::class_<Descriptor> descriptor(module, "MatrixRandomDistributionDescriptor",
                                    "Distribution of random numbers. A value.");
  descriptor
      .def_static("default_distribution_descriptor", &Descriptor::defaultDistributionDescriptor,
                  "Default; the four numbers are 0.")
      .def_static("uniform_distribution_descriptor", &Descriptor::uniformDistributionDescriptor, "minimum"_a,
                  "maximum"_a, "Uniform; mean and standard_deviation are those of the distribution.")
      .def_static(
          "normal_distribution_descriptor",
          [](float mean, float standardDeviation, float minimum, float maximum) {
            return Descriptor::normalDistributionDescriptor(mean, standardDeviation, minimum, maximum);
          },
          "mean"_a, "standard_deviation"_a, "minimum"_a = -std::numeric_limits<float>::infinity(),
          "maximum"_a = std::numeric_limits<float>::infinity(), "Normal, without bounds unless given.")
      .def("encode", &Descriptor::encode, "coder"_a, "Writes the fields.")
      .def_static("decode", &Descriptor::decode, "coder"_a, "What encode wrote.");
  property(descriptor, "distribution_type", &Descriptor::distributionType, &Descriptor::setDistributionType,
           "Which one.");
  property(descriptor, "minimum", &Descriptor::minimum, &Descriptor::setMinimum, "Lower bound.");
  property(descriptor, "maximum", &Descriptor::maximum, &Descriptor::setMaximum, "Upper bound.");
  property(descriptor, "mean", &Descriptor::mean, &Descriptor::setMean, "Of the whole distribution.");
  property(descriptor, "standard_deviation", &Descriptor::standardDeviation,
           &Descriptor::setStandardDeviation, "Of the whole distribution.");
}

template <class Generator>
auto bindGenerator(nb::module_& module, const char* name, const char* documentation) {
  auto generator = kernelClass<Generator, MatrixRandom>(module, name, documentation);
  generator.def(nb::new_(&Generator::create), "device"_a, "destination_data_type"_a = mps::DataType::UInt32,
                "seed"_a = 0, "distribution_descriptor"_a = Descriptor::defaultDistributionDescriptor(),
                "`destination_data_type`: UInt32 or Float32. Raises Error for another type, a distribution "
                "other than Default "
                "with UInt32, and bounds, mean or deviation that make no distribution.");
  return generator;
}

}  // namespace

void bindMatrixRandom(nb::module_& module) {
  bindDistribution(module);
  nb::class_<MatrixRandom, mps::Kernel> random(
      module, "MatrixRandom",
      "Base of the generators. An encode fills all elements of vectors or matrices batch_start to "
      "batch_start + batch_size - 1, "
      "in the order matrix, row, column; gaps stay. The numbers depend on the seed and on what this object "
      "encoded before, "
      "not on the device: each encode goes on where the last one stopped.");
  readOnly(random, "destination_data_type", &MatrixRandom::destinationDataType, "UInt32 or Float32.");
  readOnly(random, "distribution_type", &MatrixRandom::distributionType, "How the numbers are distributed.");
  property(random, "batch_start", &MatrixRandom::batchStart, &MatrixRandom::setBatchStart,
           "First matrix (vector) that is filled. 0.");
  property(random, "batch_size", &MatrixRandom::batchSize, &MatrixRandom::setBatchSize,
           "How many are filled; more than there are means all. All.");
  bindCoding(random);
  constexpr const char* documentation =
      "Records the fill. Raises Error for a destination of another device or type, or a temporary one that "
      "cannot be used, and "
      "when batch_start leaves it.";
  bindEncode<Single, std::shared_ptr<mps::Vector>>(random, documentation, "destination_vector"_a);
  bindEncode<Single, std::shared_ptr<mps::Matrix>>(random, documentation, "destination_matrix"_a);
  bindGenerator<mps::MatrixRandomPhilox>(module, "MatrixRandomPhilox",
                                         "Philox4x32-10 with the seed as key. Each encode begins with a new "
                                         "block of four words; a copy goes on from the same "
                                         "position.");
  bindGenerator<mps::MatrixRandomMTGP32>(
      module, "MatrixRandomMTGP32",
      "MTGP32, the Mersenne Twister for graphics processors of Saito, parameter set 1. The state lives on "
      "the device; a copy "
      "goes on from that of the last synchronize_state that has run, otherwise from the seed.")
      .def("synchronize_state", &mps::MatrixRandomMTGP32::synchronizeState, "command_buffer"_a, Released(),
           "Records the copy of the state to the host, for copy(). Raises Error after commit.");
}

}  // namespace python
