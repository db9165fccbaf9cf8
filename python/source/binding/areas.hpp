#pragma once

#include <nanobind/nanobind.h>

/// The areas of the module; each lies in a file of that name.
namespace python {

/// @param module unmetal.mtl
void bindMtl(nanobind::module_& module);

void bindCoreCoding(nanobind::module_& module);
void bindCoreTypes(nanobind::module_& module);
void bindCoreImage(nanobind::module_& module);
void bindCoreBatch(nanobind::module_& module);
void bindCoreCommandBuffer(nanobind::module_& module);
void bindCoreState(nanobind::module_& module);
void bindPadding(nanobind::module_& module);
/// The base classes of kernels, with all encode forms.
void bindKernels(nanobind::module_& module);

void bindCommunicator(nanobind::module_& module);

void bindPooling(nanobind::module_& module);

void bindMatrix(nanobind::module_& module);
void bindMatrixRandom(nanobind::module_& module);
void bindNDArray(nanobind::module_& module);
void bindSafetensors(nanobind::module_& module);

void bindArithmetic(nanobind::module_& module);
void bindConcatenation(nanobind::module_& module);
void bindDropout(nanobind::module_& module);
void bindGramMatrix(nanobind::module_& module);
void bindNormalization(nanobind::module_& module);
void bindReductions(nanobind::module_& module);
void bindReshapes(nanobind::module_& module);
void bindResize(nanobind::module_& module);
void bindSoftMax(nanobind::module_& module);
void bindUpsampling(nanobind::module_& module);

void bindVector(nanobind::module_& module);
void bindNeuron(nanobind::module_& module);
void bindMatrixKernels(nanobind::module_& module);
void bindMatrixLayers(nanobind::module_& module);
void bindConvolutionSource(nanobind::module_& module);
void bindConvolution(nanobind::module_& module);
void bindNormalizationStates(nanobind::module_& module);
void bindNormalizationSource(nanobind::module_& module);
void bindNormalizationLayers(nanobind::module_& module);
void bindOptimizer(nanobind::module_& module);
void bindLosses(nanobind::module_& module);
void bindTrainable(nanobind::module_& module);
void bindNode(nanobind::module_& module);
void bindLayerNodes(nanobind::module_& module);
void bindImageNodes(nanobind::module_& module);
void bindLocalNormalizationNodes(nanobind::module_& module);
void bindPoolingNodes(nanobind::module_& module);
void bindGraph(nanobind::module_& module);
void bindYOLOLoss(nanobind::module_& module);

/// @param module unmetal.onnx
void bindOnnx(nanobind::module_& module);

}  // namespace python
