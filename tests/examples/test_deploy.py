"""The files of ``examples/deploy``: they parse, and name only commands, options, metrics and tables that exist."""

from __future__ import annotations

import asyncio
import configparser
import functools
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
import typer
import yaml

import redrive
from redrive.cli import cli, remote
from redrive.cli.web import _read
from redrive.clock import SystemClock
from redrive.contrib import prometheus
from redrive.engine.records import Hold
from redrive.observe.events import Event
from redrive.policy import parse_duration
from redrive.runtime.health import PROBES
from redrive.runtime.worker import Worker
from redrive.stores.operations import counters, workers
from redrive.web import Users
from redrive.web.live import QUIET
from tests import postgres

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
YAML = sorted(DEPLOY.rglob("*.yaml"))
UNITS = sorted(DEPLOY.rglob("*.service"))

#: Seconds in which interrupted handlers end and their jobs are given back, beyond the shutdown timeout.
RESERVE = 10


def documents(path: Path) -> list[dict[str, Any]]:
    """Read the documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text()))


def walk(value: Any) -> Iterator[Any]:
    """Generate a value and all values in it."""
    yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from walk(each)


def containers(path: Path) -> Iterator[dict[str, Any]]:
    """Generate the containers of a file of Kubernetes, and the services of a file of compose."""
    for document in documents(path):
        for each in walk(document):
            if isinstance(each, dict):
                yield from each.get("containers", ())
        yield from document.get("services", {}).values()


def unit(path: Path) -> configparser.RawConfigParser:
    """Read a unit of systemd."""
    parser = configparser.RawConfigParser(strict=False, interpolation=None, delimiters="=")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text())
    return parser


def invocations(path: Path) -> Iterator[list[str]]:
    """Generate the words of each command of redrive in a file, after ``redrive``."""
    text = path.read_text()
    if path.suffix == ".service":
        program, *words = shlex.split(unit(path)["Service"]["ExecStart"])
        assert program.endswith("/bin/redrive")
        yield words
    elif path.suffix == ".yaml":
        for container in containers(path):
            check = container.get("healthcheck", {}).get("test", [])[1:]
            for command in ([*container.get("command", []), *container.get("args", [])], check):
                if command[:1] == ["redrive"]:
                    yield command[1:]
    elif path.name == "Dockerfile":
        for found in re.findall(r"CMD (\[.*\])$", text, re.MULTILINE):
            program, *words = json.loads(found)
            assert program == "redrive"
            yield words
    elif path.suffix == ".md":
        for line in re.findall(r"^\$ (?:[A-Z_]+=\S+ )*redrive (.*)$", text, re.MULTILINE):
            yield shlex.split(re.split(r" [|>&]|  # ", line, maxsplit=1)[0], comments=True)


@functools.cache
def whole() -> Any:
    """Return the command line; to make its hundred commands takes as long as a thousand parses."""
    return typer.main.get_command(cli)


def parse(words: list[str]) -> dict[str, Any]:
    """Parse a command line as the command does, and return its options; raise an error of click if it is wrong."""
    command = whole()
    name = "redrive"
    url = words[1] if words[:1] == ["--url"] else None
    words = words[4:] if url and words[2] == "--token-file" else words
    while hasattr(command, "commands"):
        if words[:1] in (["--help"], ["--version"]):
            return {}
        is_first = name == "redrive"
        name, *words = words
        command = command.commands.get(name)
        assert command is not None, f"there is no command {name}"
        if is_first and url is not None:
            command = remote.through(command, (name,), url, None)
    return dict(command.make_context(name, [each for each in words if each != "--hash-password"]).params)


FILES = [*YAML, *UNITS, DEPLOY / "Dockerfile", DEPLOY / "README.md"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_command_is_real(path: Path):
    """Each command of redrive in a file parses, with all of its options; none is overlooked."""
    found = list(invocations(path))
    text = re.sub(r"^\s*(#.*| *summary:.*| *action:.*)$", "", path.read_text(), flags=re.MULTILINE)
    pattern = r"redrive[\"',]*\s+[\"']?(?:worker|web|health|db|doctor|check|enqueue)\b(?! hash)"
    for words in found:
        if "--hash-password" not in words:
            assert "app" in parse(words)

    if path.suffix != ".md":
        assert len(found) == len(re.findall(pattern, text))


def test_wrong_commands_are_found():
    """The test above fails for an option, a value or a command that does not exist."""
    for words in (
        ["worker", "shop:app", "--helth", ":8080"],
        ["worker", "shop:app", "--concurrency", "many"],
        ["health", "shop:app", "--probe", "alive"],
        ["worker"],
    ):
        with pytest.raises(Exception, match=r"[Nn]o such option|not a valid|is not one of|Missing parameter"):
            parse(words)
    with pytest.raises(AssertionError, match="no command wrkr"):
        parse(["wrkr", "shop:app"])


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_of_the_documentation_are_real(path: Path):
    """Each command of redrive that a page shows at a prompt parses, but forms with an ellipsis or a capital word."""
    for words in invocations(path):
        if (
            words
            and not any("..." in word or word.isupper() for word in words)
            and not {"--hash-password", "--new-token", "--help"} & set(words)
        ):
            parse(words)


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_yaml_files_have_documents(path: Path):
    """Each file of Kubernetes has documents with a kind and a name, and the others have one document."""
    found = documents(path)

    assert all(found)
    if path.parent.name == "kubernetes":
        assert all({"apiVersion", "kind"} <= set(each) and each["metadata"]["name"] for each in found)
    else:
        assert 1 == len(found)


def _grace(words: list[str]) -> float:
    text = parse(words)["shutdown_timeout"]
    return parse_duration(text).total_seconds() + RESERVE


def test_workers_have_time_to_stop():
    """Service managers wait at least for the shutdown timeout and 10 s before they kill a worker."""
    (worker,) = (each for each in documents(DEPLOY / "kubernetes/worker.yaml") if each["kind"] == "Deployment")
    compose = documents(DEPLOY / "compose.yaml")[0]["services"]["worker"]
    service = unit(DEPLOY / "systemd/worker@.service")["Service"]
    (in_kubernetes,) = invocations(DEPLOY / "kubernetes/worker.yaml")

    assert worker["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= _grace(in_kubernetes)
    assert parse_duration(compose["stop_grace_period"]).total_seconds() >= _grace(compose["command"][1:])
    assert float(service["TimeoutStopSec"]) >= _grace(shlex.split(service["ExecStart"])[1:])


def test_probes_of_kubernetes_are_ours():
    """Each probe asks a path that exists, at a port that the container names; liveness is /livez."""
    found = [each for name in ("worker", "web") for each in containers(DEPLOY / f"kubernetes/{name}.yaml")]
    for container in found:
        ports = {each["name"] for each in container["ports"]}
        for kind, path in (("startup", "startupz"), ("liveness", "livez"), ("readiness", "readyz")):
            probe = container[f"{kind}Probe"]["httpGet"]
            assert (f"/{path}", True, True) == (probe["path"], probe["port"] in ports, path in PROBES)

    assert 2 == len(found)


def test_ports_are_those_of_the_commands():
    """The ports of the worker's container are those of --health and --metrics."""
    (container,) = containers(DEPLOY / "kubernetes/worker.yaml")
    (words,) = invocations(DEPLOY / "kubernetes/worker.yaml")
    options = parse(words)
    ports = {each["name"]: f"0.0.0.0:{each['containerPort']}" for each in container["ports"]}

    assert {"health": options["health"], "metrics": options["metrics"]} == ports


