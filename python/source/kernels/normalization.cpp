#include "mps/normalization/normalization.hpp"

#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {
namespace {

constexpr const char* alphaDocumentation = "Finite and at least 0; Error is raised otherwise.";
constexpr const char* finiteDocumentation = "Finite; Error is raised otherwise.";
constexpr const char* gradientParameterDocumentation =
    "As in the forward kernel: taken from the state unless set; without a state the forward default.";

template <class KernelType, class Class>
void bindParameters(Class& bound, const char* alpha, const char* other) {
  property(bound, "alpha", &KernelType::alpha, &KernelType::setAlpha, alpha);
  property(bound, "beta", &KernelType::beta, &KernelType::setBeta, other);
  property(bound, "delta", &KernelType::delta, &KernelType::setDelta, other);
}
template <class KernelType, class Class>
void bindContrast(Class& bound, const char* documentation) {
  property(bound, "p0", &KernelType::p0, &KernelType::setP0, documentation);
  property(bound, "pm", &KernelType::pm, &KernelType::setPm, documentation);
  property(bound, "ps", &KernelType::ps, &KernelType::setPs, documentation);
}
template <class KernelType, class Class>
void bindWindow(Class& bound, const char* documentation) {
  bound.def(nb::new_(&KernelType::create), "device"_a, "kernel_width"_a, "kernel_height"_a, documentation);
}
template <class KernelType, class Class>
void bindChannels(Class& bound) {
  bound.def(nb::new_(&KernelType::create), "device"_a, "kernel_size"_a = 5, "Raises Error for 0.");
  readOnly(bound, "kernel_size", &KernelType::kernelSize, "Channels of a window.");
}

void bindForward(nb::module_& module) {
  using namespace mps;
  nb::class_<CNNNormalization, CNNKernel> base(
      module, "CNNNormalization",
      "Base of the normalisations by what lies around a value. A window of N = kernel_width * kernel_height "
      "pixels begins "
      "kernel_width // 2 pixels to the left of its own one and kernel_height // 2 above it. Pixels outside "
      "the source are 0 "
      "(Zero, the default) or the edge pixel (Clamp); the divisor is N all the same. Sources: every format; "
      "destinations: float16, float32.");
  bindParameters<CNNNormalization>(base, alphaDocumentation, finiteDocumentation);
  auto spatial = kernelClass<CNNSpatialNormalization, CNNNormalization>(
      module, "CNNSpatialNormalization",
      "Division by a power of the mean square in a window of the own channel:\n\n"
      "    T = delta + alpha / N * sum of X^2 over the window\n"
      "    Y = X * T^-beta\n\n"
      "alpha 1, beta 5, delta 1.");
  bindWindow<CNNSpatialNormalization>(spatial, "Raises Error for a 0.");
  auto contrast = kernelClass<CNNLocalContrastNormalization, CNNNormalization>(
      module, "CNNLocalContrastNormalization",
      "Subtraction of the mean in a window of the own channel, division by a power of the variance there:\n\n"
      "    M = 1 / N * sum of X over the window        V = 1 / N * sum of (X - M)^2 over the window\n"
      "    T = delta + alpha * V\n"
      "    Y = pm + ps * (X - p0 * M) * T^-beta\n\n"
      "alpha 0, which leaves the subtraction of the mean alone; beta 0.5, delta 1/1024, p0 1, pm 0, ps 1.");
  bindWindow<CNNLocalContrastNormalization>(contrast, "Raises Error for a 0.");
  bindContrast<CNNLocalContrastNormalization>(contrast, finiteDocumentation);
  auto channels = kernelClass<CNNCrossChannelNormalization, CNNNormalization>(
      module, "CNNCrossChannelNormalization",
      "Division by a power of the mean square over neighbouring channels of the same pixel. Of the D "
      "channels "
      "that are read, with N = kernel_size:\n\n"
      "    T(k) = delta + alpha / N * sum of X(q)^2, q = k - N // 2 ... k + (N - 1) // 2 within 0 ... D - 1\n"
      "    Y(k) = X(k) * T(k)^-beta\n\n"
      "PyTorch's LocalResponseNorm(size, alpha, beta, k=delta). alpha 1, beta 5, delta 1.");
  bindChannels<CNNCrossChannelNormalization>(channels);
}

void bindGradients(nb::module_& module) {
  using namespace mps;
  nb::class_<CNNNormalizationGradient, CNNGradientKernel> base(
      module, "CNNNormalizationGradient",
      "Base of the normalisation gradients; `source_image` is the forward source. Pixels that no window sees "
      "get 0.");
  bindParameters<CNNNormalizationGradient>(base, gradientParameterDocumentation,
                                           gradientParameterDocumentation);
  auto spatial = kernelClass<CNNSpatialNormalizationGradient, CNNNormalizationGradient>(
      module, "CNNSpatialNormalizationGradient",
      "With S = dY * X * T^(-beta - 1) of each window:\n\n"
      "    dX = dY * T^-beta - 2 * alpha * beta / N * X * (sum of S over the windows that see the pixel)");
  bindWindow<CNNSpatialNormalizationGradient>(spatial, "The window of the forward kernel.");
  auto contrast = kernelClass<CNNLocalContrastNormalizationGradient, CNNNormalizationGradient>(
      module, "CNNLocalContrastNormalizationGradient",
      "With A = dY * T^-beta and B = dY * (X - p0 * M) * T^(-beta - 1) of each window and sums over the "
      "windows "
      "that see the pixel:\n\n"
      "    dX = ps * (A - p0 / N * sum of A - 2 * alpha * beta / N * (X * sum of B - sum of B * M))\n\n"
      "pm has no part in it.");
  bindWindow<CNNLocalContrastNormalizationGradient>(contrast, "The window of the forward kernel.");
  bindContrast<CNNLocalContrastNormalizationGradient>(contrast, gradientParameterDocumentation);
  auto channels = kernelClass<CNNCrossChannelNormalizationGradient, CNNNormalizationGradient>(
      module, "CNNCrossChannelNormalizationGradient",
      "With S = dY * X * T^(-beta - 1) of each channel:\n\n"
      "    dX(k) = dY(k) * T(k)^-beta - 2 * alpha * beta / N * X(k) * (sum of S over the channels whose "
      "windows hold k)");
  bindChannels<CNNCrossChannelNormalizationGradient>(channels);
}

}  // namespace

void bindNormalization(nb::module_& module) {
  bindForward(module);
  bindGradients(module);
}

}  // namespace python
