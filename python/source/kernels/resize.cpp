#include "mps/upsampling/resize.hpp"

#include <cstddef>

#include "mps/upsampling/crop_and_resize.hpp"
#include "mps/upsampling/grid_sample.hpp"
#include "mps/upsampling/image_scale.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/kernels/kernels.hpp"
#include "python/source/layers/data_source.hpp"

namespace python {
namespace {

/// A provider written in Python.
class PythonTransformProvider final : public mps::ImageTransformProvider {
 public:
  mps::ScaleTransform transformForSourceImage(const ImagePointer& image,
                                              const std::shared_ptr<mps::Handle>& handle) override {
    const Locked locked;
    return converted<mps::ScaleTransform>(
        required<ImageTransformProvider>(*this, "transform_for_source_image")(image, handle),
        "what transform_for_source_image() returns", "a ScaleTransform");
  }
};

void bindResizeBilinear(nb::module_& module) {
  using mps::NNResizeBilinear;
  auto resize = kernelClass<NNResizeBilinear, mps::CNNKernel>(
      module, "NNResizeBilinear",
      "Bilinear interpolation to resize_width x resize_height pixels. On each axis, S being the source's "
      "size "
      "and R the result's, result pixel x is (1 - w) in[i] + w in[i + 1] at source position t(x), i what is "
      "below, w the fraction:\n\n"
      "    align_corners:       t(x) = x (S - 1) / (R - 1); 0 if R = 1\n"
      "    neither:             t(x) = min(x S / R, S - 1), as in TensorFlow 1\n"
      "    half_pixel_centers:  t(x) = (x + 0.5) S / R - 0.5 within 0 ... S - 1, as in PyTorch\n\n"
      "Nothing is filtered. Of a destination that is given, the pixels in clip_rect are written: x counts "
      "from "
      "clip_rect.origin, offset is added to t(x), and what lies outside the source is 0 (Zero) or the edge "
      "pixel (Clamp). Sources: every format; destinations: float16, float32.");
  resize.def(nb::new_(&NNResizeBilinear::create), "device"_a, "resize_width"_a, "resize_height"_a,
             "align_corners"_a = false, "Sizes: 1 to 2**24 pixels. Raises Error for another one.");
  readOnly(resize, "resize_width", &NNResizeBilinear::resizeWidth, "Pixels of the result.");
  readOnly(resize, "resize_height", &NNResizeBilinear::resizeHeight, "Pixels of the result.");
  readOnly(resize, "align_corners", &NNResizeBilinear::alignCorners,
           "Whether the centres of the corner pixels of source and result coincide.");
  property(resize, "half_pixel_centers", &NNResizeBilinear::halfPixelCenters,
           &NNResizeBilinear::setHalfPixelCenters,
           "Whether pixels are sampled at their centres. False. Raises Error for True with align_corners.");
  kernelClass<mps::NNResizeBilinearGradient, mps::CNNGradientKernel>(
      module, "NNResizeBilinearGradient",
      "dIn(i) = sum over result pixels x of weight(x, i) * g(primary_offset + kernel_offset + x), with the "
      "forward weights; secondary_offset is the forward offset. Sizes and alignment come from the state, "
      "without which encoding raises Error. Of `source_image` only the size counts.")
      .def(nb::new_(&mps::NNResizeBilinearGradient::create), "device"_a);
}

void bindCrop(nb::module_& module) {
  using mps::NNCropAndResizeBilinear;
  using mps::NormalizedRegion;
  nb::class_<NormalizedRegion>(
      module, "NormalizedRegion",
      "A part of an image in fractions of its width less one and its height less one: 0 is the centre of the "
      "first pixel, 1 that of the last one. It may leave the image; a negative width or height mirrors.")
      .def(nb::init<double, double, double, double>(), "x"_a = 0.0, "y"_a = 0.0, "width"_a = 1.0,
           "height"_a = 1.0)
      .def_rw("x", &NormalizedRegion::x, "Left side.")
      .def_rw("y", &NormalizedRegion::y, "Top side.")
      .def_rw("width", &NormalizedRegion::width, "From left to right.")
      .def_rw("height", &NormalizedRegion::height, "From top to bottom.");
  auto crop = kernelClass<NNCropAndResizeBilinear, mps::CNNKernel>(
      module, "NNCropAndResizeBilinear",
      "Resizes parts of an image to resize_width x resize_height pixels each. On each axis, S being the "
      "source's size and R the result's, pixel d of the result of a region lies at source position\n\n"
      "    t(d) = (region.x + d region.width / (R - 1)) (S - 1); the middle of the region if R = 1\n\n"
      "and is interpolated as by NNResizeBilinear. A position beyond the centre of an edge pixel gives 0 "
      "(Zero) or the edge pixel (Clamp). One source becomes number_of_regions images: those of a stack, or "
      "of "
      "a batch, of the first source first. Sources: every format; destinations: float16, float32. No "
      "gradient, "
      "no state.");
  crop.def(nb::new_([](const std::shared_ptr<mtl::Device>& device, std::size_t width, std::size_t height,
                       const std::vector<NormalizedRegion>& regions) {
             return NNCropAndResizeBilinear::create(device, width, height, regions);
           }),
           "device"_a, "resize_width"_a, "resize_height"_a, "regions"_a,
           "Sizes: 1 to 2**24 pixels. Raises Error for another one, without a region, and for numbers of a "
           "region outside of -1e9 to 1e9.");
  readOnly(crop, "resize_width", &NNCropAndResizeBilinear::resizeWidth, "Pixels of each result.");
  readOnly(crop, "resize_height", &NNCropAndResizeBilinear::resizeHeight, "Pixels of each result.");
  readOnly(crop, "number_of_regions", &NNCropAndResizeBilinear::numberOfRegions,
           "Images made of each source.");
  readOnly(
      crop, "regions",
      [](const NNCropAndResizeBilinear& self) {
        return std::vector<NormalizedRegion>(self.regions().begin(), self.regions().end());
      },
      "The parts that are cut out.");
  bindCoding(crop);
  bindEncode<Single, ImagePointer>(crop, encodeReturningDocumentation, "source_image"_a);
  bindEncode<Single, ImagePointer, ImagePointer>(crop,
                                                 "`destination_image`: a stack of number_of_regions images.",
                                                 "source_image"_a, "destination_image"_a);
  bindEncode<Batch, mps::ImageBatch>(crop, encodeReturningDocumentation, "source_images"_a);
  bindEncode<Batch, mps::ImageBatch, mps::ImageBatch>(
      crop, "`destination_images`: number_of_regions for each source.", "source_images"_a,
      "destination_images"_a);
}

template <class KernelType>
void bindScale(nb::module_& module, const char* name, const char* documentation) {
  kernelClass<KernelType, mps::ImageScale>(module, name, documentation)
      .def(nb::new_(&KernelType::create), "device"_a, "output_width"_a, "output_height"_a,
           "Sizes: 1 to 2**24 pixels. Raises Error for another one.");
}

void bindScales(nb::module_& module) {
  using mps::ImageScale;
  using mps::ImageTransformProvider;
  using mps::ScaleTransform;
  nb::class_<ScaleTransform>(
      module, "ScaleTransform",
      "Where the points of a source lie in the result, in pixels from the top left corner of the image: "
      "result = scale * source + translate on both axes.")
      .def(nb::init<double, double, double, double>(), "scale_x"_a = 1.0, "scale_y"_a = 1.0,
           "translate_x"_a = 0.0, "translate_y"_a = 0.0)
      .def_rw("scale_x", &ScaleTransform::scaleX, "Factor.")
      .def_rw("scale_y", &ScaleTransform::scaleY, "Factor.")
      .def_rw("translate_x", &ScaleTransform::translateX, "Pixels to the right.")
      .def_rw("translate_y", &ScaleTransform::translateY, "Pixels down.");
  nb::class_<ImageTransformProvider, PythonTransformProvider, mps::SecureCoding>(
      module, "ImageTransformProvider",
      "Chooses the transform of each image of a graph. A subclass defines transform_for_source_image.")
      .def(nb::init<>())
      .def(
          "transform_for_source_image",
          [](ImageTransformProvider& self, const ImagePointer& image,
             const std::shared_ptr<mps::Handle>& handle) {
            if (isOf<PythonTransformProvider>(self)) throwNotDefined("transform_for_source_image");
            return self.transformForSourceImage(image, handle);
          },
          "image"_a, "handle"_a.none(),
          "Called whenever the graph is encoded, once for each image; returns a ScaleTransform. `handle`: of "
          "the source's node, or None.");
  nb::class_<ImageScale, mps::CNNKernel> base(
      module, "ImageScale",
      "Base of the kernels that scale and move images. The result has output_width x output_height pixels "
      "for "
      "every padding policy. On each axis the centre of result pixel x lies at source position\n\n"
      "    t(x) = (x + 0.5 - translate) / scale - 0.5\n\n"
      "of the pixels' centres. More than half a pixel outside the source is 0 (Zero) or the edge pixel "
      "(Clamp). Of a destination that is given, the pixels in clip_rect are written: x counts from "
      "clip_rect.origin, and offset is added to t(x). Sources: every format; destinations: float16, "
      "float32.");
  readOnly(base, "output_width", &ImageScale::outputWidth, "Pixels of the result.");
  readOnly(base, "output_height", &ImageScale::outputHeight, "Pixels of the result.");
  property(base, "scale_transform", &ImageScale::scaleTransform, &ImageScale::setScaleTransform,
           "None: the source fills the result. None. Raises Error for a scale outside of 1e-9 to 1e9, or a "
           "translation outside of -1e9 to 1e9.");
  bindScale<mps::ImageBilinearScale>(
      module, "ImageBilinearScale",
      "out = (1 - w) in[i] + w in[i + 1], i below t(x), w its fraction, t(x) being moved to the centre of "
      "the "
      "edge pixel where it is less than half a pixel outside. Nothing is filtered.");
  bindScale<mps::ImageLanczosScale>(
      module, "ImageLanczosScale",
      "All source pixels within three lobes of a windowed sinc around t(x) on each axis:\n\n"
      "    out = sum over i of L((i - t(x)) / s) in[i] / sum over i of L((i - t(x)) / s), |i - t(x)| < 3 s\n"
      "    L(u) = sinc(u) sinc(u / 3), sinc(u) = sin(pi u) / (pi u)\n\n"
      "with s = 1 where the result is larger than the source, else 1 / scale. Pixels outside the source are "
      "left out of both sums. Results overshoot at sharp edges.");
  const nb::class_<mps::ImageScaleGradient, mps::CNNGradientKernel> scaleGradient(
      module, "ImageScaleGradient",
      "Base of the gradients of the scales: dIn(i) = sum over result pixels x of weight(x, i) * "
      "g(primary_offset + kernel_offset + x), weight(x, i) being what pixel i counted in result pixel x; "
      "secondary_offset is the forward offset. Size and transform come from the state, without which "
      "encoding "
      "raises Error. Of `source_image` only the size counts.");
  kernelClass<mps::ImageBilinearScaleGradient, mps::ImageScaleGradient>(module, "ImageBilinearScaleGradient",
                                                                        "The gradient of ImageBilinearScale.")
      .def(nb::new_(&mps::ImageBilinearScaleGradient::create), "device"_a);
  kernelClass<mps::ImageLanczosScaleGradient, mps::ImageScaleGradient>(module, "ImageLanczosScaleGradient",
                                                                       "The gradient of ImageLanczosScale.")
      .def(nb::new_(&mps::ImageLanczosScaleGradient::create), "device"_a);
}

void bindGridSample(nb::module_& module) {
  using mps::NNGridSample;
  auto sample = kernelClass<NNGridSample, mps::CNNBinaryKernel>(
      module, "NNGridSample",
      "Samples the primary image where the secondary one, the grid, says: its channel 0 is for x, channel 1 "
      "for y. W being the primary image's width, pixel x of the result lies at\n\n"
      "    px = (grid + 1) / 2 * (W - 1)      use_grid_value_as_input_coordinate\n"
      "    px = x + grid                      else: in pixels, beside the pixel's own position\n\n"
      "and y likewise, interpolated between the four pixels around; one outside is 0 (primary edge mode "
      "Zero) "
      "or the edge pixel (Clamp). This is PyTorch's grid_sample with align_corners. The result has the "
      "grid's "
      "size and the primary image's channels. Sources: every format; destinations: float16, float32. No "
      "gradient, no state. Encoding raises Error for another edge mode, a grid of fewer than two channels, "
      "and "
      "one that does not cover the pixels that are written.");
  sample.def(nb::new_(&NNGridSample::create), "device"_a);
  property(sample, "use_grid_value_as_input_coordinate", &NNGridSample::useGridValueAsInputCoordinate,
           &NNGridSample::setUseGridValueAsInputCoordinate,
           "Whether -1 and 1 are the edge pixels' centres. "
           "True.");
}

}  // namespace

void bindResize(nb::module_& module) {
  bindResizeBilinear(module);
  bindCrop(module);
  bindScales(module);
  bindGridSample(module);
}

}  // namespace python
