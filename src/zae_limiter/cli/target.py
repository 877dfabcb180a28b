"""This module opens the store and namespace that a command works on."""

from __future__ import annotations

from dataclasses import dataclass

from ..backends.store_url import OpenRequest
from ..backends.urls import parse_url
from ..core.exceptions import ValidationError
from ..core.validation import RESERVED_NAMESPACE
from ..flows.scope import Scope
from ..naming import DEFAULT_NAMESPACE
from ..runtime.blocking import BlockingIo, run
from ..sync_repository import SyncRepository
from .author import find_author


@dataclass(frozen=True, slots=True)
class Target:
    """A target is the store and the namespace that a command was pointed at."""

    url: str
    namespace: str = DEFAULT_NAMESPACE
    principal: str | None = None

    @property
    def author(self) -> str:
        """The one who makes a change, as its audit event names them."""
        return self.principal or find_author(self.url)

    def connect(self) -> SyncRepository:
        """Open a store and namespace that must exist: a mistyped name creates nothing."""
        self.require_shared()
        return SyncRepository.connect(self.namespace, url=self.url)

    def open(self) -> SyncRepository:
        """Open a store and namespace for a command that stores something: both are created if
        missing."""
        self.require_shared()
        return SyncRepository.open(self.namespace, url=self.url)

    def registry(self, *, create: bool = False) -> SyncRepository:
        """Open the store without opening or creating a namespace: for its list of namespaces
        only."""
        self.require_shared()
        io = BlockingIo()
        store = run(parse_url(self.url).open(io, OpenRequest(create)))
        nowhere = Scope(store, io, RESERVED_NAMESPACE)
        return SyncRepository.on_scope(nowhere, RESERVED_NAMESPACE, owns_store=True)

    def require_shared(self) -> None:
        """Refuse a store that no other process can see."""
        if parse_url(self.url).scheme == "memory":
            raise ValidationError(
                "url",
                self.url,
                "memory:// lives and ends with one process; name a file, as in sqlite:///limits.db",
            )
