#include "python/source/kernels/kernels.hpp"

#include <span>
#include <string>
#include <vector>

#include "mps/core/kernel/cnn_binary_kernel.hpp"
#include "mps/core/kernel/cnn_gradient_kernel.hpp"
#include "mps/core/kernel/cnn_kernel.hpp"
#include "mps/core/kernel/cnn_multiary_kernel.hpp"
#include "mps/core/kernel/image_kernel.hpp"
#include "mps/core/kernel/padding.hpp"
#include "python/source/binding/areas.hpp"

namespace python {
namespace {

using mps::CNNBinaryKernel;
using mps::CNNGradientKernel;
using mps::CNNKernel;
using mps::CNNMultiaryKernel;
using mps::detail::ImageKernel;

constexpr const char* descriptorDocumentation =
    "Size and format of the destination by the padding policy; sets the offsets. Raises Error when no window "
    "fits.";
constexpr const char* stateDocumentation =
    "A state to encode with; None (an empty batch) for kernels without. Make it after all properties are "
    "final and "
    "destination_image_descriptor was called.";
constexpr const char* storageDocumentation =
    "Bytes of scratch memory that an encode of these sources takes beside destination and state. Without a "
    "destination image: with one as destination_image_descriptor would size it.";

/// A source of a kernel: its types and names where one image is encoded, and a batch.
template <class One, class Many>
struct Source {
  nb::arg one;
  nb::arg many;
};
constexpr Source<ImagePointer, mps::ImageBatch> unarySource{"source_image"_a, "source_images"_a};
constexpr Source<ImagePointer, mps::ImageBatch> primarySource{"primary_image"_a, "primary_images"_a};
constexpr Source<ImagePointer, mps::ImageBatch> secondarySource{"secondary_image"_a, "secondary_images"_a};
constexpr Source<Images, ImageBatches> sourceList{"source_images"_a, "source_images"_a};

/// The encodes of these sources that return the destination, and the one that takes it.
template <class Form, class... Sources, class Class, class... Names>
void bindForm(Class& kernel, const Names&... sources) {
  bindEncode<Form, Sources...>(kernel, encodeReturningDocumentation, sources...);
  bindEncodeWithState<Form, Sources...>(kernel, encodeReturningDocumentation, sources...);
  bindEncode<Form, Sources..., typename Form::Image>(kernel, encodeIntoDocumentation, sources...,
                                                     nb::arg(Form::destinationImage));
}
/// The encode that takes destination and state.
template <class Form, class... Sources, class Class, class... Names>
void bindIntoWithState(Class& kernel, const Names&... sources) {
  bindEncode<Form, Sources..., typename Form::State, typename Form::Image>(
      kernel, encodeIntoDocumentation, sources..., nb::arg(Form::destinationState),
      nb::arg(Form::destinationImage));
}
/// What all base classes have; of one image the encode with destination and state is not among that.
template <class Class, class... One, class... Many>
void bindEncodes(Class& kernel, const Source<One, Many>&... sources) {
  bindCoding(kernel);
  bindForm<Single, One...>(kernel, sources.one...);
  bindForm<Batch, Many...>(kernel, sources.many...);
  bindIntoWithState<Batch, Many...>(kernel, sources.many...);
}

/// What Python hands over for a parameter: a list for a span.
template <class Parameter>
struct ListForSpan {
  using Type = Parameter;
};
template <class Element>
struct ListForSpan<mps::ArrayRef<Element>> {
  using Type = const std::vector<Element>&;
};
template <class Self, class Result, class... Parameters>
auto withLists(Result (Self::*method)(Parameters...) const) {
  return [method](const Self& self, typename ListForSpan<Parameters>::Type... arguments) {
    return (self.*method)(arguments...);
  };
}

/// A method that takes sources, source states and perhaps a destination. @param sources names, also of what stands before
template <class Class, class Method, class... Names>
void bindQuery(Class& kernel, const char* name, Method method, const char* documentation,
               const Names&... sources) {
  kernel.def(name, withLists(method), sources..., "source_states"_a = States{},
             "destination_image"_a.none() = nb::none(), Released(), documentation);
}
template <class Class, class Method, class... Names>
void bindBatchQuery(Class& kernel, const char* name, Method method, const char* documentation,
                    const Names&... sources) {
  kernel.def(name, withLists(method), sources..., "source_states"_a = StateBatches{},
             "destination_images"_a = mps::ImageBatch{}, Released(), documentation);
}
template <class Class, class... Sources>
void bindStates(Class& kernel, const Sources&... sources) {
  using Self = typename Class::Type;
  bindQuery(kernel, "result_state", &Self::resultState, stateDocumentation, sources.one...);
  bindBatchQuery(kernel, "result_state_batch", &Self::resultStateBatch, stateDocumentation, sources.many...);
  bindQuery(kernel, "temporary_result_state", &Self::temporaryResultState, stateDocumentation,
            "command_buffer"_a, sources.one...);
  bindBatchQuery(kernel, "temporary_result_state_batch", &Self::temporaryResultStateBatch, stateDocumentation,
                 "command_buffer"_a, sources.many...);
}
template <class Class, class... Sources>
void bindStorageSizes(Class& kernel, const Sources&... sources) {
  using Self = typename Class::Type;
  bindQuery(kernel, "encoding_storage_size", &Self::encodingStorageSize, storageDocumentation,
            sources.one...);
  bindBatchQuery(kernel, "batch_encoding_storage_size", &Self::batchEncodingStorageSize, storageDocumentation,
                 sources.many...);
}

/// The collector of cycles sees a policy or an allocator of Python's that this kernel alone holds: such an object may keep
/// the kernels that it was asked for. Not where the library holds the kernel, too, which Python does not know.
int traverseKernel(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const auto* kernel = nb::inst_ptr<ImageKernel>(self);
  if (kernel->weak_from_this().use_count() != 1) return 0;
  const auto visitOwn = [&](const auto& held) {
    if (held.use_count() == 1) Py_VISIT(nb::find(held.get()).ptr());
    return 0;
  };
  if (const int result = visitOwn(kernel->padding()); result != 0) return result;
  return visitOwn(kernel->destinationImageAllocator());
}
int clearKernel(PyObject* self) {
  if (!nb::inst_ready(self)) return 0;
  auto* kernel = nb::inst_ptr<ImageKernel>(self);
  kernel->setPadding(mps::detail::defaultPadding());
  kernel->setDestinationImageAllocator(mps::TemporaryImage::defaultAllocator());
  return 0;
}
PyType_Slot kernelSlots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverseKernel)},
                             {Py_tp_clear, reinterpret_cast<void*>(clearKernel)},
                             {0, nullptr}};

