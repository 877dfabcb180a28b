"""Events of a stack while CloudFormation works on it, and the reason when it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ..core.exceptions import StackOperationError

_FIRST_WAIT_S = 0.2
_LONGEST_WAIT_S = 4.0
_SUCCESS = {"CREATE_COMPLETE", "UPDATE_COMPLETE", "DELETE_COMPLETE"}
_IN_PROGRESS = "_IN_PROGRESS"
_FAILED = "_FAILED"
# CloudFormation says so of resources that it stopped because another had failed.
_CONSEQUENCE = "cancelled"
_STACK = "AWS::CloudFormation::Stack"


@dataclass(frozen=True, slots=True)
class StackEvent:
    """A stack event is one step of one resource."""

    at: str
    logical_id: str
    resource_type: str
    status: str
    reason: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return the event as JSON-ready fields."""
        return asdict(self)


OnEvent = Callable[[StackEvent], None]


class StackWatch:
    """A watch of one stack: it sees each event once, and those from before it began not at all."""

    def __init__(
        self,
        client: Any,
        stack_name: str,
        stack_id: str,
        on_event: OnEvent | None,
        stopped: threading.Event,
    ) -> None:
        self._client = client
        self._name = stack_name
        self._id = stack_id
        self._on_event = on_event
        self._stopped = stopped
        self._seen: set[str] = set()
        self._seen = {key for key, _ in self._read()}
        self._events: list[StackEvent] = []

    def wait(self) -> str:
        """Show events until the work is over, and return the stack's status. A failure raises
        `StackOperationError` with the reason of the resource that failed first."""
        wait_s = _FIRST_WAIT_S
        while True:
            # The status is read first: events that led to it are there by then.
            status = self._status()
            if self._show():
                wait_s = _FIRST_WAIT_S
            if not status.endswith(_IN_PROGRESS):
                return self._ended(status)
            if self._stopped.wait(wait_s):
                raise StackOperationError(self._name, f"{status}: it is no longer waited for")
            wait_s = min(_LONGEST_WAIT_S, wait_s * 1.5)

    def _status(self) -> str:
        (stack,) = self._client.describe_stacks(StackName=self._id)["Stacks"]
        status: str = stack["StackStatus"]
        return status

    def _show(self) -> bool:
        new = [(key, event) for key, event in self._read() if key not in self._seen]
        for key, event in reversed(new):
            self._seen.add(key)
            self._events.append(event)
            if self._on_event is not None:
                self._on_event(event)
        return bool(new)

    def _read(self) -> Iterator[tuple[str, StackEvent]]:
        """Yield the events, newest first, up to those that were seen."""
        pages = self._client.get_paginator("describe_stack_events").paginate(StackName=self._id)
        for page in pages:
            for told in page["StackEvents"]:
                if told["EventId"] in self._seen:
                    return
                yield told["EventId"], _event(told)

    def _ended(self, status: str) -> str:
        if status in _SUCCESS:
            return status
        reason = first_failure(self._events)
        told = f"{status}: {reason}" if reason else status
        raise StackOperationError(self._name, told, [event.to_dict() for event in self._events])


def _event(told: dict[str, Any]) -> StackEvent:
    return StackEvent(
        told["Timestamp"].isoformat(timespec="seconds"),
        told["LogicalResourceId"],
        told["ResourceType"],
        told["ResourceStatus"],
        told.get("ResourceStatusReason") or "",
    )


def first_failure(events: Iterable[StackEvent]) -> str:
    """Return which resource failed first, and why; empty when none did."""
    failed = [event for event in events if event.status.endswith(_FAILED)]
    causes = [event for event in failed if _CONSEQUENCE not in event.reason.lower()]
    resources = [event for event in causes if event.resource_type != _STACK]
    for event in (*resources, *causes, *failed):
        return f"{event.logical_id} ({event.resource_type}) {event.status}: {event.reason}"
    return ""
