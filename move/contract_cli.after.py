"""After refit.py: what a map cannot say. `python contract_cli.after.py CLONE [MAP...]`; can be run again.

1. Doctest lines (`>>>`, `...`) in src: names of renamed symbols and attributes (of all maps that are given).
2. Names in `__all__` that were renamed where they are defined (refit changes only those of joined modules).
3. tests/{contract,cli,config}: files that moved a folder deeper find the root of the repository and `golden` again.
4. Python in strings of tests/cli: output.talk is output.info.
5. Two names for one module of rules become one; an empty `if TYPE_CHECKING`.
"""

import ast
import re
import sys
import tomllib
from pathlib import Path

root = Path(sys.argv[1])
maps = [tomllib.loads(Path(m).read_text()) for m in (sys.argv[2:] or [Path(__file__).with_name("contract_cli.toml")])]

renamed = {}
for each in maps:
    for key, new in each.get("symbols", {}).items():
        renamed.setdefault(key.partition(":")[2], set()).add(new)
attributes = [(a["old"], a["new"], u) for each in maps for a in each.get("attribute", []) for u in a["under"]]


def names_of(tree):
    found = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        for inner in ast.walk(node):
            if isinstance(inner, (ast.Import, ast.ImportFrom)):
                found |= {a.asname or a.name for a in inner.names}
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                found |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}
    return found


for path in sorted((root / "src").rglob("*.py")):
    text = path.read_text()
    if ">>>" not in text and "__all__" not in text:
        continue
    tree = ast.parse(text)
    there = names_of(tree)
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            lines = text.splitlines(keepends=True)
            for each in node.value.elts if isinstance(node.value, (ast.List, ast.Tuple)) else ():
                fitting = renamed.get(each.value, set()) & there
                if each.value not in there and len(fitting) == 1:
                    at, name = each.lineno - 1, fitting.pop()
                    lines[at] = lines[at].replace(f'"{each.value}"', f'"{name}"')
                    print(f"{path.relative_to(root)}: __all__ {each.value} -> {name}")
            text = "".join(lines)
    table = {}
    for old, news in renamed.items():
        fitting = news & there
        if old not in there and len(fitting) == 1:
            table[old] = fitting.pop()
    rel = str(path.relative_to(root))
    own = [(old, new) for old, new, under in attributes if rel.startswith(under)]
    lines = text.splitlines(keepends=True)
    for i, line in enumerate(lines):
        for old, name in table.items():
            line = lines[i] = line.replace(f"`{old}`", f"`{name}`")
        if line.lstrip().startswith((">>> ", "... ")):
            new = line
            for old, name in table.items():
                new = re.sub(rf"(?<![\w.\"'])\b{re.escape(old)}\b(?![\w\"'=])", name, new)
            for old, name in own:
                new = re.sub(rf"\.{re.escape(old)}\b", f".{name}", new)
            if new != line:
                print(f"{rel}:{i + 1}: {new.strip()}")
                lines[i] = new
    path.write_text("".join(lines))

for room in ("contract", "cli", "config"):
    for path in sorted((root / "tests" / room).rglob("test_*.py")):
        text = new = path.read_text()
        depth = len(path.relative_to(root).parts) - 1
        if depth > 2:
            new = new.replace("Path(__file__).parents[2]", f"Path(__file__).parents[{depth}]")
            for name in ("golden", "verdicts.yaml"):
                up = f"parents[{depth - 2}]"
                new = new.replace(f'Path(__file__).parent / "{name}"', f'Path(__file__).{up} / "{name}"')
        if room == "cli":
            new = new.replace("output.talk(", "output.info(")
        if new != text:
            print(path.relative_to(root))
            path.write_text(new)

ONE_NAME = {
    "document/bindings.py": [
        ("from penstock.contract.rules import bindings as kafka_rules", "from penstock.contract.rules import bindings as rules"),
        ("from penstock.contract.rules import bindings as pulsar_rules\n", ""),
        ("kafka_rules.", "rules."),
        ("pulsar_rules.", "rules."),
    ],
    "document/schema.py": [
        ("from penstock.contract.rules import structure as reading_rules\n", ""),
        ("reading_rules.", "structure."),
    ],
    "validation/check_objects.py": [
        ("from penstock.contract.rules import bindings as kafka_rules", "from penstock.contract.rules import bindings"),
        ("kafka_rules.", "bindings."),
    ],
    "findings.py": [("if TYPE_CHECKING:\n    pass\n", "")],
}
for name, changes in ONE_NAME.items():
    path = root / "src/penstock/contract" / name
    text = path.read_text()
    for old, new in changes:
        text = text.replace(old, new)
    path.write_text(text)
