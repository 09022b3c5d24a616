"""Checks a recipe of conda, without a network: python tests/wheel/recipe.py RECIPE VERSION. Needs py-rattler-build.

It renders the recipe, and compares the result with pyproject.toml and with the requirements of the build.
"""

import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from rattler_build import RenderConfig, Stage0Recipe, VariantConfig
from rattler_build.tool_config import PlatformConfig

ROOT = Path(__file__).resolve().parents[2]


def expect(what: str, expected: Any, found: Any) -> None:
    if expected != found:
        sys.exit(f"recipe: {what}: expected {expected!r}, found {found!r}")
    print(f"recipe: {what}: {found}")


def main(path: str, version: str) -> None:
    os.environ["PYFEED_VERSION"] = version
    variants = VariantConfig.from_file(ROOT / "recipes/conda/variants.yaml")
    config = RenderConfig(PlatformConfig(target_platform="linux-64", build_platform="linux-64"))
    (rendered,) = Stage0Recipe.from_file(path).render(variants, config)
    recipe = rendered.recipe.to_dict()
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, needed = pyproject["project"], recipe["requirements"]

    expect("package", {"name": project["name"], "version": version}, recipe["package"])
    expect("summary", project["description"], recipe["about"]["summary"])
    expect("files with licences", project["license-files"], recipe["about"]["license_file"])
    run = [f"python {project['requires-python']}", *(re.sub("(?=>)", " ", each) for each in project["dependencies"])]
    expect("packages at run time", sorted(run), sorted(needed["run"]))
    host = [re.sub("(?=>)", " ", each) for each in pyproject["build-system"]["requires"]]
    expect("packages of the build", sorted(host), sorted(each for each in needed["host"] if ">" in each))
    minor = project["requires-python"].removeprefix(">=")
    expect(
        "Python of the build",
        [f"python {minor}.*", f"python-abi3 {minor}.*"],
        [each for each in needed["host"] if each.startswith("python")],
    )
    go = re.search(r"^go (\d+\.\d+)", (ROOT / "go.mod").read_text(), re.MULTILINE)
    assert go
    expect("Go", [f"go-cgo_linux-64 {go[1]}.*"], [each for each in needed["build"] if each.startswith("go")])
    for source in recipe["source"]:
        print("recipe: source:", source)


main(*sys.argv[1:])
