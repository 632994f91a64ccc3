"""The settings tree: every key with its default, its bounds and the reason for them, each written once; reading files is `agents.cli.config`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from schemas.errors import ConfigError
from schemas.events import Identifier
from schemas.session import STATE_ROOM
from schemas.settings_facts import Facts
from schemas.settings_ladder import BUILT_IN_RUNGS, OWN_TOPICS, Breaker, Cache, Feedback, Ladder, Name, Rules, Scenario, Section, SemanticCache
from schemas.settings_memory import Memory
from schemas.settings_tree import explain_rejection, format_path, settings_type


class App(Section, frozen=True, forbid_unknown_fields=True):
    """Who this worker is to Kafka."""

    id: Annotated[Name, Meta(description="consumer group and prefix of the tables' changelogs; workers with one id share the work")] = "answerby"


class Security(Section, frozen=True, forbid_unknown_fields=True):
    """How to talk to a broker that is not open."""

    protocol: Annotated[Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], Meta(description="as in Kafka's security.protocol")] = "PLAINTEXT"
    mechanism: Annotated[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"], Meta(description="as in Kafka's sasl.mechanism")] = "PLAIN"
    username: Annotated[str, Meta(description="for SASL")] = ""
    password: Annotated[str, Meta(description="for SASL; better set by ANSWERBY__KAFKA__SECURITY__PASSWORD")] = ""
    cafile: Annotated[str, Meta(description="PEM file of the authority that signed the broker's certificate; empty: the system's")] = ""
    certfile: Annotated[str, Meta(description="PEM file of our certificate, for mutual TLS")] = ""
    keyfile: Annotated[str, Meta(description="PEM file of our key, for mutual TLS")] = ""


class Kafka(Section, frozen=True, forbid_unknown_fields=True):
    """Where events come from and answers go."""

    bootstrap: Annotated[str, Meta(min_length=1, description="host:port, several separated by commas")] = "127.0.0.1:9092"
    partitions: Annotated[int, Meta(ge=1, le=1000, description="of every topic that meets in a table; the ceiling of how many workers share the load")] = 4
    topic_prefix: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,80}\Z", description="put before every topic's name, changelogs included")] = ""
    replication: Annotated[int, Meta(ge=1, le=10, description="replicas of the topics that we create; 3 on a real cluster")] = 1
    security: Security = Security()


class DeadlineSection(Section, frozen=True, forbid_unknown_fields=True):
    """How long an event may take."""

    default_ms: Annotated[float, Meta(gt=0, description="budget of an event that names none")] = 1000.0
    min_ms: Annotated[float, Meta(ge=0, description="below this nothing but the default fits: answered at once, reason `expired`")] = 20.0
    max_ms: Annotated[float, Meta(gt=0, description="longest budget; a larger one is clamped, so that no event holds its partition's offset for longer")] = (
        60_000.0
    )
    max_skew_ms: Annotated[float, Meta(ge=0, description="stamps further ahead than this raise answerby_clock_skew_total")] = 500.0
    reserve_ms: Annotated[float | None, Meta(description="kept free at the end for changelog, publish and receipt; unset: the measured p99.9")] = None
    clock: Annotated[
        Literal["event", "arrival"], Meta(description="where the budget starts: the event's own stamp, or our receipt of it (for replays and broken clocks)")
    ] = "event"


class Worker(Section, frozen=True, forbid_unknown_fields=True):
    """The worker process."""

    metrics_host: Annotated[str, Meta(description="address of /metrics, /healthz and /readyz")] = "127.0.0.1"
    metrics_port: Annotated[int, Meta(ge=0, le=65535, description="port of the same; 0 takes a free one and logs it")] = 9108
    store: Annotated[Literal["memory", "rocksdb"], Meta(description="where tables live: `rocksdb` survives restarts without reading the whole changelog")] = (
        "memory"
    )
    data_dir: Annotated[str, Meta(description="for `rocksdb`; one directory a worker; empty: $ANSWERBY_HOME/data/<app.id>")] = ""
    session_timeout_ms: Annotated[
        int, Meta(ge=2000, le=300_000, description="how long Kafka waits for a dead worker before its partitions move: the gap after a crash")
    ] = 6000
    offset_reset: Annotated[Literal["earliest", "latest"], Meta(description="where a group without commits starts")] = "earliest"
    commit_ms: Annotated[
        int, Meta(ge=50, le=60_000, description="how often released offsets are committed: what a crash repeats at most, and what a redelivery must find kept")
    ] = 500
    recovery_stall_ms: Annotated[
        int,
        Meta(ge=5000, le=3_600_000, description="a recovery of the tables that reads nothing for so long ends the worker; one that moves may take its time"),
    ] = 60_000
    standby: Annotated[
        int, Meta(ge=0, le=8, description="further workers that keep a copy of each table, with `rocksdb`: after a crash little is left to be read")
    ] = 0
    handover_ms: Annotated[
        int, Meta(ge=0, le=60_000, description="before partitions are given up, events due within it are finished; the rest goes to their next owner")
    ] = 1500
    stop_ms: Annotated[
        int, Meta(ge=0, le=600_000, description="grace on SIGTERM: events in flight finish or degrade within it, the rest stays uncommitted")
    ] = 5000
    cpus: Annotated[
        tuple[Annotated[int, Meta(ge=0)], ...] | None,
        Meta(description="cores of the worker's own process; unset: those the engines leave, on machines of up to 4 cores"),
    ] = None
    store_stall_ms: Annotated[float, Meta(gt=0, description="a table access slower than this on the loop is logged and counted")] = 5.0
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="structured logs on standard error")] = "info"
    log_format: Annotated[Literal["json", "console"], Meta(description="`json`: one object a line")] = "json"


class Model(Section, frozen=True, forbid_unknown_fields=True):
    """One `[[models]]` entry: a model and how its engine process runs."""

    name: Annotated[Name, Meta(description="the rung that uses it")] = "main"
    engine: Annotated[Literal["openvino", "scripted"], Meta(description="`scripted` answers from `text` below, for tests, yours too")] = "openvino"
    path: Annotated[str, Meta(description="name of a pulled model, an OpenVINO folder, or a GGUF file")] = "smollm2-135m"
    threads: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None, Meta(description="of inference; unset: 1 (steadiest), never above what quota and affinity allow")
    ] = None
    cpus: Annotated[
        tuple[Annotated[int, Meta(ge=0)], ...] | None,
        Meta(description="cores the engine is pinned to; unset: its own on machines of up to 4 cores, else unpinned"),
    ] = None
    max_batch: Annotated[int, Meta(ge=1, le=256, description="requests decoded together; more raise throughput and each one's step time")] = 8
    max_tokens: Annotated[int, Meta(ge=1, le=100_000, description="ceiling of an answer's length; events may ask for less, never for more")] = 64
    min_tokens: Annotated[int, Meta(ge=1, description="a cut answer shorter than this is not worth sending")] = 6
    hang_ms: Annotated[int, Meta(ge=100, le=60_000, description="silence of the step loop after which the engine is killed and replaced")] = 1000
    start_ms: Annotated[int, Meta(ge=1000, description="longest load and warm-up before the engine is killed and tried again")] = 120_000
    kv_cache_mb: Annotated[int, Meta(ge=1, description="KV cache, reserved at load and counted against the memory limit")] = 512
    prefill_chunk: Annotated[int, Meta(ge=16, le=8192, description="most tokens in one step; small keeps steps short while a prompt is read")] = 32
    align_prefix: Annotated[
        bool, Meta(description="fill the instructions up with line ends to whole blocks of the prefix cache, so that no event has to read them again")
    ] = True
    replicas: Annotated[int, Meta(ge=1, le=64, description="engine processes of this model")] = 1
    standby: Annotated[int, Meta(ge=0, le=8, description="further processes kept warm, which serve only while another is being replaced")] = 0
    waiting: Annotated[int, Meta(ge=0, description="requests that may wait for a place in the batch; more are refused as `overload`")] = 32
    text: Annotated[str, Meta(min_length=1, description="scripted only: what it says, repeated up to the tokens asked for")] = "This is a scripted answer."
    token_ms: Annotated[float, Meta(ge=0, description="scripted only: one step")] = 0.0
    prefill_ms_per_token: Annotated[float, Meta(ge=0, description="scripted only")] = 0.0

    @property
    def processes(self) -> int:
        """Engine processes in all."""
        return self.replicas + self.standby


class Session(Section, frozen=True, forbid_unknown_fields=True):
    """What is remembered of a conversation."""

    locale: Annotated[str, Meta(min_length=1, max_length=35, description="of events that name none, BCP 47")] = "en"
    instructions: Annotated[str, Meta(max_length=20_000, description="what the model is told first, in every prompt; stays in the prefix cache")] = (
        "You are a helpful assistant. Answer in one or two short sentences."
    )
    turns: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="last turns put before the new message; the window grows to twice as many and is cut back, so that the prefix cache stays of use",
        ),
    ] = 4
    turn_chars: Annotated[int, Meta(ge=16, le=1_000_000, description="of each kept text; longer ones are kept by their end")] = 2000
    prompt_chars: Annotated[
        int, Meta(ge=64, description="of the whole prompt; older turns are left out first, then facts, then the start of the newest text")
    ] = 8000
    prompt_tokens: Annotated[int, Meta(ge=32, description="the same in tokens, counted on the safe side without the model's tokenizer; whichever is less")] = (
        2048
    )
    answers_kept: Annotated[int, Meta(ge=1, le=10_000, description="last answers a session keeps, so that a repeated event gets the same bytes")] = 32
    confirm_text: Annotated[dict[str, str], Meta(description="put before a decision that waits for its confirm, by locale; `en` serves the rest")] = (
        msgspec.field(default_factory=lambda: {"en": "Please confirm: ", "zh": "请确认："})
    )
    confirm_ms: Annotated[int, Meta(ge=1000, description="how long a decision waits for its confirm")] = 600_000
    idle_s: Annotated[
        float, Meta(ge=0, le=31_536_000, description="a session without an event for so long, by the events' times, begins a new context; 0: never")
    ] = 86_400.0


class Limits(Section, frozen=True, forbid_unknown_fields=True):
    """The bounds of what one event or one moment may cost."""

    event_bytes: Annotated[int, Meta(ge=1024, le=900_000, description="of a record's value; larger ones are dead letters, `too_large`")] = 524_288
    state_bytes: Annotated[int, Meta(ge=0, description="of an event's `state` in MessagePack, and of the session's after merging")] = 65_536
    state_depth: Annotated[int, Meta(ge=1, le=100, description="nesting of `state`: deeper values overflow the stack of common decoders")] = 16
    metadata_bytes: Annotated[int, Meta(ge=0, description="of an event's `metadata`, keys and values")] = 16_384
    collection_items: Annotated[int, Meta(ge=16, description="of one array or map: a hostile header may announce millions")] = 8192
    session_bytes: Annotated[
        int, Meta(ge=1024, le=900_000, description="of a session's stored value: above a producer's limit the record could not be written")
    ] = 262_144
    response_bytes: Annotated[int, Meta(ge=4096, le=900_000, description="of a response record, for the same reason; longer texts are cut")] = 524_288
    in_flight: Annotated[int, Meta(ge=16, description="events taken from Kafka and not yet released; above it consumption waits, so memory stays flat")] = (
        10_000
    )
    behind_ms: Annotated[
        float,
        Meta(
            ge=5,
            description="how long events may wait for the worker itself before it counts; then models are left to those with time",
        ),
    ] = 50.0
    expired_batch: Annotated[int, Meta(ge=1, le=10_000, description="expired events answered together, so that a backlog does not delay fresh ones")] = 200


class Policy(Section, frozen=True, forbid_unknown_fields=True):
    """What people are told and what they agreed to."""

    disclosure: Annotated[dict[str, str], Meta(description="the transparency text in every response, by locale; `en` serves the rest")] = msgspec.field(
        default_factory=lambda: {"en": "This answer was written by an AI.", "zh": "本回答由人工智能生成。"}
    )


class Settings(Section, frozen=True, forbid_unknown_fields=True):
    """The whole tree, as `answerby.toml` and the environment give it."""

    app: App = App()
    kafka: Kafka = Kafka()
    deadline: DeadlineSection = DeadlineSection()
    worker: Worker = Worker()
    models: tuple[Model, ...] = (Model(),)
    ladder: Ladder = Ladder()
    rules: Rules = Rules()
    cache: Cache = Cache()
    semantic_cache: SemanticCache = SemanticCache()
    breaker: Breaker = Breaker()
    scenarios: Annotated[
        dict[Identifier, Scenario], Meta(description="by the name that events carry; quoted unless it is of letters A to Z, digits, - and _")
    ] = msgspec.field(default_factory=dict)
    feedback: Feedback = Feedback()
    session: Session = Session()
    facts: Facts = Facts()
    memory: Memory = Memory()
    limits: Limits = Limits()
    policy: Policy = Policy()


def parse_settings(tree: dict[str, Any]) -> Settings:
    """Turn a plain tree into checked settings.

    Raises:
        ConfigError: a key is unknown, a value is wrong, or two contradict each other.
    """
    if isinstance(tree.get("rules"), list):
        tree = {**tree, "rules": {"inline": tree["rules"]}}
    try:
        settings = msgspec.convert(tree, Settings)
    except msgspec.ValidationError as error:
        raise _as_config_error(str(error), tree) from None
    if "models" not in tree and not any("main" in rungs for rungs in _ladders(settings).values()):
        settings = msgspec.structs.replace(settings, models=())  # nobody wrote the default model, and no ladder asks for it
    check_settings(settings)
    return settings


def check_settings(settings: Settings) -> None:
    """Refuse what each key alone allows but together cannot work.

    Raises:
        ConfigError: names the key to change.
    """
    deadline, ladder = settings.deadline, settings.ladder
    if not deadline.min_ms <= deadline.default_ms <= deadline.max_ms:
        raise ConfigError(
            "deadline.default_ms",
            f"{deadline.default_ms:g} is not between deadline.min_ms ({deadline.min_ms:g}) and deadline.max_ms ({deadline.max_ms:g})",
            "set it between the two",
        )
    if deadline.reserve_ms is not None and not 0 <= deadline.reserve_ms < deadline.max_ms:
        raise ConfigError("deadline.reserve_ms", f"{deadline.reserve_ms:g} leaves no time", "set 0 or more and less than deadline.max_ms, or leave it out")
    _check_rungs(settings)
    least = settings.limits.state_bytes + STATE_ROOM
    if settings.limits.session_bytes < least:
        raise ConfigError(
            "limits.session_bytes",
            f"{settings.limits.session_bytes} cannot hold limits.state_bytes ({settings.limits.state_bytes}) and {STATE_ROOM} for the rest of a session",
            f"set it to {least} or more, or limits.state_bytes lower",
        )
    if settings.feedback.topic in OWN_TOPICS:
        raise ConfigError("feedback.topic", f"{settings.feedback.topic!r} is a topic of another kind", "choose another name, such as reviews")
    texts_by_key = [
        ("ladder.default_text", ladder.default_text),
        ("policy.disclosure", settings.policy.disclosure),
        ("session.confirm_text", settings.session.confirm_text),
    ]
    for name, scenario in settings.scenarios.items():
        if scenario.ladder.default_text is not None:
            texts_by_key.append((format_path(("scenarios", name, "ladder", "default_text")), scenario.ladder.default_text))
    for key, texts in texts_by_key:
        if "en" not in texts:
            raise ConfigError(key, "has no text for `en`", "add one: it serves every locale without its own")


def _ladders(settings: Settings) -> dict[str, tuple[str, ...]]:
    """Every list of rungs, by its key."""
    own = {name: scenario.ladder.rungs for name, scenario in settings.scenarios.items()}
    scenarios = {format_path(("scenarios", name, "ladder", "rungs")): rungs for name, rungs in own.items() if rungs is not None}
    return {"ladder.rungs": settings.ladder.rungs, **scenarios}


def _check_rungs(settings: Settings) -> None:
    """Every rung is known, every model is used by one, each name stands once. Ladders first: a misspelt rung is what leaves its model unused."""
    names = [model.name for model in settings.models]
    ladders = _ladders(settings)
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ConfigError(f"models[{index}].name", f"{name!r} is there twice", "give each model its own name")
        if name in ("rules", "cache", "semantic_cache", "default"):
            raise ConfigError(f"models[{index}].name", f"{name!r} is a rung of another kind", "choose another name")
    for key, rungs in ladders.items():
        for index, rung in enumerate(rungs):
            if rung in rungs[:index]:
                raise ConfigError(f"{key}[{index}]", f"{rung!r} is there twice", "name each rung once")
            if rung not in BUILT_IN_RUNGS and rung not in names:
                known = ", ".join(sorted({*BUILT_IN_RUNGS, *names}))
                raise ConfigError(f"{key}[{index}]", f"no rung or model is called {rung!r}", f"use one of: {known}")
    used = {rung for rungs in ladders.values() for rung in rungs}
    for index, name in enumerate(names):
        if name not in used:
            raise ConfigError(f"models[{index}].name", f"no rung uses {name!r}", "add it to ladder.rungs or remove the model")


def find_unused(settings: Settings) -> tuple[str, ...]:
    """A line for each key that switches on a rung which is in no ladder that it could serve: it does nothing, which is no error, and rarely meant."""
    unused = []
    everywhere = {rung for rungs in _ladders(settings).values() for rung in rungs}
    if settings.cache.ttl_s > 0 and "cache" not in everywhere:
        unused.append("cache.ttl_s: no ladder has the rung 'cache'; add it to ladder.rungs or leave the key out")
    if (settings.rules.files or settings.rules.inline) and "rules" not in everywhere:
        unused.append("rules: no ladder has the rung 'rules'; add it to ladder.rungs or leave the section out")
    for name, scenario in settings.scenarios.items():
        key = "ladder.rungs" if scenario.ladder.rungs is None else format_path(("scenarios", name, "ladder", "rungs"))
        rungs = settings.ladder.rungs if scenario.ladder.rungs is None else scenario.ladder.rungs
        switches = (("cache", "ttl_s", (scenario.cache.ttl_s or 0) > 0), ("semantic_cache", "threshold", scenario.semantic_cache.threshold is not None))
        for rung, switch, is_on in switches:
            if is_on and rung not in rungs:
                place = format_path(("scenarios", name, rung, switch))
                unused.append(f"{place}: {key} has no rung {rung!r}; add it there or leave the key out")
    return tuple(unused)


def text_for_locale(texts: dict[str, str], locale: str) -> str:
    """The text for `locale`, else for its language, else for `en`."""
    return texts.get(locale) or texts.get(locale.split("-", maxsplit=1)[0].split("_", maxsplit=1)[0].lower()) or texts["en"]


def _as_config_error(text: str, tree: Any) -> ConfigError:
    """Say msgspec's rejection of `tree` as key, what is wrong, what would be right."""
    return explain_rejection(settings_type(Settings), tree, text)
