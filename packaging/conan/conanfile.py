"""Conan 2 recipe:  conan create packaging/conan

It builds on the system's libraries, whose names docs/install.md has, and asks for those that are missing;
-c tools.system.package_manager:mode=install lets Conan install them.
"""

import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load
from conan.tools.system.package_manager import Apt, Dnf, PacMan

ROOT = os.path.join("..", "..")


class Unmetal(ConanFile):
    name = "unmetal"
    description = "The training part of Metal Performance Shaders as portable C++20"
    license = "MIT"
    topics = ("deep-learning", "training", "cnn", "metal-performance-shaders")
    package_type = "library"
    settings = "os", "compiler", "build_type", "arch"
    options = {"shared": [True, False], "fPIC": [True, False]}
    default_options = {"shared": False, "fPIC": True}
    implements = ["auto_shared_fpic"]

    def set_version(self):
        lists = load(self, os.path.join(self.recipe_folder, ROOT, "CMakeLists.txt"))
        self.version = re.search(r"project\(unmetal VERSION ([0-9.]+)", lists).group(1)

    def export_sources(self):
        root = os.path.join(self.recipe_folder, ROOT)
        for pattern in ("CMakeLists.txt", "LICENSE", "unmetal*.hpp", "cmake/*", "mps/*", "mtl/*", "onnx/*", "tools/*", "train/*"):
            copy(self, pattern, root, self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def system_requirements(self):
        Apt(self).install(["libdnnl-dev", "libhwy-dev", "nlohmann-json3-dev", "zlib1g-dev", "libpng-dev", "libjpeg-dev",
                           "libcli11-dev", "libspdlog-dev", "libfmt-dev"])
        Dnf(self).install(["onednn-devel", "highway-devel", "json-devel", "zlib-devel", "libpng-devel", "libjpeg-turbo-devel",
                           "cli11-devel", "spdlog-devel", "fmt-devel"])
        PacMan(self).install(["onednn", "highway", "nlohmann-json", "zlib", "libpng", "libjpeg-turbo", "cli11", "spdlog", "fmt"])

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["UNMETAL_BUILD_TESTS"] = False
        toolchain.cache_variables["UNMETAL_BUILD_PROGRAM"] = True  # and with it the component `conform`
        toolchain.cache_variables["UNMETAL_CUDA"] = "OFF"
        toolchain.cache_variables["CMAKE_UNITY_BUILD"] = True
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))
        CMake(self).install()

    def package_info(self):
        # find_package(unmetal) reads the package file that unmetal installs itself.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("lib", "cmake", "unmetal")]
        self.buildenv_info.prepend_path("PATH", os.path.join(self.package_folder, "bin"))
        self.runenv_info.prepend_path("PATH", os.path.join(self.package_folder, "bin"))
