"""Writes the tables of docs/records.md: `python -m tests.docs.record_reference`.

A limiter is used on a real server. Records are shown as they are found in the table, with names in
place of values, and each question is shown with the requests and capacity units that it took.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.costs import READS, billed
from bench.scale.markdown import with_section

from tests.docs.month_costs import months
from tests.support.servers.processes import Server, start
from tests.support.servers.tables import OwnTable, table_client
from zae_limiter import Limit, RateLimiter, Repository
from zae_limiter.backends.dynamodb.schema import get_table_definition
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.backends.dynamodb.wire.meter import Meter, OperationUnits

PAGE = Path(__file__).parents[2] / "docs" / "records.md"
_INDEXES = ("GSI1", "GSI2", "GSI3", "GSI4")
_LIMITS = [Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000)]

Question = Callable[[RateLimiter, Repository], Awaitable[object]]

READING: dict[str, Question] = {
    "`available`, `time_until_available`": lambda limiter, _: limiter.available("ann", "gpt-4"),
    "`get_bucket`": lambda _, repository: repository.get_bucket("ann", "gpt-4", "rpm"),
    "`get_buckets` of an entity": lambda _, repository: repository.get_buckets("ann"),
    "`get_balances` of a resource": lambda _, it: it.get_balances(resource="gpt-4"),
    "`get_resource_capacity`": lambda it, _: it.get_resource_capacity("gpt-4", "rpm"),
    "`get_entity`": lambda limiter, _: limiter.get_entity("ann"),
    "`get_children`": lambda limiter, _: limiter.get_children("acme"),
    "`list_entities`": lambda limiter, _: limiter.list_entities(),
    "`get_limits`": lambda limiter, _: limiter.get_limits("ann", "gpt-4"),
    "`get_resource_defaults`": lambda limiter, _: limiter.get_resource_defaults("gpt-4"),
    "`get_system_defaults`": lambda limiter, _: limiter.get_system_defaults(),
    "`list_resources_with_defaults`": lambda limiter, _: limiter.list_resources_with_defaults(),
    "`list_entities_with_custom_limits`": lambda it, _: it.list_entities_with_custom_limits(
        "gpt-4"
    ),
    "`get_usage_snapshots` of an entity": lambda it, _: it.get_usage_snapshots("ann"),
    "`get_usage_snapshots` of a resource": lambda it, _: it.get_usage_snapshots(resource="gpt-4"),
    "`get_audit_events`": lambda limiter, _: limiter.get_audit_events("ann"),
    "`list_namespaces`": lambda _, repository: repository.list_namespaces(),
}
CHANGING: dict[str, Question] = {
    "`create_entity` with a parent": lambda limiter, _: limiter.create_entity(
        "new", parent_id="acme", cascade=True
    ),
    "`update_entity`": lambda limiter, _: limiter.update_entity("new", name="New"),
    "`set_limits`, the first time": lambda limiter, _: limiter.set_limits("new", _LIMITS, "gpt-4"),
    "`set_limits`, later": lambda limiter, _: limiter.set_limits("new", _LIMITS, "gpt-4"),
    "`delete_limits`": lambda limiter, _: limiter.delete_limits("new", "gpt-4"),
    "`set_resource_defaults`": lambda limiter, _: limiter.set_resource_defaults("gpt-4", _LIMITS),
    "`set_system_defaults`": lambda limiter, _: limiter.set_system_defaults(_LIMITS),
    "`delete_entity` without buckets": lambda limiter, _: limiter.delete_entity("new"),
    "`register_namespace`": lambda _, repository: repository.register_namespace("team"),
    "`delete_namespace`": lambda _, repository: repository.delete_namespace("team"),
}
# Values of this story, and the names that stand for them. The longer ones come first.
_NAMES = (
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|(?<=#)\d{4}-\d\d(-\d\d)?(?=#|$)", "{window}"),
    (r"(?<=#AUDIT#)[^#]+$", "{event}"),
    (r"(?<=RECEIPT#)\d+", "{slot}"),
    (r"(?<=^KEY#).+", "{key}"),
    (r"(?<=^LEASE#).+", "{lease}"),
    (r"(?<=#SHARD#).+", "{work}#{stream}#{stream shard}"),
    (r"\bacme\b|\bann\b|\bnew\b", "{entity}"),
    (r"\bgpt-4\b", "{resource}"),
    (r"(?<=#)0$", "{shard}"),
    (r"(?<=#NAMESPACE#)default|(?<=\$NAMESPACE:)team", "{name}"),
    (r"(?<=#NSID#).+", "{ns}"),
    (r"\b(rpm|tpm)\b|(?<=_)(rpm|tpm)(?=_)", "{limit}"),
)


async def use(url: str) -> None:
    """Make at least one record of each kind."""
    async with RateLimiter(repository=await Repository.open(url=url)) as limiter:
        await limiter.set_system_defaults(_LIMITS)
        await limiter.set_resource_defaults("gpt-4", _LIMITS)
        await limiter.create_entity("acme")
        await limiter.create_entity("ann", parent_id="acme", cascade=True)
        await limiter.set_limits("ann", _LIMITS, "gpt-4")
        async with limiter.acquire(
            "ann", "gpt-4", {"rpm": 1, "tpm": 500}, idempotency_key="order-1"
        ):
            pass


async def delete_some(url: str) -> None:
    """Make the records that deletions leave."""
    async with RateLimiter(repository=await Repository.open(url=url)) as limiter:
        await limiter.delete_limits("ann", "gpt-4")
        await limiter.set_limits("ann", _LIMITS, "gpt-4")
        await limiter.set_limits("acme", _LIMITS, "gpt-4")
        await limiter.delete_limits("acme", "gpt-4")


def run_command(url: str, *command: str) -> None:
    """Run a command of the command line, which must succeed."""
    whole = [sys.executable, "-m", "zae_limiter.cli", *command, "--url", url]
    subprocess.run(whole, check=True, capture_output=True, timeout=120)


def declare(url: str) -> None:
    """Make the mark of a record that a manifest manages."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = Path(folder) / "limits.yaml"
        limits = "{rpm: 100/min, tpm: 10000/min}"
        text = f"namespace: default\nresources: {{gpt-4: {{limits: {limits}}}}}\n"
        manifest.write_text(text, encoding="utf-8")
        run_command(url, "limits", "apply", "--force", "--yes", str(manifest))


