"""Join, move and rename the modules of a checkout as maps say.

  refit.py --check MAP [MAP...]            report what is wrong with maps (reads this checkout)
  refit.py --apply ROOT MAP [MAP...]       carry them out in ROOT (a clone)
"""
from __future__ import annotations
import argparse, ast, re, subprocess, sys, tomllib
from collections import defaultdict
from pathlib import Path
import libcst as cst
from libcst.metadata import MetadataWrapper, ScopeProvider, GlobalScope, ImportAssignment, ParentNodeProvider, BuiltinScope, ClassScope, FunctionScope, ComprehensionScope

TOP = "penstock"

def modules_of(root: Path):
    out = {}
    src = root / "src"
    for p in sorted((src / TOP).rglob("*.py")):
        rel = p.relative_to(src).with_suffix("")
        parts = list(rel.parts)
        pkg = parts[-1] == "__init__"
        if pkg:
            parts = parts[:-1]
        out[".".join(parts)] = p
    return out

class Plan:
    def __init__(self, root, maps):
        self.root = root
        self.files = modules_of(root)            # old module -> path
        self.is_pkg = {m: p.name == "__init__.py" for m, p in self.files.items()}
        self.problems = []
        self.new_of = {}                         # old module -> new module
        self.groups = {}                         # new module -> [old]
        self.docs = {}
        self.packages = {}
        self.symbols = {}                        # (old module, name) -> new
        self.attributes = []
        self.covered_rooms = set()
        for m in maps:
            data = tomllib.loads(Path(m).read_text())
            for e in data.get("module", []):
                new = f"{TOP}.{e['new']}" if e["new"] else TOP
                olds = [f"{TOP}.{o}" if o else TOP for o in e["old"]]
                if new in self.groups:
                    self.problems.append(f"{m}: {new} is given twice")
                self.groups[new] = olds
                if e.get("doc"): self.docs[new] = e["doc"].strip()
                for o in olds:
                    if o not in self.files: self.problems.append(f"{m}: no module {o}")
                    if o in self.new_of: self.problems.append(f"{m}: {o} is given twice")
                    self.new_of[o] = new
                    if len(olds) > 1 and self.is_pkg.get(o) and self._has_code(o):
                        self.problems.append(f"{m}: {o} is a package's __init__ and can not be joined")
            for e in data.get("package", []):
                self.packages[f"{TOP}.{e['new']}"] = e["doc"].strip()
            for k, v in data.get("symbols", {}).items():
                mod, _, name = k.partition(":")
                self.symbols[(f"{TOP}.{mod}", name)] = v
            self.attributes += data.get("attribute", [])
        for o in self.files:
            if o not in self.new_of:
                self.new_of[o] = o
                self.groups.setdefault(o, []).append(o) if o not in self.groups else self.problems.append(f"{o} stays but {self.groups[o]} take its name")
        self.trees = {m: ast.parse(p.read_text()) for m, p in self.files.items()}
        self.defs = {m: top_names(t) for m, t in self.trees.items()}
        self.imports = {m: import_names(t, m, self) for m, t in self.trees.items()}
        for (m, n) in self.symbols:
            if m not in self.files: self.problems.append(f"[symbols] no module {m}")
            elif n not in self.defs[m]: self.problems.append(f"[symbols] {m} has no {n}")

    def _has_code(self, o):
        t = ast.parse(self.files[o].read_text())
        return any(not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)) for s in t.body)

    def origin(self, module, name, depth=0):
        """Where a name of a module is defined: (module, name), a module ('m', None) or None for foreign."""
        if module not in self.files: return None
        if name in self.defs[module]: return (module, name)
        got = self.imports[module].get(name)
        if got and depth < 20:
            m, n = got
            if n is None: return (m, None) if m in self.files else None
            if m in self.files: return self.origin(m, n, depth + 1) or None
            return None
        sub = f"{module}.{name}"
        if sub in self.files: return (sub, None)
        return None

    def final(self, module, name):
        """The new name of a symbol seen through an old module."""
        o = self.origin(module, name)
        if o and o[1] is not None: return self.symbols.get(o, name)
        return name

