"""Installs a wheel in old and new systems, and runs the Python tests there::

    python tests/wheel/systems.py dist/wheels/pyarrayfeed-*.whl
    python tests/wheel/systems.py dist/wheels/pyarrayfeed-*.whl trixie:3.13 forky:3.15

Each system is a chroot with little more than the release's C library and a Python. It has neither Go nor a compiler.
Where a release has no package of the Python, CPython is built from source in the oldest release. The program needs
root, for chroots and mounts, and debootstrap. Everything is kept in build/systems, and used again by the next call.

For each system, the program creates an empty virtual environment, installs the wheel, and runs push_pop.py with only
the wheel and NumPy. It then installs what the tests need, and runs all of tests/python except the tests that compile
something (the marker ``compiler``). In the end, it prints which tests did not run in each system, and why, and a table.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/systems"
WORK = BUILD / "work"  # /pyfeed in all systems

DEBOOTSTRAP = Path("/usr/share/debootstrap/scripts")
# The scripts that debootstrap has for the newest releases. It may be older than a release, whose name it then does not
# know.
DEBIAN, UBUNTU = "sid", "gutsy"


@dataclasses.dataclass(frozen=True)
class Release:
    """A release, and the Pythons of which it has packages."""

    title: str
    script: str
    pythons: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Download:
    """A file of Debian's or Ubuntu's mirror, which is downloaded once."""

    script: str
    path: str
    sha256: str


@dataclasses.dataclass(frozen=True)
class Source:
    """A Python that is built from source, with options for its configure."""

    tarball: Download
    options: tuple[str, ...] = ()


OLDEST = "bionic"
RELEASES = {
    "bionic": Release("Ubuntu 18.04", UBUNTU),
    "focal": Release("Ubuntu 20.04", UBUNTU),
    "bullseye": Release("Debian 11", DEBIAN),
    "jammy": Release("Ubuntu 22.04", UBUNTU),
    "bookworm": Release("Debian 12", DEBIAN, ("3.11",)),
    "noble": Release("Ubuntu 24.04", UBUNTU, ("3.12",)),
    "trixie": Release("Debian 13", DEBIAN, ("3.13",)),
    "resolute": Release("Ubuntu 26.04", UBUNTU, ("3.14",)),
    "forky": Release("Debian 14 (testing)", DEBIAN, ("3.14", "3.15")),
}
SYSTEMS = (
    "bionic:3.13",
    "focal:3.13",
    "bullseye:3.13",
    "bookworm:3.11",
    "noble:3.12",
    "trixie:3.13",
    "resolute:3.14",
    "forky:3.15",
)

# The sources that stable releases keep for years.
_PYTHON_313 = Download(
    DEBIAN,
    "pool/main/p/python3.13/python3.13_3.13.5.orig.tar.xz",
    "93e583f243454e6e9e4588ca2c2662206ad961659863277afcdb96801647d640",
)
_PYTHON_314 = Download(
    UBUNTU,
    "pool/main/p/python3.14/python3.14_3.14.4.orig.tar.xz",
    "d923c51303e38e249136fc1bdf3568d56ecb03214efdef48516176d3d7faaef8",
)
SOURCES = {
    "3.13": Source(_PYTHON_313),
    "3.13t": Source(_PYTHON_313, ("--disable-gil",)),
    "3.14": Source(_PYTHON_314),
    "3.14t": Source(_PYTHON_314, ("--disable-gil",)),
}
# OpenSSL 1.1.1, which these Pythons need, is an update of Ubuntu 18.04.
BUILD_PACKAGES = (
    *("gcc", "libc6-dev", "make", "xz-utils", "pkg-config"),
    *("libssl-dev", "libffi-dev", "zlib1g-dev", "libbz2-dev", "liblzma-dev"),
)

# Debian has no package of the keys by which Ubuntu's releases are signed.
UBUNTU_KEYS = Download(
    UBUNTU,
    "pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb",
    "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8",
)

# Requirements of tests that have no wheel for a Python, and the tests that cannot run without them.
_PROTOBUF = (
    "tests/python/test_program.py::test_google_s_protobuf_reads_what_is_saved",
    "tests/python/test_program.py::test_what_google_s_protobuf_writes_is_loaded",
    "tests/python/test_program.py::test_another_version_is_refused_by_name",
)
NO_WHEEL = {
    "3.13t": {"grpcio-tools": _PROTOBUF},
    "3.14t": {"grpcio-tools": _PROTOBUF},
}
# Requirements of which only another version has a wheel for a Python.
OTHER_PINS = {"3.13t": ("hypothesis==6.155.7", "ml_dtypes==0.5.4")}

# Runs in namespaces of its own, so that no mount and no process is left when it ends. The shell must stay: it is the
# process 1 of the namespace, and tests expect the signals of a usual process.
ENTER = """
set -e
root=$1 work=$2 tmp=$3
mkdir -p "$tmp"
chmod 1777 "$tmp"
shift 3
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --bind "$work" "$root/pyfeed"
mount --bind "$tmp" "$root/tmp"
chroot "$root" "$@" </dev/null || exit $?
"""


class Failed(Exception):
    """A step failed; the message says which one, and where its output is."""


def say(message: str) -> None:
    print(f"systems: {message}", flush=True)


def run(log: Path, command: Sequence[str | Path], what: str) -> None:
    """Run a command whose output goes to the end of a file."""
    with log.open("ab") as file:
        file.write(f"$ {' '.join(map(str, command))}\n".encode())
        file.flush()
        status = subprocess.run(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL).returncode
    if status != 0:
        raise Failed(f"{what}: expected exit status 0, found {status}; see {log.relative_to(ROOT)}")


def mirror(script: str) -> str:
    """Return the mirror that debootstrap takes by default: that of Debian, unless a script names another."""
    code = 'default_mirror() { echo "$1"; exit; }; ARCH=amd64 SUITE=newest; . "$1"'
    command: list[str | Path] = ["sh", "-c", code, "sh", DEBOOTSTRAP / script]
    found: str = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    if not found:
        line = re.search(r'^DEF_MIRROR="(.+)"', Path("/usr/sbin/debootstrap").read_text(), re.MULTILINE)
        found = line[1] if line else ""
    if not found:
        raise Failed(f"expected a mirror in debootstrap's script {script}, found none")
    return found


def download(file: Download) -> Path:
    """Return a downloaded file, whose hash is checked each time."""
    path = WORK / "downloads" / file.path.rpartition("/")[2]
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        with (
            urllib.request.urlopen(f"{mirror(file.script)}/{file.path}", timeout=60) as source,
            partial.open("wb") as target,
        ):
            shutil.copyfileobj(source, target)
        partial.rename(path)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != file.sha256:
        raise Failed(f"{path.relative_to(ROOT)}: expected SHA-256 {file.sha256}, found {found}")
    return path


def certificates() -> Path:
    """Return the certificates of this machine, which may have more than those of a release."""
    for name in (os.environ.get("SSL_CERT_FILE"), "/etc/ssl/certs/ca-certificates.crt"):
        if name and Path(name).exists():
            return Path(name)
    raise Failed("expected certificates in /etc/ssl/certs/ca-certificates.crt or $SSL_CERT_FILE, found none")


def make_root(name: str, release: str, packages: Sequence[str]) -> Path:
    """Return the folder of a chroot with some packages, which is filled at the first call."""
    root, done, log = BUILD / "roots" / name, BUILD / "roots" / f"{name}.done", BUILD / f"{name}.packages.log"
    wanted = " ".join(packages)
    if not done.exists() or done.read_text() != wanted:
        say(f"{name}: debootstrap")
        done.unlink(missing_ok=True)
        shutil.rmtree(root, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        script = RELEASES[release].script
        options = ["--variant=minbase", "--include=ca-certificates"]
        if script == UBUNTU:
            keys = BUILD / "ubuntu-keyring"
            run(log, ["dpkg-deb", "-x", download(UBUNTU_KEYS), keys], "unpacking the keys of Ubuntu")
            options.append(f"--keyring={keys}/usr/share/keyrings/ubuntu-archive-keyring.gpg")
            options.append("--components=main,universe")
        command: list[str | Path] = ["debootstrap", *options, release, root, mirror(script), DEBOOTSTRAP / script]
        run(log, command, f"{name}: debootstrap")
        # apt, since debootstrap fails with some packages and takes none of the updates.
        if script == UBUNTU:
            updates = f"deb {mirror(script)} {release}-updates main universe\n"
            (root / "etc/apt/sources.list.d/updates.list").write_text(updates)
        (root / "pyfeed").mkdir()
        shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
        for words in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
            # A mirror's copy of a testing release may be older than its signature is valid.
            line = ["apt-get", "-o", "Acquire::Check-Valid-Until=false", *words]
            run(log, inside(root, WORK / "tmp", line, DEBIAN_FRONTEND="noninteractive"), f"{name}: apt-get {words[0]}")
        done.write_text(wanted)
    # Those of this machine, which may reach the package index through a proxy of its own.
    shutil.copy(certificates(), root / "etc/ssl/certs/ca-certificates.crt")
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    return root


def inside(root: Path, tmp: Path, command: Sequence[str], **environment: str) -> list[str | Path]:
    """Return the command that runs a command in a chroot, where WORK is /pyfeed and ``tmp`` is /tmp."""
    variables = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/tmp",
        "LANG": "C.UTF-8",
        "PIP_CACHE_DIR": "/pyfeed/pip-cache",
        "PIP_CERT": "/etc/ssl/certs/ca-certificates.crt",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        **{k: v for k, v in os.environ.items() if k.lower().endswith("_proxy") or k == "PIP_INDEX_URL"},
        **environment,
    }
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    clean = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
    return [*namespaces, "sh", "-c", ENTER, "sh", root, WORK, tmp, *clean, *command]


def build_python(version: str) -> str:
    """Return the path in the systems of a Python that is built from source at the first call."""
    prefix = f"/pyfeed/python/{version}"
    done, log = WORK / "python" / f"{version}.done", BUILD / f"python{version}.log"
    source = SOURCES[version]
    script = ROOT / "tests/wheel/build_python.sh"
    wanted = " ".join([source.tarball.sha256, *source.options, hashlib.sha256(script.read_bytes()).hexdigest()])
    if not done.exists() or done.read_text() != wanted:
        root = make_root(f"{OLDEST}-build", OLDEST, BUILD_PACKAGES)
        say(f"{OLDEST}: build CPython {version}")
        log.unlink(missing_ok=True)
        shutil.rmtree(WORK / "python" / version, ignore_errors=True)
        tarball = download(source.tarball)
        shutil.copy(script, WORK)
        command = ["/pyfeed/build_python.sh", f"/pyfeed/downloads/{tarball.name}", prefix, *source.options]
        run(log, inside(root, WORK / "tmp", command), f"CPython {version}")
        done.write_text(wanted)
    return f"{prefix}/bin/python3"


def copy_sources(target: Path) -> None:
    """Copy the files that git knows or would add, so that nothing that was built here is found there."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


