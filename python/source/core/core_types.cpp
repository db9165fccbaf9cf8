#include "mps/core/types/types.hpp"

#include <cstdint>

#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {
namespace {

void bindEnumerations(nb::module_& module) {
  flags<mps::KernelOptions>(module, "KernelOptions", "Bits of Kernel.options.")
      .value("None_", mps::KernelOptions::None)
      .value("SkipAPIValidation", mps::KernelOptions::SkipAPIValidation,
             "Skip argument checks (never those for memory). Bad arguments are then undefined behaviour.")
      .value("AllowReducedPrecision", mps::KernelOptions::AllowReducedPrecision,
             "Let the kernel compute in TF32, bfloat16 or float16 where the back end has it.")
      .value("DisableInternalTiling", mps::KernelOptions::DisableInternalTiling, "Without effect.")
      .value("InsertDebugGroups", mps::KernelOptions::InsertDebugGroups, "Without effect.")
      .value("Verbose", mps::KernelOptions::Verbose, "Commentary on stderr.");
  nb::enum_<mps::ImageEdgeMode>(module, "ImageEdgeMode", "What a read outside the source gives.")
      .value("Zero", mps::ImageEdgeMode::Zero)
      .value("Clamp", mps::ImageEdgeMode::Clamp)
      .value("Mirror", mps::ImageEdgeMode::Mirror)
      .value("MirrorWithEdge", mps::ImageEdgeMode::MirrorWithEdge)
      .value("Constant", mps::ImageEdgeMode::Constant);
  nb::enum_<mps::ImageFeatureChannelFormat>(module, "ImageFeatureChannelFormat",
                                            "Storage of one feature channel.")
      .value("None_", mps::ImageFeatureChannelFormat::None, "Let the library choose.")
      .value("Unorm8", mps::ImageFeatureChannelFormat::Unorm8, "uint8 n stands for n / 255.")
      .value("Unorm16", mps::ImageFeatureChannelFormat::Unorm16, "uint16 n stands for n / 65535.")
      .value("Float16", mps::ImageFeatureChannelFormat::Float16)
      .value("Float32", mps::ImageFeatureChannelFormat::Float32);
  nb::enum_<mps::DataType>(module, "DataType", "Element types of vectors, matrices and weights.")
      .value("Invalid", mps::DataType::Invalid)
      .value("Float32", mps::DataType::Float32)
      .value("Float16", mps::DataType::Float16)
      .value("Int8", mps::DataType::Int8)
      .value("Int16", mps::DataType::Int16)
      .value("Int32", mps::DataType::Int32)
      .value("Int64", mps::DataType::Int64)
      .value("UInt8", mps::DataType::UInt8)
      .value("UInt16", mps::DataType::UInt16)
      .value("UInt32", mps::DataType::UInt32)
      .value("UInt64", mps::DataType::UInt64)
      .value("Unorm1", mps::DataType::Unorm1)
      .value("Unorm8", mps::DataType::Unorm8);
  nb::enum_<mps::DataLayout>(module, "DataLayout", "Order of elements in the user's memory, slowest first.")
      .value("HeightxWidthxFeatureChannels", mps::DataLayout::HeightxWidthxFeatureChannels,
             "[image][y][x][channel]")
      .value("FeatureChannelsxHeightxWidth", mps::DataLayout::FeatureChannelsxHeightxWidth,
             "[image][channel][y][x]");
  nb::enum_<mps::NNTrainingStyle>(module, "NNTrainingStyle",
                                  "When a training graph updates the weights of a layer.")
      .value("UpdateDeviceNone", mps::NNTrainingStyle::UpdateDeviceNone, "Never: the layer is frozen.")
      .value("UpdateDeviceCPU", mps::NNTrainingStyle::UpdateDeviceCPU,
             "In the completion handler of the command buffer, by the data source's CPU method.")
      .value("UpdateDeviceGPU", mps::NNTrainingStyle::UpdateDeviceGPU,
             "Right after the gradient pass is encoded, by the data source's device method.");
  nb::enum_<mps::NNConvolutionAccumulatorPrecisionOption>(
      module, "NNConvolutionAccumulatorPrecisionOption",
      "Width of the sums of a convolution. Half is a permission; sums are float32.")
      .value("Half", mps::NNConvolutionAccumulatorPrecisionOption::Half)
      .value("Float", mps::NNConvolutionAccumulatorPrecisionOption::Float);
}

void bindValues(nb::module_& module) {
  nb::class_<mps::Offset>(module, "Offset",
                          "Signed position in pixels; z is the index of the first image of a stack.")
      .def(nb::init<std::int64_t, std::int64_t, std::int64_t>(), "x"_a = 0, "y"_a = 0, "z"_a = 0)
      .def_rw("x", &mps::Offset::x, "Columns.")
      .def_rw("y", &mps::Offset::y, "Rows.")
      .def_rw("z", &mps::Offset::z, "Images.");
  nb::class_<mps::ImageCoordinate>(module, "ImageCoordinate", "A pixel and a channel, all counted from 0.")
      .def(nb::init<std::size_t, std::size_t, std::size_t>(), "x"_a = 0, "y"_a = 0, "channel"_a = 0)
      .def_rw("x", &mps::ImageCoordinate::x, "Column.")
      .def_rw("y", &mps::ImageCoordinate::y, "Row.")
      .def_rw("channel", &mps::ImageCoordinate::channel, "Feature channel.");
  nb::class_<mps::ImageRegion>(module, "ImageRegion", "Pixels and channels of an image, from `offset` on.")
      .def(nb::init<mps::ImageCoordinate, mps::ImageCoordinate>(), "offset"_a = mps::ImageCoordinate{},
           "size"_a = mps::ImageCoordinate{})
      .def_rw("offset", &mps::ImageRegion::offset, "The first pixel and channel.")
      .def_rw("size", &mps::ImageRegion::size, "How many of each.");
  nb::class_<mps::ImageReadWriteParams>(module, "ImageReadWriteParams",
                                        "Window of feature channels for Image.read_bytes and write_bytes.")
      .def(nb::init<std::size_t, std::size_t>(), "feature_channel_offset"_a,
           "number_of_feature_channels_to_read_write"_a)
      .def_rw("feature_channel_offset", &mps::ImageReadWriteParams::featureChannelOffset, "A multiple of 4.")
      .def_rw("number_of_feature_channels_to_read_write",
              &mps::ImageReadWriteParams::numberOfFeatureChannelsToReadWrite,
              "Positive, and a multiple of 4 or up to the last channel.");
  module.attr("RectNoClip") = mps::RectNoClip;
}

}  // namespace

void bindCoreTypes(nb::module_& module) {
  bindEnumerations(module);
  bindValues(module);
}

}  // namespace python