def top_names(tree):
    out = set()
    def targets(t):
        if isinstance(t, ast.Name): out.add(t.id)
        elif isinstance(t, (ast.Tuple, ast.List)):
            for e in t.elts: targets(e)
        elif isinstance(t, ast.Starred): targets(t.value)
    def walk(body):
        for s in body:
            if isinstance(s, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)): out.add(s.name)
            elif isinstance(s, ast.Assign):
                for t in s.targets: targets(t)
            elif isinstance(s, (ast.AnnAssign, ast.AugAssign)): targets(s.target)
            elif isinstance(s, ast.For): targets(s.target); walk(s.body)
            elif isinstance(s, ast.With): walk(s.body)
            elif isinstance(s, (ast.If, ast.Try)):
                walk(s.body); walk(s.orelse)
                for h in getattr(s, "handlers", []): walk(h.body)
    walk(tree.body)
    return out

def import_names(tree, module, plan):
    out = {}
    def walk(body):
        for s in body:
            if isinstance(s, ast.ImportFrom) and s.module:
                for a in s.names:
                    local = a.asname or a.name
                    sub = f"{s.module}.{a.name}"
                    out[local] = (s.module, a.name)
                    if s.module in plan.files and a.name not in top_names(plan_tree(plan, s.module)) and sub in plan.files:
                        out[local] = (sub, None)
            elif isinstance(s, ast.Import):
                for a in s.names:
                    if a.asname: out[a.asname] = (a.name, None)
                    else: out[a.name.split(".")[0]] = (a.name.split(".")[0], None)
            elif isinstance(s, (ast.If, ast.Try)):
                walk(s.body); walk(s.orelse)
                for h in getattr(s, "handlers", []): walk(h.body)
    walk(tree.body)
    return out

def plan_tree(plan, m):
    return plan.trees[m]

def dotted(node):
    if isinstance(node, cst.Name): return node.value
    if isinstance(node, cst.Attribute):
        left = dotted(node.value)
        return None if left is None else f"{left}.{node.attr.value}"
    return None

def dotted_node(text):
    parts = text.split(".")
    node = cst.Name(parts[0])
    for p in parts[1:]: node = cst.Attribute(node, cst.Name(p))
    return node