@dataclasses.dataclass
class Result:
    """What the tests said in one system."""

    system: str
    title: str
    wheel: str
    versions: dict[str, str]
    passed: int
    failed: list[str]
    skipped: list[str]
    left_out: list[str]
    seconds: float

    def row(self) -> str:
        v = self.versions
        counts = [f"{self.passed} tests passed"]
        counts += [f"**{len(self.failed)} failed**"] if self.failed else []
        counts += [f"{len(self.skipped)} skipped"] if self.skipped else []
        counts += [f"{len(self.left_out)} left out"]
        platform = f"{v['machine']}, {self.title}, glibc {v['glibc']}"
        return f"| {platform} | `{self.wheel}` | {v['python']}, NumPy {v['numpy']} | {', '.join(counts)} |"


VERSIONS = """
import numpy, os, platform, sys, sysconfig
print("machine", platform.machine().replace("_", "-"))
print("glibc", os.confstr("CS_GNU_LIBC_VERSION").split()[1])
print("python", sys.version.split()[0] + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""))
print("numpy", numpy.__version__)
"""

NO_COMPILER = """
import shutil
found = [tool for tool in ("go", "cc", "gcc", "c++", "g++", "clang", "zig") if shutil.which(tool)]
raise SystemExit(f"expected no compiler on PATH, found {found}" if found else 0)
"""


