"""Measures the worth of each heuristic: builds pyfeed without it, and runs the cases that it should improve.

    python benchmarks/ablations.py [--only "ballast,file groups"] [--folder build/ablations] [--json FILE]

`ablations.toml` contains the edit that removes each heuristic, and its cases. The script makes each build once, from
the wheel and the sdist in `dist/` (`make wheel`), and keeps the builds in the folder. Remove the folder to build again.
For each case, `compare_builds.py` runs the builds that name this case in turns with the unchanged build. The unchanged
build runs twice: "same" is the difference between its two runs, which is due to chance.

Each line of output is the speed with the heuristic divided by the speed without it. A value of 1.10 means that the
heuristic makes the case 10 % faster.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from harness.results import paired_ratios

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".toml")
AT_ONCE = 6  # builds compared with the unchanged one; with more, too much time passes between the turns of a build
LIBRARY = "pyfeed/lib/libpyfeed.so.0"


def table() -> list[dict[str, Any]]:
    """The ablations, in the order of docs/performance.md."""
    return list(tomllib.loads(TABLE.read_text())["ablation"])


def edited(source: str, ablation: dict[str, Any]) -> str:
    """The source of a file without the heuristic."""
    if source.count(ablation["old"]) != 1:
        raise SystemExit(f"{ablation['name']}: expected its old text once in {ablation['file']}")
    return source.replace(ablation["old"], ablation["new"])


def folder_name(ablation: dict[str, Any]) -> str:
    return re.sub(r"\W+", "-", ablation["name"])


class Builds:
    """Builds of pyfeed, each in a folder that can be added to `sys.path`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sources = folder / "sources"
        self.unchanged = folder / "unchanged"
        if not self.unchanged.exists():
            (wheel,) = (ROOT / "dist").glob("*.whl")
            self._install(wheel, self.unchanged)
        if not self.sources.exists():
            (sdist,) = (ROOT / "dist").glob("*.tar.gz")
            unpacked = folder / "sdist"
            shutil.rmtree(unpacked, ignore_errors=True)
            shutil.unpack_archive(sdist, unpacked, filter="data")
            (found,) = unpacked.iterdir()
            found.rename(self.sources)

    def without(self, ablation: dict[str, Any]) -> Path:
        """The folder of the build without a heuristic."""
        target = self.folder / folder_name(ablation)
        if not target.exists():
            print(f"building without {ablation['name']!r}", flush=True)
            name = Path(ablation["file"])
            file = self.sources / name
            original = file.read_text()
            file.write_text(edited(original, ablation))
            try:
                self._build(name, target)
            finally:
                file.write_text(original)
        return target

    def _build(self, name: Path, target: Path) -> None:
        if name.parts[0] == "python" and name.suffix != ".py":
            wheels = self.folder / "wheels"
            shutil.rmtree(wheels, ignore_errors=True)
            subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "build",
                    "--quiet",
                    "--no-isolation",
                    "--wheel",
                    "--outdir",
                    wheels,
                    self.sources,
                ],
                check=True,
            )
            (wheel,) = wheels.glob("*.whl")
            self._install(wheel, target)
            return
        made = target.with_suffix(".part")
        shutil.rmtree(made, ignore_errors=True)
        shutil.copytree(self.unchanged, made)
        if name.parts[0] == "python":
            shutil.copy2(self.sources / name, made / name.relative_to("python"))
        else:
            (made / LIBRARY).unlink()
            subprocess.run([self.sources / "capi/build.sh", made / LIBRARY], check=True)
        made.rename(target)

    @staticmethod
    def _install(wheel: Path, target: Path) -> None:
        made = target.with_suffix(".part")
        shutil.rmtree(made, ignore_errors=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--target", made, wheel], check=True)
        made.rename(target)


def compare(case: str, builds: dict[str, Path], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the cases whose names contain the text with each build. The first build is the unchanged one."""
    results = args.folder / "compare.json"
    results.unlink(missing_ok=True)
    command = [sys.executable, Path(__file__).with_name("compare_builds.py"), "--json", results, "--cases", case]
    command += [f"--build={name}={folder}" for name, folder in builds.items()]
    command += ["--runs", str(args.runs), "--seconds", str(args.seconds), "--cores", args.cores]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode or not results.exists():
        print(f"{case}: failed", flush=True)
        return []
    return list(json.loads(results.read_text())["cases"])


def worths(case: dict[str, Any], builds: list[str]) -> list[dict[str, Any]]:
    """The median, least and most of the ratios of the runs, for each build and setting."""
    values = {library["library"]: library["values"] for library in case["libraries"] if "values" in library}
    first, *others = builds
    found = []
    for line, of_first in values.items():
        name, _, setting = line.partition(":")
        if name != first:
            continue
        for build in others:
            if of_build := values.get(f"{build}:{setting}"):
                ratios = paired_ratios(of_first, of_build, case["better"])
                ratio = [median(ratios), min(ratios), max(ratios)]
                found.append({"without": build, "case": case["case"], "setting": setting.strip(), "worth": ratio})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of ablations, separated by commas")
    parser.add_argument("--cases", default="", help="only cases with one of these texts, separated by semicolons")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/ablations")
    parser.add_argument("--build-only", action="store_true", help="make the builds, and measure nothing")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each build in each run")
    parser.add_argument("--cores", default="1,2", help="run each case of files on so many cores")
    parser.add_argument("--json", type=Path, help="write the results to this file, after each case")
    args = parser.parse_args()
    args.folder = args.folder.absolute()
    only = [text.strip() for text in args.only.split(",") if text.strip()]
    texts = [text.strip() for text in args.cases.split(";") if text.strip()]
    wanted = [a for a in table() if not only or a["name"] in only]
    if unknown := set(only) - {a["name"] for a in wanted}:
        raise SystemExit(f"--only: expected names of {TABLE.name}, found {sorted(unknown)}")
    builds = Builds(args.folder)
    of_case: dict[str, list[tuple[str, Path]]] = defaultdict(list)
    for ablation in wanted:
        if cases := [case for case in ablation.get("cases", ()) if not texts or any(text in case for text in texts)]:
            built = builds.without(ablation)
            for case in cases:
                of_case[case].append((ablation["name"], built))
    if args.build_only:
        return
    found: list[dict[str, Any]] = []
    for case, those in of_case.items():
        for i in range(0, len(those), AT_ONCE):
            compared = {"with": builds.unchanged, **dict(those[i : i + AT_ONCE]), "same": builds.unchanged}
            for result in compare(case, compared, args):
                for line in worths(result, list(compared)):
                    found.append(line)
                    ratio, least, most = line["worth"]
                    where = f"{line['case']} {line['setting']}"
                    print(f"{line['without']:30} {ratio:.3f} ({least:.3f} to {most:.3f})  {where}", flush=True)
            if args.json:
                args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    os.environ.setdefault("CUDA_INCLUDE", str(ROOT / "build/cuda"))
    main()
