"""A Conan 2 recipe for the sources of this checkout: ``conan create recipes/conan``.

It builds the library as ``make install`` does. It needs Go, and cuda.h of CUDA 12: CUDA_INCLUDE names its folder.
"""

import re
from pathlib import Path

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.files import copy


class Pyfeed(ConanFile):
    name = "pyfeed"
    description = "Loads training data from files, threads and worker processes, for C++, C and Python"
    license = "Apache-2.0"
    homepage = url = "https://github.com/pyfeed/pyfeed"
    topics = ("data-loading", "training", "queue", "zero-copy")
    package_type = "shared-library"
    settings = "os", "arch", "compiler", "build_type"

    def set_version(self):
        header = Path(self.recipe_folder, "../../capi/pyfeed.h").read_text()
        self.version = re.search(r'^#define PF_VERSION "(.+)"$', header, re.MULTILINE)[1]

    def export_sources(self):
        root = Path(self.recipe_folder, "../..").resolve()
        for name in ("go.mod", "go.sum", "LICENSE", "THIRD_PARTY_LICENSES"):
            copy(self, name, root, self.export_sources_folder)
        for folder in ("capi", "cmake", "cuda", "internal", "program", "pyfeed", "readers"):
            copy(self, "*", root / folder, Path(self.export_sources_folder, folder))

    def validate(self):
        if self.settings.os != "Linux" or self.settings.arch not in ("x86_64", "armv8"):
            raise ConanInvalidConfiguration(
                f"pyfeed: expected Linux on x86_64 or armv8, found {self.settings.os} on {self.settings.arch}"
            )

    def package_id(self):
        # The interface is C, and the C++ headers contain no compiled code: one package serves all compilers.
        del self.info.settings.compiler
        del self.info.settings.build_type

    def build(self):
        script = Path(self.source_folder, "capi/build.sh")
        self.run(f'"{script}" "{self.build_folder}/libpyfeed.so.0"')

    def package(self):
        script = Path(self.source_folder, "cmake/install.sh")
        self.run(f'"{script}" "{self.build_folder}/libpyfeed.so.0" "{self.package_folder}"')
        copy(self, "*LICENSE*", self.source_folder, Path(self.package_folder, "licenses"))

    def package_info(self):
        self.cpp_info.libs = ["pyfeed"]
        # find_package finds the files that the library installs itself, not files of CMakeDeps.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = ["lib/cmake/pyfeed"]
