"""The file ``quorum-state``: the persistent election state of a voter.

A voter that voted for one candidate, restarted, and voted for another in the same epoch could help to elect two leaders
at once. So its vote, and every epoch that it has seen, is on disk before any other node learns of it: the file is
written first, and acted upon afterwards.

The file is one line of JSON, in a format that depends on the level of ``kraft.version``. The first example has static
voters, the second has voters in the log (the first is broken into two lines here):

.. code-block:: json

    {"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,
     "currentVoters":[{"voterId":1}],"data_version":0}

    {"leaderId":-1,"leaderEpoch":2,"votedId":1,"votedDirectoryId":"J8aAPcfLQt2bqs1JT_rMgQ","data_version":1}

``leaderId`` is -1 while no leader is known, ``votedId`` if there was no vote, or once the winner is known.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from barnabas.common.errors import BarnabasError, KafkaStorageError
from barnabas.common.exceptions import ProtocolError
from barnabas.common.numerals import shortened
from barnabas.log.dirs.durable_file import replace_file, sync_directory
from barnabas.log.storage_errors import disk_access
from barnabas.protocol.internal.raft import QuorumStateData
from barnabas.protocol.json_form import from_json, to_json
from barnabas.raft.quorum_state import ElectionState

QUORUM_STATE_FILE: Final = "quorum-state"

_DATA_VERSION: Final = "data_version"


class QuorumStateFileError(KafkaStorageError):
    """The ``quorum-state`` file is damaged. It is not replaced by a default: a vote could be lost."""


def quorum_state_version(kraft_version: int) -> int:
    """Returns the file format for a level of ``kraft.version``."""
    if kraft_version not in QuorumStateData.versions:
        raise BarnabasError(f"unknown kraft.version {kraft_version}: expected {QuorumStateData.versions}")
    return kraft_version


class FileQuorumStateStore:
    """Reads and replaces the file. Only one thread may use it: Raft's own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def in_directory(cls, log_dir: Path) -> FileQuorumStateStore:
        """Returns the store for the directory of the metadata log."""
        return cls(log_dir / QUORUM_STATE_FILE)

    def read(self) -> ElectionState | None:
        """Reads the state; None if there is no file, because the node never took part in an election.

        `QuorumStateFileError` if the file is damaged.
        """
        with disk_access("read", self.path):
            try:
                data = self.path.read_bytes()
            except FileNotFoundError:
                return None
        return ElectionState.from_data(self._decode(data))

    def write(self, state: ElectionState, kraft_version: int) -> None:
        """Replaces the file atomically; returns when the state is on disk."""
        version = quorum_state_version(kraft_version)
        contents = {**to_json(state.to_data(version), version), _DATA_VERSION: version}
        with disk_access("write", self.path):
            replace_file(self.path, json.dumps(contents, separators=(",", ":")).encode())

    def clear(self) -> None:
        """Deletes the file, for a directory that moves to another cluster."""
        with disk_access("delete", self.path):
            self.path.unlink(missing_ok=True)
            sync_directory(self.path.parent)

    def _decode(self, data: bytes) -> QuorumStateData:
        try:
            line = data.decode().partition("\n")[0]
        except UnicodeDecodeError as error:
            raise self._damaged(f"it is not text: {error}") from None
        if not line.strip():
            raise self._damaged("it is empty")
        try:
            contents = json.loads(line)
        except ValueError as error:
            raise self._damaged(f"{shortened(line)!r} is not JSON: {error}") from None
        if not isinstance(contents, dict):
            raise self._damaged(f"it contains {shortened(line)!r} instead of an object")
        version = contents.pop(_DATA_VERSION, None)
        if version is None:
            raise self._damaged(f"it has no {_DATA_VERSION}")
        if type(version) is not int or version not in QuorumStateData.versions:
            raise self._damaged(f"its {_DATA_VERSION} is {version!r}; expected {QuorumStateData.versions}")
        try:
            state = from_json(QuorumStateData, contents, version)
        except ProtocolError as error:
            raise self._damaged(str(error)) from None
        if state.leader_epoch < 0:
            raise self._damaged(f"invalid epoch {state.leader_epoch}")
        return state

    def _damaged(self, reason: str) -> QuorumStateFileError:
        return QuorumStateFileError(f"{self.path} is damaged: {reason}")

    def __repr__(self) -> str:
        return f"FileQuorumStateStore({str(self.path)!r})"
