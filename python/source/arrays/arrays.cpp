#include "python/source/arrays/arrays.hpp"

#include <cstring>
#include <utility>

#include "mps/core/types/error.hpp"
#include "mtl/memory.hpp"
#include "mtl/read_only_memory.hpp"
#include "python/source/arrays/array_members.hpp"
#include "python/source/arrays/array_memory.hpp"

namespace python {
namespace {

using mps::ImageFeatureChannelFormat;
using Code = nb::dlpack::dtype_code;

int dlpackKind(const mtl::Device& device) {
  return device.kind() == mtl::DeviceKind::CPU ? nb::device::cpu::value : nb::device::cuda::value;
}
/// The number in "cuda:1".
int dlpackNumber(const mtl::Device& device) {
  const std::size_t colon = device.name().find(':');
  return colon == std::string::npos ? 0 : std::stoi(device.name().substr(colon + 1));
}

/// Why the memory cannot be that of an object on the device; empty when it can.
std::string obstacle(const mtl::Device& device, const GivenArray& given, std::span<const std::size_t> shape,
                     std::span<const std::int64_t> strides, const char* innermost) {
  const nb::ndarray<nb::ro>& array = given.array;
  if (!given.obstacle.empty()) return given.obstacle;
  if (array.device_type() != dlpackKind(device) || array.device_id() != dlpackNumber(device))
    return "on another device";
  if (!given.writable.is_valid()) return "read-only";
  if (array.size() == 0) return "empty";
  if (reinterpret_cast<std::uintptr_t>(array.data()) % array.itemsize() != 0) return "not aligned";
  // Each axis steps over all that lies within it.
  std::int64_t within = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    if (shape[axis] == 1) continue;
    if (axis == shape.size() - 1 && strides[axis] != 1)
      return "of " + std::string(innermost) + " that are not adjacent";
    if (strides[axis] < within) return "of strides that overlap or run backwards";
    within = static_cast<std::int64_t>(shape[axis] - 1) * strides[axis] + within;
  }
  return {};
}

/// Of NumPy's arrays, which DLPack and nanobind then do not know.
bool isOfOtherByteOrder(nb::handle array) {
  const nb::object type = nb::getattr(array, "dtype", nb::none());
  return nb::getattr(type, "isnative", nb::none()).is(nb::handle(Py_False));
}

}  // namespace

nb::object resolved(nb::handle array) {
  const nb::object isNegated = nb::getattr(array, "is_neg", nb::none());
  if (isNegated.is_none() || !nb::cast<bool>(isNegated())) return nb::borrow(array);
  return array.attr("resolve_neg")();
}

GivenArray lookAt(const char* className, nb::handle given) {
  GivenArray found;
  found.owner = resolved(given);
  if (!found.owner.is(given)) found.obstacle = "a view that negates its elements";
  if (!nb::try_cast(found.owner, found.writable, false) && !nb::try_cast(found.owner, found.array, false)) {
    if (isOfOtherByteOrder(given))
      throw mps::Error(className, "array", "of the other byte order",
                       "this machine's: array.astype(\"=f4\")");
    throw mps::Error(className, "array", "a " + std::string(nb::inst_name(given).c_str()),
                     "an array that has elements in memory (DLPack or buffer protocol)");
  }
  if (found.writable.is_valid()) found.array = nb::ndarray<nb::ro>(found.writable);
  return found;
}

Sharing sharingOf(const char* className, const std::shared_ptr<mtl::Device>& device, const GivenArray& given,
                  std::span<const std::size_t> shape, std::span<const std::int64_t> strides,
                  const char* innermost, std::optional<bool> copy, std::string why) {
  if (!device) throw mps::Error(className, "device", "null", "a device");
  if (const std::string first = obstacle(*device, given, shape, strides, innermost); !first.empty())
    why = first;
  const bool isShared = why.empty() && !copy.value_or(false);
  if (!why.empty() && !copy.value_or(true))
    throw mps::Error(className, "array", why, "memory that can be shared, or copy=None");
  if (!isShared && given.array.device_type() != nb::device::cpu::value)
    throw mps::Error(className, "array", why.empty() ? "memory of a GPU" : why + ", memory of a GPU",
                     "memory of the host, or of device " + device->name() + " that can be shared");
  const bool isWanted = copy.has_value() || given.array.size() == 0;
  return {isShared, isWanted ? std::string() : std::move(why)};
}