class Rewrite(cst.CSTTransformer):
    """Rewrite imports and uses of one file. `own` is its old module (None for tests)."""
    def __init__(self, plan, own, label, joined):
        self.plan, self.own, self.label = plan, own, label
        self.joined = joined                      # old modules that are joined with this one
        self.replace = {}                         # id(node) -> new Name text / Attribute handling
        self.attr = {}                            # id(Attribute node) -> replacement node
        self.problems = []
        self.dropped = []

    def prepare(self, wrapper):
        plan = self.plan
        scopes = set(wrapper.resolve(ScopeProvider).values()) - {None}
        self.scope_of = wrapper.resolve(ScopeProvider)
        parents = wrapper.resolve(ParentNodeProvider)
        new_own = plan.new_of.get(self.own) if self.own else None
        for scope in scopes:
            for a in scope.assignments:
                if isinstance(a, ImportAssignment):
                    self._import(a, scope, parents, new_own)
                elif isinstance(scope, GlobalScope) and self.own and (self.own, a.name) in plan.symbols:
                    new = plan.symbols[(self.own, a.name)]
                    for ref in a.references:
                        self._name(ref, a.name, new, scope)
        # definitions
        if self.own:
            self.def_renames = {n: v for (m, n), v in plan.symbols.items() if m == self.own}
        else:
            self.def_renames = {}

    def _name(self, access, old, new, scope):
        if old == new: return
        node = access.node
        while isinstance(node, cst.Attribute): node = node.value
        if isinstance(node, cst.Name) and node.value == old:
            self._captured(access, new, scope)
            self.replace[id(node)] = new

    def _captured(self, access, new, scope):
        s = access.scope
        while s is not scope and not isinstance(s, (GlobalScope, BuiltinScope)):
            if not isinstance(s, ClassScope) or s is access.scope:
                if any(x.name == new for x in s.assignments):
                    self.problems.append(f"{self.label}: '{new}' is also a local name where it would be used")
                    return
            s = s.parent

    def _import(self, a, scope, parents, new_own):
        plan = self.plan
        stmt = a.node
        if not isinstance(stmt, cst.ImportFrom): return
        if stmt.module is None: return
        mod = dotted(stmt.module)
        if not mod or mod.split(".")[0] != TOP: return
        alias = a.as_name if False else None
        for al in stmt.names:
            local = al.evaluated_alias or al.evaluated_name
            if local != a.name: continue
            o = plan.origin(mod, al.evaluated_name) if mod in plan.files else None
            if o is None: continue
            if o[1] is None:                      # a module
                self._module_import(a, al, o[0], scope, parents, new_own)
                continue
            final = plan.symbols.get(o, al.evaluated_name) if (mod in plan.files) else al.evaluated_name
            target = plan.new_of[mod]
            inside = new_own is not None and target == new_own and isinstance(scope, GlobalScope) or (new_own is not None and target == new_own)
            newlocal = local
            if inside: newlocal = final
            elif al.evaluated_alias is None: newlocal = final
            elif al.evaluated_alias == final: newlocal = final
            for ref in a.references:
                self._name(ref, local, newlocal, scope if not inside else self._global(scope))

    def _global(self, scope):
        while not isinstance(scope, GlobalScope): scope = scope.parent
        return scope

    def _module_import(self, a, al, oldmod, scope, parents, new_own):
        plan = self.plan
        new = plan.new_of[oldmod]
        local = al.evaluated_alias or al.evaluated_name
        inside = new_own is not None and new == new_own
        newlocal = local if al.evaluated_alias else new.split(".")[-1]
        for ref in a.references:
            node = ref.node
            while isinstance(node, cst.Attribute): node = node.value
            if not (isinstance(node, cst.Name) and node.value == local): continue
            parent = parents.get(node)
            if isinstance(parent, cst.Attribute) and parent.value is node:
                attr = parent.attr.value
                final = plan.final(oldmod, attr)
                if inside:
                    self._captured(ref, final, self._global(scope))
                    self.attr[id(parent)] = final
                else:
                    if newlocal != local:
                        self._captured(ref, newlocal, scope)
                        self.replace[id(node)] = newlocal
                    if final != attr: self.replace[id(parent.attr)] = final
            elif inside:
                self.problems.append(f"{self.label}: module {oldmod} is used as a value in a module that it is joined with")
            elif newlocal != local:
                self.replace[id(node)] = newlocal

    # -- leaving
    def leave_Name(self, original, updated):
        new = self.replace.get(id(original))
        return updated.with_changes(value=new) if new else updated

    def leave_Attribute(self, original, updated):
        new = self.attr.get(id(original))
        return cst.Name(new, lpar=updated.lpar, rpar=updated.rpar) if new else updated

    def leave_FunctionDef(self, original, updated):
        return self._def(original, updated)
    def leave_ClassDef(self, original, updated):
        return self._def(original, updated)
    def _def(self, original, updated):
        new = self.def_renames.get(original.name.value)
        if new and isinstance(self.scope_of.get(original), GlobalScope):
            return updated.with_changes(name=cst.Name(new))
        return updated
    def leave_AssignTarget(self, original, updated):
        return self._assign(original, updated)
    def leave_AnnAssign(self, original, updated):
        return self._assign(original, updated)
    def leave_TypeAlias(self, original, updated): return updated
    def _assign(self, original, updated):
        t = original.target
        if isinstance(t, cst.Name) and t.value in self.def_renames and isinstance(self.scope_of.get(t), GlobalScope):
            return updated.with_changes(target=cst.Name(self.def_renames[t.value]))
        if isinstance(t, cst.Tuple) and isinstance(self.scope_of.get(original), GlobalScope):
            els = [e.with_changes(value=cst.Name(self.def_renames.get(e.value.value, e.value.value))) if isinstance(e.value, cst.Name) else e for e in t.elements]
            return updated.with_changes(target=updated.target.with_changes(elements=els))
        return updated

    def leave_ImportFrom(self, original, updated):
        mod = dotted(original.module) if original.module else None
        if not mod or mod.split(".")[0] != TOP or isinstance(original.names, cst.ImportStar): return updated
        plan = self.plan
        new_own = plan.new_of.get(self.own) if self.own else None
        by = defaultdict(list)
        for al in original.names:
            name, alias = al.evaluated_name, al.evaluated_alias
            o = plan.origin(mod, name) if mod in plan.files else None
            if o is None and mod not in plan.files and f"{mod}.{name}" not in plan.files:
                if mod.startswith(TOP + ".") or mod == TOP:
                    by[mod].append((name, alias))
                    self.problems.append(f"{self.label}: import of {mod}.{name}: unknown module")
                continue
            if o is not None and o[1] is None and o[0] == f"{mod}.{name}" or (o is None and f"{mod}.{name}" in plan.files) or (o is not None and o[1] is None):
                target = plan.new_of[o[0] if o else f"{mod}.{name}"]
                if target == new_own: continue
                parent, _, last = target.rpartition(".")
                by[parent].append((last, alias if alias != last else None))
            else:
                target = plan.new_of[mod]
                if target == new_own: continue
                final = plan.final(mod, name)
                by[target].append((final, alias if alias != final else None))
        if not by:
            return cst.RemoveFromParent()
        out = []
        for target, names in by.items():
            out.append("from %s import %s" % (target, ", ".join(n if a is None else f"{n} as {a}" for n, a in names)))
        if len(out) == 1:
            node = cst.parse_statement(out[0]).body[0]
            return updated.with_changes(module=node.module, names=node.names, lpar=None, rpar=None) if not updated.lpar else node
        nodes = [cst.parse_statement(t).body[0] for t in out]
        nodes[:-1] = [n.with_changes(semicolon=cst.Semicolon(whitespace_after=cst.SimpleWhitespace(" "))) for n in nodes[:-1]]
        return cst.FlattenSentinel(nodes)

    def leave_Import(self, original, updated):
        new = []
        for al in updated.names:
            d = dotted(al.name)
            if d and d.startswith(TOP) and d in self.plan.new_of and self.plan.new_of[d] != d:
                new.append(al.with_changes(name=dotted_node(self.plan.new_of[d])))
            else: new.append(al)
        return updated.with_changes(names=new)

    # `__all__` strings
    def leave_SimpleString(self, original, updated): return updated

