"""The store and namespace that a command works on."""

from __future__ import annotations

from dataclasses import dataclass

from ..backends.urls import open_store, parse_url
from ..core.exceptions import ValidationError
from ..core.validation import RESERVED_NAMESPACE
from ..flows.scope import Scope
from ..opening import DEFAULT_NAMESPACE
from ..runtime.blocking import BlockingIo, run
from ..sync_repository import SyncRepository


@dataclass(frozen=True, slots=True)
class Target:
    """Where a command was pointed at."""

    url: str
    namespace: str = DEFAULT_NAMESPACE

    def connect(self) -> SyncRepository:
        """What must be there already: a mistyped name makes nothing."""
        self._require_shared()
        return SyncRepository.connect(self.namespace, url=self.url)

    def open(self) -> SyncRepository:
        """The same, for commands that set something up: made if it is not there."""
        self._require_shared()
        return SyncRepository.open(self.namespace, url=self.url)

    def registry(self, *, create: bool = False) -> SyncRepository:
        """The store without any namespace opened or made: for its list of namespaces only."""
        self._require_shared()
        io = BlockingIo()
        store = run(open_store(parse_url(self.url), io, create=create))
        nowhere = Scope(store, io, RESERVED_NAMESPACE)
        return SyncRepository(nowhere, RESERVED_NAMESPACE, owns_store=True)

    def _require_shared(self) -> None:
        if parse_url(self.url).scheme == "memory":
            raise ValidationError(
                "url",
                self.url,
                "memory:// lives and ends with one process; name a file, as in sqlite:///limits.db",
            )
