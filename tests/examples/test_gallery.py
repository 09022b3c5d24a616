"""The scripts of the gallery, run as a user runs them, and their pages."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
import textwrap
import xml.etree.ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "gallery"
PAGES = ROOT / "docs" / "gallery"
NAMES = ["digits_from_files", "cpp_trainer", "worker_processes", "find_the_bottleneck"]
STUCK = 100.0  # seconds; longer than a script takes that is not stuck

needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that cpp_trainer.py builds in: only the first run compiles."""
    return tmp_path_factory.mktemp("gallery")


def run(name: str, build: Path, *options: object, **environment: str) -> tuple[str, str]:
    """What a script prints to standard output and to standard error."""
    command = [sys.executable, "-W", "error", str(SCRIPTS / f"{name}.py"), *map(str, options)]
    if name == "cpp_trainer":
        command += ["--build", str(build)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=STUCK, cwd=build, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def page(name: str) -> str:
    return (PAGES / f"{name}.md").read_text()


def shown_output(name: str) -> str:
    """What the page says that the script prints."""
    (block,) = re.findall(r"^```text\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)
    return str(block)


# ---- What the scripts print ----


@pytest.mark.parametrize("name", ["digits_from_files", "cpp_trainer", "worker_processes"])
def test_a_script_prints_what_its_page_shows(name: str, build: Path) -> None:
    assert run(name, build) == (shown_output(name), "")


@pytest.mark.parametrize("threads", [1, 5])
def test_the_number_of_threads_does_not_change_the_digits(threads: int, build: Path) -> None:
    assert run("digits_from_files", build, "--threads", threads) == (shown_output("digits_from_files"), "")


def test_cpp_finds_what_numpy_finds() -> None:
    numpy = re.findall(r"^pass \d+: (\d+) of 360 ", shown_output("digits_from_files"), re.MULTILINE)
    lines = re.findall(r"^    after each pass: (.*)$", shown_output("cpp_trainer"), re.MULTILINE)
    from_file, from_python = (line.split() for line in lines)
    assert from_file == numpy
    assert len(from_python) == len(from_file) == 10
    assert int(from_python[-1]) > int(from_file[-1]) > 0.95 * 360


def test_what_the_cpp_trainer_refuses(build: Path) -> None:
    program = f"""
        import sys; sys.path.insert(0, {str(SCRIPTS)!r})
        import pathlib
        import cpp_trainer, numpy as np, pyfeed

        trainer = cpp_trainer.Trainer(cpp_trainer.build(pathlib.Path({str(build)!r})))
        good = np.zeros((4, 64), np.uint8), np.arange(4)

        def refused(reader, image, label):
            try:
                trainer.train(reader, image, label)
            except RuntimeError as error:
                print(error)

        def reader(image, label):
            return pyfeed.from_generator(lambda: [(image, label)], [(-1, image.shape[1]), (-1,)])

        def broken():
            yield good
            raise ValueError("image 17 is upside down")

        refused(reader(*good), good[0], good[1] + 7)
        refused(reader(good[0][:, :63], good[1]), *good)
        refused(reader(*good), good[0][:3], good[1])
        refused(pyfeed.from_generator(broken, [(-1, 64), (-1,)]), *good)
        print(trainer.train(reader(*good), *good)[1])
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STUCK)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "expected labels from 0 to 9, found 10",
        "expected 64 features, found 63",
        "expected images (n, features) and labels (n,), found (3, 64) and (4,)",
        "the producer failed: ValueError: image 17 is upside down",
        "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1]",
    ]


def test_the_cpp_trainer_says_that_cmake_is_missing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / "cpp_trainer.py"), "--build", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=STUCK,
        env={**os.environ, "PATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert done.stderr == "expected cmake and a C++ compiler on the PATH, found no cmake\n"


def without_numbers(text: str) -> str:
    return re.sub(r"\d+ %", "# %", text)


def shares(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"(\d+) %", text)]


@pytest.mark.timeout(400)
def test_the_bottleneck_is_found(build: Path) -> None:
    """All slow steps sleep. If other programs delay the script by more than its steps take, it gets longer steps."""
    expected = shown_output("find_the_bottleneck")
    out = ""
    for step in (10, 30, 90):
        out, err = run("find_the_bottleneck", build, "--step", step)
        assert err == ""
        found = shares(out)
        if without_numbers(out) == without_numbers(expected) and found[0] > found[1] and found[2] > found[3]:
            return
    pytest.fail(f"expected the lines of the page, found\n{out}")


def test_the_page_shows_that_the_loops_wait_less() -> None:
    slow_decoding, decoded, slow_storage, stored, slow_training = shares(shown_output("find_the_bottleneck"))
    assert min(slow_decoding, slow_storage) > 50
    assert max(decoded, stored, slow_training) < 20


# ---- Pictures ----


@needs_matplotlib
@pytest.mark.parametrize("name", NAMES)
def test_a_script_draws_its_picture(name: str, build: Path, tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    assert run(name, build, *quick(name), "--picture", picture)[1] == ""
    check_picture(picture)
    assert texts(name, picture) == texts(name, PAGES / f"{name}.svg")


@needs_matplotlib
def test_a_picture_of_the_same_numbers_is_the_same_file(build: Path, tmp_path: Path) -> None:
    pictures = [tmp_path / "1.png", tmp_path / "2.png"]
    for picture in pictures:
        run("digits_from_files", build, "--picture", picture)
    assert pictures[0].read_bytes().startswith(b"\x89PNG")
    assert pictures[0].read_bytes() == pictures[1].read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_script_goes_on_without_matplotlib(name: str, build: Path, tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError('matplotlib is broken')")
    out, err = run(name, build, *quick(name), "--picture", tmp_path / "picture.svg", PYTHONPATH=python_path(tmp_path))
    assert out.partition(":")[0] == shown_output(name).partition(":")[0]
    assert err == "no picture without matplotlib: matplotlib is broken\n"
    assert not (tmp_path / "picture.svg").exists()


def quick(name: str) -> list[object]:
    """Options for a run whose times do not matter."""
    return ["--step", 2] if name == "find_the_bottleneck" else []


def python_path(first: Path) -> str:
    return os.pathsep.join([str(first), *filter(None, [os.environ.get("PYTHONPATH")])])


def texts(name: str, picture: Path) -> set[str]:
    """The texts of an SVG file that the script itself contains: the others may depend on times."""
    script = (SCRIPTS / f"{name}.py").read_text()
    found = {(e.text or "").strip() for e in xml.etree.ElementTree.parse(picture).iter()}
    return {text for text in found if f'"{text}"' in script and text}


def check_picture(picture: Path) -> None:
    root = xml.etree.ElementTree.parse(picture).getroot()
    assert root.attrib["width"] == "576pt"  # 8 inches
    assert picture.stat().st_size < 60_000
    assert re.search(r'id="patch_1">\s*<path [^>]*style="fill: #ffffff"', picture.read_text())  # opaque on dark pages


@pytest.mark.parametrize("name", NAMES)
def test_the_site_has_the_picture(name: str) -> None:
    check_picture(PAGES / f"{name}.svg")
    assert f"]({name}.svg)" in page(name)
    assert f"]({name}.svg)" in page("index")
    assert len(texts(name, PAGES / f"{name}.svg")) > 2


# ---- Pages ----


def test_every_script_has_a_page() -> None:
    assert sorted(file.stem for file in SCRIPTS.glob("*.py")) == sorted(NAMES)
    assert sorted(file.stem for file in PAGES.glob("*.md")) == sorted([*NAMES, "index"])
    assert re.findall(r"^## \[.*\]\((\w+)\.md\)$", page("index"), re.MULTILINE) == NAMES


def included(name: str) -> list[tuple[Path, dict[str, str]]]:
    """The files that a page includes, each with the options."""
    found = re.findall(r"^```\{literalinclude\} (\S+)\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)
    return [(PAGES / path, dict(re.findall(r"^:([\w-]+): (.*)$", options, re.MULTILINE))) for path, options in found]


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_every_function_of_its_script_once(name: str) -> None:
    body = ast.parse((SCRIPTS / f"{name}.py").read_text()).body
    defined = [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    shown = [options["pyobject"] for path, options in included(name) if path.name == f"{name}.py"]
    assert sorted(shown) == sorted(defined)


def test_other_parts_of_files_exist() -> None:
    others = [(path, options) for name in NAMES for path, options in included(name) if path.suffix != ".py"]
    assert {path.name for path, _ in others} == {"trainer.cpp", "CMakeLists.txt"}
    for path, options in others:
        for option in ("start-at", "end-before"):
            assert path.read_text().count(options.get(option, "").strip('"')) >= 1


@pytest.mark.parametrize("name", [*NAMES, "index"])
def test_links_of_a_page_lead_somewhere(name: str) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#([^):]*))?\)", page(name))
    assert links
    for link, anchor in links:
        target = PAGES / link
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}, link
