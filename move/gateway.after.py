"""After refit.py has carried out gateway.toml in ROOT: what it does not see.  usage: python gateway.after.py ROOT

It prints what it could not find: that is to be looked at by hand. Then: ruff check --fix --select I001,F401,F811 and ruff format.
"""
import re, sys, tomllib
from pathlib import Path

root = Path(sys.argv[1])
gw, mapping = root / "src/penstock/gateway", root / "src/penstock/mapping"
data = tomllib.loads((Path(__file__).parent / "gateway.toml").read_text())
symbols = {}
for key, new in data["symbols"].items():
    module, _, old = key.partition(":")
    symbols.setdefault(module, {})[old] = new
camel = {o: n for table in symbols.values() for o, n in table.items() if o[0].isupper() and len(o) > 3 and o not in ("Record", "State", "Event", "Limits", "Place", "Answer", "Change", "Body", "Owner", "Found", "Reader", "Cluster", "Members", "Session", "Commit", "Protocol", "Update", "Step", "Item", "Kind", "LEASE")}

def words(text, table):
    if not table: return text
    return re.sub(r"\b(%s)\b" % "|".join(sorted(map(re.escape, table), key=len, reverse=True)), lambda m: table[m[1]], text)

# 1. doctests and words in backticks
for entry in data["module"]:
    new = root / "src/penstock" / entry["new"].replace(".", "/")
    path = new / "__init__.py" if (new / "__init__.py").exists() else new.with_suffix(".py")
    table = {}
    for old in entry["old"]: table |= symbols.get(old, {})
    rel = str(path.relative_to(root))
    doctest = dict(table)
    for a in data["attribute"]:
        if any(rel == u or rel.startswith(u.rstrip("/") + "/") for u in a["under"]): doctest[a["old"]] = a["new"]
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    for i, line in enumerate(lines):
        if re.match(r"\s*(>>>|\.\.\. )", line): lines[i] = words(line, doctest)
    text = "".join(lines)
    text = re.sub(r"(?<!`)`(\w+)`(?!`)", lambda m: "`%s`" % ({**camel, **table}.get(m[1], m[1])), text)
    path.write_text(text)

# 2. single places
def put(path, old, new, count=1, regex=False):
    p = root / path
    if not p.exists(): print("no file", path); return
    text = p.read_text()
    found = len(re.findall(old, text)) if regex else text.count(old)
    if found != count: print(f"{path}: {found} times, not {count}: {old!r}")
    p.write_text(re.sub(old, new, text) if regex else text.replace(old, new))

def tests(mark, old, new, count=1, folder="tests/gateway"):
    """In the test files of a folder that have a word."""
    hits = [p for p in sorted((root / folder).rglob("*.py")) if mark in p.read_text() and old in p.read_text()]
    if len(hits) != count: print(f"{old!r} in {len(hits)} files with {mark!r}, not {count}: {hits}")
    for p in hits: p.write_text(p.read_text().replace(old, new))

put("src/penstock/gateway/ops/http.py", '"penstock.gateway.ops.http"', '"penstock.gateway.health"')     # the name of a logger is public
put("src/penstock/gateway/server/server.py", "if TYPE_CHECKING:\n    pass\n", "")
put("src/penstock/gateway/cluster/partition_leaders.py", 'life=""', 'incarnation=""')
put("src/penstock/gateway/log/storage.py", '"asyncio.Future[Awaitable[Appended]]"', '"asyncio.Future[Awaitable[LogAppendInfo]]"')
put("src/penstock/gateway/cluster/membership.py",
    '>>> read_peer(Peer(node_id=7, incarnation="a", addresses=(Host("h", 1),)).to_bytes()).node_id, read_peer(b"{}")',
    '>>> peer = Peer(node_id=7, incarnation="a", addresses=(Host("h", 1),))\n    >>> read_peer(peer.to_bytes()).node_id, read_peer(b"{}")')