def touched(plan, text, own):
    """Whether anything in a file can change: its own symbols, or a module or symbol that it imports."""
    if own and any(k[0] == own for k in plan.symbols): return True
    if not hasattr(plan, "changed"):
        plan.changed = {o for o, n in plan.new_of.items() if o != n or len(plan.groups[n]) > 1} | {k[0] for k in plan.symbols}
        names = {v for v in plan.symbols}
        plan.changed_names = {k[1] for k in plan.symbols}
    for s in ast.walk(ast.parse(text)):
        if isinstance(s, ast.ImportFrom) and s.module and s.module.split(".")[0] == TOP:
            if s.module in plan.changed: return True
            for a in s.names:
                if f"{s.module}.{a.name}" in plan.changed or a.name in plan.changed_names: return True
        elif isinstance(s, ast.Import) and any(a.name in plan.changed for a in s.names): return True
    return False

def rewrite(plan, text, own, label, problems):
    if not touched(plan, text, own): return text
    joined = set(plan.groups[plan.new_of[own]]) if own else set()
    wrapper = MetadataWrapper(cst.parse_module(text))
    r = Rewrite(plan, own, label, joined)
    r.prepare(wrapper)
    out = wrapper.module.visit(r)
    problems += sorted(set(r.problems))
    return out.code

# ---- joining
def split_module(text):
    """(docstring, future, imports, type-checking imports, __all__ names, body text)."""
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    doc, imports, tc, exported, taken = None, [], [], None, []
    def span(s): return (s.lineno - 1, s.end_lineno)
    for i, s in enumerate(tree.body):
        if i == 0 and isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) and isinstance(s.value.value, str):
            doc = s.value.value; taken.append(span(s)); continue
        if isinstance(s, (ast.Import, ast.ImportFrom)):
            a, b = span(s)
            if not (isinstance(s, ast.ImportFrom) and s.module == "__future__"): imports.append("".join(lines[a:b]))
            taken.append((a, b)); continue
        if isinstance(s, ast.If) and isinstance(s.test, ast.Name) and s.test.id == "TYPE_CHECKING" and all(isinstance(x, (ast.Import, ast.ImportFrom)) for x in s.body) and not s.orelse:
            a, b = span(s)
            for x in s.body:
                xa, xb = span(x)
                tc.append("".join(l[4:] if l.startswith("    ") else l for l in lines[xa:xb]))
            taken.append((a, b)); continue
        if isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(s.targets[0], ast.Name) and s.targets[0].id == "__all__":
            try: exported = ast.literal_eval(s.value); taken.append(span(s))
            except ValueError: pass
    gone = set()
    for a, b in taken: gone.update(range(a, b))
    body = "".join(l for i, l in enumerate(lines) if i not in gone)
    return doc, imports, tc, exported, body.strip("\n") + "\n" if body.strip() else ""

def top_defs_text(text):
    out = {}
    tree = ast.parse(text)
    for s in tree.body:
        for n in top_names(ast.Module([s], [])):
            out.setdefault(n, []).append(ast.unparse(s))
    return out

def import_locals(stmts):
    out = {}
    for st in stmts:
        for s in ast.parse(st).body:
            if isinstance(s, ast.ImportFrom):
                for a in s.names: out[a.asname or a.name] = f"{s.module}.{a.name}"
            else:
                for a in s.names: out[a.asname or a.name.split(".")[0]] = a.name if a.asname else a.name.split(".")[0]
    return out

