"""This module reads a manifest and lists every problem in it, each with its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar, get_args

from .exceptions import InvalidLimitError, ManifestError, ValidationError
from .hierarchy import MAX_LEVELS, SYSTEM_SLOT, ConfigSlot
from .limit import Limit, validate_limits
from .located import Located, LocatedMap, ManifestProblem, plain_value
from .manifest import DeclaredEntity, Manifest
from .models import LimiterConfig, OnUnavailableAction
from .validation import (
    DEFAULT_RESOURCE,
    validate_config_resource,
    validate_identifier,
    validate_limit_name,
    validate_metadata,
    validate_namespace,
    validate_resource,
    validate_text,
)

T = TypeVar("T")

_DEFAULT_PERIOD_S = 60
# Names for parts that are written once and used by YAML's anchors.
_EXTENSION = "x-"
_TOP = ("namespace", "system", "resources", "entities")
_SYSTEM = ("on_unavailable", "limits")
_LEVEL = ("limits", "inherit")
_ENTITY = ("name", "parent", "cascade", "metadata", "limits", "inherit", "resources")
_LIMIT = ("capacity", "refill_amount", "refill_period", "burst")
# Keys of the existing package for kinds of limits that this one does not have.
_ELSEWHERE = {"schedule", "reset_schedule", "reset_after_seconds", "soft", "disabled"}
_ACTIONS: tuple[OnUnavailableAction, ...] = get_args(OnUnavailableAction)


def read_manifest(root: Located, source: str = "manifest") -> Manifest:
    """Return the manifest, or raise `ManifestError` with all of its problems.

    `source`: the name of the file, for messages.
    """
    reader = _Reader()
    manifest = reader.manifest(root)
    if reader.problems or manifest is None:
        raise ManifestError(source, reader.problems)
    return manifest


class _Reader:
    """A reader goes on after each problem and leaves out the part that has it."""

    def __init__(self) -> None:
        self.problems: list[ManifestProblem] = []

    def manifest(self, root: Located) -> Manifest | None:
        parts = self._map(root, "", _TOP, extensions=True)
        namespace = self._namespace(root, parts)
        configs: dict[ConfigSlot, LimiterConfig] = {}
        entities: dict[str, DeclaredEntity] = {}
        if "system" in parts:
            config = self._config(parts["system"], "system", _SYSTEM)
            configs |= {SYSTEM_SLOT: config} if config else {}
        for path, name, node in self._named(parts, "resources", "", validate_resource):
            config = self._config(node, path, _LEVEL)
            configs |= {ConfigSlot(resource=name): config} if config else {}
        for path, name, node in self._named(parts, "entities", "", validate_identifier):
            self._entity(path, name, node, configs, entities)
        self._check_chains(parts.get("entities"), entities)
        return None if namespace is None else Manifest(namespace, configs, entities)

    def _namespace(self, root: Located, parts: Mapping[str, Located]) -> str | None:
        if "namespace" not in parts:
            if isinstance(root.value, LocatedMap):
                self._problem("namespace", "is missing", root)
            return None
        return self._checked(parts["namespace"], "namespace", validate_namespace)

    def _entity(
        self,
        path: str,
        entity_id: str,
        node: Located,
        configs: dict[ConfigSlot, LimiterConfig],
        entities: dict[str, DeclaredEntity],
    ) -> None:
        parts = self._map(node, path, _ENTITY)
        own = {key: held for key, held in parts.items() if key in _LEVEL}
        if own:
            config = self._level(own, path, node)
            configs |= {ConfigSlot(entity_id, DEFAULT_RESOURCE): config} if config else {}
        for place, name, held in self._named(parts, "resources", path, validate_config_resource):
            config = self._config(held, place, _LEVEL)
            if name == DEFAULT_RESOURCE and own:
                self._problem(place, f"is declared by {path}.limits already", held)
            configs |= {ConfigSlot(entity_id, name): config} if config else {}
        declared = self._declared(entity_id, path, parts)
        if declared != DeclaredEntity(entity_id):
            entities[entity_id] = declared
        if not parts and isinstance(node.value, LocatedMap):
            self._problem(path, "declares nothing", node)

    def _declared(self, entity_id: str, path: str, parts: Mapping[str, Located]) -> DeclaredEntity:
        def checked(key: str, check: Callable[[Any], T]) -> T | None:
            return self._checked(parts[key], f"{path}.{key}", check) if key in parts else None

        if "metadata" in parts:
            self._check_keys(parts["metadata"], f"{path}.metadata")
        return DeclaredEntity(
            entity_id,
            checked("name", lambda value: validate_text("name", value)),
            checked("parent", lambda value: validate_identifier(value, "parent")),
            checked("cascade", _flag),
            checked("metadata", _metadata),
        )

    def _check_keys(self, node: Located, path: str) -> None:
        """Refuse keys that are written twice, at any depth."""
        if isinstance(node.value, list):
            for number, held in enumerate(node.value):
                self._check_keys(held, f"{path}[{number}]")
        elif isinstance(node.value, LocatedMap):
            for key, held in self._map(node, path, None).items():
                self._check_keys(held, f"{path}.{key}")

    def _config(self, node: Located, path: str, known: tuple[str, ...]) -> LimiterConfig | None:
        parts = self._map(node, path, known)
        if not parts:
            if isinstance(node.value, LocatedMap) and not node.value.pairs:
                self._problem(path, "declares nothing", node)
            return None
        return self._level(parts, path, node)

    def _level(
        self, parts: Mapping[str, Located], path: str, node: Located
    ) -> LimiterConfig | None:
        limits = action = inherit = None
        if "limits" in parts:
            limits = self._limits(parts["limits"], f"{path}.limits")
        if "inherit" in parts:
            inherit = self._checked(parts["inherit"], f"{path}.inherit", _flag)
            if "limits" not in parts:
                self._problem(f"{path}.inherit", "goes with limits", parts["inherit"])
        if "on_unavailable" in parts:
            where = f"{path}.on_unavailable"
            action = self._checked(parts["on_unavailable"], where, _action)
        config = LimiterConfig(limits, action, inherit=bool(inherit) and limits is not None)
        return None if config == LimiterConfig() else config

    def _limits(self, node: Located, path: str) -> tuple[Limit, ...] | None:
        named = self._map(node, path, None)
        found = [
            limit
            for name, held in named.items()
            if (limit := self._limit(name, held, f"{path}.{name}")) is not None
        ]
        if not isinstance(node.value, LocatedMap) or len(found) < len(named):
            return None
        return self._try(node, path, lambda: validate_limits(found))

    def _limit(self, name: str, node: Located, path: str) -> Limit | None:
        if self._try(node, path, lambda: validate_limit_name(name)) is None:
            return None
        if isinstance(node.value, str):
            text = node.value
            return self._try(node, path, lambda: _parsed(text, name))
        if isinstance(node.value, LocatedMap):
            return self._fields(name, node, path)
        return self._try(node, path, lambda: _plain_limit(name, node.value))

    def _fields(self, name: str, node: Located, path: str) -> Limit | None:
        parts = self._map(node, path, _LIMIT)
        amounts = {key: self._checked(held, f"{path}.{key}", _whole) for key, held in parts.items()}
        if None in amounts.values():
            return None
        if "capacity" not in amounts:
            self._problem(path, "capacity is missing", node)
            return None
        capacity = amounts.get("burst", amounts["capacity"]) or 0
        amount = amounts.get("refill_amount", capacity) or 0
        period = amounts.get("refill_period", _DEFAULT_PERIOD_S) or 0
        return self._try(node, path, lambda: Limit(name, capacity, amount, period))

    def _check_chains(self, node: Located | None, entities: Mapping[str, DeclaredEntity]) -> None:
        """Refuse cycles and chains that are too deep among the declared entities."""
        places = _parents_of(node)
        for entity_id, entity in entities.items():
            path, ancestor = [entity_id], entity.parent_id
            while ancestor is not None and len(path) <= MAX_LEVELS:
                path.append(ancestor)
                if ancestor == entity_id:
                    break
                above = entities.get(ancestor)
                ancestor = None if above is None else above.parent_id
            where = f"entities.{entity_id}.parent"
            place = places.get(entity_id) or Located(None)
            if path[-1] == entity_id and len(path) > 1:
                self._problem(where, f"forms a cycle: {' > '.join(path)}", place)
            elif len(path) > MAX_LEVELS:
                self._problem(where, f"nests deeper than {MAX_LEVELS} levels", place)

    def _named(
        self,
        parts: Mapping[str, Located],
        key: str,
        path: str,
        check: Callable[[str], str],
    ) -> Iterator[tuple[str, str, Located]]:
        """Yield path, name and content of each member of a map whose keys are names."""
        if key not in parts:
            return
        path = f"{path}.{key}" if path else key
        keys = _keys_of(parts[key])
        for name, node in self._map(parts[key], path, None).items():
            member = f"{path}.{name}"
            if self._try(keys[name], member, partial(check, name)) is not None:
                yield member, name, node

    def _map(
        self, node: Located, path: str, known: tuple[str, ...] | None, *, extensions: bool = False
    ) -> dict[str, Located]:
        """Return the members of a map. `known`: its keys, if only these may be there."""
        if not isinstance(node.value, LocatedMap):
            what = "is empty" if node.value is None else "is not a map"
            self._problem(path, what, node)
            return {}
        found: dict[str, Located] = {}
        for key, held in node.value.pairs:
            name = str(key.value)
            if extensions and name.startswith(_EXTENSION):
                continue
            where = f"{path}.{name}" if path else name
            if known is not None and name not in known:
                self._problem(where, _unknown(name, known), key)
            elif name in found:
                self._problem(where, "is written twice", key)
            else:
                found[name] = held
        return found

    def _checked(self, node: Located, path: str, check: Callable[[Any], T]) -> T | None:
        return self._try(node, path, lambda: check(plain_value(node)))

    def _try(self, node: Located, path: str, make: Callable[[], T]) -> T | None:
        try:
            return make()
        except InvalidLimitError as error:
            self._problem(path, str(error), node)
        except ValidationError as error:
            self._problem(path, error.reason, node)
        return None

    def _problem(self, path: str, message: str, node: Located) -> None:
        line, column = node.place or (None, None)
        self.problems.append(ManifestProblem(path, message, line, column))


def _parents_of(node: Located | None) -> dict[str, Located]:
    """Return where each entity names its parent."""
    found = {}
    for key, held in _pairs(node):
        for field, value in _pairs(held):
            if field.value == "parent":
                found[str(key.value)] = value
    return found


def _keys_of(node: Located) -> dict[str, Located]:
    return {str(key.value): key for key, _ in _pairs(node)}


def _pairs(node: Located | None) -> Iterable[tuple[Located, Located]]:
    return node.value.pairs if node is not None and isinstance(node.value, LocatedMap) else ()


def _unknown(name: str, known: tuple[str, ...]) -> str:
    if name in _ELSEWHERE:
        return "is not supported by this version"
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return f"is unknown: {hint}"


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValidationError("value", value, "must be true or false")
    return value


def _metadata(value: Any) -> dict[str, Any]:
    if value is None:
        raise ValidationError("metadata", value, "is empty")
    return validate_metadata(value)


def _action(value: Any) -> OnUnavailableAction:
    for action in _ACTIONS:
        if value == action:
            return action
    raise ValidationError("on_unavailable", value, "must be allow or block")


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValidationError("number", value, "must be a whole number")
    return value


def _parsed(text: str, name: str) -> Limit:
    try:
        limit = Limit.parse(text, name)
    except InvalidLimitError as error:
        if error.field != "limit":
            raise
        reason = f"{text!r} is not a rate such as 100/min or 100/min; burst 150"
        raise ValidationError("limit", text, reason) from None
    if limit.name != name:
        raise ValidationError("limit", text, f"names the limit {limit.name}, not {name}")
    return limit


def _plain_limit(name: str, value: Any) -> Limit:
    """Return the limit that a bare number means: so much per minute."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValidationError("limit", value, "must be a number, a text such as 100/min, or a map")
    return Limit(name, value, value, _DEFAULT_PERIOD_S)
