"""Each class name has one meaning in the whole project."""

import ast
from collections import Counter

from tests.support.tracked_files import python_files

SOURCES = [path.read_text(encoding="utf-8") for path in python_files("hogbatch", "workers")]


def class_names(source: str) -> list[str]:
    return [node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]


def test_no_class_name_is_used_twice():
    names = Counter(name for source in SOURCES for name in class_names(source))
    assert [name for name, count in names.items() if count > 1] == []


def test_nested_and_private_classes_count():
    assert class_names("class A:\n    class B: pass\nclass _C: pass") == ["A", "_C", "B"]