def test(system: str, wheel: Path) -> Result:
    """Install the wheel in a system and run the tests there."""
    began = time.monotonic()
    name, _, version = system.partition(":")
    release = RELEASES[name]
    packages = ["ca-certificates", "procps"]
    for each in release.pythons:
        packages += [f"python{each}", f"python{each}-venv"]
    python = f"/usr/bin/python{version}" if version in release.pythons else build_python(version)
    root = make_root(name, name, packages)

    folder = WORK / "runs" / system.replace(":", "-")
    shutil.rmtree(folder, ignore_errors=True)
    copy_sources(folder / "source")
    shutil.copy(wheel, folder)
    here = f"/pyfeed/runs/{folder.name}"
    log = BUILD / f"{folder.name}.log"
    log.unlink(missing_ok=True)

    def call(what: str, *command: str) -> None:
        say(f"{system}: {what}")
        environment = {
            "PATH": f"{here}/venv/bin:/usr/bin:/bin",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": f"{here}/hypothesis",
        }
        line = ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", f"{here}/source", *command]
        run(log, inside(root, folder / "tmp", line, **environment), f"{system}: {what}")

    call("create an empty environment", python, "-m", "venv", f"{here}/venv")
    call("look for compilers", "python", "-c", NO_COMPILER)
    pip = ("python", "-m", "pip", "--quiet", "install")
    call("install the wheel", *pip, "--only-binary=:all:", f"{here}/{wheel.name}")
    call("push and pop", "python", f"{here}/source/tests/wheel/push_pop.py")

    # The versions of requirements-dev.txt, apart from NumPy: that stays the newest for this Python. What has no wheel
    # must be pure Python, since there is no compiler.
    missing = NO_WHEEL.get(version, {})
    pins = (ROOT / "requirements-dev.txt").read_text().splitlines()
    others = OTHER_PINS.get(version, ())
    replaced = {"numpy", *(re.split("[<=]", each)[0] for each in others)}
    kept = [pin for pin in pins if pin.partition("==")[0] not in replaced]
    (folder / "pins.txt").write_text("\n".join([*kept, *others]))
    required = [name for name in requirements() if name not in missing]
    call("install the requirements of the tests", *pip, "--prefer-binary", "-c", f"{here}/pins.txt", *required)

    versions = subprocess.run(
        inside(root, folder / "tmp", [f"{here}/venv/bin/python", "-c", VERSIONS]), capture_output=True, text=True
    )
    report = folder / "junit.xml"
    options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=30", f"--junitxml={here}/junit.xml"]
    options += ["-m", "not compiler"]
    for tests in missing.values():
        options += [f"--deselect={each}" for each in tests]
    try:
        call("run the tests", "python", *options)
    except Failed:
        if not report.exists():
            raise
    passed, failed, skipped = read(report)
    result = Result(
        system=system,
        title=release.title,
        wheel="-".join(wheel.stem.split("-")[2:]),
        versions=dict(line.split(" ", 1) for line in versions.stdout.splitlines()),
        passed=passed,
        failed=failed,
        skipped=skipped,
        left_out=[f"{test}: {package} has no wheel" for package, tests in missing.items() for test in tests]
        + compiled_tests(root, folder, here),
        seconds=time.monotonic() - began,
    )
    if not failed:  # else it may help to find the cause
        shutil.rmtree(folder)
    return result