void bindKernel(nb::module_& module) {
  nb::class_<mps::Kernel, mps::SecureCoding> kernel(
      module, "Kernel",
      "Base of everything that encodes work. Kernels are cheap and meant to be reused; one kernel is used by "
      "one "
      "thread at a time. All properties are read when encoding: later changes do not touch recorded work.");
  readOnly(kernel, "device", &mps::Kernel::device, "Where its work runs.");
  property(kernel, "options", &mps::Kernel::options, &mps::Kernel::setOptions,
           "KernelOptions; none by default, Verbose when the environment has MPS_LOG_INFO.");
  property(kernel, "label", &mps::Kernel::label, &mps::Kernel::setLabel,
           "Name for messages and debugging; empty by default.");
  kernel
      .def(
          "copy",
          [](const mps::Kernel& self, const std::shared_ptr<mtl::Device>& device) {
            return self.copy(device);
          },
          "device"_a.none() = nb::none(), copyDocumentation)
      .def("describe", &mps::Kernel::describe, "Class name and label: CNNPoolingMax \"pool1\".")
      .def("__repr__", [](const mps::Kernel& self) { return "<" + self.describe() + ">"; });

  nb::class_<ImageKernel, mps::Kernel> image(module, "ImageKernel", nb::type_slots(kernelSlots),
                                             "What all kernels over images have.");
  property(image, "destination_feature_channel_offset", &ImageKernel::destinationFeatureChannelOffset,
           &ImageKernel::setDestinationFeatureChannelOffset,
           "First destination channel written, a multiple of 4. 0. Writing side by side concatenates without "
           "a copy.");
  property(image, "padding", &ImageKernel::padding, &ImageKernel::setPadding,
           "The policy that sizes destinations. Same size, centred, remainder to the top left, unless a "
           "class says "
           "otherwise.");
  property(image, "destination_image_allocator", &ImageKernel::destinationImageAllocator,
           &ImageKernel::setDestinationImageAllocator,
           "Makes the destinations; TemporaryImage.default_allocator() unless set.");
  readOnly(image, "is_backwards", &ImageKernel::isBackwards, "Whether strides enlarge.");
  readOnly(image, "is_state_modified", &ImageKernel::isStateModified,
           "Whether encoding changes a state that it accepts.");
  readOnly(image, "is_result_state_reused_across_batch", &ImageKernel::isResultStateReusedAcrossBatch,
           "Whether the states of a batch are one object.");
  readOnly(image, "append_batch_barrier", &ImageKernel::appendBatchBarrier,
           "Whether dependent kernels must wait for the whole batch.");
  readOnly(image, "source_count", &ImageKernel::sourceCount, "Images that each encode reads.");
  image.def(
      "destination_image_descriptor",
      [](ImageKernel& self, const Images& images, const States& states) {
        return self.destinationImageDescriptor(images, states);
      },
      "source_images"_a, "source_states"_a = States{}, Released(), descriptorDocumentation);
}

