"""Writes the API reference, `docs/python-reference.md`, from the docstrings of the installed package.

    venv/bin/python python/reference.py > docs/python-reference.md

The tests compare the file with what this prints.
"""

import dataclasses
import importlib
import inspect
import re
import textwrap

MODULES = [
    "dpsgd", "dpsgd.torch", "dpsgd.federated", "dpsgd.flower", "dpsgd.opacus", "dpsgd.dp_accounting",
]


def plain(text):
    """Roles and double quotes of docstrings as Markdown."""
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    return text.replace("``", "`")


def prose(text):
    """A docstring as Markdown: examples and literal blocks are fenced, arguments are a list."""
    lines, out, listed = text.splitlines(), [], False
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.lstrip().startswith(">>>") or line.startswith("===="):
            block = []
            while at < len(lines) and lines[at].strip():
                block.append(lines[at])
                at += 1
            out += ["```python" if block[0].lstrip().startswith(">>>") else "```text", *block, "```"]
            continue
        if line in ("Args:", "Returns:", "Raises:"):
            listed = True
            out += ["", f"**{line[:-1]}**", ""]
        elif listed and line.startswith("    ") and not line.startswith("     "):
            name, _, said = line.strip().partition(": ")
            out.append(f"* `{name}`: {plain(said)}" if said else f"* {plain(line.strip())}")
        elif listed and line.startswith("     "):
            out[-1] += " " + plain(line.strip())
        elif line.endswith("::"):
            out += [plain(line[:-1]), "", "```python"]
            at += 1
            block = []
            while at < len(lines) and (not lines[at].strip() or lines[at].startswith("    ")):
                block.append(lines[at])
                at += 1
            out += [*textwrap.dedent("\n".join(block)).strip().splitlines(), "```", ""]
            continue
        else:
            listed = listed and bool(line.strip())
            out.append(plain(line))
        at += 1
    return "\n".join(out).strip()


def signature(name, value):
    """How it is called, without the types, which are in the stubs and in `help`."""
    given = inspect.signature(value)
    parameters = [p.replace(annotation=p.empty) for p in given.parameters.values() if p.name not in ("self", "cls")]
    shown = str(given.replace(parameters=parameters, return_annotation=given.empty))
    return f"{name}{shown}"


def fields(value):
    """What a class says about its attributes: a text after an assignment."""
    try:
        source = inspect.getsource(value)
    except TypeError:
        # Of the native part.
        return []
    found = re.findall(r'^ {4}(\w+): [^\n]*\n {4}"""(.*?)"""', source, flags=re.M | re.S)
    found += re.findall(r'^ {8}self\.(\w+)[^\n]*\n {8}"""(.*?)"""', source, flags=re.M | re.S)
    return [(name, " ".join(said.split())) for name, said in found]


def of_class(name, value):
    yield f"### `{signature(name, value) if not issubclass(value, Exception) else name}`"
    yield prose(inspect.getdoc(value) or "")
    made = vars(value).get("__init__")
    if made is not None and made.__doc__ and not dataclasses.is_dataclass(value):
        yield prose(inspect.cleandoc(made.__doc__))
    listed = [f"* `{field}`: {plain(said)}" for field, said in fields(value)]
    for what, member in vars(value).items():
        if isinstance(member, property) and not what.startswith("_"):
            listed.append(f"* `{what}`: {plain(' '.join((inspect.getdoc(member) or '').split()))}")
    if listed:
        yield "\n".join(listed)
    for what, member in vars(value).items():
        called = getattr(value, what)
        # Not what scikit-learn adds to its estimators.
        ours = (getattr(called, "__module__", None) or "dpsgd").startswith("dpsgd")
        if ours and not what.startswith("_") and inspect.isroutine(called) and inspect.getdoc(called):
            yield f"#### `{signature(what, called)}`"
            yield prose(inspect.getdoc(called))


def reference():
    yield "# The Python package: reference"
    yield "Written by `python/reference.py` from the docstrings; [python.md](python.md) is the guide."
    seen = set()
    for module in MODULES:
        found = importlib.import_module(module)
        yield f"## {module}"
        yield prose(inspect.getdoc(found))
        for name in found.__all__:
            value = getattr(found, name)
            if not callable(value) or id(value) in seen:
                continue
            seen.add(id(value))
            if inspect.isclass(value):
                yield from of_class(name, value)
            else:
                yield f"### `{signature(name, value)}`"
                yield prose(inspect.getdoc(value))


if __name__ == "__main__":
    print("\n\n".join(part for part in reference() if part))
