"""Configuration records: their shape, their versions, and what others have written."""

from __future__ import annotations

import json
import re
from itertools import cycle
from typing import Any

import pytest

from tests.support.dynamodb import NS, Costs, Runner, event, everything, get, put
from tests.support.servers.chaos import Answer, ChaosProxy, DropAnswer, Pass
from zae_limiter.backends.dynamodb.store import DynamoStore
from zae_limiter.core.exceptions import StorageUnavailable, StoredDataError, ValidationError
from zae_limiter.core.hierarchy import SYSTEM_SLOT, ConfigSlot
from zae_limiter.core.limit import MAX_LIMITS, Limit
from zae_limiter.core.models import Entity, LimiterConfig
from zae_limiter.core.validation import DEFAULT_RESOURCE

RPM, TPM = Limit.per_minute("rpm", 100, burst=150), Limit.per_hour("t-p.m_2", 7)
OWN = ConfigSlot("key-1", "gpt-4")
ENTITY_CONFIG = (f"{NS}/ENTITY#key-1", "#CONFIG#gpt-4")
COUNTS = (f"{NS}/SYSTEM#", "#ENTITY_CONFIG_RESOURCES")


class Configs:
    """The role, for one namespace and without await."""

    def __init__(self, store: DynamoStore, driver: Runner) -> None:
        self.store, self.driver, self.role = store, driver, store.configs

    def write(self, slot: ConfigSlot, *limits: Limit, **flags: Any) -> int:
        change = LimiterConfig(limits or None, **flags)
        told = event(self.driver.io)
        version: int = self.driver.run(self.role.write(NS, slot, change, told))
        return version

    def delete(self, slot: ConfigSlot) -> bool:
        found: bool = self.driver.run(self.role.delete(NS, slot, event(self.driver.io)))
        return found

    def read(self, slot: ConfigSlot) -> LimiterConfig | None:
        page = self.driver.run(self.role.read(NS, [slot]))
        config: LimiterConfig | None = page.configs.get(slot)
        return config

    def put(self, **values: Any) -> None:
        self.driver.run(put(self.store, **values))

    def get(self, pk: str, sk: str) -> dict[str, Any]:
        item = self.driver.run(get(self.store, pk, sk))
        assert item is not None, f"There is no {pk} {sk}"
        found: dict[str, Any] = item
        return found

    def counts(self) -> dict[str, int]:
        record = self.get(*COUNTS)
        return {name: value for name, value in record.items() if isinstance(value, int)}


@pytest.fixture
def configs(store: DynamoStore, driver: Runner) -> Configs:
    return Configs(store, driver)


def test_records_have_the_documented_shape(configs: Configs) -> None:
    limits = {"l_rpm_cp": 150, "l_rpm_ra": 100, "l_rpm_rp": 60}
    configs.write(OWN, RPM)
    configs.write(ConfigSlot("key-1", DEFAULT_RESOURCE), RPM)
    configs.write(ConfigSlot(resource="gpt-4"), RPM)
    configs.write(SYSTEM_SLOT, RPM, on_unavailable="allow", auto_update=True, strict_version=False)
    entity_keys = {"GSI4PK": NS, "GSI4SK": ENTITY_CONFIG[0], "GSI3SK": "key-1"}
    for resource in ("gpt-4", DEFAULT_RESOURCE):
        pk, sk = f"{NS}/ENTITY#key-1", f"#CONFIG#{resource}"
        assert configs.get(pk, sk) == {
            "PK": pk,
            "SK": sk,
            "entity_id": "key-1",
            "resource": resource,
            "config_version": 1,
            "GSI3PK": f"{NS}/ENTITY_CONFIG#{resource}",
            **entity_keys,
            **limits,
        }
    pk = f"{NS}/RESOURCE#gpt-4"
    keys = {"PK": pk, "SK": "#CONFIG", "GSI4PK": NS, "GSI4SK": pk}
    found = configs.get(pk, "#CONFIG")
    assert found == {**keys, "resource": "gpt-4", "config_version": 1, **limits}
    pk = f"{NS}/SYSTEM#"
    keys = {"PK": pk, "SK": "#CONFIG", "GSI4PK": NS, "GSI4SK": pk}
    flags = {"on_unavailable": "allow", "auto_update": True, "strict_version": False}
    assert configs.get(pk, "#CONFIG") == {**keys, "config_version": 1, **flags, **limits}
    assert configs.get(pk, "#RESOURCES")["resources"] == {"gpt-4"}
    assert configs.counts() == {"gpt-4": 1, DEFAULT_RESOURCE: 1}


