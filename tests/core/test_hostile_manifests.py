"""Text that attacks the reader of manifests is refused, quickly and in little memory."""

from __future__ import annotations

import io
import tracemalloc

import pytest

from zae_limiter import InvalidLimitError, Limit, ManifestError
from zae_limiter.manifest_file import parse_manifest, read_manifest_bytes


def problems(text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, "f")
    return caught.value.lines


@pytest.mark.parametrize(
    "text",
    ["a: " + "[" * 200_000, "a: " + "[" * 99_999 + "]" * 99_999, "{a: " * 200_000, "- " * 100_000],
    ids=["open lists", "closed lists", "maps", "blocks"],
)
def test_deep_nesting_is_refused_where_the_yaml_library_would_crash(text: str) -> None:
    assert "nests too deep" in problems(text)[0]


@pytest.fixture
def few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small text be too large, so that the test is quick."""
    monkeypatch.setattr("zae_limiter.manifest_file._MAX_PARTS", 5_000)


@pytest.mark.usefixtures("few_parts")
def test_maps_that_only_merge_empty_maps_do_not_multiply_for_ever() -> None:
    rows = ["a0: &a0 {}"]
    rows += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 40)}]}}" for n in range(1, 9)]
    assert "too many parts" in problems("\n".join(rows))[0]


@pytest.mark.usefixtures("few_parts")
def test_a_text_of_too_many_parts_is_refused_before_it_is_built() -> None:
    text = "namespace: n\nx-a: [" + "1," * 100_000 + "1]"
    tracemalloc.start()
    try:
        assert "too many parts" in problems(text)[0]
        # Built, each part would take more than a hundred bytes.
        assert tracemalloc.get_traced_memory()[1] < 20 * len(text)
    finally:
        tracemalloc.stop()


class Endless(io.RawIOBase):
    """A file without an end."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        buffer[:] = b"#" * len(buffer)
        return len(buffer)


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(ManifestError, match="f: is larger than 32 MB"):
        read_manifest_bytes(io.BufferedReader(Endless()), "f")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("namespace: n\nnamespace: m", "f:2:1: namespace: is written twice"),
        (
            "namespace: n\nentities: {a: {metadata: {x: 1, y: {z: 1, z: 2}}}}",
            "f:2:43: entities.a.metadata.y.z: is written twice",
        ),
        ("namespace: n\nentities: {a: {metadata: }}", "f:2:26: entities.a.metadata: is empty"),
        ("namespace: n\nsystem:\n\tlimits: {rpm: 1}", "f:3:1: found character that cannot start"),
        ("namespace: n\n---\nnamespace: m", "f:2:1: but found another document"),
        ("namespace: n\nsystem: {limits: {rpm: 010}}", "f:2:24: 010 is not a plain decimal"),
        ("namespace: yes", "f:1:12: namespace: must be a string, not bool"),
        ("namespace: n\nentities: {a: {parent: 12}}", "f:2:24: entities.a.parent: must be a st"),
        ("namespace: n\nentities: {a: {parent: a}}", "f:2:24: entities.a.parent: forms a cycle"),
        ("namespace: *nowhere", "f:1:12: found undefined alias"),
        ("namespace: !!binary aGk=", "f:1:12: the tag tag:yaml.org,2002:binary is not supported"),
        (
            f"namespace: n\nsystem: {{limits: {{rpm: '{'9' * 9000}/min'}}}}",
            "f:2:24: system.limits.rpm: capacity must be at most",
        ),
        (
            f"namespace: n\nsystem: {{limits: {{rpm: '1/{'9' * 9000}min'}}}}",
            "f:2:24: system.limits.rpm: refill_period_seconds must be at most",
        ),
    ],
)
def test_odd_text_is_refused_with_its_place(text: str, line: str) -> None:
    assert problems(text)[0].startswith(line)


@pytest.mark.parametrize("name", ["yes", "no", "null", "2024-01-01", "1e3", "0x10", "017", "~a"])
def test_names_that_yaml_takes_for_something_else_are_names_as_keys(name: str) -> None:
    text = f"namespace: n\nentities: {{{name}: {{name: x}}}}"
    if name == "~a":
        assert "must start with a letter or digit" in problems(text)[0]
    else:
        assert list(parse_manifest(text).entities) == [name]


def test_of_many_problems_the_first_hundred_are_shown() -> None:
    many = ", ".join(f"r{n}: {{limits: {{rpm: 0}}}}" for n in range(250))
    lines = problems(f"namespace: n\nresources: {{{many}}}")
    assert len(lines) == 101
    assert lines[-1] == "f: 150 more problems"


NINES = "9" * 9000


@pytest.mark.parametrize(
    "text",
    [f"rpm:{NINES}", f"rpm:1/{NINES}min", f"rpm:1/min:{NINES}"],
    ids=["rate", "period", "burst"],
)
def test_a_typed_limit_of_thousands_of_digits_is_refused_as_a_limit(text: str) -> None:
    with pytest.raises(InvalidLimitError, match="must be at most"):
        Limit.parse(text)


def test_leading_zeros_of_a_typed_limit_count_for_nothing() -> None:
    assert Limit.parse("rpm:" + "0" * 9000 + "7/min") == Limit.per_minute("rpm", 7)