void bindUnary(nb::module_& module) {
  nb::class_<CNNKernel, ImageKernel> bound(
      module, "CNNKernel",
      "Base of the kernels with one source and one destination.\n\n"
      "Window of destination pixel x, counted from clip_rect.origin, on one axis:\n\n"
      "    tap p       = offset + stride * x - dilated_size // 2 + dilation * p\n"
      "    dilated_size = (size - 1) * dilation + 1\n\n"
      "Only destination pixels inside clip_rect are written. Reads outside the source give what edge_mode "
      "says. The "
      "encodes that take a destination use offset and clip_rect as they stand; those that return one size it "
      "by "
      "`padding` and set `offset`.");
  property(
      bound, "offset", &CNNKernel::offset, &CNNKernel::setOffset,
      "Source position of the window's centre for the first pixel of clip_rect; z: first image of a stack. "
      "Offset(0, 0, 0).");
  property(bound, "clip_rect", &CNNKernel::clipRect, &CNNKernel::setClipRect,
           "Destination pixels to write (z: images of a stack). RectNoClip.");
  property(bound, "source_feature_channel_offset", &CNNKernel::sourceFeatureChannelOffset,
           &CNNKernel::setSourceFeatureChannelOffset, "First source channel read, a multiple of 4. 0.");
  property(bound, "source_feature_channel_max_count", &CNNKernel::sourceFeatureChannelMaxCount,
           &CNNKernel::setSourceFeatureChannelMaxCount,
           "Most channels read from there; cut to what the source has. No limit.");
  property(bound, "edge_mode", &CNNKernel::edgeMode, &CNNKernel::setEdgeMode,
           "Zero or Clamp, unless a class takes more. Zero.");
  readOnly(bound, "kernel_width", &CNNKernel::kernelWidth, "Window in pixels; 1 without one.");
  readOnly(bound, "kernel_height", &CNNKernel::kernelHeight, "Window in pixels; 1 without one.");
  readOnly(bound, "stride_in_pixels_x", &CNNKernel::strideInPixelsX, "Step from window to window.");
  readOnly(bound, "stride_in_pixels_y", &CNNKernel::strideInPixelsY, "Step from window to window.");
  readOnly(bound, "dilation_rate_x", &CNNKernel::dilationRateX, "Pixels from tap to tap.");
  readOnly(bound, "dilation_rate_y", &CNNKernel::dilationRateY, "Pixels from tap to tap.");
  bindUnaryEncodes(bound);
  bindStates(bound, unarySource);
  bindStorageSizes(bound, unarySource);
}

