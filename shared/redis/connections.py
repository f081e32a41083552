"""Connections that detect a wrong server.

Every connection of every component is one of these. A new one checks the data's format before it is used. One whose
server takes no more writes (it was demoted to a replica, or cut off from its replicas) is dropped, so that the next
command looks for the primary again: through the sentinels, or through the host name in the address.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from redis import Redis
from redis.connection import (
    BlockingConnectionPool,
    Connection,
    ConnectionPool,
    SSLConnection,
    UnixDomainSocketConnection,
    parse_url,
)
from redis.exceptions import AskError, ConnectionError, NoPermissionError, OutOfMemoryError, RedisError, ResponseError
from redis.retry import Retry

from firmq.shared.config.redis_address import Address, read_address
from firmq.shared.redis import schema_version
from firmq.shared.redis.cluster import ClusterNodes, ClusterSlot
from firmq.shared.redis.keys import with_prefix
from firmq.shared.redis.refusing import Refusing

if TYPE_CHECKING:

    class _Base(Connection):
        """The driver's connection, with type annotations."""

        def __init__(self, **options: Any) -> None: ...

        _sock: Any

        def _connect(self) -> Any: ...
        def connect_check_health(self, check_health: bool = True, retry_socket_connect: bool = True) -> Any: ...
        def send_command(self, *command: str | int, check_health: bool = True) -> None: ...
        def send_packed_command(self, command: Any, check_health: bool = True) -> None: ...
        def disconnect(self, *arguments: Any, **options: Any) -> None: ...
else:
    _Base = object

_NOT_NOW = ("READONLY", "NOREPLICAS", "MASTERDOWN", "UNBLOCKED", "CLUSTERDOWN", "TRYAGAIN", "BUSY")
"""Error codes of a server that is not, or no longer, the primary; or that is busy with another script."""
_NOT_NOW_IN_A_SCRIPT = ("non local key", "cluster is down")
"""The answer, without a code, to a command in a script on a node that does not serve its slot."""
_SENTINEL_PATIENCE = 0.4
_SENTINEL_INTERVAL = 1.0
_LISTENS = 60.0
_LISTENS_AGAIN = 0.2
"""Seconds until the next try after a subscription to a sentinel failed."""
_SENTINEL_REST = 5.0
"""Seconds for which a sentinel that did not answer is skipped."""
_REPLACED, _REPLACING = "+switch-master", "+failover-state-wait-promotion"
"""Events of a sentinel: the master changed; a replica is being promoted."""
_REPLACING_TAKES = 10.0
"""Seconds without commands to a master that is being replaced: most changes take two."""


class ForeignFormat(Refusing):
    """The data of that server has a format that this version does not read."""


class _Sent:
    """Whether a command may have reached Redis."""

    anything = False


_sent: ContextVar[_Sent | None] = ContextVar("sent", default=None)


def note_what_is_sent() -> None:
    """Starts recording whether a command is sent, by this thread or by one with a copy of its context."""
    _sent.set(_Sent())


def anything_sent() -> bool:
    """Returns whether a command may have reached Redis since; True also without a recording."""
    noted = _sent.get()
    return noted is None or noted.anything


