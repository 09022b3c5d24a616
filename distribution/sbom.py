"""Lists the projects whose compiled code is in the wheel: a software bill of materials (SBOM) in CycloneDX's JSON.

PEP 770 has it in the folder ``sboms`` of the wheel's metadata. It has no time and no random number, so that the same
sources give the same bytes.
"""

import base64
import importlib.metadata
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NAME = "pyarrayfeed.cdx.json"

# A section of THIRD_PARTY_LICENSES begins with the name of the project between two such lines.
RULE = "-" * 70
GO_SECTION = "The Go runtime and standard library"
ZIG_SECTION = "zig's compiler-rt"

# A sentence by which each licence is recognized. The two BSD licences differ by the third clause.
SENTENCES = {
    "Apache-2.0": r"Apache License,? Version 2\.0",
    "MIT": "Permission is hereby granted, free of charge",
}
BSD = "Redistribution and use in source and binary forms"
BSD_THIRD_CLAUSE = "Neither the name of"


def license_sections() -> dict[str, str]:
    """Return the text of each section of THIRD_PARTY_LICENSES, with each run of white space as one space."""
    parts = (ROOT / "THIRD_PARTY_LICENSES").read_text().split(RULE + "\n")
    names, texts = parts[1::2], parts[2::2]
    return {name.strip(): " ".join(text.split()) for name, text in zip(names, texts, strict=True)}


def license_expression(section: str, text: str) -> str:
    """Return the SPDX expression of a section, which all its licences are part of."""
    found = [name for name, sentence in SENTENCES.items() if re.search(sentence, text)]
    two_or_three, three = text.count(BSD), text.count(BSD_THIRD_CLAUSE)
    if three:
        found.append("BSD-3-Clause")
    if two_or_three > three:
        found.append("BSD-2-Clause")
    if not found:
        raise ValueError(f"THIRD_PARTY_LICENSES: expected a known licence in section {section!r}, found none")
    return " AND ".join(sorted(found))


def hashes() -> dict[tuple[str, str], str]:
    """Return the SHA-256 of each version of a module: the h1 of go.sum, in hexadecimal."""
    lines = re.findall(r"^(\S+) (\S+) h1:(\S+)$", (ROOT / "go.sum").read_text(), re.MULTILINE)
    return {(module, version): base64.b64decode(h1).hex() for module, version, h1 in lines}


def component(name: str, version: str, purl: str, expression: str, sha256: str = "") -> dict[str, Any]:
    """Return one entry of the list."""
    license = {"expression": expression} if " " in expression else {"license": {"id": expression}}
    entry = {"type": "library", "name": name, "version": version, "purl": purl, "licenses": [license]}
    return entry | ({"hashes": [{"alg": "SHA-256", "content": sha256}]} if sha256 else {})


def components(library: Path) -> list[dict[str, Any]]:
    """Return the Go runtime, the modules that Go has noted in a library, and compiler-rt if zig links it."""
    go = os.environ.get("GO") or "go"
    answer = subprocess.run([go, "version", "-m", "-json", library], check=True, capture_output=True, text=True).stdout
    info = json.loads(answer)
    licenses = {name: license_expression(name, text) for name, text in license_sections().items()}
    sums = hashes()

    go_version = info["GoVersion"].removeprefix("go")
    entries = [component("stdlib", go_version, f"pkg:golang/stdlib@{go_version}", licenses[GO_SECTION])]
    for module in info["Deps"]:
        path, version = module["Path"], module["Version"]
        if path not in licenses:
            raise ValueError(f"THIRD_PARTY_LICENSES: expected a section {path!r}, which is linked, found none")
        entries.append(
            component(path, version, f"pkg:golang/{path.lower()}@{version}", licenses[path], sums[path, version])
        )
    if "ZIG_TARGET" in os.environ:  # the linker takes only the functions that compiled code calls
        version = importlib.metadata.version("ziglang")
        entries.append(component("compiler-rt", version, f"pkg:pypi/ziglang@{version}", licenses[ZIG_SECTION]))
    return entries


def document(library: Path, version: str) -> str:
    """Return the SBOM of the wheel that contains a library."""
    wheel = component("pyarrayfeed", version, f"pkg:pypi/pyarrayfeed@{version}", "Apache-2.0")
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": wheel},
        "components": components(library),
    }
    return json.dumps(bom, separators=(",", ":")) + "\n"
