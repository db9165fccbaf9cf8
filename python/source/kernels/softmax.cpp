#include "mps/softmax/softmax.hpp"

#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {

void bindSoftMax(nb::module_& module) {
  using namespace mps;
  kernelClass<CNNSoftMax, CNNKernel>(
      module, "CNNSoftMax",
      "s_k = exp(x_k) / sum over j of exp(x_j), over the feature channels of each pixel. Nothing overflows. "
      "Sources: every format; results: float16, float32.")
      .def(nb::new_(&CNNSoftMax::create), "device"_a);
  kernelClass<CNNLogSoftMax, CNNKernel>(
      module, "CNNLogSoftMax",
      "l_k = x_k - ln(sum over j of exp(x_j)), over the feature channels of each pixel. Otherwise as "
      "CNNSoftMax.")
      .def(nb::new_(&CNNLogSoftMax::create), "device"_a);
  kernelClass<CNNSoftMaxGradient, CNNGradientKernel>(
      module, "CNNSoftMaxGradient",
      "dx_k = s_k (dy_k - sum over j of dy_j s_j). `source_image` is the forward RESULT s; the forward "
      "source raises Error where the state knows it.")
      .def(nb::new_(&CNNSoftMaxGradient::create), "device"_a);
  kernelClass<CNNLogSoftMaxGradient, CNNGradientKernel>(
      module, "CNNLogSoftMaxGradient",
      "dx_k = dy_k - exp(l_k) sum over j of dy_j. `source_image` is the forward RESULT l, as of "
      "CNNSoftMaxGradient.")
      .def(nb::new_(&CNNLogSoftMaxGradient::create), "device"_a);
}

}  // namespace python
