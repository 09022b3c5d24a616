"""The build backend of PEP 517: that of setuptools, with two differences.

The tools that the machine lacks, such as Go, are requirements of the build. Archives have the same bytes in any
folder, at any time and with any umask.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import get_requires_for_build_sdist, prepare_metadata_for_build_editable

from distribution import archives, requirements

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
]  # not prepare_metadata_for_build_wheel: the list of what the library contains is known once it is built

Settings = dict[str, Any] | None


@contextmanager
def reproducible() -> Iterator[None]:
    """Set the umask and the time, which setuptools writes into archives."""
    os.environ["SOURCE_DATE_EPOCH"] = str(archives.time())
    umask = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(umask)


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Return the packages that the build needs besides those of pyproject.toml."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *requirements.missing()]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """Return the packages that an editable build needs besides those of pyproject.toml."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *requirements.missing()]


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Build the wheel, and return its name."""
    with reproducible():
        name: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    return name


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build the wheel of an editable installation, and return its name."""
    name: str = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    return name


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Build the source distribution, and return its name."""
    with reproducible():
        name: str = build_meta.build_sdist(sdist_directory, config_settings)
    archives.normalize(Path(sdist_directory, name))
    return name