def requirements() -> list[str]:
    """Return what the tests need beside the wheel: two extras of pyproject.toml, and its build backend."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return [*extras["test"], *extras["progress"], "setuptools"]


def compiled_tests(root: Path, folder: Path, here: str) -> list[str]:
    """Return the tests that are left out because they compile something."""
    line = f"cd {here}/source && {here}/venv/bin/python -m pytest -p no:cacheprovider --collect-only -q -m compiler"
    done = subprocess.run(inside(root, folder / "tmp", ["sh", "-c", line]), capture_output=True, text=True)
    found = [f"{name}: needs a compiler" for name in done.stdout.splitlines() if "::" in name]
    if not found:
        raise Failed(f"expected tests with the marker compiler, found none:\n{done.stdout}{done.stderr}")
    return found


def read(report: Path) -> tuple[int, list[str], list[str]]:
    """Return the number of passed tests, the failed ones and the skipped ones, with the reasons."""
    passed = 0
    failed: list[str] = []
    skipped: list[str] = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}::{case.get('name')}"
        outcome = next((each for each in case if each.tag in ("failure", "error", "skipped")), None)
        if outcome is None:
            passed += 1
        else:
            reason = (outcome.get("message") or "").split("\n")[0]
            (skipped if outcome.tag == "skipped" else failed).append(f"{name}: {reason}")
    return passed, failed, skipped


def check_machine(systems: Sequence[str]) -> None:
    """Refuse what cannot work, before anything is downloaded."""
    if os.geteuid() != 0:
        raise Failed("expected root, for chroot and mount; found another user")
    for tool, package in (("debootstrap", "debootstrap"), ("dpkg-deb", "dpkg"), ("unshare", "util-linux")):
        if not shutil.which(tool):
            raise Failed(f"expected {tool} on PATH, found none; on Debian or Ubuntu: apt-get install {package}")
    for system in systems:
        name, _, version = system.partition(":")
        if name not in RELEASES:
            raise Failed(f"{system}: expected a release, one of {', '.join(RELEASES)}; found {name!r}")
        known = [*RELEASES[name].pythons, *(each for each in SOURCES if each not in RELEASES[name].pythons)]
        if version not in known:
            raise Failed(f"{system}: expected a Python, one of {', '.join(known)}; found {version!r}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the Python tests with a wheel in old and new systems.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("systems", nargs="*", metavar="RELEASE:PYTHON", help=f"default: {' '.join(SYSTEMS)}")
    options = parser.parse_args()
    systems = options.systems or SYSTEMS
    results: list[Result] = []
    broken: list[str] = []
    try:
        check_machine(systems)
        if not options.wheel.is_file():
            raise Failed(f"{options.wheel}: expected a wheel, found no file; `make wheels` builds one")
        WORK.mkdir(parents=True, exist_ok=True)
        for system in systems:
            try:
                results.append(test(system, options.wheel.resolve()))
                say(f"{results[-1].row()} {results[-1].seconds:.0f} s")
            except Failed as failure:
                broken.append(str(failure))
                say(f"FAILED: {failure}")
    except Failed as failure:
        say(f"FAILED: {failure}")
        return 2

    for result in results:
        for title, names in (("failed", result.failed), ("skipped", result.skipped), ("left out", result.left_out)):
            for name in names:
                print(f"{result.system}: {title}: {name}")
    print("\n| platform | wheel | CPython | what was run |\n|---|---|---|---|")
    for result in results:
        print(result.row())
    for message in broken:
        print(f"systems: FAILED: {message}")
    return 1 if broken or any(result.failed for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
