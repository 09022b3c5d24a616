"""Checks the SBOMs of wheels: python tests/wheel/sbom.py WHEEL.... Needs cyclonedx-python-lib, and go on PATH.

Each wheel has one SBOM, which follows CycloneDX's schema and lists the modules that Go has noted in the library.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator


def linked(wheel: zipfile.ZipFile) -> list[str]:
    """Return the modules and versions in the library of a wheel, as the go command prints them."""
    with tempfile.NamedTemporaryFile() as library:
        library.write(wheel.read("pyfeed/lib/libpyfeed.so.0"))
        library.flush()
        text = subprocess.run(["go", "version", "-m", library.name], check=True, capture_output=True, text=True).stdout
    rows = [line.split("\t")[1:] for line in text.splitlines()]
    modules = [f"{row[1]} {row[2]}" for row in rows if row and row[0] == "dep"]
    return sorted([*modules, "stdlib " + text.splitlines()[0].rsplit(" go", 1)[1]])


def check(path: str) -> str:
    """Return what was found in a wheel, or exit with an error."""
    with zipfile.ZipFile(path) as wheel:
        (name,) = [name for name in wheel.namelist() if ".dist-info/sboms/" in name]
        text = wheel.read(name).decode()
        expected = linked(wheel)
        packed = wheel.getinfo(name).compress_size
    if (error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)) is not None:
        sys.exit(f"sbom: {path}: expected a document of CycloneDX 1.6, found: {error}")
    components = json.loads(text)["components"]
    found = sorted(f"{c['name']} {c['version']}" for c in components if c["purl"].startswith("pkg:golang/"))
    if found != expected:
        sys.exit(f"sbom: {path}: expected {expected}, as the go command prints, found {found}")
    unsigned = [c["name"] for c in components if c["name"] not in ("stdlib", "compiler-rt") and not c.get("hashes")]
    if unsigned:
        sys.exit(f"sbom: {path}: expected a hash of each module, found none of {unsigned}")
    return f"{len(components)} components, {len(text)} bytes, {packed} compressed: valid"


for wheel in sys.argv[1:]:
    print("sbom:", Path(wheel).name, check(wheel))
