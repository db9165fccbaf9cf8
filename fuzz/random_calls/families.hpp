#pragma once

#include <span>

namespace unmetal::random_calls {

class Call;

/// A family of kernels, of which a call is drawn.
struct Family {
  const char* name;
  void (*call)(Call&);
};

/// @name One random call of kernels of a family: draws everything about it, encodes, waits, observes the results.
/// @throws what the kernels throw; some calls are wrong on purpose
/// @{
void callArithmetic(Call& call);
void callBatchNormalization(Call& call);
void callConcatenation(Call& call);
void callConvolution(Call& call);
void callCrop(Call& call);
void callDropout(Call& call);
void callFullyConnected(Call& call);
void callGather(Call& call);
void callGramMatrix(Call& call);
void callGridSample(Call& call);
void callImageMatrixCopy(Call& call);
void callImageNormalization(Call& call);
void callLocalNormalization(Call& call);
void callLoss(Call& call);
void callMatrixBatchNormalization(Call& call);
void callMatrixCopy(Call& call);
void callMatrixFullyConnected(Call& call);
void callMatrixNeuron(Call& call);
void callMatrixProduct(Call& call);
void callMatrixSoftMax(Call& call);
void callMatrixSum(Call& call);
void callNeuron(Call& call);
void callOptimizer(Call& call);
void callPadding(Call& call);
void callPooling(Call& call);
void callRandomNumbers(Call& call);
void callReduction(Call& call);
void callReshape(Call& call);
void callResize(Call& call);
void callSoftMax(Call& call);
void callTransposedConvolution(Call& call);
void callUpsampling(Call& call);
void callYOLOLoss(Call& call);
/// @}

/// All of them.
std::span<const Family> allFamilies();

}  // namespace unmetal::random_calls