def quote_doc(doc):
    doc = doc.strip()
    raw = "r" if "\\" in doc else ""
    return f'{raw}"""{doc}"""\n' if "\n" not in doc else f'{raw}"""{doc}\n"""\n'

def join(plan, new, olds, texts, problems):
    parts = [split_module(texts[o]) for o in olds]
    doc = plan.docs.get(new)
    if doc is None: doc = plan.packages.get(new) or (parts[0][0] or "").strip()
    doc = re.sub(r"\n    ", "\n", doc) if False else doc
    imports, tc, exported, bodies, seen = [], [], [], [], {}
    imp = {}
    for o, (d, im, t, ex, body) in zip(olds, parts):
        for local, target in import_locals(im + t).items():
            if imp.setdefault(local, target) != target:
                problems.append(f"{new}: imported name '{local}' is {imp[local]} and {target} (in {o})")
        imports += im; tc += t
        if ex is not None:
            exported += [plan.symbols.get((o, e), e) for e in ex]
        defs = top_defs_text(body) if body else {}
        drop = []
        for n, tx in defs.items():
            if n == "_": continue
            if n in seen:
                if seen[n][1] == tx and len(tx) == 1: drop.append(n)
                else: problems.append(f"{new}: '{n}' is defined in {seen[n][0]} and in {o}")
            else: seen[n] = (o, tx)
        if drop: body = without(body, set(drop))
        bodies.append(body)
    for n in seen:
        if n in imp: problems.append(f"{new}: '{n}' is defined in {seen[n][0]} and imported as {imp[n]}")
    runtime = import_locals(imports)
    tc2 = []
    for st in tc:
        s = ast.parse(st).body[0]
        if isinstance(s, ast.ImportFrom):
            keep = [a for a in s.names if runtime.get(a.asname or a.name) != f"{s.module}.{a.name}"]
            if keep: tc2.append("from %s import %s\n" % (s.module, ", ".join(a.name if not a.asname else f"{a.name} as {a.asname}" for a in keep)))
        else: tc2.append(st)
    out = quote_doc(doc) if doc else ""
    if any("from __future__ import annotations" in texts[o] for o in olds):
        out += "\nfrom __future__ import annotations\n"
    if imports: out += "\n" + "".join(imports)
    if tc2:
        if "TYPE_CHECKING" not in runtime: out += "from typing import TYPE_CHECKING\n"
        out += "\nif TYPE_CHECKING:\n" + "".join("    " + l if l.strip() else l for st in dict.fromkeys(tc2) for l in st.splitlines(keepends=True))
    if exported:
        names = sorted(set(exported), key=lambda n: (not n.isupper(), n)) if len(olds) > 1 else exported
        out += "\n__all__ = [" + ", ".join(f'"{n}"' for n in names) + "]\n"
    return out + "".join("\n\n" + b.strip("\n") + "\n" for b in bodies if b.strip())

def without(body, names):
    tree = ast.parse(body); lines = body.splitlines(keepends=True); gone = set()
    for s in tree.body:
        if top_names(ast.Module([s], [])) <= names and top_names(ast.Module([s], [])):
            a = s.lineno - 1
            if getattr(s, "decorator_list", None): a = min(d.lineno for d in s.decorator_list) - 1
            gone.update(range(a, s.end_lineno))
    return "".join(l for i, l in enumerate(lines) if i not in gone)

# ---- attributes
class Attributes(cst.CSTTransformer):
    def __init__(self, table): self.table = table
    def _n(self, name): return self.table.get(name)
    def leave_Attribute(self, o, u):
        n = self._n(o.attr.value)
        return u.with_changes(attr=cst.Name(n)) if n else u
    def leave_Arg(self, o, u):
        if o.keyword and self._n(o.keyword.value): return u.with_changes(keyword=cst.Name(self._n(o.keyword.value)))
        return u