def test_etcd_patroni_and_haproxy_name_the_same_servers():
    """Patroni accepts the times of its example, and asks all members of etcd; haproxy asks the nodes of which one is
    configured."""
    text = (DEPLOY / "high-availability/patroni.yml").read_text()
    node = yaml.safe_load(text)
    times = node["bootstrap"]["dcs"]
    proxy = (DEPLOY / "high-availability/haproxy.cfg").read_text()
    servers = re.findall(r"server (\w+) (\S+) check port (\d+)", proxy)
    settings = (DEPLOY / "high-availability/etcd.env").read_text()
    member = dict(line.split("=", 1) for line in settings.splitlines() if not line.startswith("#"))
    peers = dict(each.split("=") for each in member["ETCD_INITIAL_CLUSTER"].split(","))

    assert times["ttl"] >= max(20, times["loop_wait"] + 2 * times["retry_timeout"])
    assert times["synchronous_mode"] is True
    assert node["etcd3"]["hosts"] == [each.removeprefix("http://").replace("2380", "2379") for each in peers.values()]
    assert member["ETCD_INITIAL_ADVERTISE_PEER_URLS"] == peers[member["ETCD_NAME"]]
    assert member["ETCD_DATA_DIR"] != "/var/lib/etcd/default"
    assert {"db1", "db2"} == {name for name, _, _ in servers}
    assert (node["name"], node["postgresql"]["listen"], node["restapi"]["listen"].partition(":")[2]) in servers
    assert node["postgresql"]["listen"].replace("11:", "12:") in {address for _, address, _ in servers}


