"""Extension of griffe: roles and formulas of docstrings in HTML, signatures of operators."""

import html
import inspect
import logging
import re
from functools import cache, partial
from typing import Any

import griffe
from latex2mathml.converter import convert

from bitgnn.ops.reference.table import HOST_TABLE, TABLE

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod|obj):`([^`]+)`")
INLINE_FORMULA = re.compile(r":math:`([^`]+)`")
FORMULA = re.compile(r"^( *)\.\. math:: *(.*(?:\n\1 +\S.*)*)", re.MULTILINE)
LITERAL_BLOCK = re.compile(r"::(?=\n\n +)")
TITLED = re.compile(r"(?P<title>.*?)\s*<(?P<target>[^>]+)>", re.DOTALL)

# Methods that torch and Python call: no reader looks for them.
HIDDEN = {"__getattr__", "__prepare_scriptable__", "__setattr__", "extra_repr"}

_log = logging.getLogger("mkdocs.plugins.bitgnn")


class SphinxMarkup(griffe.Extension):
    """Roles such as ``:func:`freeze` ``, ``:math:`` and ``.. math::``, in HTML."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Rewrite every docstring of a package; names that mean nothing are warned of."""
        for member in _walk(pkg):
            if member.name in HIDDEN:
                member.public = False
            if isinstance(member, griffe.Function) and member.path in _operators():
                member.parameters = _operators()[member.path]
            if member.docstring:
                member.docstring.value = in_html(member, member.docstring.value)


@cache
def _operators() -> dict[str, griffe.Parameters]:
    """Parameters of each operator's reference by its full name, as the operator table has them."""
    found = {}
    for row in (TABLE | HOST_TABLE).values():
        parameters = inspect.signature(row.reference).parameters.values()
        found[f"{row.reference.__module__}.{row.name}"] = griffe.Parameters(
            *map(_shown, parameters)
        )
    return found


def _shown(parameter: inspect.Parameter) -> griffe.Parameter:
    return griffe.Parameter(
        parameter.name,
        annotation=inspect.formatannotation(parameter.annotation),
        kind=griffe.ParameterKind.positional_or_keyword,
        default=None if parameter.default is parameter.empty else repr(parameter.default),
    )


def in_html(owner: griffe.Object, text: str) -> str:
    """A docstring with its roles as links and its formulas as MathML."""
    text = FORMULA.sub(lambda m: f"{m[1]}{_mathml(m[2], 'block')}", text)
    # In a span, since Markdown ends a paragraph at a line that begins with <math>.
    text = INLINE_FORMULA.sub(lambda m: f"<span>{_mathml(m[1], 'inline')}</span>", text)
    text = ROLE.sub(partial(_link, owner), text)
    return LITERAL_BLOCK.sub(":", text)


def _walk(owner: griffe.Object) -> list[griffe.Object]:
    own = [m for m in owner.members.values() if isinstance(m, griffe.Object)]
    return [owner, *(found for member in own for found in _walk(member))]


def _mathml(formula: str, display: str) -> str:
    return convert(" ".join(formula.split()), display=display)


def _link(owner: griffe.Object, role: re.Match[str]) -> str:
    titled = TITLED.fullmatch(role[1])
    target = "".join((titled["target"] if titled else role[1]).split())
    if titled:
        title = " ".join(titled["title"].split())
    else:
        title = target.rpartition(".")[2] if target.startswith("~") else target
    path = _path(owner, target.removeprefix("~"))
    if path is None:
        _log.warning("%s: nothing is named %s", owner.path, target)
        return f"`{title}`"
    code = f"<code>{html.escape(title)}</code>"
    # Optional: what stands on no page stays a name.
    return f'<autoref identifier="{path}" optional>{code}</autoref>'


def _path(owner: griffe.Object, name: str) -> str | None:
    """Full name of the object that a docstring calls by the name: first in its own scope."""
    if name.startswith("torch."):
        return name
    package = owner.package
    scope: griffe.Object | None = package
    names = name.split(".")
    if names[0] == package.name:
        names = names[1:]
    else:
        scope = owner
        while scope is not None and names[0] not in scope.all_members:
            scope = scope.parent
    found: griffe.Object | griffe.Alias | None = scope
    for part in names:
        found = None if found is None else found.all_members.get(part)
    return None if found is None else found.canonical_path