class AttributesFull(Attributes):
    """Also definitions: methods, class fields, parameters and their uses in functions (every Name of that word in a function)."""
    def __init__(self, table):
        super().__init__(table); self.stack = []
    def visit_ImportFrom(self, node): return False
    def visit_Import(self, node): return False
    def visit_ClassDef(self, node): self.stack.append("class")
    def leave_ClassDef(self, o, u): self.stack.pop(); return u
    def visit_FunctionDef(self, node):
        params = {p.name.value for p in [*node.params.params, *node.params.kwonly_params, *node.params.posonly_params]}
        self.stack.append(params)
    def leave_FunctionDef(self, o, u):
        self.stack.pop()
        if self.stack and self.stack[-1] == "class" and self._n(o.name.value): return u.with_changes(name=cst.Name(self._n(o.name.value)))
        return u
    def visit_Lambda(self, node): self.stack.append({p.name.value for p in node.params.params})
    def leave_Lambda(self, o, u): self.stack.pop(); return u
    def leave_Name(self, o, u):
        n = self._n(o.value)
        if not n or not self.stack: return u
        for s in reversed(self.stack):
            if s == "class": 
                return u.with_changes(value=n) if self.stack[-1] == "class" else u
            if o.value in s: return u.with_changes(value=n)
        return u
    def leave_Attribute(self, o, u):
        n = self._n(o.attr.value)
        attr = cst.Name(n) if n else o.attr
        return u.with_changes(attr=attr)
    def leave_Arg(self, o, u):
        if o.keyword: return u.with_changes(keyword=cst.Name(self._n(o.keyword.value) or o.keyword.value))
        return u

# ---- texts
def text_rewriter(plan):
    moved = {o: n for o, n in plan.new_of.items() if o != n or any(k[0] == o for k in plan.symbols)}
    sym = defaultdict(dict)
    for (m, n), v in plan.symbols.items(): sym[m][n] = v
    allm = sorted(plan.files, key=len, reverse=True)
    pattern = re.compile(r"\bpenstock((?:\.[A-Za-z_][A-Za-z_0-9]*)+)")
    def dotted_sub(m):
        full = m.group(0); parts = full.split(".")
        for k in range(len(parts), 0, -1):
            mod = ".".join(parts[:k])
            if mod in plan.files:
                rest = parts[k:]
                new = plan.new_of[mod]
                if rest: rest = [plan.final(mod, rest[0]), *rest[1:]]
                return ".".join([new, *rest])
        return full
    paths = {}
    for o, n in plan.new_of.items():
        if o == n: continue
        op = str(plan.files[o].relative_to(plan.root / "src"))
        np = n.replace(".", "/") + ("/__init__.py" if plan.is_pkg[o] and n in plan.newpkgs else ".py")
        paths[op] = np
        paths[op.removeprefix(TOP + "/")] = np.removeprefix(TOP + "/")
    ppat = re.compile(r"(?<![\w/.-])(src/)?((?:penstock/)?[a-z_0-9]+(?:/[a-z_0-9]+)+\.py)\b")
    def path_sub(m):
        new = paths.get(m.group(2))
        return (m.group(1) or "") + new if new else m.group(0)
    colon = re.compile(r"\b(penstock(?:\.[a-z_0-9]+)+):([A-Za-z_]\w*)")
    def colon_sub(m):
        if m.group(1) in plan.files: return f"{plan.new_of[m.group(1)]}:{plan.final(m.group(1), m.group(2))}"
        return m.group(0)
    def go(text):
        text = colon.sub(lambda m: "\0" + colon_sub(m) + "\0", text)
        pieces = text.split("\0")
        pieces[::2] = [ppat.sub(path_sub, pattern.sub(dotted_sub, p)) for p in pieces[::2]]
        return "".join(pieces)
    return go

def in_strings(go):
    """Like `go`, for a Python file whose code is rewritten already: only its strings and comments."""
    import io, tokenize
    kinds = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", -1)}
    def run(text):
        lines = text.splitlines(keepends=True)
        for t in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
            if t.type not in kinds or "penstock" not in t.string and ".py" not in t.string: continue
            (a, b), (c, d) = t.start, t.end
            old = "".join(lines[a - 1:c])
            head, tail = lines[a - 1][:b], lines[c - 1][d:]
            new = head + go(old[len(head):len(old) - len(tail)]) + tail
            if new != old: lines[a - 1:c] = [new] + [""] * (c - a)
        return "".join(lines)
    return run

def new_packages(plan):
    out = set(plan.packages)
    for n in plan.groups:
        parts = n.split(".")
        for k in range(1, len(parts)): out.add(".".join(parts[:k]))
    for n, olds in plan.groups.items():
        if any(plan.is_pkg[o] for o in olds) and len(olds) == 1: out.add(n)
    return out

