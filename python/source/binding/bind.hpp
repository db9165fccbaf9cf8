#pragma once

// nanobind with the conversions that the bindings need. A caster that one source sees and another does not would be two
// meanings of one type, so all of them are here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "mps/core/coding/coder.hpp"
#include "mps/core/image/image.hpp"
#include "mps/core/image/image_batch.hpp"
#include "mps/core/image/state.hpp"
#include "mps/core/kernel/kernel.hpp"
#include "mps/core/types/types.hpp"
#include "mtl/command_buffer.hpp"
#include "mtl/device.hpp"
#include "python/source/binding/enumerations.hpp"
#include "python/source/binding/interpreter.hpp"

/// The Python module: what all its sources share. python/README.md has the conventions.
namespace python {

namespace nb = nanobind;
using namespace nb::literals;  // "name"_a

using CommandBufferPointer = std::shared_ptr<mtl::CommandBuffer>;
using ImagePointer = std::shared_ptr<mps::Image>;
using StatePointer = std::shared_ptr<mps::State>;
using Images = std::vector<ImagePointer>;
using States = std::vector<StatePointer>;
using ImageBatches = std::vector<mps::ImageBatch>;
using StateBatches = std::vector<mps::StateBatch>;

/// The order of elements unless said otherwise: [image][y][x][channel].
inline constexpr auto channelsLast = mps::DataLayout::HeightxWidthxFeatureChannels;

/// Other Python threads run meanwhile: for all that encodes, waits or runs kernels.
using Released = nb::call_guard<LockReleased>;

/// A property of which Python gets a copy: changing that does not change the object behind the setter's back.
template <class Class, class Getter, class Setter>
void property(Class& bound, const char* name, Getter getter, Setter setter, const char* documentation) {
  bound.def_prop_rw(name, getter, setter, nb::rv_policy::copy, documentation);
}
template <class Class, class Getter>
void readOnly(Class& bound, const char* name, Getter getter, const char* documentation) {
  bound.def_prop_ro(name, getter, nb::rv_policy::copy, documentation);
}

/// An index of Python, negative ones counted from the end. @throws IndexError
inline std::size_t indexOf(std::int64_t index, std::size_t count) {
  const std::int64_t place = index < 0 ? index + static_cast<std::int64_t>(count) : index;
  if (place < 0 || place >= static_cast<std::int64_t>(count)) throw nb::index_error("index out of range");
  return static_cast<std::size_t>(place);
}

/// The `encode(coder)` that each class which can be coded has. A class that binds an `encode` of its own hides those of
/// its base class in Python, so it binds them again.
template <class Class>
void bindCoding(Class& bound) {
  using Coded = typename Class::Type;
  bound.def(
      "encode",
      [](const Coded& self, mps::Coder& coder) { static_cast<const mps::SecureCoding&>(self).encode(coder); },
      "coder"_a, "Writes all properties to the coder, such as a KeyedArchiver.");
}

inline constexpr const char* copyDocumentation =
    "Another kernel with the same properties, on that device; None: on the same one.";

/// A class of kernels, with what each of them has beside constructor and properties: copy and decode. `Base` is the
/// bound base class, from which encode forms and properties come.
template <class KernelType, class Base>
nb::class_<KernelType, Base> kernelClass(nb::module_& module, const char* name, const char* documentation) {
  nb::class_<KernelType, Base> bound(module, name, documentation);
  bound.def(
      "copy",
      [](const KernelType& self, const std::shared_ptr<mtl::Device>& device) { return self.copy(device); },
      "device"_a.none() = nb::none(), copyDocumentation);
  bound.def_static(
      "decode",
      [](mps::Coder& coder, const std::shared_ptr<mtl::Device>& device) {
        return KernelType::decode(coder, device);
      },
      "coder"_a, "device"_a.none() = nb::none(),
      "The kernel that encode(coder) wrote, on that device; None: on the one that the coder names, else the "
      "default one.");
  return bound;
}

}  // namespace python
