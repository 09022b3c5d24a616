"""Makes archives whose bytes depend only on the names and the contents of their files."""

import gzip
import os
import tarfile
from pathlib import Path

# 1980-01-01, the oldest time that a zip file, and so a wheel, can hold.
TIME = 315532800


def time() -> int:
    """Return the time that all files of an archive get: SOURCE_DATE_EPOCH, or else 1980."""
    return int(os.environ.get("SOURCE_DATE_EPOCH") or TIME)


def normalize(path: Path) -> None:
    """Write a .tar.gz file again: sorted by name, without the owners, times and umask of this machine."""
    new_path = path.with_name(path.name + ".new")
    with (
        tarfile.open(path) as old,
        open(new_path, "wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=time()) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            if not (member.isfile() or member.isdir()):
                raise ValueError(f"{path}: expected files and folders only, found {member.name}")
            copy = tarfile.TarInfo(member.name)
            copy.type, copy.size, copy.mtime = member.type, member.size, time()
            copy.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(copy, old.extractfile(member))
    new_path.replace(path)