def build(plan):
    plan.newpkgs = new_packages(plan)
    texts = {o: rewrite(plan, p.read_text(), o, o, plan.problems) for o, p in plan.files.items()}
    out = {}
    for new, olds in plan.groups.items():
        if new in plan.newpkgs and not all(plan.is_pkg[o] for o in olds) and len(olds) >= 1:
            plan.problems.append(f"{new}: is a package and a module")
        text = texts[olds[0]] if len(olds) == 1 and new not in plan.docs else join(plan, new, olds, texts, plan.problems)
        path = new.replace(".", "/") + ("/__init__.py" if new in plan.newpkgs else ".py")
        out[path] = text
    for pkg in plan.newpkgs:
        if pkg not in plan.groups:
            out[pkg.replace(".", "/") + "/__init__.py"] = quote_doc(plan.packages.get(pkg, "TODO: what this package holds."))
            if pkg not in plan.packages: plan.problems.append(f"package {pkg} has no [[package]] doc")
    return out

def cycles(out):
    graph = {}
    names = {}
    for path in out:
        m = path.removesuffix(".py").replace("/", ".")
        names[m.removesuffix(".__init__")] = path
    for m, path in names.items():
        deps = set()
        def walk(body):
            for s in body:
                if isinstance(s, ast.ImportFrom) and s.module and s.module.startswith(TOP):
                    for a in s.names:
                        deps.add(f"{s.module}.{a.name}" if f"{s.module}.{a.name}" in names else s.module)
                elif isinstance(s, ast.If) and not (isinstance(s.test, ast.Name) and s.test.id == "TYPE_CHECKING"): walk(s.body)
                elif isinstance(s, ast.Try): walk(s.body)
        walk(ast.parse(out[path]).body)
        graph[m] = {d for d in deps if d in names and d != m}
    # Tarjan
    index, low, stack, on, sccs, n = {}, {}, [], set(), [], [0]
    sys.setrecursionlimit(10000)
    def visit(v):
        index[v] = low[v] = n[0]; n[0] += 1; stack.append(v); on.add(v)
        for w in graph[v]:
            if w not in index: visit(w); low[v] = min(low[v], low[w])
            elif w in on: low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            comp = []
            while True:
                w = stack.pop(); on.discard(w); comp.append(w)
                if w == v: break
            if len(comp) > 1: sccs.append(sorted(comp))
    for v in graph:
        if v not in index: visit(v)
    return sccs

def stats(out, prefix=None):
    small = []
    for p, t in out.items():
        n = t.count("\n")
        if n < 60 and not p.endswith("__init__.py") and "/handlers/" not in p: small.append((n, p))
    print(f"files in all: {len(out)}; under 60 lines (no __init__, no handlers): {len(small)}")
    return small

def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--check", action="store_true"); ap.add_argument("--apply", type=Path)
    ap.add_argument("maps", nargs="+")
    args = ap.parse_args()
    root = args.apply or Path(".")
    plan = Plan(root, args.maps)
    out = build(plan)
    rooms = {e.split(".")[1] for n in plan.groups for e in [n] if "." in n and plan.groups[n] != [n]}
    if args.check:
        mapped = set()
        for m in args.maps:
            data = tomllib.loads(Path(m).read_text())
            mapped |= {o for e in data.get("module", []) for o in e["old"]}
        tops = {o.split(".")[0] for o in mapped}
        for o in plan.files:
            short = o.removeprefix(TOP + ".")
            if short.split(".")[0] in tops and short not in mapped and o != TOP:
                if not (plan.is_pkg[o] and not plan._has_code(o)): print("not covered:", short)
        for p in sorted(set(plan.problems)): print("PROBLEM", p)
        for c in cycles(out): print("CYCLE", " ".join(c))
        mine = {p: t for p, t in out.items() if p.removeprefix(TOP + "/").split("/")[0].removesuffix(".py") in {e for e in tops} | {"mapping", "testing"}}
        print(f"files under {sorted(tops)}: {len(mine)}")
        for n, p in sorted((t.count(chr(10)), p) for p, t in mine.items() if t.count("\n") < 60 and not p.endswith("__init__.py")): print("small", n, p)
        for n, p in sorted((t.count(chr(10)), p) for p, t in mine.items() if t.count("\n") > 450): print("large", n, p)
        dirs = defaultdict(set)
        for p in mine:
            parts = p.split("/")
            for k in range(1, len(parts)): dirs["/".join(parts[:k])].add(parts[k])
        for d, e in sorted(dirs.items()):
            k = len(e - {"__init__.py"})
            if k > 15: print("full folder", k, d)
        return
    if plan.problems:
        for p in sorted(set(plan.problems)): print("PROBLEM", p)
    apply(plan, out, root)