void bindBinary(nb::module_& module) {
  nb::class_<CNNBinaryKernel, ImageKernel> bound(
      module, "CNNBinaryKernel",
      "Base of the kernels with two sources, primary and secondary. Size and offsets come from the padding "
      "policy on "
      "the primary image; each source gets its own offset against the common destination.");
  property(bound, "primary_offset", &CNNBinaryKernel::primaryOffset, &CNNBinaryKernel::setPrimaryOffset,
           "Position in the primary source for the first pixel of clip_rect; z: first image of a stack.");
  property(bound, "secondary_offset", &CNNBinaryKernel::secondaryOffset, &CNNBinaryKernel::setSecondaryOffset,
           "Position in the secondary source, likewise.");
  property(bound, "clip_rect", &CNNBinaryKernel::clipRect, &CNNBinaryKernel::setClipRect,
           "Destination pixels to write. RectNoClip.");
  property(bound, "primary_source_feature_channel_offset",
           &CNNBinaryKernel::primarySourceFeatureChannelOffset,
           &CNNBinaryKernel::setPrimarySourceFeatureChannelOffset, "First channel read, a multiple of 4. 0.");
  property(
      bound, "secondary_source_feature_channel_offset", &CNNBinaryKernel::secondarySourceFeatureChannelOffset,
      &CNNBinaryKernel::setSecondarySourceFeatureChannelOffset, "First channel read, a multiple of 4. 0.");
  property(bound, "primary_source_feature_channel_max_count",
           &CNNBinaryKernel::primarySourceFeatureChannelMaxCount,
           &CNNBinaryKernel::setPrimarySourceFeatureChannelMaxCount, "Most channels read. No limit.");
  property(bound, "secondary_source_feature_channel_max_count",
           &CNNBinaryKernel::secondarySourceFeatureChannelMaxCount,
           &CNNBinaryKernel::setSecondarySourceFeatureChannelMaxCount, "Most channels read. No limit.");
  property(bound, "primary_edge_mode", &CNNBinaryKernel::primaryEdgeMode,
           &CNNBinaryKernel::setPrimaryEdgeMode, "Zero or Clamp. Zero.");
  property(bound, "secondary_edge_mode", &CNNBinaryKernel::secondaryEdgeMode,
           &CNNBinaryKernel::setSecondaryEdgeMode, "Zero or Clamp. Zero.");
  readOnly(bound, "primary_kernel_width", &CNNBinaryKernel::primaryKernelWidth, "Window; 1 without one.");
  readOnly(bound, "primary_kernel_height", &CNNBinaryKernel::primaryKernelHeight, "Window; 1 without one.");
  readOnly(bound, "secondary_kernel_width", &CNNBinaryKernel::secondaryKernelWidth, "Window; 1 without one.");
  readOnly(bound, "secondary_kernel_height", &CNNBinaryKernel::secondaryKernelHeight,
           "Window; 1 without one.");
  property(bound, "primary_stride_in_pixels_x", &CNNBinaryKernel::primaryStrideInPixelsX,
           &CNNBinaryKernel::setPrimaryStrideInPixelsX, "Step in the primary source.");
  property(bound, "primary_stride_in_pixels_y", &CNNBinaryKernel::primaryStrideInPixelsY,
           &CNNBinaryKernel::setPrimaryStrideInPixelsY, "Step in the primary source.");
  property(bound, "secondary_stride_in_pixels_x", &CNNBinaryKernel::secondaryStrideInPixelsX,
           &CNNBinaryKernel::setSecondaryStrideInPixelsX, "Step in the secondary source.");
  property(bound, "secondary_stride_in_pixels_y", &CNNBinaryKernel::secondaryStrideInPixelsY,
           &CNNBinaryKernel::setSecondaryStrideInPixelsY, "Step in the secondary source.");
  readOnly(bound, "primary_dilation_rate_x", &CNNBinaryKernel::primaryDilationRateX,
           "Pixels from tap to tap.");
  readOnly(bound, "primary_dilation_rate_y", &CNNBinaryKernel::primaryDilationRateY,
           "Pixels from tap to tap.");
  readOnly(bound, "secondary_dilation_rate_x", &CNNBinaryKernel::secondaryDilationRateX,
           "Pixels from tap to tap.");
  readOnly(bound, "secondary_dilation_rate_y", &CNNBinaryKernel::secondaryDilationRateY,
           "Pixels from tap to tap.");
  bindBinaryEncodes(bound);
  bindStates(bound, primarySource, secondarySource);
  bindStorageSizes(bound, primarySource, secondarySource);
}

void bindGradient(nb::module_& module) {
  nb::class_<CNNGradientKernel, CNNBinaryKernel> bound(
      module, "CNNGradientKernel",
      "Base of the gradient kernels: from dL/d(result) to dL/d(source) of a forward kernel. The source "
      "gradient is the "
      "primary image, the forward source image the secondary one (the softmax gradients take the forward "
      "result "
      "instead). The encodes that return the destination configure themselves from the state and write every "
      "pixel of it; "
      "those with a given destination take each property that was not set from the state. Destination "
      "gradients are "
      "overwritten.");
  property(
      bound, "kernel_offset_x", &CNNGradientKernel::kernelOffsetX, &CNNGradientKernel::setKernelOffsetX,
      "Added to primary_offset * stride: position in the gradient with zeros between its pixels. 0. Kernels "
      "without a window raise when it is not 0.");
  property(bound, "kernel_offset_y", &CNNGradientKernel::kernelOffsetY, &CNNGradientKernel::setKernelOffsetY,
           "As kernel_offset_x, for rows.");
  bindGradientEncodes(bound);
}

/// A property of source `index`: the method `name(index)` and `set_name(value, index)`.
template <auto Getter, auto Setter, class Class>
void indexedProperty(Class& bound, const char* name, const char* documentation) {
  bound.def(name, Getter, "index"_a, documentation)
      .def((std::string("set_") + name).c_str(), Setter, "value"_a, "index"_a, documentation);
}

