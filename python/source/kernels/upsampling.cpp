#include "mps/upsampling/upsampling.hpp"

#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {
namespace {

template <class KernelType, class Class>
void bindFactors(Class& bound, const char* documentation) {
  bound.def(nb::new_(&KernelType::create), "device"_a, "integer_scale_factor_x"_a, "integer_scale_factor_y"_a,
            documentation);
}
template <class KernelType, class Class>
void bindScaleFactors(Class& bound) {
  readOnly(bound, "scale_factor_x", &KernelType::scaleFactorX, "A whole number, at least 1; 1 copies.");
  readOnly(bound, "scale_factor_y", &KernelType::scaleFactorY, "A whole number, at least 1; 1 copies.");
}

constexpr const char* factorDocumentation = "Factors: 1 to 2**24. Raises Error for another one.";
constexpr const char* gradientDocumentation = "The factors of the forward kernel.";

}  // namespace

void bindUpsampling(nb::module_& module) {
  using namespace mps;
  nb::class_<CNNUpsampling, CNNKernel> base(
      module, "CNNUpsampling",
      "Base of the upsampling kernels. Results have width * scale_factor_x by height * scale_factor_y pixels "
      "and the channels "
      "that were read, for every padding policy. Result pixel x, counted from clip_rect.origin, lies at "
      "source "
      "position "
      "offset + t(x) on each axis; the classes say what t is. Outside the source is 0 (Zero, the default) or "
      "the edge pixel "
      "(Clamp). Sources: every format; destinations: float16, float32.");
  bindScaleFactors<CNNUpsampling>(base);
  readOnly(base, "align_corners", &CNNUpsampling::alignCorners,
           "Whether the centres of the corner pixels of source and result coincide. False.");
  auto nearest = kernelClass<CNNUpsamplingNearest, CNNUpsampling>(
      module, "CNNUpsamplingNearest", "t(x) = x // scale_factor: each source pixel becomes a block.");
  bindFactors<CNNUpsamplingNearest>(nearest, factorDocumentation);
  auto bilinear = kernelClass<CNNUpsamplingBilinear, CNNUpsampling>(
      module, "CNNUpsamplingBilinear",
      "out = (1 - w) in[i] + w in[i + 1] on both axes, w being the fraction of t(x), i what is below. With S "
      "the source's "
      "size and n = S * scale_factor:\n\n"
      "    align_corners:       t(x) = x (S - 1) / (n - 1); 0 if n = 1\n"
      "    neither:             t(x) = min(x / scale_factor, S - 1), as in TensorFlow 1\n"
      "    half_pixel_centers:  t(x) = (x + 0.5) / scale_factor - 0.5 within 0 ... S - 1, as in PyTorch\n\n"
      "A source pixel whose weight is 0 is not looked at.");
  bilinear.def(nb::new_(&CNNUpsamplingBilinear::create), "device"_a, "integer_scale_factor_x"_a,
               "integer_scale_factor_y"_a, "align_corners"_a = false, factorDocumentation);
  property(bilinear, "half_pixel_centers", &CNNUpsamplingBilinear::halfPixelCenters,
           &CNNUpsamplingBilinear::setHalfPixelCenters,
           "Whether pixels are sampled at their centres. False. Raises Error for True with align_corners.");

  nb::class_<CNNUpsamplingGradient, CNNGradientKernel> gradient(
      module, "CNNUpsamplingGradient",
      "Base of the upsampling gradients:\n\n"
      "    dIn(i) = sum over result pixels x of weight(x, i) * g(primary_offset + kernel_offset + x)\n\n"
      "with the forward weights; secondary_offset is the forward offset. Of `source_image` only the size "
      "counts. How the forward kernel aligned its samples stands in the state.");
  bindScaleFactors<CNNUpsamplingGradient>(gradient);
  auto nearestGradient = kernelClass<CNNUpsamplingNearestGradient, CNNUpsamplingGradient>(
      module, "CNNUpsamplingNearestGradient",
      "dIn(i) = the sum, not the mean, of the gradients of its block.");
  bindFactors<CNNUpsamplingNearestGradient>(nearestGradient, gradientDocumentation);
  auto bilinearGradient = kernelClass<CNNUpsamplingBilinearGradient, CNNUpsamplingGradient>(
      module, "CNNUpsamplingBilinearGradient",
      "dIn(i) = sum over x of weight(x, i) * g(x). In the encodes without a state align_corners and "
      "half_pixel_centers are False.");
  bindFactors<CNNUpsamplingBilinearGradient>(bilinearGradient, gradientDocumentation);
}

}  // namespace python