put("src/penstock/gateway/cluster/partition_leaders.py",
    '>>> sorted(_balanced_leader("orders", partition, (1, 2, 3)) for partition in range(6)), _balanced_leader("orders", 0, ())\n    ([1, 1, 2, 2, 3, 3], -1)',
    '>>> sorted(_balanced_leader("orders", partition, (1, 2, 3)) for partition in range(6))\n    [1, 1, 2, 2, 3, 3]\n    >>> _balanced_leader("orders", 0, ())\n    -1')
put("src/penstock/gateway/security/tokens.py",
    '>>> token_identity("e30.eyJzdWIiOiAiYW5uIiwgImV4cCI6IDF9.x") == token_identity("e30.eyJzdWIiOiAiYW5uIn0.y")',
    '>>> newer = token_identity("e30.eyJzdWIiOiAiYW5uIiwgImV4cCI6IDF9.x")\n    >>> newer == token_identity("e30.eyJzdWIiOiAiYW5uIn0.y")')
put("src/penstock/gateway/log/partition.py", r"\btail\b", "reader", 53, regex=True)
for p in [*gw.rglob("*.py"), *(root / "tests/gateway").rglob("*.py"), root / "bench/groups.py"]:
    p.write_text(re.sub(r"\bshard(s?)\b", r"coordinator\1", p.read_text()))
for p in (gw / "security/sasl.py", gw / "server/kafka_protocol.py"):
    p.write_text(re.sub(r"\badmission\b", "principal", p.read_text()))

tests("keep_what_is_freed", "keep_what_is_freed", "tune_malloc")
tests("rlimit", "import fitting", "import fit_open_files"); tests("rlimit", "= fitting(", "= fit_open_files(")
tests("TopicOwners", '"_PATIENCE"', '"_LOOKUP_WAIT_SECONDS"')
tests("TopicOwners", '"_MOST"', '"_MAX_TOPICS"')
tests("EntryIndexes", '"_PATIENCE"', '"_INDEX_WAIT_SECONDS"')
tests("GroupCoordinators", '"_PROVE_AFTER"', '"_VERIFY_AFTER_SECONDS"')
tests("GroupCoordinators", '"_RETRY"', '"_RETRY_SECONDS"')
tests("Membership", '"SILENCE"', '"SILENCE_SECONDS"')
tests("Membership", '"INTERVAL"', '"HEARTBEAT_SECONDS"')
tests("Accounts", '"_IDLE"', '"_IDLE_SECONDS"')
tests("Accounts", '"_RIGHTS_VALID_FOR"', '"_PERMISSIONS_SECONDS"')
tests("Accounts", '"_RIGHTS_ASK_AGAIN"', '"_PERMISSIONS_RETRY_SECONDS"')

# `main` of the command line and the module `main` of the gateway
p = root / "tests/cli/test_gateway.py"
text = p.read_text()
text = text.replace("from penstock.gateway.app import main\n", "from penstock.gateway.app import main as gateway_main\n").replace('setattr(main, "run"', 'setattr(gateway_main, "run"')
p.write_text(text)
# the paths in test_supervision come in another order
for p in (root / "tests/gateway").rglob("*.py"):
    text = p.read_text()
    if "test_no_task_is_started_unwatched" in text:
        text = re.sub(r'== \[\n((?:        "[\w/]+\.py",\n)+)    \]', lambda m: "== [\n" + "".join(sorted(m[1].splitlines(keepends=True))) + "    ]", text)
        p.write_text(text)
put("fuzz/kernels.py", "from penstock.mapping import entry_to_batch, to_kafka, to_pulsar", "from penstock.mapping import entry_to_batch, kafka_to_pulsar, pulsar_to_kafka_kernel")
put("fuzz/kernels.py", r"\bto_pulsar\.", "kafka_to_pulsar.", 2, regex=True)
put("fuzz/kernels.py", r"\bto_kafka\.", "pulsar_to_kafka_kernel.", 3, regex=True)