std::shared_ptr<mtl::Buffer> bufferOver(const std::shared_ptr<mtl::Device>& device, const GivenArray& given,
                                        std::size_t elements) {
  auto* address = static_cast<std::byte*>(given.writable.data());
  const std::size_t length = elements * given.writable.itemsize();
  auto memory = device->kind() == mtl::DeviceKind::CPU ? hostMemory(address, length, given.writable)
                                                       : gpuMemory(*device, address, length, given.writable);
  return std::make_shared<mtl::Buffer>(device, std::move(memory), mtl::StorageMode::Shared);
}

HostArray packed(const GivenArray& given, int from, int to) {
  const nb::module_ numpy = nb::module_::import_("numpy");
  const nb::ndarray<nb::ro>& array = given.array;
  const std::vector<std::size_t> shape(array.shape_ptr(), array.shape_ptr() + array.ndim());
  nb::object packed = nb::cast(nb::ndarray<nb::ro, nb::numpy>(
      array.data(), shape.size(), shape.data(), given.owner, array.stride_ptr(), array.dtype()));
  if (from != to) packed = numpy.attr("moveaxis")(packed, from, to);
  return nb::cast<HostArray>(numpy.attr("asarray")(packed, "order"_a = "C"));  // keeps single numbers
}

void fill(mtl::Buffer& buffer, const HostArray& elements) {
  const std::span<const std::byte> bytes = bytesOf(elements);
  if (bytes.empty()) return;
  std::memcpy(buffer.contents(), bytes.data(), bytes.size());
  buffer.didModifyRange(0, bytes.size());
}

std::shared_ptr<mtl::Buffer> readOnlyCopy(const char* className, const std::shared_ptr<mtl::Device>& device,
                                          const HostArray& elements, const std::string& why) {
  const auto buffer = device->newBuffer(bytesOf(elements));
  return std::make_shared<mtl::Buffer>(device,
                                       std::make_shared<mtl::ReadOnlyMemory>(
                                           buffer->memory(), "a copy of an array that is " + why,
                                           "memory that an array shares, or copy=True, with results in the " +
                                               std::string(className) + " and not in the array"),
                                       buffer->storageMode());
}

std::span<std::byte> bytesOf(const WritableHostArray& array, const char* className, const char* argument) {
  std::int64_t within = 1;
  for (std::size_t axis = array.ndim(); axis-- > 0 && array.size() > 0;) {
    if (array.shape(axis) > 1 && array.stride(axis) != within)
      throw mps::Error(className, argument, "an array with gaps or in another order",
                       "one without gaps, the last axis the fastest");
    within *= static_cast<std::int64_t>(array.shape(axis));
  }
  return {static_cast<std::byte*>(array.data()), array.nbytes()};
}

std::string nameOf(nb::dlpack::dtype type) {
  const auto code = static_cast<Code>(type.code);
  const char* kind = code == Code::Int       ? "int"
                     : code == Code::UInt    ? "uint"
                     : code == Code::Float   ? "float"
                     : code == Code::Bfloat  ? "bfloat"
                     : code == Code::Complex ? "complex"
                     : code == Code::Bool    ? "bool"
                                             : "type";
  return kind + std::to_string(type.bits);
}

nb::dlpack::dtype elementType(ImageFeatureChannelFormat format) {
  const auto bits = static_cast<std::uint8_t>(8 * mps::bytesPerChannel(format));
  const bool isFloat =
      format == ImageFeatureChannelFormat::Float32 || format == ImageFeatureChannelFormat::Float16;
  const auto code = isFloat ? Code::Float : Code::UInt;
  return {static_cast<std::uint8_t>(code), bits, 1};
}