def test_all_levels_and_the_entity_are_one_call(configs: Configs) -> None:
    store, driver = configs.store, configs.driver
    driver.run(store.entities.create(NS, Entity("key-1"), event(driver.io)))
    configs.write(OWN, RPM)
    slots = [OWN, ConfigSlot("key-1", DEFAULT_RESOURCE), ConfigSlot(resource="gpt-4"), SYSTEM_SLOT]
    costs = Costs(store)
    page = driver.run(store.configs.read(NS, slots, "key-1"))
    assert (list(page.configs), page.entity.id) == ([OWN], "key-1")
    assert costs.calls == {"BatchGetItem": 1}
    assert costs.units() <= 5


def test_a_config_write_and_its_deletion_cost_the_known_calls(configs: Configs) -> None:
    configs.write(SYSTEM_SLOT, RPM)
    costs = Costs(configs.store)
    configs.write(OWN, RPM)
    assert costs.calls == {"BatchGetItem": 1, "TransactWriteItems": 1}
    costs = Costs(configs.store)
    configs.delete(OWN)
    assert costs.calls == {"BatchGetItem": 1, "TransactWriteItems": 1}
    costs = Costs(configs.store)
    assert not configs.delete(OWN)
    assert costs.calls == {"BatchGetItem": 1}


def test_limits_that_are_not_named_go(configs: Configs) -> None:
    configs.write(OWN, RPM, TPM)
    configs.write(OWN, TPM)
    stored = configs.get(*ENTITY_CONFIG)
    assert {name for name in stored if name.startswith("l_")} == {
        "l_t-p.m_2_cp",
        "l_t-p.m_2_ra",
        "l_t-p.m_2_rp",
    }
    assert configs.read(OWN) == LimiterConfig((TPM,))


def test_as_many_limits_as_are_allowed_are_replaced_at_once(configs: Configs) -> None:
    def many(stem: str) -> tuple[Limit, ...]:
        names = [f"{stem}{number:02}".ljust(64, "x") for number in range(MAX_LIMITS)]
        return tuple(Limit.per_day(name, 10**15) for name in names)

    configs.write(OWN, *many("a"))
    configs.write(OWN, *many("b"))
    assert configs.read(OWN) == LimiterConfig(many("b"))


def test_a_deletion_leaves_a_number_to_count_on_from(configs: Configs) -> None:
    assert [configs.write(OWN, RPM), configs.write(OWN, TPM)] == [1, 2]
    assert configs.delete(OWN)
    assert configs.driver.run(get(configs.store, *ENTITY_CONFIG)) is None
    remains = configs.get(ENTITY_CONFIG[0], "#DELETED#CONFIG#gpt-4")
    assert (remains["config_version"], remains["GSI4PK"]) == (2, NS)
    assert [configs.write(OWN, RPM), configs.write(OWN, RPM)] == [3, 4]
    assert configs.delete(OWN)
    assert configs.write(OWN, RPM) == 5
    assert configs.get(*ENTITY_CONFIG)["config_version"] == 5


@pytest.mark.parametrize("slot", [SYSTEM_SLOT, ConfigSlot(resource="gpt-4"), OWN], ids=str)
def test_versions_count_on_after_a_client_that_does_not_count(
    configs: Configs, slot: ConfigSlot
) -> None:
    for _ in range(4):
        configs.write(slot, RPM)
    configs.delete(slot)
    assert configs.write(slot, RPM) == 5
    found = configs.driver.run(everything(configs.store))
    (record,) = [item for (_, sk), item in found.items() if sk.startswith("#CONFIG")]
    configs.put(**{**record, "config_version": 1})
    assert configs.write(slot, TPM) == 5, "It must not fall behind what was deleted"


def test_entities_are_counted_while_they_have_limits(configs: Configs) -> None:
    other = ConfigSlot("key-2", "gpt-4")
    for slot in (OWN, OWN, other):
        configs.write(slot, RPM)
    assert configs.counts() == {"gpt-4": 2}
    configs.delete(OWN)
    configs.delete(OWN)
    assert configs.counts() == {"gpt-4": 1}
    configs.delete(other)
    assert configs.counts() == {"gpt-4": 0}
    assert configs.driver.run(configs.role.resources_with_entity_limits(NS)) == []


