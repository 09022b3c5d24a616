"""Runs the tests of PyTorch and torchdata with their loaders and with those of `pyfeed.torch`, and compares outcomes.

The tests are read from checkouts of pytorch/pytorch or pytorch/data, which are not a part of this repository. In a copy
of each file in a temporary folder, the import of the loader is replaced:

    PYFEED_PEER_CHECKOUTS=/checkouts/pytorch:/checkouts/data python tests/peers/torch_dataloader.py

The environment needs torch, torchdata, pytest, pytest-timeout, psutil, expecttest and parameterized. Each test whose
outcome differs is printed. The exit status is 1 if there is one that is not in `KNOWN`.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

TORCH = ("torch.utils.data", "DataLoader")
STATEFUL = ("torchdata.stateful_dataloader", "StatefulDataLoader")
OURS = {TORCH: ("pyfeed.torch", "DataLoader"), STATEFUL: ("pyfeed.torch", "StatefulDataLoader")}

# The files of the checkouts, and the loaders that they are run with.
FILES = {
    "test/test_dataloader.py": [TORCH],
    "test/stateful_dataloader/test_dataloader.py": [TORCH, STATEFUL],
    "test/stateful_dataloader/test_state_dict.py": [STATEFUL],
}

# Tests whose outcome differs, and the private attribute that they read.
KNOWN: dict[str, str] = {}


def substitute(source: str, loader: tuple[str, str]) -> str:
    """Replace the import of the loader."""
    module, name = loader
    source = re.sub(
        r"^from torchdata\.stateful_dataloader import StatefulDataLoader as DataLoader$",
        f"from {module} import {name} as DataLoader",
        source,
        flags=re.MULTILINE,
    )
    source = re.sub(
        r"^from torchdata\.stateful_dataloader import Stateful, StatefulDataLoader$",
        f"from torchdata.stateful_dataloader import Stateful\nfrom {module} import {name}",
        source,
        flags=re.MULTILINE,
    )
    source = re.sub(r"^(from torch\.utils\.data import .*)\bDataLoader, ", r"\1", source, flags=re.MULTILINE)
    if re.search(r"^    DataLoader,$", source, re.MULTILINE):
        source = re.sub(r"^    DataLoader,\n", "", source, flags=re.MULTILINE)
        line = "from torch.utils.data._utils import MP_STATUS_CHECK_INTERVAL\n"
        source = source.replace(line, f"{line}from {module} import {name} as DataLoader\n", 1)
    return source


def outcomes(path: Path, loader: tuple[str, str], arguments: list[str]) -> dict[str, str]:
    """Run the tests of a file, and return the outcome of each."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, path.name)
        copy.write_text(substitute(path.read_text(), loader))
        report = Path(folder, "report.xml")
        environment = os.environ | {"PYTORCH_TEST_WITH_SLOW": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}"]
        command += ["-o", "addopts=", "--timeout=300", "-c", os.devnull, f"--rootdir={folder}", str(copy), *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        log = Path(f"{path.stem}-{loader[0]}-{loader[1]}.log")
        if os.environ.get("PYFEED_PEER_LOGS"):
            Path(os.environ["PYFEED_PEER_LOGS"], log).write_text(done.stdout + done.stderr)
        if not report.exists():
            sys.exit(done.stdout + done.stderr)
        result = {}
        for case in ET.parse(report).iter("testcase"):
            kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
            name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
            result[name] = kinds[0] if kinds else "passed"
        return result


def main() -> int:
    """Compare all files of the checkouts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    arguments = parser.parse_args()
    checkouts = [Path(p) for p in os.environ.get("PYFEED_PEER_CHECKOUTS", "").split(":") if p]
    found = [(c / file, loader) for c in checkouts for file in FILES if (c / file).exists() for loader in FILES[file]]
    if not found:
        parser.error("PYFEED_PEER_CHECKOUTS names no checkout with tests of a loader")
    unknown = 0
    for path, loader in found:
        theirs = outcomes(path, loader, arguments.pytest)
        ours = outcomes(path, OURS[loader], arguments.pytest)
        counts = {kind: list(theirs.values()).count(kind) for kind in sorted(set(theirs.values()))}
        print(f"{path.relative_to(path.parents[2])} with {'.'.join(loader)}: {len(theirs)} tests, {counts}", flush=True)
        for name in sorted(theirs.keys() | ours.keys()):
            if theirs.get(name) != ours.get(name):
                reason = KNOWN.get(name, "")
                unknown += not reason
                print(
                    f"  {name}: {theirs.get(name)} with theirs, {ours.get(name)} with pyfeed.torch {reason}", flush=True
                )
    return int(unknown > 0)


if __name__ == "__main__":
    sys.exit(main())
