"""Builds the Go library and the extensions of pyfeed and pyfeed_worker. All other settings are in pyproject.toml."""

import importlib.util
import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import numpy
from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

from distribution import sbom

ROOT = Path(__file__).resolve().parent
LIBRARY = "libpyfeed.so.0"
# A Python without a GIL has no stable ABI before 3.15, so it gets a wheel of its own.
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
PYTHON_HINT = "(on Debian and Ubuntu: apt-get install python3-dev; on Fedora and RHEL: dnf install python3-devel)"


def version() -> str:
    """Return the release, from the only line that states it."""
    header = (ROOT / "capi/pyfeed.h").read_text()
    return re.search(r'^#define PF_VERSION "(.+)"$', header, re.MULTILINE)[1]


def glibc_needed(binary: Path) -> int:
    """Return N, where glibc 2.N is the oldest that has all symbol versions which a binary requires."""
    versions = re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", binary.read_bytes())
    return max(map(int, versions), default=0)


def environment() -> dict[str, str]:
    """Return the environment of the build. CUDA_INCLUDE is the folder of cuda.h in NVIDIA's wheel, unless it is set."""
    wheel = importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.cuda_runtime")
    for folder in wheel.submodule_search_locations if wheel else []:
        if Path(folder, "include/cuda.h").exists():
            return {"CUDA_INCLUDE": str(Path(folder, "include"))} | os.environ
    return dict(os.environ)


def check_headers() -> None:
    """Exit with an error if the headers of Python are missing, before the library is built."""
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        raise SystemExit(f"setup.py: expected the headers of Python, but there is no {header} {PYTHON_HINT}")


class BuildExt(build_ext):
    """Puts the library, the headers and the CMake and pkg-config files into the package, then builds the extensions."""

    def build_extensions(self) -> None:
        package = Path(self.build_lib, "pyfeed").resolve()
        library = Path(self.build_temp, LIBRARY).resolve()
        check_headers()
        if subprocess.run([ROOT / "capi/build.sh", library], env=environment()).returncode != 0:
            raise SystemExit("setup.py: libpyfeed cannot be built, see the error of capi/build.sh above")
        subprocess.run([ROOT / "cmake/install.sh", library, package], check=True)

        # A wheel cannot contain symbolic links. A copy under a second name could become a second Go runtime in the
        # process. So -lpyfeed finds a linker script that names the library. Its suffix is .a, as for some scripts of
        # glibc, because tools take a file with the suffix .so for an extension.
        (package / "lib/libpyfeed.so").unlink()
        (package / "lib/libpyfeed.a").write_text(f"INPUT({LIBRARY})\n")

        # Some interpreters add their own directory to the search path of extensions. A wheel must not contain it.
        self.compiler.linker_so = [word for word in self.compiler.linker_so if not word.startswith("-Wl,-rpath")]
        for extension in self.extensions:
            if extension.name == "pyfeed._native":  # by its path: not every linker knows -l:NAME
                extension.extra_objects.append(str(package / "lib" / LIBRARY))
        super().build_extensions()

    def run(self) -> None:
        super().run()
        if self.inplace:  # pip install -e: setuptools copies the extensions only
            for name in ("include", "lib"):
                target = ROOT / "python/pyfeed" / name
                # Remove the old files instead of overwriting them: processes that have mapped the library keep it.
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(Path(self.build_lib, "pyfeed", name), target)


class BdistWheel(bdist_wheel):
    """Builds the wheel with a platform tag that names the glibc which the binaries need, instead of ``linux``."""

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, platform = super().get_tag()
        built = Path(self.get_finalized_command("build").build_lib)
        binaries = [*built.glob("*/*.so"), *built.glob(f"*/lib/{LIBRARY}")]
        if binaries and platform.startswith("linux_"):
            # The binaries need no library except libc, which tests/wheel checks. So the version of glibc determines
            # the tag. 2.17 is the oldest version for which pip and NumPy have a tag.
            minor = max(17, *map(glibc_needed, binaries))
            platform = platform.replace("linux_", f"manylinux_2_{minor}_", 1)
        return python, abi, platform

    def egg2dist(self, egginfo_path: str, distinfo_path: str) -> None:
        super().egg2dist(egginfo_path, distinfo_path)
        library = Path(self.get_finalized_command("build").build_lib, "pyfeed/lib", LIBRARY)
        if not library.exists():  # an editable installation, whose metadata come first
            return
        target = Path(distinfo_path, "sboms", sbom.NAME)
        target.parent.mkdir()
        target.write_text(sbom.document(library, version()))


def extension(name: str, sources: list[str], **more: Any) -> Extension:
    """Return an extension for the stable ABI of CPython 3.11, or for one version of free-threaded CPython.

    `sources` are patterns relative to this file.
    """
    return Extension(
        name,
        sources=sorted(str(c.relative_to(ROOT)) for pattern in sources for c in ROOT.glob(pattern)),
        depends=sorted(str(h.relative_to(ROOT)) for h in [*ROOT.glob("python/**/native/*.h"), *ROOT.glob("capi/*.h")]),
        include_dirs=["capi", "python/native", numpy.get_include()],
        define_macros=[
            *([] if FREE_THREADED else [("Py_LIMITED_API", "0x030B0000")]),
            ("NPY_TARGET_VERSION", "NPY_1_23_API_VERSION"),
            ("NPY_NO_DEPRECATED_API", "NPY_1_23_API_VERSION"),
            *more.pop("macros", []),
        ],
        extra_compile_args=["-O2", "-g0", "-fvisibility=hidden", "-Wall", "-Wextra"],
        extra_link_args=["-Wl,-z,now", "-Wl,-s", *more.pop("link_args", [])],
        py_limited_api=not FREE_THREADED,
        **more,
    )


setup(
    version=version(),
    cmdclass={"build_ext": BuildExt, "bdist_wheel": BdistWheel},
    options={
        # The default of setuptools, build/, contains the other build outputs of the project.
        "build": {"build_base": "build/python"},
        "bdist_wheel": {} if FREE_THREADED else {"py_limited_api": "cp311"},
    },
    ext_modules=[
        extension("pyfeed._native", ["python/native/*.c"], link_args=["-Wl,-rpath,$ORIGIN/lib"]),
        # It shares the code that reads arrays with pyfeed._native, but does not link libpyfeed.
        extension(
            "pyfeed_worker._native",
            [
                "python/pyfeed_worker/native/*.c",
                "python/native/arrays.c",
                "python/native/interpreter.c",
                "python/native/lock.c",
                "python/native/signals.c",
                "python/native/structure.c",
                "capi/gather.c",
                "capi/info.c",
            ],
            macros=[("PYFEED_LOD_MODULE", '"pyfeed_worker._lod"'), ("PYFEED_PACKAGE", '"pyfeed_worker"')],
            link_args=["-Wl,--version-script=python/pyfeed_worker/native/exports.map"],
        ),
    ],
)