@pytest.mark.parametrize("resource", ["PK", "SK", "GSI4PK", "LSI1SK", "ttl", "resource"])
def test_a_resource_may_be_called_like_an_attribute(configs: Configs, resource: str) -> None:
    configs.write(ConfigSlot("key-1", resource), RPM)
    configs.write(ConfigSlot(resource=resource), RPM)
    role, run = configs.role, configs.driver.run
    assert run(role.resources_with_entity_limits(NS)) == [resource]
    assert run(role.resources_with_defaults(NS)) == [resource]
    assert run(role.entities_with_limits(NS, resource, None, None)) == (["key-1"], None)
    configs.delete(ConfigSlot("key-1", resource))
    assert run(role.resources_with_entity_limits(NS)) == []


def test_a_bad_cursor_is_refused_before_any_call(configs: Configs) -> None:
    costs = Costs(configs.store)
    for cursor in ("", "#", "x" * 3000):
        with pytest.raises(ValidationError, match="cursor"):
            configs.driver.run(configs.role.entities_with_limits(NS, "gpt-4", 5, cursor))
    assert costs.calls == {}


def written_by_others(**values: Any) -> dict[str, Any]:
    """An entity's config as zae-limiter 0.17.0 stores it."""
    pk, sk = ENTITY_CONFIG
    return {
        "PK": pk,
        "SK": sk,
        "entity_id": "key-1",
        "resource": "gpt-4",
        "config_version": 1,
        "GSI3PK": f"{NS}/ENTITY_CONFIG#gpt-4",
        "GSI3SK": "key-1",
        "GSI4PK": NS,
        "GSI4SK": pk,
        "l_rpm_cp": 150,
        "l_rpm_ra": 100,
        "l_rpm_rp": 60,
        **values,
    }


UNKNOWN = {
    "disabled": False,
    "sched_tz": "UTC",
    "l_rpm_soft": False,
    "l_rpm_sched": "-",
    "more": {"of": ["this", {"kind"}]},
}
UNENFORCEABLE = {
    "disabled": ("bypass", True),
    "cascade": (True,),
    "l_rpm_soft": (True, 1),
    "l_rpm_sched": ("1h22-23w1-5s500",),
    "l_rpm_rsched": ("1m0h0",),
    "l_rpm_new": (5,),
    "w_session_rsa": (18_000,),
}


def test_records_of_other_clients_are_read_and_what_they_add_is_kept(configs: Configs) -> None:
    configs.put(**written_by_others(**UNKNOWN))
    assert configs.read(OWN) == LimiterConfig((RPM,))
    assert configs.write(OWN, Limit.per_minute("rpm", 200)) == 2
    stored = configs.get(*ENTITY_CONFIG)
    kept = {name: value for name, value in UNKNOWN.items() if name[:2] != "l_"}
    assert {name: stored.get(name) for name in UNKNOWN if name in stored} == kept
    assert configs.read(OWN) == LimiterConfig((Limit.per_minute("rpm", 200),))


def test_new_limits_replace_limits_of_every_kind(configs: Configs) -> None:
    gone: dict[str, Any] = {
        "l_old_cp": 1,
        "l_old_ra": 1,
        "l_old_rp": 1,
        "l_old_soft": True,
        "w_tpm_cp": 9,
    }
    gone |= {"l_rpm_rsched": "1m0h0", "l_rpm_soft": True, "w_session_cp": 5, "w_session_rsa": 9}
    configs.put(**written_by_others(**gone))
    configs.write(OWN, Limit.per_minute("rpm", 1), Limit.per_minute("tpm", 1))
    assert not gone.keys() & configs.get(*ENTITY_CONFIG).keys()
    assert configs.read(OWN) is not None


@pytest.mark.parametrize(
    ("attribute", "value"), [(name, v) for name, vs in UNENFORCEABLE.items() for v in vs], ids=str
)
def test_a_setting_that_cannot_be_enforced_is_named(
    configs: Configs, attribute: str, value: object
) -> None:
    configs.put(**written_by_others(**{attribute: value}))
    reason = re.escape(f"{attribute} is {value!r}, which this client cannot enforce")
    with pytest.raises(StoredDataError, match=reason) as raised:
        configs.read(OWN)
    assert raised.value.record == " ".join(ENTITY_CONFIG)


def test_a_disabled_record_without_limits_is_refused_and_stays_disabled(configs: Configs) -> None:
    others = written_by_others(disabled=True)
    bare = {k: v for k, v in others.items() if k[:2] != "l_" and k != "config_version"}
    configs.put(**bare)
    with pytest.raises(StoredDataError, match="disabled is True"):
        configs.read(OWN)
    assert not configs.delete(OWN)
    assert configs.get(*ENTITY_CONFIG) == bare
    assert configs.write(OWN, RPM) == 1
    assert configs.get(*ENTITY_CONFIG)["disabled"] is True