def test_selectors_find_their_pods():
    """The budget, the service and the scaler name the Deployments that exist."""
    found = [each for path in YAML if path.parent.name == "kubernetes" for each in documents(path)]
    deployments = {each["metadata"]["name"]: each for each in found if each["kind"] == "Deployment"}
    labels = {each["spec"]["template"]["metadata"]["labels"]["app"] for each in deployments.values()}
    named = [each["spec"]["selector"] for each in found if each["kind"] in {"PodDisruptionBudget", "Service"}]
    (scaled,) = (each["spec"]["scaleTargetRef"]["name"] for each in found if each["kind"] == "ScaledObject")

    assert scaled in deployments
    assert 2 == len(named)
    assert all(each.get("matchLabels", each)["app"] in labels for each in named)


def test_containers_are_not_root():
    """Images and pods run as a user with a number, in the exec form, ended by SIGTERM."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    number = next(line.split()[1] for line in lines if line.startswith("USER"))
    pods = [
        each["securityContext"]
        for path in YAML
        for document in documents(path)
        for each in walk(document)
        if isinstance(each, dict) and "containers" in each
    ]

    assert "STOPSIGNAL SIGTERM" in lines
    assert number.isdecimal()
    assert int(number) > 0
    assert [{"runAsNonRoot": True, "runAsUser": int(number)}] * 4 == pods


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_are_notified(path: Path, tmp_path: Path):
    """Units are of the type notify; where systemd is installed, it accepts each of their lines."""
    service = unit(path)["Service"]
    if program := shutil.which("systemd-analyze"):
        copy = tmp_path / path.name.replace("@.", "@1.")
        # The user, the folder and the program are those of another machine.
        text = re.sub(r"^(EnvironmentFile|User|WorkingDirectory)=.*\n", "", path.read_text(), flags=re.MULTILINE)
        copy.write_text(re.sub(r"^(ExecStart=)\S+", r"\1/bin/true", text, flags=re.MULTILINE))
        command = [program, "verify", "--man=no", str(copy)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert [] == [line for line in done.stderr.splitlines() if copy.name in line]

    assert "notify" == service["Type"]


def test_proxies_pass_events_on_at_once():
    """Nginx and Caddy do not buffer, and wait longer than the pause between two comments of an idle stream."""
    nginx, caddy = (DEPLOY / "nginx.conf").read_text(), (DEPLOY / "Caddyfile").read_text()
    timeout = re.search(r"proxy_read_timeout (\d+)s;", nginx)

    assert "proxy_buffering off;" in nginx
    assert timeout is not None
    assert int(timeout.group(1)) > QUIET
    assert "reverse_proxy" in caddy
    for text in (nginx, caddy):
        assert text.count("{") == text.count("}")
        assert all(probe in text for probe in PROBES)


def test_users_of_the_example_are_read():
    """The file of users can be read by the dashboard."""
    assert Users(_read(DEPLOY / "users.toml"))


# ------------------------------------------------------------------------------------------------------------- metrics


@pytest.fixture(scope="module")
def metrics() -> dict[str, set[str]]:
    """The names of all series that redrive offers to Prometheus, with their labels."""
    registry = prometheus_client.CollectorRegistry()
    app = redrive.App("memory://")
    app.open()
    app.named("any").enqueue()
    sink = prometheus.PrometheusMetrics(registry)
    families = [*prometheus.Collector(app).collect()]
    names = {sample.name: set(sample.labels) for family in families for sample in family.samples}
    for each in [*sink._counters.values(), *sink._histograms.values()]:
        name, labels = each._name, set(each._labelnames)
        if each._type == "counter":
            names[f"{name}_total"] = labels
        else:
            names |= {f"{name}_bucket": {*labels, "le"}, f"{name}_sum": labels, f"{name}_count": labels}
    app.close()
    return names


def expressions() -> list[str]:
    """Return the expressions of the alert rules and of the board."""
    (rules,) = documents(DEPLOY / "monitoring/alerts.yaml")
    board = json.loads((DEPLOY / "monitoring/grafana.json").read_text())
    found = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    found += [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [*found, *(each["query"] for each in board["templating"]["list"])]


@pytest.mark.parametrize("expression", expressions())
def test_each_metric_exists(expression: str, metrics: dict[str, set[str]]):
    """Metrics and their labels in rules and panels are those that redrive has."""
    named = re.findall(r"(redrive_\w+)(?:\{([^}]*)\})?", expression)
    every = set().union(*(metrics[name] for name, _ in named if name in metrics)) | {"instance", "le"}

    assert [] == [name for name, _ in named if name not in metrics]
    for name, chosen in named:
        assert set(re.findall(r"(\w+)\s*=", chosen)) <= metrics[name]
    for grouped in re.findall(r"\bby \(([^)]*)\)", expression):
        assert set(re.split(r",\s*", grouped)) <= every


def _outcomes() -> set[str]:
    def below(kind: type) -> Iterator[type]:
        yield kind
        for each in kind.__subclasses__():
            yield from below(each)

    return {each.outcome for each in below(Event) if isinstance(getattr(each, "outcome", None), str)}


def test_each_outcome_exists():
    """Outcomes and holds that rules name are those of events; each rule has an advice, and there are twelve."""
    text = " ".join(expressions())
    outcomes = {part for each in re.findall(r'outcome=~?"([^"]*)"', text) for part in each.split("|")}
    reasons = set(re.findall(r'reason="([^"]*)"', text))
    (rules,) = documents(DEPLOY / "monitoring/alerts.yaml")
    found = [rule for group in rules["groups"] for rule in group["rules"]]

    assert set() == outcomes - _outcomes()
    assert reasons <= {each.value for each in Hold}
    assert 12 == len({rule["alert"] for rule in found}) == len(found)
    assert all({"summary", "action"} == set(rule["annotations"]) for rule in found)
    for rule in found:
        for words in re.findall(r"redrive((?: [a-z]+)+)", rule["annotations"]["action"]):
            group, *rest = words.split()
            command: Any = typer.main.get_command(cli).commands.get(group)
            assert command is not None
            assert not hasattr(command, "commands") or rest[0] in command.commands


@pytest.mark.parametrize("name", ["grafana.json", "grafana-postgres.json"])
def test_panels_of_a_board_do_not_overlap(name: str):
    """Each panel has its own place within the 24 columns of a board, and an id of its own."""
    board = json.loads((DEPLOY / "monitoring" / name).read_text())
    cells = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in board["panels"]
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]

    assert len(cells) == len(set(cells))
    assert 23 == max(x for x, _ in cells)
    assert len(board["panels"]) == len({panel["id"] for panel in board["panels"]})


# ------------------------------------------------------------------------------------------------- the board on SQL


def _filled(url: str) -> None:
    """Make a row for each panel, by a worker where it writes them."""
    app = redrive.App(url)

    @app.task
    def work() -> None:
        """Do nothing."""

    @app.task(retry="0", queue="mail")
    def fail() -> None:
        """Fail."""
        raise ValueError("no route")

    @app.cron("0 3 1 1 *")
    def yearly() -> None:
        """Do nothing."""

    @app.refresh("Refresh every day; retry once after 1 hour")
    def prices(url: str) -> None:
        """Fail."""
        raise ConnectionError(url)

    app.open()
    work.enqueue_many([()] * 3)
    fail.enqueue()
    prices.track("acme", "https://example.com")
    asyncio.run(Worker(app, until_empty=True).run())
    yearly.trigger()
    work.enqueue()
    app.queue("mail").pause(actor="ann")
    app.store.run(workers.register("here", concurrency=7, lease_for=timedelta(hours=1)))
    app.store.run(counters.note_depths())
    app.close()


def _as_grafana(sql: str, schema: str) -> str:
    """Replace macros and variables as Grafana does: https://grafana.com/docs/grafana/latest/datasources/postgres/."""
    since, until = (f"'{SystemClock().now() + timedelta(minutes=each):%Y-%m-%dT%H:%M:%SZ}'" for each in (-360, 1))
    sql = re.sub(r"\$__timeFilter\((\w+(?:\.\w+)?)\)", rf"\1 BETWEEN {since} AND {until}", sql)
    sql = sql.replace("$__timeFrom()", since).replace("$__timeTo()", until)
    sql = sql.replace("${schema:raw}", schema).replace("${queue:sqlstring}", "'default','mail'")
    assert "$" not in sql
    return sql


