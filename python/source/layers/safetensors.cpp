#include "mps/weights/safetensors.hpp"

#include <cstddef>
#include <cstring>
#include <utility>

#include "python/source/arrays/array_members.hpp"
#include "python/source/binding/areas.hpp"
#include "python/source/binding/bind.hpp"

namespace python {
namespace {

using mps::SafetensorsFile;
using mps::SafetensorsHeader;
using mps::SafetensorsMetadata;
using mps::SafetensorsTensor;
using Shape = std::vector<std::uint64_t>;

/// The elements as an array that keeps the owner alive.
nb::object arrayOf(const SafetensorsTensor& tensor, nb::handle owner) {
  const std::vector<std::size_t> shape(tensor.shape.begin(), tensor.shape.end());
  return nb::cast(nb::ndarray<nb::numpy, nb::ro>(tensor.bytes.data(), shape.size(), shape.data(), owner,
                                                 nullptr, elementType(tensor.type)));
}

/// The tensor with the elements of an array, which has no gaps and outlives it.
SafetensorsTensor tensorOf(std::string name, const HostArray& array) {
  SafetensorsTensor tensor;
  tensor.name = std::move(name);
  tensor.type = dataTypeOf("SafetensorsTensor", array.dtype());
  tensor.shape.assign(array.shape_ptr(), array.shape_ptr() + array.ndim());
  tensor.bytes = bytesOf(array);
  return tensor;
}

/// Of a dictionary of arrays, each perhaps copied to be without gaps.
void write(const std::filesystem::path& path, const std::map<std::string, nb::object>& arrays,
           const SafetensorsMetadata& metadata) {
  std::vector<HostArray> held;
  std::vector<SafetensorsTensor> tensors;
  for (const auto& [name, array] : arrays) {
    held.push_back(packed(lookAt("SafetensorsTensor", array)));
    tensors.push_back(tensorOf(name, held.back()));
  }
  const LockReleased released;
  mps::writeSafetensors(path, std::move(tensors), metadata);
}

void bindHeader(nb::module_& module) {
  nb::class_<SafetensorsHeader>(
      module, "SafetensorsHeader",
      "What a file says about its tensors: header and sizes were checked, the tensors' bytes were not "
      "read.\n\n"
      "    header = unmetal.SafetensorsHeader.read(\"weights.safetensors\")\n"
      "    if header.data_length < 2**30: file = unmetal.SafetensorsFile.read(header)")
      .def_static("read", &SafetensorsHeader::read, "path"_a, Released(), "Reads the header of a file.")
      .def_prop_ro("tensors", &SafetensorsHeader::tensors, nb::rv_policy::reference_internal,
                   "SafetensorsTensors in the order of their bytes in the file.")
      .def("contains", &SafetensorsHeader::contains, "name"_a,
           "Whether there is such a tensor; `name in file`, too.")
      .def("__contains__", &SafetensorsHeader::contains, "name"_a)
      .def("tensor", nb::overload_cast<std::string_view>(&SafetensorsHeader::tensor, nb::const_), "name"_a,
           nb::rv_policy::reference_internal, "Raises Error when there is none.")
      .def(
          "tensor",
          [](const SafetensorsHeader& self, std::string_view name, mps::DataType type,
             const Shape& shape) -> const SafetensorsTensor& { return self.tensor(name, type, shape); },
          "name"_a, "type"_a, "shape"_a, nb::rv_policy::reference_internal,
          "Raises Error as well when it has another type or shape.")
      .def_prop_ro("data_length", &SafetensorsHeader::dataLength, "Bytes of all tensors together.")
      .def_prop_ro(
          "metadata", [](const SafetensorsHeader& self) { return self.metadata(); },
          "A dictionary of texts.");
}

void bindFile(nb::module_& module) {
  nb::class_<SafetensorsFile, SafetensorsHeader> file(
      module, "SafetensorsFile",
      "A file that was read and checked. Files are untrusted: every length is compared with the size of the "
      "file before memory "
      "is taken; what is wrong raises Error with the file's name and the trouble.\n\n"
      "    file = unmetal.SafetensorsFile.read(\"weights.safetensors\")\n"
      "    weights = file.tensor(\"conv1.weight\").array");
  file.def_static("read", nb::overload_cast<const std::filesystem::path&>(&SafetensorsFile::read), "path"_a,
                  Released(), "Reads a file.")
      .def_static("read", nb::overload_cast<const SafetensorsHeader&>(&SafetensorsFile::read), "header"_a,
                  Released(), "Reads the file whose header it is.")
      .def_static(
          "parse",
          [](const nb::bytes& bytes, const std::string& name) {
            return SafetensorsFile::parse({static_cast<const std::byte*>(bytes.data()), bytes.size()}, name);
          },
          "bytes"_a, "name"_a, "Reads from memory; `name` stands for the file's in errors.")
      .def(
          "floats",
          [](const SafetensorsFile& self, std::string_view name, const Shape& shape) {
            auto* values = new std::vector<float>(self.floats(name, shape));
            const nb::capsule owner(
                values, [](void* held) noexcept { delete static_cast<std::vector<float>*>(held); });
            const std::vector<std::size_t> lengths(shape.begin(), shape.end());
            return nb::ndarray<nb::numpy, float>(values->data(), lengths.size(), lengths.data(), owner);
          },
          "name"_a, "shape"_a,
          "The elements of a Float32 or Float16 tensor as float32. Raises Error when the type is neither or "
          "the shape is another.")
      .def("unsigned_number", &SafetensorsFile::unsignedNumber, "name"_a,
           "The value of a UInt64 tensor with one element.");
}

}  // namespace

void bindSafetensors(nb::module_& module) {
  nb::class_<SafetensorsTensor>(module, "SafetensorsTensor",
                                "One tensor of a file, elements in row-major order.")
      .def(
          "__init__",
          [](SafetensorsTensor* self, std::string name, const HostArray& array) {
            new (self) SafetensorsTensor(tensorOf(std::move(name), array));
          },
          "name"_a, "array"_a.noconvert(), nb::keep_alive<1, 3>(),
          "Shares the memory of an array without gaps.")
      .def_ro("name", &SafetensorsTensor::name, "Its name in the file.")
      .def_ro("type", &SafetensorsTensor::type, "Float32, Float16 or an integer type of 8 to 64 bits.")
      .def_ro("shape", &SafetensorsTensor::shape, "Empty for a single number.")
      .def_prop_ro(
          "bytes",
          [](nb::handle self) {
            const auto& tensor = nb::cast<const SafetensorsTensor&>(self);
            return nb::ndarray<nb::numpy, const std::uint8_t>(tensor.bytes.data(), {tensor.bytes.size()},
                                                              self);
          },
          "The elements as bytes, a read-only view.")
      .def_prop_ro(
          "array", [](nb::handle self) { return arrayOf(nb::cast<const SafetensorsTensor&>(self), self); },
          "The elements as a NumPy array of that shape, a read-only view.");
  bindHeader(module);
  bindFile(module);
  constexpr const char* documentation =
      "Writes a file, whole or not at all. `tensors`: arrays by name, or SafetensorsTensors. The same input "
      "gives the same bytes; "
      "a checksum goes into the metadata. Raises Error for two tensors of one name, the name "
      "\"__metadata__\", text that is not "
      "UTF-8, and a type that the format does not have.";
  module.def("write_safetensors", &write, "path"_a, "tensors"_a, "metadata"_a = SafetensorsMetadata{},
             documentation);
  module.def("write_safetensors", &mps::writeSafetensors, "path"_a, "tensors"_a,
             "metadata"_a = SafetensorsMetadata{}, Released(), documentation);
}

}  // namespace python
