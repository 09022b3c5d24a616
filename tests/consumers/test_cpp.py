"""C++ projects outside the tree find pyfeed, as the documentation says. ``make test-consumers`` runs this.

``tests/cpp/package_test.sh``, a part of ``make test-cpp``, has more cases of versions, and moves the installed files.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import pyfeed

from .pages import ROOT, block, shell

PREFIX = ROOT / "build/prefix"  # make installs the library there
CONAN = ROOT / "build/consumers/bin/conan"
CMAKE_LISTS = block("cpp.md", "cmake")
PRINTED = "the sum is 15\n"


def run(*command: object, cwd: Path, status: int = 0, environment: Mapping[str, str] = os.environ) -> str:
    """Run a command, and return its output."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert (done.returncode != 0) == (status != 0), done.stdout
    return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with the project of the page."""
    (tmp_path / "main.cpp").write_text(block("cpp.md", "cpp"))
    (tmp_path / "CMakeLists.txt").write_text(CMAKE_LISTS)
    return tmp_path


def require(project: Path, requirement: str) -> None:
    """Change what the project requires."""
    assert "find_package(pyfeed 0.1 REQUIRED)" in CMAKE_LISTS
    text = CMAKE_LISTS.replace("find_package(pyfeed 0.1 REQUIRED)", f"find_package(pyfeed {requirement})")
    (project / "CMakeLists.txt").write_text(text)


def test_commands_of_the_page_with_the_python_package(project: Path) -> None:
    configure, build, *with_pkg_config = shell("cpp.md")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run("bash", "-euc", f"{configure}\n{build}", cwd=project, environment=environment)
    assert run("build/trainer", cwd=project) == PRINTED
    cache = (project / "build/CMakeCache.txt").read_text()
    assert f"pyfeed_DIR:UNINITIALIZED={pyfeed.get_cmake_dir()}" in cache

    run("bash", "-euc", "\n".join(with_pkg_config), cwd=project, environment=environment)
    library = os.environ | {"LD_LIBRARY_PATH": pyfeed.get_library_dir()}
    assert run("./trainer", cwd=project, environment=library) == PRINTED


def test_a_prefix_of_make_install(project: Path) -> None:
    run("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={PREFIX}", cwd=project)
    run("cmake", "--build", "build", cwd=project)
    assert run("build/trainer", cwd=project) == PRINTED


@pytest.mark.parametrize("newer", ["0.999", "1.0", "0.999...<1"])
def test_a_version_that_is_too_new_is_refused(project: Path, newer: str) -> None:
    require(project, f"{newer} REQUIRED")
    output = run("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={PREFIX}", cwd=project, status=1)
    output = " ".join(output.split())  # CMake wraps its messages
    asked = f'requested version {"range " if "..." in newer else ""}"{newer}"'
    assert f'Could not find a configuration file for package "pyfeed" that is compatible with {asked}' in output
    assert f"{PREFIX}/lib/cmake/pyfeed/pyfeedConfig.cmake, version: {pyfeed.__version__}" in output


def test_a_required_component_is_refused(project: Path) -> None:
    require(project, "0.1 REQUIRED COMPONENTS cuda")
    output = run("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={PREFIX}", cwd=project, status=1)
    assert "expected no components, found cuda: the package has none" in " ".join(output.split())
    require(project, "0.1 REQUIRED OPTIONAL_COMPONENTS cuda")
    run("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={PREFIX}", cwd=project)


def test_conan_makes_a_package(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """``conan create`` builds the library and the test package; the project of the page then uses the package."""
    home = tmp_path_factory.mktemp("conan")
    environment = os.environ | {"CONAN_HOME": str(home)}
    environment.setdefault("CUDA_INCLUDE", str(ROOT / "build/cuda"))
    run(CONAN, "profile", "detect", cwd=project, environment=environment)
    command = next(line for line in block("cpp.md", "console", "$ CUDA").splitlines() if "conan create" in line)
    options = command.partition("conan ")[2].split()
    recipe = home / "checkout"  # a copy, because conan writes the build of the test package beside its sources
    shutil.copytree(ROOT / options[1], recipe / options[1])
    for name in ROOT.iterdir():
        if name.name not in ("build", "dist", "recipes"):
            (recipe / name.name).symlink_to(name)
    output = run(CONAN, *options, "--no-remote", cwd=recipe, environment=environment)
    assert re.search(rf"^pyfeed {re.escape(pyfeed.__version__)}: the sum is 15$", output, re.MULTILINE), output

    (project / "conanfile.txt").write_text(block("cpp.md", "ini"))
    run(CONAN, "install", ".", "--no-remote", "-of", "build", cwd=project, environment=environment)
    toolchain = "-DCMAKE_TOOLCHAIN_FILE=build/conan_toolchain.cmake"
    run("cmake", "-S", ".", "-B", "build", toolchain, "-DCMAKE_BUILD_TYPE=Release", cwd=project)
    run("cmake", "--build", "build", cwd=project)
    assert run("build/trainer", cwd=project) == PRINTED
    assert f"pyfeed_DIR:PATH={home}" in (project / "build/CMakeCache.txt").read_text()
