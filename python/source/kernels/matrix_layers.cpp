#include <cstddef>

#include "mps/batch_normalization/matrix_batch_normalization.hpp"
#include "mps/batch_normalization/matrix_neuron.hpp"
#include "mps/matrix/matrix.hpp"
#include "mps/matrix/matrix_copy.hpp"
#include "mps/matrix/matrix_fully_connected.hpp"
#include "mps/matrix/matrix_sum.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/kernels/matrix_kernels.hpp"

namespace python {
namespace {

/// What the kernels that end with a neuron have.
template <class Class>
void bindNeuron(Class& bound) {
  using KernelType = typename Class::Type;
  bound.def(
      "set_neuron_type",
      [](KernelType& self, mps::CNNNeuronType type, float a, float b, float c) {
        self.setNeuronType(type, a, b, c);
      },
      "neuron_type"_a, "parameter_a"_a = 0.0F, "parameter_b"_a = 0.0F, "parameter_c"_a = 0.0F,
      "The function f. None_, the identity, at first. Raises Error for PReLU, which needs slopes.");
  readOnly(
      bound, "neuron_type", [](const KernelType& self) { return self.neuronType(); }, "The function f.");
  readOnly(
      bound, "neuron_parameter_a", [](const KernelType& self) { return self.neuronParameterA(); }, "f's a.");
  readOnly(
      bound, "neuron_parameter_b", [](const KernelType& self) { return self.neuronParameterB(); }, "f's b.");
  readOnly(
      bound, "neuron_parameter_c", [](const KernelType& self) { return self.neuronParameterC(); }, "f's c.");
}

/// Rows and columns that are worked on.
template <class Class>
void bindLimits(Class& bound) {
  using KernelType = typename Class::Type;
  property(
      bound, "source_number_of_feature_vectors",
      [](const KernelType& self) { return self.sourceNumberOfFeatureVectors(); },
      [](KernelType& self, std::size_t rows) { self.setSourceNumberOfFeatureVectors(rows); },
      "Rows, at most those that the sources have from their origins on. All.");
  property(
      bound, "source_input_feature_channels",
      [](const KernelType& self) { return self.sourceInputFeatureChannels(); },
      [](KernelType& self, std::size_t columns) { self.setSourceInputFeatureChannels(columns); },
      "Columns, likewise. All.");
}
template <class Class>
void bindAlpha(Class& bound, const char* documentation) {
  using KernelType = typename Class::Type;
  property(
      bound, "alpha", [](const KernelType& self) { return self.alpha(); },
      [](KernelType& self, double alpha) { self.setAlpha(alpha); }, documentation);
}

void bindVectorProduct(nb::module_& module) {
  using mps::MatrixVectorMultiplication;
  auto product = kernelClass<MatrixVectorMultiplication, mps::MatrixBinaryKernel>(
      module, "MatrixVectorMultiplication",
      "y = alpha op(A) x + beta y, op the identity or the transpose; op(A) is rows x columns. "
      "primary_source_matrix_origin belongs to A; the x of the other two origins is the first element of x "
      "and "
      "y, their y is 0. With beta 0 the old y is not read.");
  product.def(nb::new_([](const std::shared_ptr<mtl::Device>& device, std::size_t rows, std::size_t columns,
                          bool transpose, double alpha, double beta) {
                return MatrixVectorMultiplication::create(device, transpose, rows, columns, alpha, beta);
              }),
              "device"_a, "rows"_a, "columns"_a, nb::kw_only(), "transpose"_a = false, "alpha"_a = 1.0,
              "beta"_a = 0.0, "alpha and beta are converted to float32.");
  bindCoding(product);
  bindEncode<Single, MatrixPointer, VectorPointer, VectorPointer>(
      product, encodeMatrixDocumentation, "input_matrix"_a, "input_vector"_a, "result_vector"_a);
}

void bindCopy(nb::module_& module) {
  using mps::MatrixCopy;
  using mps::MatrixCopyDescriptor;
  using mps::MatrixCopyOffsets;
  nb::class_<MatrixCopyOffsets>(module, "MatrixCopyOffsets",
                                "Where a copy reads and writes, in rows and columns of the matrices as they "
                                "are in memory.")
      .def(nb::init<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>(), "source_row_offset"_a = 0,
           "source_column_offset"_a = 0, "destination_row_offset"_a = 0, "destination_column_offset"_a = 0)
      .def_rw("source_row_offset", &MatrixCopyOffsets::sourceRowOffset, "First row that is read.")
      .def_rw("source_column_offset", &MatrixCopyOffsets::sourceColumnOffset, "First column that is read.")
      .def_rw("destination_row_offset", &MatrixCopyOffsets::destinationRowOffset,
              "First row that is written.")
      .def_rw("destination_column_offset", &MatrixCopyOffsets::destinationColumnOffset,
              "First column that is written.");
  nb::class_<MatrixCopyDescriptor>(
      module, "MatrixCopyDescriptor",
      "The sources and destinations of the copies of one encode. A value, which keeps its matrices alive. "
      "Copies of one encode come in any order: none may write what another one reads or writes.")
      .def(nb::new_([](std::size_t count) { return MatrixCopyDescriptor(count); }), "count"_a,
           "Of `count` copies, all of which are still to be set.")
      .def(
          nb::new_([](const std::vector<MatrixPointer>& sources,
                      const std::vector<MatrixPointer>& destinations, VectorPointer offsetVector,
                      std::size_t offset) {
            return MatrixCopyDescriptor(sources, destinations, std::move(offsetVector), offset);
          }),
          "source_matrices"_a, "destination_matrices"_a, "offset_vector"_a.none() = nb::none(),
          "offset"_a = 0,
          "Source k is copied to destination k with offsets that are read when the work runs. "
          "`offset_vector`: UInt32, the four numbers of a MatrixCopyOffsets for each copy; None: all 0. "
          "`offset`: of the first one in the vector, in bytes, a multiple of 16. Raises Error for numbers of "
          "matrices that differ, and a vector of another type or too short.")
      .def_static(
          "descriptor",
          [](MatrixPointer source, MatrixPointer destination, const MatrixCopyOffsets& offsets) {
            return MatrixCopyDescriptor::descriptor(std::move(source), std::move(destination), offsets);
          },
          "source_matrix"_a, "destination_matrix"_a, "offsets"_a = MatrixCopyOffsets{}, "One copy.")
      .def("set_copy_operation", &MatrixCopyDescriptor::setCopyOperation, "index"_a, "source_matrix"_a,
           "destination_matrix"_a, "offsets"_a = MatrixCopyOffsets{},
           "Raises Error for an index that is no copy, and where the offsets are a vector's.")
      .def("encode", &MatrixCopyDescriptor::encode, "coder"_a,
           "Writes the copies, the matrices with their values and an offset vector. Raises Error for "
           "temporary "
           "matrices and vectors.")
      .def_static(
          "decode", &MatrixCopyDescriptor::decode, "coder"_a, "device"_a.none() = nb::none(),
          "What encode wrote, with matrices of its own on that device; None: on the one that the coder "
          "names, else the default one.");
  auto copy = kernelClass<MatrixCopy, mps::Kernel>(
      module, "MatrixCopy",
      "Copies copy_rows x copy_columns elements for each copy of a descriptor. With s and d the offsets:\n\n"
      "    value_ij = source(s.row + i, s.column + j), of transposed sources source(s.row + j, s.column + "
      "i)\n"
      "    (r, c)   = (i, j), of transposed destinations (j, i)\n"
      "    destination(d.row + P(r), d.column + Q(c)) = value_ij\n\n"
      "P and Q are the permutations of rows and columns; without them P(r) = r and Q(c) = c. Bits are "
      "copied, "
      "of elements of at most 4 bytes. Of matrices that hold several the first one counts. What offsets and "
      "permutations of vectors place outside a matrix is left out.");
  copy.def(nb::new_(&MatrixCopy::create), "device"_a, "copy_rows"_a, "copy_columns"_a,
           "sources_are_transposed"_a = false, "destinations_are_transposed"_a = false);
  readOnly(copy, "copy_rows", &MatrixCopy::copyRows, "Rows of each copy.");
  readOnly(copy, "copy_columns", &MatrixCopy::copyColumns, "Columns of each copy.");
  readOnly(copy, "sources_are_transposed", &MatrixCopy::sourcesAreTransposed,
           "Whether sources are read with rows and columns exchanged.");
  readOnly(copy, "destinations_are_transposed", &MatrixCopy::destinationsAreTransposed,
           "Whether destinations are written with rows and columns exchanged.");
  bindCoding(copy);
  bindEncode<Single, MatrixCopyDescriptor, VectorPointer, std::size_t, VectorPointer, std::size_t>(
      copy,
      "`row_permute_indices`, `column_permute_indices`: UInt32, P and Q; the offsets are elements of them "
      "that "
      "are left out before the first one that is used. Raises Error for copies that are not set, types that "
      "differ, matrices that are too small, vectors of another type or too short, and a destination that "
      "shares elements with a source or another destination.",
      "copy_descriptor"_a, "row_permute_indices"_a.none() = nb::none(), "row_permute_offset"_a = 0,
      "column_permute_indices"_a.none() = nb::none(), "column_permute_offset"_a = 0);
}

void bindSum(nb::module_& module) {
  using mps::MatrixOffset;
  using mps::MatrixSum;
  nb::class_<MatrixOffset>(module, "MatrixOffset",
                           "Where a kernel begins to read a matrix, as vectors of type UInt32 hold it.")
      .def(nb::init<std::uint32_t, std::uint32_t>(), "row_offset"_a = 0, "column_offset"_a = 0)
      .def_rw("row_offset", &MatrixOffset::rowOffset, "Rows before the first one.")
      .def_rw("column_offset", &MatrixOffset::columnOffset, "Columns before the first one.");
  auto sum = kernelClass<MatrixSum, mps::Kernel>(
      module, "MatrixSum",
      "R = f(sum over k of scale_k B_k + bias), transposed before the bias is added where asked. B_k are the "
      "first rows x columns elements of the first matrix of each source, from the source's offset on. "
      "Elements "
      "are Float32 or Float16; sums are float32, terms added in order. Scales and offsets are read when the "
      "work runs; an element outside its source counts as 0.");
  sum.def(
      nb::new_(&MatrixSum::create), "device"_a, "count"_a, "rows"_a, "columns"_a, "transpose"_a = false,
      "`count`: of sources, at least 1. With transpose the result is columns x rows. Raises Error for count "
      "0.");
  readOnly(sum, "count", &MatrixSum::count, "Of sources.");
  readOnly(sum, "rows", &MatrixSum::rows, "Of the sources.");
  readOnly(sum, "columns", &MatrixSum::columns, "Of the sources.");
  readOnly(sum, "transpose", &MatrixSum::transpose, "Whether the result is columns x rows.");
  property(sum, "result_matrix_origin", &MatrixSum::resultMatrixOrigin, &MatrixSum::setResultMatrixOrigin,
           originDocumentation);
  bindNeuron(sum);
  bindCoding(sum);
  bindEncode<Single, std::vector<MatrixPointer>, MatrixPointer, VectorPointer, VectorPointer, VectorPointer,
             std::size_t>(
      sum,
      "`scale_vector`: Float32, a factor for each source; None: 1. `offset_vector`: UInt32, the two numbers "
      "of "
      "a MatrixOffset for each source; None: 0. `bias_vector`: one element for each column of the result; "
      "None: 0. `start_index`: of the first scale and offset that are used. Raises Error for another number "
      "of "
      "sources, types that differ, sources, result or vectors that are too small, and a result that shares "
      "elements with what is read.",
      "source_matrices"_a, "result_matrix"_a, "scale_vector"_a.none() = nb::none(),
      "offset_vector"_a.none() = nb::none(), "bias_vector"_a.none() = nb::none(), "start_index"_a = 0);
}

template <class Class>
void bindOutputs(Class& bound) {
  using KernelType = typename Class::Type;
  bindLimits(bound);
  bindAlpha(bound, "What the product is multiplied with, as float32. 1.");
  property(
      bound, "source_output_feature_channels",
      [](const KernelType& self) { return self.sourceOutputFeatureChannels(); },
      [](KernelType& self, std::size_t columns) { self.setSourceOutputFeatureChannels(columns); },
      "Columns of the weights, at most those that the arguments have from their origins on. All.");
}

void bindFullyConnected(nb::module_& module) {
  using mps::MatrixFullyConnected;
  using mps::MatrixFullyConnectedGradient;
  auto layer = kernelClass<MatrixFullyConnected, mps::MatrixBinaryKernel>(
      module, "MatrixFullyConnected",
      "y = f(alpha x W + bias). The primary source is x, a row for each sample; the secondary one W, a row "
      "for "
      "each input and a column for each output, the transpose of CNNFullyConnected's. Sums are float32, "
      "rounded once behind the neuron.");
  layer.def(nb::new_(&MatrixFullyConnected::create), "device"_a);
  bindOutputs(layer);
  bindNeuron(layer);
  bindCoding(layer);
  bindEncode<Single, MatrixPointer, MatrixPointer, VectorPointer, MatrixPointer>(
      layer, encodeMatrixDocumentation, "input_matrix"_a, "weight_matrix"_a, "bias_vector"_a.none(),
      "result_matrix"_a);
  auto gradient = kernelClass<MatrixFullyConnectedGradient, mps::MatrixBinaryKernel>(
      module, "MatrixFullyConnectedGradient",
      "The gradients of MatrixFullyConnected without a neuron; for one with a neuron put a MatrixNeuron "
      "behind "
      "it:\n\n"
      "    dX = alpha dY W^T        dW = alpha X^T dY        dBias = sums of the columns of dY\n\n"
      "The primary source is dY; the secondary one is W or X. Results are overwritten.");
  gradient.def(nb::new_(&MatrixFullyConnectedGradient::create), "device"_a);
  bindOutputs(gradient);
  gradient
      .def(
          "encode_gradient_for_data",
          [](MatrixFullyConnectedGradient& self, const CommandBufferPointer& commandBuffer,
             const MatrixPointer& gradientMatrix, const MatrixPointer& weights, const MatrixPointer& result) {
            self.encodeGradientForData(commandBuffer, gradientMatrix, weights, result);
          },
          "command_buffer"_a, "gradient_matrix"_a, "weight_matrix"_a, "result_gradient_for_data_matrix"_a,
          Released(), encodeMatrixDocumentation)
      .def(
          "encode_gradient_for_weights_and_bias",
          [](MatrixFullyConnectedGradient& self, const CommandBufferPointer& commandBuffer,
             const MatrixPointer& gradientMatrix, const MatrixPointer& input, const MatrixPointer& weights,
             const VectorPointer& bias) {
            self.encodeGradientForWeightsAndBias(commandBuffer, gradientMatrix, input, weights, bias);
          },
          "command_buffer"_a, "gradient_matrix"_a, "input_matrix"_a, "result_gradient_for_weight_matrix"_a,
          "result_gradient_for_bias_vector"_a.none() = nb::none(), Released(), encodeMatrixDocumentation);
}

template <class Class>
void bindSlopes(Class& bound) {
  using KernelType = typename Class::Type;
  bindLimits(bound);
  bindAlpha(bound, "What the input is multiplied with, as float32. 1.");
  bindNeuron(bound);
  bound.def(
      "set_neuron_to_prelu",
      [](KernelType& self, const std::vector<float>& parametersA) { self.setNeuronToPReLU(parametersA); },
      "parameters_a"_a,
      "PReLU with one slope for each column, the first one for the first column that is read. Raises Error "
      "for "
      "no slopes; fewer than columns raise it when encoding.");
  readOnly(
      bound, "neuron_parameters_a",
      [](const KernelType& self) {
        return std::vector<float>(self.neuronParametersA().begin(), self.neuronParametersA().end());
      },
      "PReLU's slopes.");
  bindCoding(bound);
}

void bindNeurons(nb::module_& module) {
  using mps::MatrixNeuron;
  using mps::MatrixNeuronGradient;
  auto neuron = kernelClass<MatrixNeuron, mps::MatrixUnaryKernel>(
      module, "MatrixNeuron", "y_ij = f(alpha x_ij + bias_j); rows are samples, columns channels.");
  neuron.def(nb::new_(&MatrixNeuron::create), "device"_a);
  bindSlopes(neuron);
  bindEncode<Single, MatrixPointer, VectorPointer, MatrixPointer>(
      neuron, encodeMatrixInPlaceDocumentation, "input_matrix"_a, "bias_vector"_a.none(), "result_matrix"_a);
  auto gradient = kernelClass<MatrixNeuronGradient, mps::MatrixBinaryKernel>(
      module, "MatrixNeuronGradient",
      "With z = alpha x + bias:\n\n"
      "    dx_ij = alpha dy_ij f'(z_ij)        dBias_j = sum over i of dy_ij f'(z_ij)\n\n"
      "alpha, neuron and bias are to be those of the forward kernel. The secondary source is the forward "
      "input. Results are overwritten. PReLU's slopes get no gradient.");
  gradient.def(nb::new_(&MatrixNeuronGradient::create), "device"_a);
  bindSlopes(gradient);
  bindEncode<Single, MatrixPointer, MatrixPointer, VectorPointer, MatrixPointer, VectorPointer>(
      gradient, encodeMatrixInPlaceDocumentation, "gradient_matrix"_a, "input_matrix"_a,
      "bias_vector"_a.none(), "result_gradient_for_data_matrix"_a,
      "result_gradient_for_bias_vector"_a.none() = nb::none());
}

template <class Class>
void bindNormalizationProperties(Class& bound) {
  using KernelType = typename Class::Type;
  bindLimits(bound);
  bindNeuron(bound);
  property(
      bound, "epsilon", [](const KernelType& self) { return self.epsilon(); },
      [](KernelType& self, float epsilon) { self.setEpsilon(epsilon); },
      "Added to the variance. The least normal float32, 2**-126.");
  bindCoding(bound);
}

void bindBatchNormalization(nb::module_& module) {
  using mps::MatrixBatchNormalization;
  using mps::MatrixBatchNormalizationGradient;
  auto forward = kernelClass<MatrixBatchNormalization, mps::MatrixUnaryKernel>(
      module, "MatrixBatchNormalization",
      "Batch normalisation of matrices whose n rows are samples and whose columns j are channels. With "
      "r = 1 / sqrt(variance + epsilon):\n\n"
      "    h_ij = (x_ij - mean_j) r_j        z_ij = gamma_j h_ij + beta_j        y_ij = f(z_ij)\n\n"
      "Vectors have the type of the matrices; gamma None means 1, beta None 0.");
  forward.def(nb::new_(&MatrixBatchNormalization::create), "device"_a);
  bindNormalizationProperties(forward);
  property(forward, "compute_statistics", &MatrixBatchNormalization::computeStatistics,
           &MatrixBatchNormalization::setComputeStatistics,
           "True: mean and variance of the columns (divided by n) are computed and written to the vectors; "
           "False: the vectors are read. False.");
  bindEncode<Single, MatrixPointer, VectorPointer, VectorPointer, VectorPointer, VectorPointer,
             MatrixPointer>(forward, encodeMatrixInPlaceDocumentation, "input_matrix"_a, "mean_vector"_a,
                            "variance_vector"_a, "gamma_vector"_a.none(), "beta_vector"_a.none(),
                            "result_matrix"_a);
  auto gradient = kernelClass<MatrixBatchNormalizationGradient, mps::MatrixBinaryKernel>(
      module, "MatrixBatchNormalizationGradient",
      "With dz = dy f'(z):\n\n"
      "    dBeta = sum over i of dz        dGamma = sum over i of dz h\n"
      "    dx    = gamma r (dz - dBeta / n - h dGamma / n)\n\n"
      "That is the formula of training, wherever mean and variance come from. epsilon, neuron, gamma and "
      "beta "
      "are to be those of the forward kernel. The secondary source is the forward input. Results are "
      "overwritten.");
  gradient.def(nb::new_(&MatrixBatchNormalizationGradient::create), "device"_a);
  bindNormalizationProperties(gradient);
  bindEncode<Single, MatrixPointer, MatrixPointer, VectorPointer, VectorPointer, VectorPointer, VectorPointer,
             MatrixPointer, VectorPointer, VectorPointer>(
      gradient, encodeMatrixInPlaceDocumentation, "gradient_matrix"_a, "input_matrix"_a, "mean_vector"_a,
      "variance_vector"_a, "gamma_vector"_a.none(), "beta_vector"_a.none(),
      "result_gradient_for_data_matrix"_a, "result_gradient_for_gamma_vector"_a.none() = nb::none(),
      "result_gradient_for_beta_vector"_a.none() = nb::none());
}

}  // namespace

void bindMatrixLayers(nb::module_& module) {
  bindVectorProduct(module);
  bindCopy(module);
  bindSum(module);
  bindFullyConnected(module);
  bindNeurons(module);
  bindBatchNormalization(module);
}

}  // namespace python
