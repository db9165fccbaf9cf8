#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "mps/core/kernel/kernel.hpp"

namespace mps::detail {

/// A text as a template's argument.
template <std::size_t size>
struct ClassName {
  // NOLINTNEXTLINE(google-explicit-constructor): a literal is one
  constexpr ClassName(const char (&text)[size]) { std::copy_n(text, size, characters); }
  char characters[size];
};

/// What every class of kernels that is made by users says of itself: its name, a copy and an object from a coder.
///
///     class CNNSoftMax : public detail::KernelClass<CNNSoftMax, CNNKernel, "CNNSoftMax">
///
/// A class whose copy constructor is protected has `friend KernelClass;`.
template <class Class, class Base, ClassName name>
class KernelClass : public Base {
 public:
  [[nodiscard]] std::string className() const override { return nameOfClass(); }
  /// className() without an object.
  static std::string nameOfClass() { return name.characters; }
  /// The same properties, for another device. @param device null: the kernel's own
  [[nodiscard]] std::shared_ptr<Class> copy(const std::shared_ptr<mtl::Device>& device = nullptr) const {
    return copyAs(static_cast<const Class&>(*this), device);
  }
  /// A kernel from what encode(coder) has written. @param device null: the coder's, or the default one
  /// @throws Error for data of another class or outside of what properties may be
  static std::shared_ptr<Class> decode(Coder& coder, const std::shared_ptr<mtl::Device>& device = nullptr) {
    return decodeAs<Class>(coder, device);
  }

 protected:
  using Base::Base;
  KernelClass(const KernelClass&) = default;
  [[nodiscard]] std::shared_ptr<Kernel> clone() const override {
    return std::shared_ptr<Class>(new Class(static_cast<const Class&>(*this)));
  }
};

/// The classes of a family: <family>_classes.hpp has its list, for what has to know all of them.
template <class... Classes>
struct KernelClasses {
  /// Calls visit.template operator()<Class>() for each of them.
  template <class Visit>
  static void forEach(Visit visit) {
    (visit.template operator()<Classes>(), ...);
  }
};

}  // namespace mps::detail