def test_queries_of_the_sql_board_answer():
    """Each panel has rows with the columns that its kind needs; a reader may run it, and none reads the jobs."""
    board = json.loads((DEPLOY / "monitoring/grafana-postgres.json").read_text())
    (variable,) = (each["query"] for each in board["templating"]["list"] if each["type"] == "query")
    found: dict[str, list[Any]] = {}
    with postgres.lent() as url, postgres.connect() as connection:
        _filled(url)
        schema = url.partition("schema=")[2].partition("&")[0]
        connection.execute("SET default_transaction_read_only = on")
        queues = connection.execute(_as_grafana(variable, schema)).fetchall()
        for panel in board["panels"]:
            (target,) = panel["targets"]
            assert not re.search(r"redrive_(jobs|attempts|payloads|\w*lanes)\b", target["rawSql"])
            cursor = connection.execute(_as_grafana(target["rawSql"], schema))
            found[panel["title"]] = cursor.fetchall()
            if panel["type"] == "timeseries":
                assert ["time", "metric", "value"] == [column.name for column in cursor.description or ()]
                assert "time_series" == target["format"]
    last = {title: {row[1]: row[2] for row in rows} for title, rows in found.items() if len(rows[0]) == 3}

    assert [("default",), ("mail",)] == queues
    assert all(found.values())
    assert [[(1,)], [(7,)], [(0,)]] == [found[each] for each in ("Workers alive", "Slots", "Workers with a defect")]
    assert {"default": 2, "mail": 0} == last["Due jobs"]
    assert {"succeeded", "died"} == set(last["Ended attempts"])
    assert Decimal("0.3") == sum(value for _, outcome, value in found["Ended attempts"] if outcome == "succeeded")
    assert {"fail", "prices"} == set(last["Failed attempts"])
    assert {"work": 3, "fail": 1, "prices": 1} == {row[0]: row[1] for row in found["Duration of attempts"]}
    assert {"fail", "prices"} == {row[0] for row in found["Failures by error group"]}
    assert {"yearly started": 1} == last["Occurrences of crons"]
    assert [("prices", "acme", 1)] == [row[:3] for row in found["Items of refreshes in trouble"]]
    assert ("ann", "queue") in {row[1:3] for row in found["Audit log"]}