def apply(plan, out, root):
    run = lambda *a: subprocess.run(a, cwd=root, check=True, capture_output=True)
    go = text_rewriter(plan)
    # tests and bench, before files move
    tests = [p for d in ("tests", "bench", "examples") for p in sorted((root / d).rglob("*.py"))]
    extra = [root / n for n in ("hatch_build.py", "bootstrap.py") if (root / n).exists()]
    for p in tests + extra:
        text = p.read_text()
        try: new = rewrite(plan, text, None, str(p), plan.problems)
        except cst.ParserSyntaxError: new = text
        new = in_strings(go)(new)
        if new != text: p.write_text(new)
    # sources
    for new, olds in plan.groups.items():
        path = root / "src" / (new.replace(".", "/") + ("/__init__.py" if new in plan.newpkgs else ".py"))
        path.parent.mkdir(parents=True, exist_ok=True)
        first = max(olds, key=lambda o: plan.files[o].stat().st_size if plan.files[o].exists() else 0)
        plan.moves = getattr(plan, "moves", []) + [(plan.files[first], path, olds)]
    # two steps, because a new path may be another's old one
    tmp = root / "src" / "_moving"; tmp.mkdir()
    for i, (old, path, olds) in enumerate(plan.moves):
        run("git", "mv", str(old), str(tmp / f"{i}.py"))
        for o in olds:
            if plan.files[o] != old: run("git", "rm", "-q", "-f", str(plan.files[o]))
    for i, (old, path, olds) in enumerate(plan.moves):
        path.parent.mkdir(parents=True, exist_ok=True)
        run("git", "mv", str(tmp / f"{i}.py"), str(path))
    if tmp.exists(): tmp.rmdir()
    for rel, text in out.items():
        p = root / "src" / rel
        p.parent.mkdir(parents=True, exist_ok=True)
        p.write_text(in_strings(go)(text))
    # attributes
    for d in {u for a in plan.attributes for u in a["under"]}:
        pass
    byfile = defaultdict(dict)
    for a in plan.attributes:
        for u in a["under"]:
            for p in ([root / u] if (root / u).is_file() else sorted((root / u).rglob("*.py"))): byfile[p][a["old"]] = a["new"]
    for p, table in byfile.items():
        text = p.read_text()
        if not any(re.search(rf"\b{w}\b", text) for w in table): continue
        new = cst.parse_module(text).visit(AttributesFull(table)).code
        if new != text: p.write_text(new)
    # other texts
    for f in subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout.split():
        p = root / f
        if p.suffix in (".md", ".toml", ".yml", ".yaml", ".cfg", ".txt", ".sh") or p.name in ("Makefile", "run") or f.startswith(".ci/"):
            if not p.exists() or "CHANGELOG" in f: continue
            try: text = p.read_text()
            except UnicodeDecodeError: continue
            new = go(text)
            if new != text: p.write_text(new)
    move_tests(plan, root, run)

def move_tests(plan, root, run):
    """tests mirror the source: tests/a/test_b.py follows penstock.a.b."""
    wanted = {}
    for o, n in plan.new_of.items():
        if o == n: continue
        short = o.split(".")[1:]
        if not short or plan.is_pkg[o]: continue
        old = root / "tests" / Path(*short[:-1]) / f"test_{short[-1]}.py"
        if not old.exists(): continue
        ns = n.split(".")[1:]
        olds = plan.groups[n]
        have = [x for x in olds if (root / "tests" / Path(*x.split(".")[1:-1]) / f"test_{x.split('.')[-1]}.py").exists()]
        stem = ns[-1] if len(have) == 1 else (ns[-1] if o.split(".")[-1] == ns[-1] else f"{ns[-1]}_{o.split('.')[-1]}")
        wanted[old] = root / "tests" / Path(*ns[:-1]) / f"test_{stem}.py"
    tmp = root / "tests" / "_moving"; tmp.mkdir()
    taken = set(); pairs = []
    for i, (old, new) in enumerate(wanted.items()):
        while new in taken or (new.exists() and new not in wanted): new = new.with_name(new.stem + "_too.py")
        taken.add(new); run("git", "mv", str(old), str(tmp / f"{i}.py")); pairs.append((tmp / f"{i}.py", new, old))
    for t, new, old in pairs:
        new.parent.mkdir(parents=True, exist_ok=True)
        run("git", "mv", str(t), str(new))
        print(f"test {old.relative_to(root)} -> {new.relative_to(root)}")
    if tmp.exists(): tmp.rmdir()

main()
