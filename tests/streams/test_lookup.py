"""Finding one response on the log of the real broker: the newest one, in bounded steps, and honest when it is not there."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaProducer

from schemas.errors import SetupError
from schemas.settings import Kafka, Settings
from streams import lookup
from streams.broker.probe import free_port
from streams.lookup import DeadLetter, Found, NotFound, Wanted, find_dead_letter, find_response, read_dead_letter
from streams.security import client_options
from streams.topic_admin import ensure_topics
from streams.topics import Topics
from tests.support import run

pytestmark = pytest.mark.live


def answer(event_id: str, session: str = "s", tenant: str = "default", text: str = "") -> dict[str, Any]:
    """As much of a response as a search looks at."""
    return {"event_id": event_id, "session_id": session, "tenant": tenant, "text": text}


def search(settings: Settings, answers: list[dict[str, Any] | bytes], wanted: Wanted, **options: Any) -> Found | NotFound:
    """Write the answers under their session's key, as a worker would, and look for one."""

    async def searching() -> Found | NotFound:
        await ensure_topics(settings)
        async with AIOKafkaProducer(**client_options(settings.kafka)) as producer:
            handed = []
            for one in answers:
                value = one if isinstance(one, bytes) else msgspec.msgpack.encode(one)
                key = b"k" if isinstance(one, bytes) else one["session_id"].encode()
                handed.append(await producer.send(Topics.of(settings).responses, value, key=key))
            await asyncio.gather(*handed)
        return await find_response(settings, wanted, **{"timeout_s": 20.0, **options})

    return run(searching())


def test_the_newest_response_is_found(kafka_settings: Settings) -> None:
    """A worker may have sent one twice; what stands last is shown."""
    found = search(kafka_settings, [answer("a", text="old"), answer("b"), answer("a", text="new")], Wanted("a"))
    assert isinstance(found, Found)
    assert (found.response["text"], found.others) == ("new", ())


def test_sessions_and_tenants_are_told_apart(kafka_settings: Settings) -> None:
    """Only the named one counts; without a name the others are listed."""
    answers: list[dict[str, Any] | bytes] = [answer("a", "one"), answer("a", "two"), answer("a", "two", "red")]
    named = search(kafka_settings, answers, Wanted("a", "one"))
    assert isinstance(named, Found)
    assert (named.response["session_id"], named.others) == ("one", ())
    red = run(find_response(kafka_settings, Wanted("a", tenant="red"), timeout_s=20.0))
    assert isinstance(red, Found)
    assert red.response["tenant"] == "red"
    any_of_them = run(find_response(kafka_settings, Wanted("a"), timeout_s=20.0))
    assert isinstance(any_of_them, Found)
    assert len(any_of_them.others) == 2


def test_old_records_are_reached_window_by_window(kafka_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of many is found, and the progress grows up to it."""
    monkeypatch.setattr(lookup, "WINDOW", 50)
    told: list[tuple[int, int]] = []
    answers: list[dict[str, Any] | bytes] = [answer("first"), *(answer(f"e{number}", f"s{number % 40}") for number in range(1000))]
    found = search(kafka_settings, answers, Wanted("first"), progress=lambda read, total: told.append((read, total)))
    assert isinstance(found, Found)
    assert len(told) > 2
    assert told == sorted(told)
    assert {total for _, total in told} == {1001}


@pytest.mark.parametrize("event_id", ['quo"te', "back\\slash", "汉字", "e-1"])
def test_every_id_is_found_in_both_encodings(kafka_settings: Settings, event_id: str) -> None:
    """JSON writes some letters differently; foreign records beside it are passed over."""
    for encoded in (msgspec.json.encode(answer(event_id)), msgspec.msgpack.encode(answer(event_id))):
        assert isinstance(search(kafka_settings, [b"\xc1 not ours", encoded, answer("other")], Wanted(event_id)), Found)


def test_what_is_not_there_is_told_with_how_much_was_read(kafka_settings: Settings) -> None:
    """All of it, when there was time; less, when there was not."""
    answers: list[dict[str, Any] | bytes] = [answer("a"), answer("b")]
    assert search(kafka_settings, answers, Wanted("c")) == NotFound(2, 2)
    assert run(find_response(kafka_settings, Wanted("a", "another"), timeout_s=20.0)) == NotFound(2, 2)


def test_a_dead_letter_is_found_with_its_reason_and_place(kafka_settings: Settings) -> None:
    """Our headers say why and where, also behind a producer's of the same name; other events' and unreadable ones are passed over."""
    ours = (("answerby.partition", b"odd"), ("answerby.reason", b"conflict"), ("answerby.detail", b"used"), ("answerby.topic", b"interactions"))
    headers = [*ours, ("answerby.partition", b"2"), ("answerby.offset", b"17")]

    async def searching() -> tuple[Found | NotFound, Found | NotFound]:
        await ensure_topics(kafka_settings)
        topic = Topics.of(kafka_settings).dead_letters
        async with AIOKafkaProducer(**client_options(kafka_settings.kafka)) as producer:
            await producer.send_and_wait(topic, b"\xc1 bad-1 \xff", key=b"s")
            await producer.send_and_wait(topic, msgspec.json.encode({"event_id": "bad-1", "session_id": "s"}), key=b"s", headers=headers)
        found = await find_dead_letter(kafka_settings, Wanted("bad-1", "s", "default"), timeout_s=20.0)
        return found, await find_dead_letter(kafka_settings, Wanted("bad-2"), timeout_s=20.0)

    found, missing = run(searching())
    assert isinstance(found, Found)
    assert read_dead_letter(found.record) == DeadLetter("conflict", "used", "interactions", 2, 17)
    assert missing == NotFound(2, 2)


def test_a_search_without_time_ends_at_once(kafka_settings: Settings) -> None:
    """It says that it has not seen everything."""
    late = search(kafka_settings, [answer("a"), answer("b")], Wanted("a"), timeout_s=0.0)
    assert late == NotFound(0, 2)


def test_without_a_topic_or_a_broker_the_way_out_is_told(broker: str) -> None:
    """Each in one line that says what to run."""
    missing = Settings(kafka=Kafka(bootstrap=broker, topic_prefix="nowhere-"))
    with pytest.raises(SetupError, match="answerby topics create"):
        run(find_response(missing, Wanted("a"), timeout_s=5.0))
    nobody = Settings(kafka=Kafka(bootstrap=f"127.0.0.1:{free_port()}"))
    with pytest.raises(SetupError, match="answerby broker"):
        run(find_response(nobody, Wanted("a"), timeout_s=5.0))
