"""Finds what a Markdown file refers to and does not exist: links, paths, names in code and flags.

Checked are
- relative links, with their anchors;
- in backticks: `path/file.py`, `dir/`, `file.py: name` and `file.py::test`. A path counts from the
  repository root, from `hogbatch/`, from `tests/` or from the Markdown file; a single name may be
  that of a file or directory anywhere in the sources;
- in backticks and in code blocks: `--flag`, `hogbatch.module.name`, `scripts/name` and
  `from hogbatch.module import name`.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from os.path import normpath
from pathlib import Path

from hogbatch.config.train import FLAGS, TrainConfig
from tests.support.tracked_files import ROOT, python_files, tracked_directories, tracked_files

SOURCES = ("hogbatch", "workers", "tests", "benchmarks", "scripts")
# Directories in a run directory, not in the repository.
CREATED_BY_A_RUN = {"previous-run/", "tensorboard/", "wandb/"}
OF_OTHER_PROGRAMS = {
    *("--help", "--durations", "--index-url", "--logdir", "--backend-store-uri", "--no-deps"),
    *("--head", "--working-dir", "--address", "--generate"),
}

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *(```|~~~)")
SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
DOTTED = re.compile(r"(?<![\w./-])(?:hogbatch|benchmarks|tests)(?:\.[A-Za-z_]\w*)+(?![\w/])")
IMPORT = re.compile(r"^ *from ((?:hogbatch|benchmarks|tests)[\w.]*) import ([\w, ]+)", re.M)
SCRIPT = re.compile(r"(?<![\w./-])scripts/[\w-]+")
NAME_IN_FILE = re.compile(r"([\w./-]+\.\w+)(?:: ?|::)([A-Za-z_][\w.:]*)")
PATH = re.compile(r"[\w./-]+")


def complaints(text: str, path: Path) -> list[str]:
    """What is wrong with the references of a Markdown file, one line each, with its line number."""
    found = [(line, each) for line, kind, value in _references(text) for each in kind(value, path)]
    return [f"{path.name}:{line}: {each}" for line, each in found]


def _references(text: str) -> Iterator[tuple[int, object, str]]:
    prose, code = _split(text)
    for match in LINK.finditer(_without_spans(prose)):
        yield _line(text, match.start()), wrong_link, match[1]
    for match in SPAN.finditer(prose):
        span = " ".join(match[2].split())
        yield _line(text, match.start()), wrong_path, span
        yield _line(text, match.start()), wrong_code, span
    for number, line in enumerate(code.split("\n"), 1):
        yield number, wrong_code, line


def _split(text: str) -> tuple[str, str]:
    """The prose and the code blocks of a text, each with the other's characters blanked out."""
    prose, code, inside = [], [], False
    for line in text.split("\n"):
        fence = FENCE.match(line) is not None
        blank = " " * len(line)
        prose.append(blank if inside or fence else line)
        code.append(line if inside and not fence else blank)
        inside ^= fence
    return "\n".join(prose), "\n".join(code)


def _without_spans(prose: str) -> str:
    return SPAN.sub(lambda span: re.sub(r"[^\n]", " ", span[0]), prose)


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


# Links -------------------------------------------------------------------------------------------


def wrong_link(target: str, path: Path) -> Iterator[str]:
    """A relative link to a file or a heading that does not exist."""
    if re.match(r"[a-z]+:", target):
        return
    file, _, anchor = target.partition("#")
    there = Path(normpath(path.parent / file)) if file else path
    if there not in tracked_files() | tracked_directories():
        yield f"the link {target} leads nowhere"
    elif anchor and there.suffix == ".md" and anchor not in anchors(there.read_text()):
        yield f"{target}: there is no such heading"


def anchors(text: str) -> set[str]:
    """The anchors of a file's headings, as GitHub makes them."""
    prose, _ = _split(text)
    headings = re.findall(r"^#+ +(.+?) *$", prose, re.M)
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {each.replace(" ", "-") for each in words}


# Paths, and names in them ------------------------------------------------------------------------


def wrong_path(span: str, path: Path) -> Iterator[str]:
    """A path, alone in backticks, that does not exist; or a name that its file does not have."""
    if match := NAME_IN_FILE.fullmatch(span):
        file, names = match[1], re.split(r"::|\.", match[2])
        if _is_source(file):
            candidates = _find(file, path)
            if not candidates:
                yield f"{span}: there is no {file}"
            elif not any(_defines(each, names) for each in candidates):
                yield f"{span}: {file} has no {match[2]}"
    elif PATH.fullmatch(span) and _is_source(span) and not _find(span, path):
        yield f"{span} does not exist"


