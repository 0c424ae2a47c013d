"""The arrows between the layers, held by reading every import; and the limits on size that keep files readable."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LAYERS = ("app", "pages", "ui", "charts", "inference")
FILES = sorted(p for layer in LAYERS for p in [*ROOT.glob(f"{layer}.py"), *(ROOT / layer).rglob("*.py")])
TOUCH_TRANSFORMERS = {"forward.py", "recorder.py", "models.py"}
RUNS_A_MODEL = {
    "device_probe",
    "loop",
    "one_row",
    "readback",
    "forward",
    "head",
    "recorder",
    "probe",
    "models",
    "stepping",
    "engine",
    "branch",
}
WITHOUT_TORCH = sorted(p.stem for p in (ROOT / "inference").glob("*.py") if p.stem not in RUNS_A_MODEL)
MAY_IMPORT = {
    "app": {"ui", "streamlit"},
    "pages": {"ui", "charts", "inference", "streamlit"},
    "ui": {"ui", "charts", "inference", "streamlit"},
    "charts": {"charts", "inference", "plotly"},
    "inference": {"inference", "torch", "transformers"},
}
GUARDED = {"app", "pages", "ui", "charts", "inference", "streamlit", "plotly", "torch", "transformers"}


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports(tree: ast.AST, at_import_time_only: bool = False) -> set[str]:
    """Top-level names of the packages imported; without those inside functions and `if TYPE_CHECKING` if asked."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        skipped = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        )
        if at_import_time_only and skipped:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
        found |= imports(node, at_import_time_only)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_imports_only_from_its_own_layer_and_those_below(path: Path) -> None:
    assert imports(tree_of(path)) & GUARDED <= MAY_IMPORT[layer_of(path)]


def test_only_three_files_touch_transformers() -> None:
    touching = {p.name for p in FILES if "transformers" in imports(tree_of(p), at_import_time_only=True)}
    assert touching <= TOUCH_TRANSFORMERS


@pytest.mark.parametrize("name", WITHOUT_TORCH)
def test_what_opens_run_files_imports_neither_torch_nor_transformers(name: str) -> None:
    assert not imports(tree_of(ROOT / "inference" / f"{name}.py"), at_import_time_only=True) & {"torch", "transformers"}


def test_only_app_py_calls_navigation() -> None:
    calling = [p.name for p in FILES if "st.navigation" in p.read_text(encoding="utf-8")]
    assert calling == ["app.py"]


def test_no_page_has_its_files_name_in_its_address() -> None:
    """Streamlit takes such an address for the file, and shows the page without its frame where it is opened first."""
    calls = [node for node in ast.walk(tree_of(ROOT / "app.py")) if isinstance(node, ast.Call)]
    pages = [call for call in calls if ast.unparse(call.func) == "st.Page"]
    addresses = [{k.arg: ast.literal_eval(k.value) for k in page.keywords if k.arg == "url_path"} for page in pages]
    files = [Path(ast.literal_eval(page.args[0])).stem for page in pages]
    assert len(files) == len(list((ROOT / "pages").glob("*.py")))
    assert not [file for file, address in zip(files, addresses, strict=True) if address["url_path"] == file]


def test_no_streamlit_call_is_made_from_the_modules_that_run_in_threads() -> None:
    for name in ("worker", "models", "shelf"):
        assert "streamlit" not in imports(tree_of(ROOT / "ui" / f"{name}.py"))


def test_only_the_command_line_prints() -> None:
    calls = [(p.name, node) for p in FILES for node in ast.walk(tree_of(p)) if isinstance(node, ast.Call)]
    printing = {name for name, call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"}
    assert printing <= {"__main__.py", "cli_memory.py"}


def test_a_page_reads_like_a_table_of_contents() -> None:
    for path in (ROOT / "pages").glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 80, path.name


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_function_is_above_fifty_lines_and_no_file_above_four_hundred(path: Path) -> None:
    tree = tree_of(path)
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 50, node.name
