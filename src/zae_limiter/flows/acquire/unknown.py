"""Charges whose answer never arrived."""

from __future__ import annotations

from ...core.idempotency import Landing, landing
from ..scope import Scope
from .charge import Charge


async def find_out(scope: Scope, charge: Charge) -> None:
    """Whether writes of unknown outcome landed: what did is an entry from now on. If nobody
    can tell, they count as charged."""
    try:
        found = await scope.store.buckets.read([entry.address for _, entry in charge.sent])
    except Exception:
        return
    proofs = [landing(operation, found.get(entry.address)) for operation, entry in charge.sent]
    sent = list(zip(charge.sent, proofs, strict=True))
    charge.entries += [entry for (_, entry), proof in sent if proof is Landing.LANDED]
    charge.sent = [each for each, proof in sent if proof is Landing.UNKNOWN]