def _is_source(name: str) -> bool:
    """Whether a name in backticks is meant to be a path of the repository."""
    if name.startswith(("/", ".", "-")) or name in CREATED_BY_A_RUN or name == "/":
        return False
    if name.endswith((".py", "/")):
        return True
    first, *rest = name.split("/")
    return bool(rest) and any(root / first in tracked_directories() for root in _roots())


def _roots() -> list[Path]:
    return [ROOT, ROOT / "hogbatch", ROOT / "tests"]


def _find(name: str, path: Path) -> list[Path]:
    """The tracked files and directories that `name` may mean; a directory if it ends with `/`."""
    known = tracked_directories()
    if not name.endswith("/"):
        known |= tracked_files()
    for root in (*_roots(), path.parent):
        if root / name in known:
            return [root / name]
    if "/" in name.removesuffix("/"):
        return []
    sources = [ROOT / folder for folder in SOURCES]
    anywhere = (each for each in known if each.name == name.rstrip("/"))
    return [each for each in anywhere if any(map(each.is_relative_to, sources))]


def _defines(file: Path, names: list[str]) -> bool:
    """Whether `file` defines names[0], perhaps in a class, and that names[1], and so on."""
    if file.suffix != ".py":
        return all(re.search(rf"\b{name}\b", file.read_text()) for name in names)
    inside = _definitions(file)
    inside = {**{k: v for body in inside.values() for k, v in body.items()}, **inside}
    for name in names:
        if name not in inside:
            return False
        inside = inside[name]
    return True


@cache
def _definitions(file: Path) -> dict[str, dict]:
    return _defined(ast.parse(file.read_text()).body)


def _defined(body: list[ast.stmt]) -> dict[str, dict]:
    """The names that statements define, each with those defined inside it."""
    found: dict[str, dict] = {}
    for node in body:
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                found[node.name] = _defined(node.body)
            case ast.Import() | ast.ImportFrom():
                found |= {(each.asname or each.name).split(".")[0]: {} for each in node.names}
            case ast.Assign() | ast.AnnAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = (each for target in targets for each in ast.walk(target))
                found |= {each.id: {} for each in names if isinstance(each, ast.Name)}
            case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
                for inner in (getattr(node, field, []) for field in ("body", "orelse")):
                    found |= _defined(inner)
    return found


# Names and flags in code -------------------------------------------------------------------------


def wrong_code(code: str, path: Path) -> Iterator[str]:
    """Modules, names, scripts and flags in `code` that do not exist."""
    for match in IMPORT.finditer(code):
        yield from (
            f"{match[1]} has no {name}"
            for name in re.split(r", *", match[2].strip(", "))
            if not _resolves(f"{match[1]}.{name}")
        )
    for match in DOTTED.finditer(code):
        if not _resolves(match[0]):
            yield f"{match[0]} does not exist"
    for match in SCRIPT.finditer(code):
        if not (ROOT / match[0]).is_file():
            yield f"{match[0]} does not exist"
    for match in FLAG.finditer(code):
        if match[0] not in flags():
            yield f"there is no flag {match[0]}"


def _resolves(dotted: str) -> bool:
    """Whether a dotted name is a module, or a name in one."""
    parts = dotted.replace("hogbatch.workers", "workers").split(".")  # hogbatch/workers is a link
    for count in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:count])
        is_package = place in tracked_directories()
        file = place / "__init__.py" if is_package else place.with_suffix(".py")
        if file in tracked_files():
            return _defines(file, parts[count:])
        if is_package:
            return count == len(parts)
    return False


@cache
def flags() -> frozenset[str]:
    """Every flag of hogbatch's commands, of its workers, and of scripts, benchmarks and tests."""
    found = {f"--{name.replace('_', '-')}" for name in FLAGS}
    switches = {each.name for each in fields(TrainConfig) if isinstance(each.default, bool)}
    found |= {f"--no-{name.replace('_', '-')}" for name in switches} | OF_OTHER_PROGRAMS
    for folder in SOURCES:
        for file in python_files(folder):
            found |= _added(ast.parse(file.read_text()), anywhere=folder == "benchmarks")
    for script in (ROOT / "scripts").iterdir():
        if script in tracked_files():
            found |= set(FLAG.findall(script.read_text()))
    return frozenset(found)


def _added(tree: ast.Module, anywhere: bool) -> set[str]:
    """The flags that calls of `add_argument` and `addoption` name, or that stand `anywhere`."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    adding = (
        argument
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("add_argument", "addoption")
        for argument in call.args
    )
    texts = (node.value for node in (ast.walk(tree) if anywhere else adding) if _is_text(node))
    return {text for text in texts if FLAG.fullmatch(text)}


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
