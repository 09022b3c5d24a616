"""Builds the Go library, the extension on top of it, and the workers' own. All else is in pyproject.toml."""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
LIBRARY = "libpyfeed.so.0"


def version() -> str:
    """The release, from the one line that states it."""
    header = (ROOT / "capi/pyfeed.h").read_text()
    return re.search(r'^#define PF_VERSION "(.+)"$', header, re.MULTILINE)[1]


def glibc_needed(binary: Path) -> int:
    """N, where 2.N is the oldest glibc that has every symbol this file asks for by version."""
    versions = re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", binary.read_bytes())
    return max(map(int, versions), default=0)


def environment() -> dict[str, str]:
    """That of the build, with the folder of cuda.h: from NVIDIA's wheel, a build requirement, unless it is given."""
    wheel = importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.cuda_runtime")
    for folder in wheel.submodule_search_locations if wheel else []:
        if Path(folder, "include/cuda.h").exists():
            return {"CUDA_INCLUDE": str(Path(folder, "include"))} | os.environ
    return dict(os.environ)


class BuildExt(build_ext):
    """Puts the library, its headers and its CMake and pkg-config files into the package first."""

    def build_extensions(self) -> None:
        package = Path(self.build_lib, "pyfeed").resolve()
        library = Path(self.build_temp, LIBRARY).resolve()
        subprocess.run([ROOT / "capi/build.sh", library], check=True, env=environment())
        subprocess.run([ROOT / "cmake/install.sh", library, package], check=True)

        # A wheel has no symbolic links, and a copy under a second name could end up as a second
        # Go runtime in the process. So -lpyfeed finds a linker script that names the library; it
        # ends in .a, as some of glibc's do, because a file called .so must pass for an extension.
        (package / "lib/libpyfeed.so").unlink()
        (package / "lib/libpyfeed.a").write_text(f"INPUT({LIBRARY})\n")

        # Some interpreters were built with their own directory as a search path: not for a wheel.
        self.compiler.linker_so = [word for word in self.compiler.linker_so if not word.startswith("-Wl,-rpath")]
        self.compiler.add_library_dir(str(package / "lib"))
        super().build_extensions()

    def run(self) -> None:
        super().run()
        if self.inplace:  # pip install -e: setuptools copies the extension, the rest is ours
            for name in ("include", "lib"):
                target = ROOT / "python/pyfeed" / name
                # Removed, not overwritten: processes that have the library mapped keep it whole.
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(Path(self.build_lib, "pyfeed", name), target)


class BdistWheel(bdist_wheel):
    """Names the glibc the binaries need, instead of "some Linux"."""

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, platform = super().get_tag()
        built = Path(self.get_finalized_command("build").build_lib)
        binaries = [*built.glob("*/*.so"), *built.glob(f"*/lib/{LIBRARY}")]
        if binaries and platform.startswith("linux_"):
            # Nobody else's library is needed (tests/wheel checks it), so glibc's version is all
            # there is to say. 2.17 is the oldest that pip and NumPy have a tag for.
            minor = max(17, *map(glibc_needed, binaries))
            platform = platform.replace("linux_", f"manylinux_2_{minor}_", 1)
        return python, abi, platform


def extension(name: str, sources: list[str], **more: Any) -> Extension:
    """An extension for every CPython there is from 3.11 on. C files of ours are relative to this one."""
    return Extension(
        name,
        sources=sorted(str(c.relative_to(ROOT)) for pattern in sources for c in ROOT.glob(pattern)),
        depends=sorted(str(h.relative_to(ROOT)) for h in [*ROOT.glob("python/**/native/*.h"), *ROOT.glob("capi/*.h")]),
        include_dirs=["capi", "python/native", numpy.get_include()],
        define_macros=[
            ("Py_LIMITED_API", "0x030B0000"),
            ("NPY_TARGET_VERSION", "NPY_1_23_API_VERSION"),
            ("NPY_NO_DEPRECATED_API", "NPY_1_23_API_VERSION"),
            *more.pop("macros", []),
        ],
        extra_compile_args=["-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra"],
        extra_link_args=["-Wl,-z,now", *more.pop("link_args", [])],
        py_limited_api=True,
        **more,
    )


setup(
    version=version(),
    cmdclass={"build_ext": BuildExt, "bdist_wheel": BdistWheel},
    options={
        # setuptools' own choice, build/, is where everything else of ours is built too.
        "build": {"build_base": "build/python"},
        "bdist_wheel": {"py_limited_api": "cp311"},
    },
    ext_modules=[
        extension(
            "pyfeed._native", ["python/native/*.c"], libraries=[f":{LIBRARY}"], link_args=["-Wl,-rpath,$ORIGIN/lib"]
        ),
        # It takes arrays as the other does, but has no libpyfeed below it.
        extension(
            "pyfeed_worker._native",
            [
                "python/pyfeed_worker/native/*.c",
                "python/native/arrays.c",
                "python/native/interpreter.c",
                "python/native/signals.c",
                "capi/gather.c",
                "capi/info.c",
            ],
            macros=[("PYFEED_LOD_MODULE", '"pyfeed_worker._lod"'), ("PYFEED_PACKAGE", '"pyfeed_worker"')],
            link_args=["-Wl,--version-script=python/pyfeed_worker/native/exports.map"],
        ),
    ],
)