def test_a_record_that_was_never_counted_is_not_counted_down(configs: Configs) -> None:
    configs.write(ConfigSlot("key-2", "gpt-4"), RPM)
    others = written_by_others()
    configs.put(**{name: value for name, value in others.items() if name[:4] != "GSI3"})
    configs.delete(OWN)
    assert configs.counts() == {"gpt-4": 1}
    configs.put(**{name: value for name, value in others.items() if name[:4] != "GSI3"})
    configs.write(OWN, RPM)
    assert configs.counts() == {"gpt-4": 2}


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ({"l_rpm_cp": "many"}, "l_rpm_cp is 'many', not a whole number"),
        ({"l_tpm_cp": 5}, "l_tpm_ra is None, not a whole number"),
        ({"l_rpm_rp": -1}, "refill_period_seconds must be positive"),
        ({"l_rpm_ra": 0}, "refill_amount must be positive"),
        ({"l_9_cp": 1, "l_9_ra": 1, "l_9_rp": 1}, "must start with a letter"),
        ({"config_version": "x"}, "config_version is 'x'"),
        ({"config_version": 10**37}, "config_version is 1000+, which is out of all bounds"),
        ({"on_unavailable": "maybe"}, "'maybe' is not a valid OnUnavailable"),
        ({"auto_update": "yes"}, "auto_update is 'yes', not true or false"),
    ],
    ids=str,
)
def test_a_record_that_cannot_be_read_is_named(
    configs: Configs, damage: dict[str, Any], reason: str
) -> None:
    configs.put(**written_by_others(**damage))
    with pytest.raises(StoredDataError, match=reason) as raised:
        configs.read(OWN)
    assert raised.value.record == " ".join(ENTITY_CONFIG)


def test_a_version_that_is_null_is_mended_by_the_next_change(configs: Configs) -> None:
    configs.put(**written_by_others(config_version=None))
    assert configs.read(OWN) == LimiterConfig((RPM,))
    assert [configs.write(OWN, TPM), configs.write(OWN, RPM)] == [1, 2]
    configs.put(**written_by_others(config_version=None))
    assert configs.delete(OWN)
    assert configs.read(OWN) is None


def test_a_broken_record_can_be_set_anew_and_deleted(configs: Configs) -> None:
    configs.put(**written_by_others(l_rpm_cp="many", l_tpm_ra="x"))
    configs.write(OWN, RPM)
    assert configs.read(OWN) == LimiterConfig((RPM,))
    configs.put(**written_by_others(l_rpm_cp="many"))
    assert configs.delete(OWN)
    assert configs.read(OWN) is None


@pytest.mark.parametrize("count", ["many", None, 10**125], ids=["text", "null", "vast"])
def test_a_damaged_count_of_entities_is_reported_as_damage(configs: Configs, count: object) -> None:
    configs.write(OWN, RPM)
    configs.put(**{**configs.get(*COUNTS), "gpt-4": count})
    listed = configs.driver.run(configs.role.resources_with_entity_limits(NS))
    assert listed == (["gpt-4"] if isinstance(count, int) else [])
    if not isinstance(count, int):
        with pytest.raises(StoredDataError, match="a record that changes with it is"):
            configs.delete(OWN)


def test_a_write_without_answer_is_carried_out_once(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy
) -> None:
    configs = Configs(shaky, patient)
    configs.write(OWN, RPM)
    proxy.use([DropAnswer(), Pass(), DropAnswer(), DropAnswer()])
    assert configs.write(OWN, TPM) == 2
    assert len(patient.run(shaky.audit.read(NS, "key-1", 100, None))) == 2


def test_a_write_that_always_loses_is_given_up(
    shaky: DynamoStore, patient: Runner, proxy: ChaosProxy
) -> None:
    configs = Configs(shaky, patient)
    configs.write(SYSTEM_SLOT, RPM)
    reasons = [{"Code": "ConditionalCheckFailed"}, {"Code": "TransactionConflict"}]
    answer = {"__type": "TransactionCanceledException", "CancellationReasons": reasons}
    proxy.use(cycle([Pass(), Answer(400, json.dumps(answer).encode())]))
    with pytest.raises(StorageUnavailable, match="kept busy by other writers") as raised:
        configs.write(OWN, RPM)
    assert raised.value.retryable
    assert not raised.value.ambiguous
