"""No sentence is put into the numbers of a notice: where it arises, a notice of its own code is."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent.parent / "autotune"
# Names whose number may be a text: names, versions, the user's own words, option texts, torch's words, words of ratios,
# and what torch.compile lacks, in the words that studies hold (`Environment.no_compiler`).
TEXTS = {
    "baseline", "better", "candidate", "compiler", "configuration", "cuda", "device", "device_name", "driver", "error",
    "evidence", "example", "file", "gpu", "hold", "holder", "kind", "knob", "knobs", "label", "labels", "lacking",
    "line", "mode", "operator", "outcome", "place", "python", "reason", "reference", "run_length", "searched",
    "torch", "value", "values", "version", "worker", "worse",
}  # fmt: skip
TEXTS_OF = {
    ("PROBE_FAILED", "failure"), ("COMPARISON_FAILED", "failure"),  # messages of errors
    ("CONFIGURATIONS_FAILED", "fix"),  # what --fix takes
    ("CODE_CHANGED", "modules"),  # their names
    ("VALUES_NOT_AVAILABLE", "why"),  # in the knob's own words
    ("CANNOT_PREDICT", "why"),  # too: torch's, the user's, or of a process that died
}  # fmt: skip
MAKING_TEXT = {"str", "join", "format", "strip", "lstrip", "rstrip", "partition", "removesuffix", "capitalized"}


class Reader(ast.NodeVisitor):
    """Finds the numbers of notices that are texts, as far as annotations and assignments tell."""

    def __init__(self, trees: list[ast.Module]):
        self.scope, self.found = [], []
        self.returned, self.fields = defaultdict(set), defaultdict(set)  # kinds by name, whoever has it
        for node in (node for tree in trees for node in ast.walk(tree)):
            if isinstance(node, ast.FunctionDef):
                is_field = any(_name(one) in ("property", "cached_property") for one in node.decorator_list)
                (self.fields if is_field else self.returned)[node.name] |= _kinds(node.returns)
            if isinstance(node, ast.ClassDef):
                for field in (one for one in node.body if isinstance(one, ast.AnnAssign)):
                    self.fields[_name(field.target)] |= _kinds(field.annotation)

    def visit_FunctionDef(self, node):
        outer, self.scope = self.scope, [*self.scope, node]
        self.generic_visit(node)
        self.scope = outer

    def visit_Call(self, node):
        if _name(node.func) == "notice":
            code = _name(node.args[0]) if node.args else ""
            for keyword in node.keywords:
                is_allowed = keyword.arg in TEXTS or (code, keyword.arg) in TEXTS_OF
                if keyword.arg and not is_allowed and self.is_text(keyword.value):
                    self.found.append((code, keyword.arg))
        self.generic_visit(node)

    def is_text(self, node: ast.expr | None, names: frozenset[str] = frozenset()) -> bool:
        match node:
            case ast.Constant(value=value):
                return isinstance(value, str)
            case ast.JoinedStr():
                return True
            case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, op=ast.Add(), right=other):
                return self.is_text(one, names) or self.is_text(other, names)
            case ast.BoolOp(values=parts) | ast.Tuple(elts=parts):
                return any(self.is_text(part, names) for part in parts)
            case ast.GeneratorExp(elt=one) | ast.ListComp(elt=one) | ast.NamedExpr(value=one):
                return self.is_text(one, names)
            case ast.Call(func=ast.Name(id="tuple"), args=[one]):
                return self.is_text(one, names)
            case ast.Call(func=ast.Name(id="map"), args=[one, *_]) | ast.Call(func=one):
                return _name(one) in MAKING_TEXT or "str" in self.returned[_name(one)]
            case ast.Attribute(attr=name):
                return "str" in self.fields[name] and "Notice" not in self.fields[name]
            case ast.Name(id=name) if name not in names:
                return any(self.is_text(one, names | {name}) for one in self._given(name))
        return False

    def _given(self, name: str):
        """What a name may stand for within the functions around: what is assigned to it; a text for `name: str`."""
        for node in ast.walk(self.scope[0]) if self.scope else ():
            if isinstance(node, ast.arg) and node.arg == name and "str" in _kinds(node.annotation):
                yield ast.Constant(value="")
            if isinstance(node, ast.Assign):
                for target, value in _pairs(node):
                    if _name(target) == name:
                        yield value
            if isinstance(node, ast.NamedExpr) and node.target.id == name:
                yield node.value


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _pairs(node: ast.Assign):
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def _kinds(annotation: ast.expr | None) -> set[str]:
    return {part.strip() for part in ast.unparse(annotation).split("|")} if annotation is not None else set()


def texts_in_notices(sources: list[str]) -> list[tuple[str, str]]:
    """Return code and name of every number that is a text, in calls of `notice`."""
    trees = [ast.parse(source) for source in sources]
    reader = Reader(trees)
    for tree in trees:
        reader.visit(tree)
    return reader.found


def test_no_number_of_a_notice_is_a_sentence():
    assert texts_in_notices([path.read_text() for path in sorted(PACKAGE.rglob("*.py"))]) == []


@pytest.mark.parametrize("written", [
    "why='a sentence'", "why=f'{count} of them'", "why=seen.text", "why='' if count else told", "why=told",
    "why=excludes(count)", "why=one", "why=(new := 'a sentence')",
    "why='; '.join(names)", "why=tuple(map(excludes, names))", "why=first or seen.text",
])  # fmt: skip
def test_a_sentence_is_found_however_it_comes_there(written):
    definitions = "class Seen:\n    text: str = ''\n\n\ndef excludes(config) -> str:\n    return ''\n\n\n"
    begin = "def f(told: str, seen, count, first):\n    one, other = excludes(count), 3\n"
    source = f"{definitions}{begin}    return notice(Code.FAILED, {written}, steps=other + count)\n"

    assert texts_in_notices([source]) == [("FAILED", "why")]