# ---------------------------------------------------------------------------------------------------------------- KEDA


def scaled(schema: str, *, cap: str = "10000") -> list[tuple[int]]:
    """Run the query of the scaler in a schema."""
    (document,) = documents(DEPLOY / "kubernetes/keda.yaml")
    query = document["spec"]["triggers"][0]["metadata"]["query"]
    assert query.count("10000") == 5
    with postgres.connect() as connection:
        return connection.execute(query.replace("redrive.", f"{schema}.").replace("10000", cap)).fetchall()


def test_the_scaler_counts_work_in_one_row():
    """The query returns one row also without jobs, and counts due and running jobs of queues that are not paused."""
    schema = postgres.fresh()
    app = redrive.App(postgres.url(schema))
    seen: list[list[tuple[int]]] = []

    @app.task
    def count() -> None:
        """Count while this job runs."""
        seen.append(scaled(schema))

    app.open()
    empty = scaled(schema)
    count.enqueue()
    asyncio.run(Worker(app, until_empty=True).run())
    for number in range(3):
        count.options(partition=str(number % 2) if number else None).enqueue()
    count.options(delay="1h").enqueue()
    count.options(queue="other").enqueue()
    due, capped = scaled(schema), scaled(schema, cap="2")
    app.queue("default").pause()
    paused = scaled(schema)
    app.close()

    assert [[(0,)], [(1,)], [(3,)], [(2,)], [(0,)]] == [empty, seen[0], due, capped, paused]