nb::dlpack::dtype elementType(mps::DataType type) {
  const auto number = static_cast<std::uint32_t>(type);
  const auto has = [number](mps::DataType bit) { return (number & static_cast<std::uint32_t>(bit)) != 0; };
  const auto code = has(mps::DataType::FloatBit)    ? Code::Float
                    : has(mps::DataType::SignedBit) ? Code::Int
                                                    : Code::UInt;
  return {static_cast<std::uint8_t>(code), static_cast<std::uint8_t>(8 * mps::sizeInBytes(type)), 1};
}

mps::DataType dataTypeOf(const char* className, nb::dlpack::dtype type) {
  using mps::DataType;
  for (const auto known :
       {DataType::Float32, DataType::Float16, DataType::Int8, DataType::Int16, DataType::Int32,
        DataType::Int64, DataType::UInt8, DataType::UInt16, DataType::UInt32, DataType::UInt64})
    if (elementType(known) == type) return known;
  throw mps::Error(className, "array", nameOf(type), "float32, float16 or whole numbers");
}

std::vector<std::int64_t> stridesWithoutGaps(std::span<const std::size_t> shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * static_cast<std::int64_t>(shape[axis]);
  return strides;
}

void checkElements(const char* className, const char* argument, nb::dlpack::dtype found,
                   nb::dlpack::dtype expected) {
  if (found == expected || found == nb::dtype<std::uint8_t>()) return;
  throw mps::Error(className, argument, nameOf(found), nameOf(expected));
}

Elements elementsOf(const char* className, mps::detail::Array& array, std::vector<std::size_t> shape,
                    std::vector<std::int64_t> strides, mps::DataType type) {
  if (array.isTemporary()) throw mps::Error(className, "array", "of temporary storage", "permanent storage");
  const auto buffer = array.data();
  if (buffer->storageMode() == mtl::StorageMode::Private)
    throw mps::Error(className, "array", "of private storage", "storage that the host can see");
  if (const std::string failure = buffer->memory()->failure(); !failure.empty())
    throw mps::Error(std::string(className) + ": its content is invalid: " + failure);
  Elements elements;
  elements.className = className;
  elements.address = buffer->memory()->address() + array.offset();
  elements.shape = std::move(shape);
  elements.strides = std::move(strides);
  elements.type = elementType(type);
  elements.device = array.device();
  return elements;
}

nb::object numpyArray(const Elements& elements, nb::handle owner, nb::handle type, std::optional<bool> copy) {
  if (elements.device->kind() != mtl::DeviceKind::CPU)
    throw mps::Error(elements.className, "device", elements.device->name(),
                     "the host's for NumPy: read_bytes copies, torch.from_dlpack shares");
  nb::object array =
      nb::cast(nb::ndarray<nb::numpy>(elements.address, elements.shape.size(), elements.shape.data(), owner,
                                      elements.strides.data(), elements.type));
  if (!type.is_none()) {
    nb::object converted = array.attr("astype")(type, "copy"_a = false);
    if (!converted.is(array) && !copy.value_or(true)) {
      const std::string message = "elements are " + nameOf(elements.type) + ": another type is a copy";
      throw nb::value_error(message.c_str());
    }
    if (!converted.is(array)) return converted;
  }
  return copy.value_or(false) ? array.attr("copy")() : array;
}

nb::object dlpackArray(const Elements& elements, nb::handle owner, const nb::kwargs& arguments) {
  const mtl::Device& device = *elements.device;
  const nb::object keeper =
      device.kind() == mtl::DeviceKind::CPU ? nb::borrow(owner) : lentGpuMemory(device, owner);
  const nb::object array = nb::cast(nb::ndarray<nb::array_api>(
      elements.address, elements.shape.size(), elements.shape.data(), keeper, elements.strides.data(),
      elements.type, dlpackKind(device), dlpackNumber(device)));
  return array.attr("__dlpack__")(**arguments);
}

nb::tuple dlpackDevice(const mtl::Device& device) {
  return nb::make_tuple(dlpackKind(device), dlpackNumber(device));
}

}  // namespace python