def generic(text: str, namespace_id: str) -> str:
    """A key or the name of an attribute, with names in place of values."""
    text = text.replace(namespace_id, "{ns}")
    for pattern, name in _NAMES:
        text = re.sub(pattern, name, text)
    return text


def records(items: Iterable[Mapping[str, Any]], namespace_id: str) -> str:
    """Each kind of record with its keys and its attributes."""
    rows: dict[tuple[str, str], tuple[set[str], set[str]]] = {}
    for item in items:
        keys = {name: generic(item[name]["S"], namespace_id) for name in item if _is_key(name)}
        indexed, attributes = rows.setdefault((keys["PK"], keys["SK"]), (set(), set()))
        indexed.update(
            f"{index}: `{keys[index + 'PK']}` → `{keys[index + 'SK']}`"
            for index in _INDEXES
            if index + "PK" in keys
        )
        attributes.update(generic(name, namespace_id) for name in item if not _is_key(name))
    lines = [
        [
            f"`{pk}`",
            f"`{sk}`",
            "<br>".join(sorted(indexed)),
            ", ".join(f"`{name}`" for name in sorted(attributes)),
        ]
        for (pk, sk), (indexed, attributes) in sorted(rows.items())
    ]
    return word_table(("PK", "SK", "index keys", "attributes"), lines)


def _is_key(name: str) -> bool:
    return name in ("PK", "SK") or bool(re.fullmatch(r"GSI\d[PS]K", name))


def indexes() -> str:
    """Each index with what it projects."""
    return word_table(
        ("index", "projects"),
        [
            [each["IndexName"], _projection(each["Projection"])]
            for each in get_table_definition("t")["GlobalSecondaryIndexes"]
        ],
    )


def _projection(told: Mapping[str, Any]) -> str:
    attributes = ", ".join(f"`{name}`" for name in told.get("NonKeyAttributes", ()))
    return f"keys and {attributes}" if attributes else "keys only"


async def costs(url: str, questions: Mapping[str, Question]) -> str:
    """Each question with what it took, in a process that has asked nothing before."""
    rows = []
    for title, ask in questions.items():
        repository = await Repository.open(url=url, config_cache_ttl=0)
        store: Any = repository.scope.store
        assert isinstance(store, DynamoStore)
        limiter = RateLimiter(repository=repository)
        meter, requests = store.table.client.meter, Counter(store.table.client.meter.requests)
        units = dict(meter.units)
        with billed(store.table) as bill:
            await ask(limiter, repository)
        asked, cost = _asked(meter, requests, units), bill.cost
        rows.append([title, asked, *(f"{each:.3g}" for each in (cost.calls, cost.rcu, cost.wcu))])
        await limiter.close()
    return word_table(("method", "requests", "calls", "RCU", "WCU"), rows, figures=3)


def _asked(meter: Meter, requests: Counter[str], units: Mapping[OperationUnits, float]) -> str:
    """The operations since then, each with the index that it read."""
    read = {
        used.operation: used.index_name
        for used, spent in meter.units.items()
        if used.operation in READS and used.index_name and spent > units.get(used, 0)
    }
    asked = meter.requests - requests
    return ", ".join(f"{name} {read.get(name, '')}".strip() for name in asked)


def word_table(headings: Sequence[str], rows: Iterable[Sequence[str]], figures: int = 0) -> str:
    """A table of words, and of figures in its last columns."""
    rule = ["---"] * (len(headings) - figures) + ["---:"] * figures
    lines = [headings, rule, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tables(server: Server) -> dict[str, str]:
    """Every table of the page by the name of its place there. Opening makes the DynamoDB table."""
    with table_client(server) as client:
        table = OwnTable("limits", server, client)
        asyncio.run(use(table.url))
        run_command(table.url, "aggregate", "--once")
        questions = asyncio.run(costs(table.url, READING))
        changes = asyncio.run(costs(table.url, CHANGING))
        asyncio.run(delete_some(table.url))
        declare(table.url)
        found = records(table.items(), _namespace_id(table))
    return {
        "records": found,
        "indexes": indexes(),
        "questions": questions,
        "changes": changes,
        "months": months(),
    }


def _namespace_id(table: OwnTable) -> str:
    (found,) = (each for each in table.items() if each["SK"]["S"] == "#NAMESPACE#default")
    return str(found["namespace_id"]["S"])


def render(page: str) -> str:
    """The page with its tables as they are now."""
    with start("dynoxide") as server:
        os.environ["AWS_ACCESS_KEY_ID"] = server.access_key or ""
        os.environ["AWS_SECRET_ACCESS_KEY"] = server.secret_key or ""
        for name, content in tables(server).items():
            page = with_section(page, name, content)
    return page


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