void bindMultiary(nb::module_& module) {
  nb::class_<CNNMultiaryKernel, ImageKernel> bound(module, "CNNMultiaryKernel",
                                                   "Base of the kernels with n sources and one destination. "
                                                   "Properties of a source are read and set with its index, "
                                                   "from 0 to source_count - 1; another index raises Error.");
  indexedProperty<&CNNMultiaryKernel::offset, &CNNMultiaryKernel::setOffset>(
      bound, "offset", "Position in that source for the first pixel of clip_rect.");
  indexedProperty<&CNNMultiaryKernel::sourceFeatureChannelOffset,
                  &CNNMultiaryKernel::setSourceFeatureChannelOffset>(
      bound, "source_feature_channel_offset", "First channel read of that source, a multiple of 4. 0.");
  indexedProperty<&CNNMultiaryKernel::sourceFeatureChannelMaxCount,
                  &CNNMultiaryKernel::setSourceFeatureChannelMaxCount>(
      bound, "source_feature_channel_max_count", "Most channels read of that source. No limit.");
  indexedProperty<&CNNMultiaryKernel::edgeMode, &CNNMultiaryKernel::setEdgeMode>(
      bound, "edge_mode", "Zero or Clamp, for that source. Zero.");
  indexedProperty<&CNNMultiaryKernel::kernelWidth, &CNNMultiaryKernel::setKernelWidth>(
      bound, "kernel_width", "Window in that source. 1.");
  indexedProperty<&CNNMultiaryKernel::kernelHeight, &CNNMultiaryKernel::setKernelHeight>(
      bound, "kernel_height", "Window in that source. 1.");
  indexedProperty<&CNNMultiaryKernel::strideInPixelsX, &CNNMultiaryKernel::setStrideInPixelsX>(
      bound, "stride_in_pixels_x", "Step in that source. 1.");
  indexedProperty<&CNNMultiaryKernel::strideInPixelsY, &CNNMultiaryKernel::setStrideInPixelsY>(
      bound, "stride_in_pixels_y", "Step in that source. 1.");
  indexedProperty<&CNNMultiaryKernel::dilationRateX, &CNNMultiaryKernel::setDilationRateX>(
      bound, "dilation_rate_x", "Pixels from tap to tap in that source. 1.");
  indexedProperty<&CNNMultiaryKernel::dilationRateY, &CNNMultiaryKernel::setDilationRateY>(
      bound, "dilation_rate_y", "Pixels from tap to tap in that source. 1.");
  property(bound, "clip_rect", &CNNMultiaryKernel::clipRect, &CNNMultiaryKernel::setClipRect,
           "Destination pixels to write. RectNoClip.");
  bindMultiaryEncodes(bound);
  bindStates(bound, sourceList);
}

}  // namespace

void bindUnaryEncodes(nb::handle bound) {
  auto kernel = nb::borrow<nb::class_<CNNKernel>>(bound);
  bindEncodes(kernel, unarySource);
  bindIntoWithState<Single, ImagePointer>(kernel, unarySource.one);
}

void bindBinaryEncodes(nb::handle bound) {
  auto kernel = nb::borrow<nb::class_<CNNBinaryKernel>>(bound);
  bindEncodes(kernel, primarySource, secondarySource);
}

void bindGradientEncodes(nb::handle bound) {
  auto kernel = nb::borrow<nb::class_<CNNGradientKernel>>(bound);
  bindEncode<Single, ImagePointer, ImagePointer, StatePointer>(
      kernel, encodeGradientDocumentation, "source_gradient"_a, "source_image"_a, "gradient_state"_a);
  bindEncode<Single, ImagePointer, ImagePointer, StatePointer, ImagePointer>(
      kernel, encodeGradientDocumentation, "source_gradient"_a, "source_image"_a, "gradient_state"_a,
      "destination_gradient"_a);
  bindEncode<Batch, mps::ImageBatch, mps::ImageBatch, mps::StateBatch>(
      kernel, encodeGradientDocumentation, "source_gradients"_a, "source_images"_a, "gradient_states"_a);
  bindEncode<Batch, mps::ImageBatch, mps::ImageBatch, mps::StateBatch, mps::ImageBatch>(
      kernel, encodeGradientDocumentation, "source_gradients"_a, "source_images"_a, "gradient_states"_a,
      "destination_gradients"_a);
  // Later than those: of a state and a destination Python's call takes the first that fits, and that state is the source.
  bindBinaryEncodes(bound);
}

void bindMultiaryEncodes(nb::handle bound) {
  auto kernel = nb::borrow<nb::class_<CNNMultiaryKernel>>(bound);
  bindEncodes(kernel, sourceList);
}

void bindKernels(nb::module_& module) {
  bindKernel(module);
  bindUnary(module);
  bindBinary(module);
  bindGradient(module);
  bindMultiary(module);
}

}  // namespace python
