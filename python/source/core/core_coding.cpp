#include <cstddef>
#include <span>

#include "mps/core/coding/coder.hpp"
#include "mps/core/coding/secure_coding.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {

void bindCoreCoding(nb::module_& module) {
  nb::class_<mps::SecureCoding>(module, "SecureCoding",
                                "An object that can be written to coded data and made again from it.")
      .def_prop_ro(
          "class_name", &mps::SecureCoding::className,
          "The name of the C++ class, under which a decoder is found; empty when it cannot be coded.")
      .def(
          "encode", [](const mps::SecureCoding& self, mps::Coder& coder) { self.encode(coder); }, "coder"_a,
          "Writes the object to the coder, such as a KeyedArchiver.");
  nb::class_<mps::CodingLimits>(module, "CodingLimits",
                                "How large decoded objects may be: the one limit for all coded data. What is "
                                "beyond raises Error, when it is decoded or encoded.\n\n"
                                "    limits = unmetal.CodingLimits()\n"
                                "    limits.bytes = 16 << 20\n"
                                "    coder = unmetal.KeyedUnarchiver(data, device, limits)")
      .def(nb::init<>())
      .def_rw("size", &mps::CodingLimits::size,
              "Largest size of a kernel over images: windows, strides, paddings, channels, results. 2**20.")
      .def_rw("window_elements", &mps::CodingLimits::windowElements,
              "Most elements of a window, width x height. 2**20.")
      .def_rw("bytes", &mps::CodingLimits::bytes,
              "Most bytes of an image that a decoded kernel makes, and of the memory that its encode works "
              "in for "
              "it. 2**30.");
  nb::class_<mps::Coder>(module, "Coder", "What objects are written to and read from.")
      .def_prop_ro("is_decoding", &mps::Coder::isDecoding, "Whether it reads.");
  nb::class_<mps::KeyedArchiver, mps::Coder>(module, "KeyedArchiver",
                                             "Writes one object as CBOR.\n\n"
                                             "    archiver = unmetal.KeyedArchiver()\n"
                                             "    kernel.encode(archiver)\n"
                                             "    data = archiver.encoded_data()")
      .def(nb::init<>())
      .def(
          "encoded_data",
          [](const mps::KeyedArchiver& self) {
            const auto data = self.encodedData();
            return nb::bytes(data.data(), data.size());
          },
          "The bytes. The device is not among them.");
  nb::class_<mps::KeyedUnarchiver, mps::Coder>(
      module, "KeyedUnarchiver",
      "Reads what KeyedArchiver has written.\n\n"
      "    kernel = unmetal.CNNPoolingMax.decode(unmetal.KeyedUnarchiver(data, device))\n\n"
      "The bytes need not be trusted: nothing of them is executed, and whatever is wrong with them raises "
      "Error.")
      .def(nb::new_([](const nb::bytes& data, std::shared_ptr<mtl::Device> device,
                       const mps::CodingLimits& limits) {
             const std::span bytes(static_cast<const std::byte*>(data.data()), data.size());
             return std::make_shared<mps::KeyedUnarchiver>(bytes, std::move(device), limits);
           }),
           "data"_a, "device"_a.none() = nb::none(), "limits"_a = mps::CodingLimits{},
           "`device`: for decodes that name none; None: the system's default device.")
      .def_prop_ro("mps_mtl_device", &mps::KeyedUnarchiver::mpsMTLDevice, "The device given.");
}

}  // namespace python
