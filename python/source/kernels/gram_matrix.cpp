#include "mps/gram_matrix/gram_matrix.hpp"

#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"
#include "python/source/layers/data_source.hpp"

namespace python {
namespace {

/// A callback written in Python.
class PythonGramMatrixCallback final : public mps::NNGramMatrixCallback {
 public:
  float alphaForSourceImage(const ImagePointer& sourceImage, const ImagePointer& destinationImage) override {
    const Locked locked;
    return converted<float>(
        required<NNGramMatrixCallback>(*this, "alpha_for_source_image")(sourceImage, destinationImage),
        "what alpha_for_source_image() returns", "a number");
  }
};

template <class KernelType, class Class>
void bindAlpha(Class& bound, const char* documentation) {
  bound.def(nb::new_(&KernelType::create), "device"_a, "alpha"_a = 1.0F);
  property(bound, "alpha", &KernelType::alpha, &KernelType::setAlpha, documentation);
}

}  // namespace

void bindGramMatrix(nb::module_& module) {
  using namespace mps;
  nb::class_<NNGramMatrixCallback, PythonGramMatrixCallback, SecureCoding>(
      module, "NNGramMatrixCallback",
      "Chooses alpha for each encode of a graph. A subclass defines alpha_for_source_image.")
      .def(nb::init<>())
      .def(
          "alpha_for_source_image",
          [](NNGramMatrixCallback& self, const ImagePointer& sourceImage,
             const ImagePointer& destinationImage) {
            if (isOf<PythonGramMatrixCallback>(self)) throwNotDefined("alpha_for_source_image");
            return self.alphaForSourceImage(sourceImage, destinationImage);
          },
          "source_image"_a, "destination_image"_a,
          "Called right before the kernel is encoded, with one image of the batch as a sample: its size "
          "tells "
          "how many pixels are summed, its content is not there yet.");
  auto forward = kernelClass<NNGramMatrixCalculation, CNNKernel>(
      module, "NNGramMatrixCalculation",
      "Uncentred correlation of all pairs of feature channels; of each image, with C channels:\n\n"
      "    result(x = f, y = 0, channel c) = alpha * sum over all pixels of source(f) * source(c)\n\n"
      "The result is C pixels wide, 1 high and has C channels. Sources: every format; results: float16, "
      "float32. Sums are float32. Encoding raises Error when offset or clip_rect select other pixels than "
      "all, "
      "and when the destination has another size.");
  bindAlpha<NNGramMatrixCalculation>(forward, "Factor on the sums. 1.");
  auto gradient = kernelClass<NNGramMatrixCalculationGradient, CNNGradientKernel>(
      module, "NNGramMatrixCalculationGradient",
      "With G[f][c] = gradient(x = f, y = 0, channel c), which need not be symmetric:\n\n"
      "    dSource(x, y, c) = alpha * sum over f of (G[f][c] + G[c][f]) * source(x, y, f)\n\n"
      "`source_image` is the forward source. Encodes with a state take alpha from it. Encoding raises Error "
      "when offsets or clip_rect are set, and when sizes do not belong together.");
  bindAlpha<NNGramMatrixCalculationGradient>(gradient,
                                             "1; after an encode with a state, what the forward kernel had.");
}

}  // namespace python
