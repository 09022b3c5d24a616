"""A Go module outside the tree uses pyfeed by ``go get`` from a proxy, as the documentation says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from .pages import ROOT, block, shell

MODULE = "github.com/pyfeed/pyfeed"
VERSION = "v0.1.0"


def go(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a Go command in an environment without the variables that lead to cuda.h."""
    inherited = {name: text for name, text in os.environ.items() if name not in ("CGO_CPPFLAGS", "CUDA_INCLUDE")}
    return subprocess.run(
        ["go", *arguments], cwd=folder, env=inherited | environment, capture_output=True, text=True, timeout=600
    )


def checked(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="session")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Publish the sources; return the environment of a user.

    The go command itself makes the module's zip, from a git repository with a tag, as public proxies do. So it also
    applies its rules for names and sizes of files. Its download cache has the layout of a proxy.
    """
    repository = tmp_path_factory.mktemp("repository")
    listed = subprocess.check_output(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, text=True)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (repository / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, repository / name)
    git = ["git", "-c", "user.name=pyfeed", "-c", "user.email=pyfeed@localhost", "-c", "core.hooksPath="]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "release"], ["tag", VERSION]):
        subprocess.run([*git, *command], cwd=repository, check=True)

    cache = tmp_path_factory.mktemp("published")
    public = json.loads(checked(go(ROOT, "env", "-json", "GOPROXY", "GOMODCACHE")))
    own = f"file://{public['GOMODCACHE']}/cache/download"  # modules that were downloaded before: the build of pyfeed's
    common = {"GOFLAGS": "-modcacherw -mod=mod", "GOSUMDB": "off", "GOWORK": "off", "GOTOOLCHAIN": "local"}
    publish = common | {
        "GOPROXY": "direct",
        "GOMODCACHE": str(cache),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"url.file://{repository}.insteadOf",
        "GIT_CONFIG_VALUE_0": f"https://{MODULE}",
    }
    checked(go(cache, "mod", "download", f"{MODULE}@{VERSION}", **publish))
    return common | {
        "GOPROXY": f"file://{cache}/cache/download,{own},{public['GOPROXY']}",
        "GOMODCACHE": str(tmp_path_factory.mktemp("modules")),
    }


@pytest.fixture(scope="session")
def consumer(proxy: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a module that was made by the commands of the page, except the last, which runs it."""
    folder = tmp_path_factory.mktemp("consumer")
    (folder / "main.go").write_text(block("go.md", "go"))
    for command in shell("go.md")[:-1]:
        checked(go(folder, *command.split()[1:], **proxy))
    return folder


def test_the_module_has_what_a_module_needs(proxy: dict[str, str]) -> None:
    archive = Path(proxy["GOPROXY"].split(",")[0].removeprefix("file://"), MODULE, "@v", f"{VERSION}.zip")
    with zipfile.ZipFile(archive) as file:
        names = {info.filename.removeprefix(f"{MODULE}@{VERSION}/"): info.file_size for info in file.infolist()}
    assert {"go.mod", "LICENSE", "THIRD_PARTY_LICENSES", "readers/ops/make.go", "pyfeed/memory/memory.h"} <= set(names)
    assert not [name for name in names if re.match(r"(build|dist)/", name)]
    assert sum(names.values()) < 16 << 20  # the limit of Go is 500 MB; each user downloads this


def test_the_program_of_the_page_prints_what_the_page_says(proxy: dict[str, str], consumer: Path) -> None:
    assert shell("go.md")[-1] == "go run ."
    assert checked(go(consumer, "run", ".", **proxy)) == block("go.md", "text")
    required = json.loads(checked(go(consumer, "mod", "edit", "-json", **proxy)))["Require"]
    assert [(r["Path"], r["Version"]) for r in required if not r.get("Indirect")] == [(MODULE, VERSION)]


def test_readers_need_nothing_of_cuda(proxy: dict[str, str], consumer: Path) -> None:
    everything = checked(go(consumer, "list", "-deps", f"{MODULE}/readers/...", ".", **proxy)).split()
    assert f"{MODULE}/readers/tfrecord" in everything
    assert [name for name in everything if name.startswith(("gorgonia.org/cu", f"{MODULE}/cuda"))] == []
    checked(go(consumer, "build", f"{MODULE}/readers/...", f"{MODULE}/program/...", **proxy))


def test_one_package_needs_c(proxy: dict[str, str], consumer: Path) -> None:
    template = f'{{{{if and .CgoFiles (eq .Module.Path "{MODULE}")}}}}{{{{.ImportPath}}}}{{{{end}}}}'
    packages = [f"{MODULE}/readers/...", f"{MODULE}/program/..."]
    with_c = checked(
        go(consumer, "list", "-deps", "-f", f"{{{{if .Module}}}}{template}{{{{end}}}}", *packages, **proxy)
    )
    assert with_c.split() == [f"{MODULE}/pyfeed/memory"]
    done = go(consumer, "build", ".", CGO_ENABLED="0", **proxy)
    assert done.returncode != 0
    assert "undefined: pyfeed_needs_cgo__set_CGO_ENABLED_to_1_and_install_a_C_compiler" in done.stderr
