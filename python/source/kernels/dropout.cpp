#include "mps/dropout/dropout.hpp"

#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {
namespace {

/// What forward and gradient kernel are made of.
template <class KernelType, class Class>
void bindParameters(Class& bound, const char* documentation) {
  bound.def(nb::new_(&KernelType::create), "device"_a, "keep_probability"_a, "seed"_a,
            "mask_stride_in_pixels"_a = mtl::Size{1, 1, 1}, documentation);
  readOnly(bound, "keep_probability", &KernelType::keepProbability,
           "P, the probability that a value is kept.");
  readOnly(bound, "seed", &KernelType::seed, "What the masks are drawn with.");
  readOnly(bound, "mask_stride_in_pixels", &KernelType::maskStrideInPixels,
           "0 along an axis (width, height; depth for channels): one value for the whole axis; else 1.");
}

}  // namespace

void bindDropout(nb::module_& module) {
  using namespace mps;
  nb::class_<CNNDropoutGradientState, NNGradientState> state(
      module, "CNNDropoutGradientState",
      "Remembers which mask a forward encode drew. The mask is not stored: it is drawn again.");
  state.def(nb::new_(&CNNDropoutGradientState::create), "device"_a);
  state.def_prop_ro(
      "mask_data",
      [](const CNNDropoutGradientState& self) {
        const std::vector<std::byte> mask = self.maskData();
        return nb::bytes(mask.data(), mask.size());
      },
      "The mask of this image: one byte per element, 1 kept, 0 dropped, in the order y, x, channel; as large "
      "as the area that was written, 1 along axes whose mask stride is 0. Raises Error before the forward "
      "encode.");

  auto forward = kernelClass<CNNDropout, CNNKernel>(
      module, "CNNDropout",
      "out(x, y, c) = in(x, y, c) * M(x, y, c) / P; M is 1 with probability P, else 0.\n\n"
      "Every encode draws a new mask, by Philox 4x32-10 of seed, number of the encode, image and element; "
      "the "
      "same kernel "
      "draws the same masks in every run, on every device. P is rounded up to a multiple of 2**-16 when M is "
      "drawn. The "
      "destination may be the source. Inference leaves the layer out.");
  bindParameters<CNNDropout>(
      forward,
      "`keep_probability`: P, above 0 and up to 1 (1: the identity); PyTorch's p is 1 - P. "
      "`mask_stride_in_pixels`: 0 along an axis repeats one value, else 1. Raises Error for other values.");
  property(forward, "encode_count", &CNNDropout::encodeCount, &CNNDropout::setEncodeCount,
           "Encodes done so far: what a checkpoint keeps. 0.");

  auto gradient = kernelClass<CNNDropoutGradient, CNNGradientKernel>(
      module, "CNNDropoutGradient",
      "dIn(x, y, c) = g(x, y, c) * M(x, y, c) / P with the mask of the forward encode. Of `source_image` "
      "only "
      "the size counts.");
  bindParameters<CNNDropoutGradient>(gradient, "The values of the forward kernel.");
}

}  // namespace python
