from __future__ import annotations

from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.core.bucket import BucketAddress

LIMITS = [Limit.per_day("rpm", 10)]


def test_a_process_sees_its_buckets_as_they_are() -> None:
    with SyncRepository.open(url="memory://") as repository:
        scope = repository.scope
        here, there = (SyncRateLimiter(repository, default_limits=LIMITS) for _ in range(2))
        address = BucketAddress(scope.namespace_id, "key-1", "gpt-4")
        assert scope.local.images.get(address) is None
        for limiter, left_milli in ((here, 7_000), (there, 4_000)):
            with limiter.acquire("key-1", "gpt-4", {"rpm": 3}):
                image = scope.local.images.get(address)
                assert image is not None
                assert image.cells["rpm"].tokens_milli == left_milli
        here.delete_entity("key-1")
        assert scope.local.images.get(address) is None


def test_no_image_can_be_made_up() -> None:
    with SyncRepository.open(url="memory://") as repository:
        scope, limiter = repository.scope, SyncRateLimiter(repository, default_limits=LIMITS)
        address = BucketAddress(scope.namespace_id, "key-1", "gpt-4")
        with limiter.acquire("key-1", "gpt-4", {"rpm": 3}):
            image = scope.local.images.get(address)
        assert image is not None
        scope.local.images.put(address, image._replace(fingerprint="other"))
        assert scope.local.images.get(address) == image
        scope.local.images.discard(address)
        assert scope.local.images.get(address) == image