class _Guarded(_Base):
    """Base of all our connections."""

    def __init__(self, *, check_format: bool = True, key_prefix: str = "", store: str = "", **options: Any) -> None:
        self._store = store
        self._store_key = with_prefix(key_prefix).STORE_NUMBER
        self._check_format = check_format
        self._format_key = with_prefix(key_prefix).FORMAT
        self._greeting = False
        super().__init__(**options)

    def on_connect_check_health(self, check_health: bool = True) -> None:
        self._greeting = True
        try:
            super().on_connect_check_health(check_health)
            self.before_use()
        finally:
            self._greeting = False

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if not self._greeting and (noted := _sent.get()) is not None:
            if not self._sock:
                self.connect_check_health(check_health=False)  # a failed connection sends nothing
            noted.anything = True
        super().send_packed_command(command, check_health)

    def before_use(self) -> None:
        """Checks that the server can be used. Raises ConnectionError otherwise."""
        if self._check_format:
            _agree_on_format(self, self._format_key)
        if self._check_format and self._store:
            _agree_on_number(self, self._store_key, self._store)

    def read_response(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().read_response(*arguments, **options)
        except ResponseError as error:
            if not _means_not_now(error):
                raise
            self.disconnect()
            raise Refusing(str(error)) from error

    def ask(self, *command: str | int) -> Any:
        """Returns the answer to one command on this connection."""
        self.send_command(*command, check_health=False)
        return self.read_response()


def _means_not_now(error: ResponseError) -> bool:
    """Returns whether the error passes. The driver removes known codes from the text; servers before 7.0 prefix it."""
    if isinstance(error, AskError):  # and MovedError: another node of the cluster has the slot
        return True
    message = str(error)
    code = error.status_code or message.partition(" ")[0]
    from_a_script = any(text in message for text in _NOT_NOW_IN_A_SCRIPT)
    return code in _NOT_NOW or from_a_script or any(f"-{word} " in message for word in _NOT_NOW)


def _agree_on_format(connection: _Guarded, key: str) -> None:
    try:
        found = connection.ask("GET", key)
    except ResponseError as error:
        if not str(error).startswith("WRONGTYPE"):
            raise
        raise ForeignFormat(schema_version.wrong_type(key)) from error
    only_submits = str(connection.client_name or "").endswith("submission")  # its Redis user may only read the key
    if found is None:
        if only_submits:
            return
        _refuse_keys_of_another_name(connection, key.removesuffix("firmq:format") + "taskqueue:format")
        try:
            connection.ask("SET", key, schema_version.FORMAT, "NX")
        except OutOfMemoryError:
            return  # a full server is still used, to end the tasks that it holds
        found = connection.ask("GET", key)
    verdict = schema_version.judge(found, key)
    if verdict.refusal:
        raise ForeignFormat(verdict.refusal)
    if verdict.raise_it and not only_submits:
        connection.ask("EVAL", schema_version.RAISE, 1, key, schema_version.FORMAT)


def _refuse_keys_of_another_name(connection: _Guarded, key: str) -> None:
    """Refuses data of before format 6: it would stay unseen, while RQ's queues would be shared."""
    try:
        found = connection.ask("EXISTS", key)
    except NoPermissionError:
        return  # rights made for this version: that one never ran with them
    if found:
        raise ForeignFormat(schema_version.of_another_name(key))


def _agree_on_number(connection: _Guarded, key: str, number: str) -> None:
    """Refuses a server whose store has another number than in these settings, as the ids in it end with that number."""
    try:
        found = connection.ask("GET", key)
        if found is None:
            connection.ask("SET", key, number, "NX")
            found = connection.ask("GET", key)
    except (OutOfMemoryError, NoPermissionError):
        return
    stored = found.decode(errors="replace") if isinstance(found, bytes) else str(found)
    if stored != number:
        raise ForeignFormat(
            f"this server has the number {stored[:20]} in its system, and the list of addresses gives it the number "
            f"{number}: give each address its former place; a removed one leaves an empty item"
        )


class _ThroughSentinels(_Guarded):
    """Looks the master up at each connect, and reconnects when another connection has found a new one."""

    def __init__(self, *, sentinels: Sentinels | ClusterSlot, **options: Any) -> None:
        self._sentinels = sentinels
        self._settled: tuple[str, int] | None = None
        self._known: tuple[str, int] | None = None
        super().__init__(**options)

    def _connect(self) -> Any:
        self._known = self._sentinels.master
        self.host, self.port = self._sentinels.find_master()
        return super()._connect()

    def before_use(self) -> None:
        role = self.ask("ROLE")[0]
        if role not in (b"master", "master"):
            raise Refusing(f"{self.host}:{self.port} is named as the master, but it is still a replica")
        super().before_use()
        self._sentinels.settle((self.host, self.port), self._known)
        self._settled = (self.host, self.port)

    def send_packed_command(self, command: Any, check_health: bool = True) -> None:
        if self._settled is not None and self._settled != self._sentinels.master:
            # Raises, because code that watches the socket must notice that it is another one now.
            self.disconnect()
            raise Refusing("the sentinels name another master now")
        super().send_packed_command(command, check_health)

    def disconnect(self, *arguments: Any, **options: Any) -> None:
        self._settled = None
        super().disconnect(*arguments, **options)


class _Plain(_Guarded, Connection):
    pass


class _Tls(_Guarded, SSLConnection):
    pass


class _Socket(_Guarded, UnixDomainSocketConnection):
    pass


class _SentinelPlain(_ThroughSentinels, Connection):
    pass


class _SentinelTls(_ThroughSentinels, SSLConnection):
    pass


_KINDS = {
    Connection: _Plain,
    SSLConnection: _Tls,
    UnixDomainSocketConnection: _Socket,
}


_SENTINEL_KINDS = {Connection: _SentinelPlain, SSLConnection: _SentinelTls}


class Sentinels:
    """The sentinels of one service.

    A sentinel that was cut off from the others still names a master that they have replaced. So all are asked, and the
    latest decision wins. One that does not answer is skipped for a while, as long as another does.

    A replaced master that was only cut off, or replaced by hand, still answers its connected clients for seconds. So a
    thread for each sentinel reads its events: from the moment in which a replica is being promoted nothing is sent to
    the old master, and connections switch when the sentinels name the new one. The sentinels are also polled, for
    events published while a thread was not connected: by each new connection, and every second.
    """

    def __init__(self, service: str, clients: Sequence[Redis]) -> None:
        self.service = service
        self.master: tuple[str, int] | None = None
        self._decision = -1
        self._changing = threading.Lock()
        self._silent_since = dict.fromkeys(clients, -_SENTINEL_REST)
        self._replacing: tuple[tuple[str, int], float] | None = None
        self._watchers: dict[int, threading.Thread] = {}
        """Keyed by process: a forked child has this object and none of its parent's threads."""

    def find_master(self) -> tuple[str, int]:
        """Returns the address of the master. Raises ConnectionError when no sentinel knows it in time."""
        watcher = threading.Thread(target=self._watch, name=f"sentinels of {self.service}", daemon=True)
        if self._watchers.setdefault(os.getpid(), watcher) is watcher:
            self._changing = threading.Lock()  # a thread of the parent may have held it at the fork
            watcher.start()
            for client in self._silent_since:
                threading.Thread(target=self._listen, args=(client,), name="sentinel's events", daemon=True).start()
        _, host, port = self._latest()
        return host, port

    def settle(self, found: tuple[str, int], known: tuple[str, int] | None) -> None:
        """Makes the master of a new connection the current one.

        `known` is the master at the moment when the connection began to look for it. Raises Refusing when the sentinels
        have named another one since, or are replacing it: a slow connection would bring the old master back.
        """
        with self._changing:
            if self.is_replacing(*found) or self.master not in (known, found):
                raise Refusing(f"the sentinels are replacing the master, {found[0]}:{found[1]}")
            self.master = found

    def is_replacing(self, host: str, port: int) -> bool:
        """Returns whether a replica is being promoted in place of this master, and is not yet named as the master."""
        replacing = self._replacing
        return replacing is not None and replacing[0] == (host, port) and time.monotonic() < replacing[1]

    def _listen(self, client: Redis) -> None:
        """Reads the events of one sentinel for the lifetime of this process."""
        while True:
            with suppress(RedisError, OSError), client.pubsub() as events:
                events.subscribe(_REPLACED, _REPLACING)
                while True:
                    event = events.get_message(timeout=_LISTENS)
                    if event and event["type"] == "subscribe":
                        self._ask(client)
                    elif event:
                        self.on_event(event["channel"].decode(), event["data"].decode())
            time.sleep(_LISTENS_AGAIN)

    def on_event(self, event: str, said: str) -> None:
        """Handles `NAME OLD-HOST OLD-PORT HOST PORT`, or `slave REPLICA HOST PORT @ NAME OLD-HOST OLD-PORT`."""
        words = said.rpartition("@ ")[2].split()
        if words[:1] != [self.service] or len(words) != (5 if event == _REPLACED else 3):
            return
        if event == _REPLACING:
            self._leave((words[1], int(words[2])))
            return
        with self._changing:
            self.master, self._replacing = (words[3], int(words[4])), None

    def _leave(self, old: tuple[str, int]) -> None:
        """Stops sending to a master that is being replaced; does nothing once there is a new one."""
        with self._changing:
            if self.master in (None, old):
                self._replacing = old, time.monotonic() + _REPLACING_TAKES
                self.master = None

    def _watch(self) -> None:
        while True:
            time.sleep(_SENTINEL_INTERVAL)
            try:
                decision, host, port = self._latest()
            except RedisError:
                continue
            if decision > self._decision >= 0:
                with self._changing:
                    self.master = (host, port)
            self._decision = max(decision, self._decision)

    def _latest(self) -> tuple[int, str, int]:
        answers: list[tuple[int, str, int]] = []
        troubles: list[str] = []
        for client, since in sorted(self._silent_since.items(), key=lambda item: item[1]):
            if answers and time.monotonic() - since < _SENTINEL_REST:
                continue
            try:
                answers.append(self._ask(client))
            except RedisError as error:
                troubles.append(str(error))
                self._silent_since[client] = time.monotonic()
        if not answers:
            raise ConnectionError(f"no sentinel knows the master: {'; '.join(troubles)}")
        return max(answers)

    def _ask(self, client: Redis) -> tuple[int, str, int]:
        """Returns the number of its latest decision and the master; leaves a master that is being replaced."""
        with client.pipeline(transaction=False) as pipeline:
            pipeline.execute_command("SENTINEL", "MASTER", self.service)
            pipeline.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
            about, (host, port) = pipeline.execute()
        said = dict(zip(about[::2], about[1::2], strict=True))
        address = host.decode(), int(port)
        if said.get(b"failover-state") == b"wait_promotion":
            self._leave(address)
        return int(said[b"config-epoch"]), *address


def make_pool(
    url: str, *, timeout: float, retry: Retry, name: str | None, check_format: bool, max_connections: int = 0
) -> ConnectionPool:
    """Returns a pool of our connections to an address. Raises ValueError for an invalid address."""
    address = read_address(url)
    options = parse_url(address.url)
    kind = options.pop("connection_class", Connection)
    common = {
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "retry": retry,
        "client_name": name,
        "protocol": 2,
        "driver_info": None,  # CLIENT SETINFO: Redis 7.0 lacks this right, and refuses an ACL file that names it
        "check_format": check_format,
    }
    if kind is not UnixDomainSocketConnection:
        common["socket_keepalive"] = True
    kinds: Mapping[type, type[_Guarded]] = _SENTINEL_KINDS if address.sentinels or address.nodes else _KINDS
    common["connection_class"] = kinds[kind]
    if address.sentinels:
        options |= {"host": "", "sentinels": _sentinels(address)}
    elif address.nodes:
        options |= {"host": "", "sentinels": _slot_of(address)}
    if max_connections:
        return BlockingConnectionPool(max_connections, timeout, **{**common, **options})
    return ConnectionPool(**{**common, **options})


@cache
def _slot_of(address: Address) -> ClusterSlot:
    """Returns the finder of the master of a slot, shared by all clients of a process."""
    options = parse_url(address.url)
    wanted = {name: value for name, value in options.items() if name.startswith(("ssl_", "username", "password"))}
    return ClusterSlot(_nodes_of(address.nodes, address.by_tls, tuple(sorted(wanted.items()))), address.key_prefix)


@cache
def _nodes_of(nodes: tuple[tuple[str, int], ...], by_tls: bool, options: tuple[tuple[str, Any], ...]) -> ClusterNodes:
    """Returns the nodes of a cluster, shared by the clients of all its slots."""
    return ClusterNodes(nodes, {"connection_class": SSLConnection if by_tls else Connection, **dict(options)})


@cache
def _sentinels(address: Address) -> Sentinels:
    """Returns the sentinels of an address, shared by all clients of a process."""
    tls = {name: value for name, value in parse_url(address.url).items() if name.startswith("ssl_")}
    pools = (
        ConnectionPool(
            connection_class=SSLConnection if address.by_tls else Connection,
            host=host,
            port=port,
            username=address.sentinel_username,
            password=address.sentinel_password,
            socket_timeout=_SENTINEL_PATIENCE,
            socket_connect_timeout=_SENTINEL_PATIENCE,
            socket_keepalive=True,
            protocol=2,
            **tls,
        )
        for host, port in address.sentinels
    )
    return Sentinels(address.service, [Redis(connection_pool=pool) for pool in pools])
