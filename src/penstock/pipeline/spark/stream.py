"""A stream of Spark that is planned in the driver's own Python; no process is started for it.

Spark starts a Python process for each Python stream source, to ask it for offsets: 50 MB each, and many
questions a second while nothing comes. Here the driver implements Spark's interfaces for streams itself (Py4J
calls back into this process), so that planning may wait until there is something to plan, knows everything
that the driver knows, and fails with its own exceptions. Tasks run as those of any Python data source: by
Spark's own partitions and readers, on every cluster.
"""

from __future__ import annotations

import json
import logging
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Offset", "OffsetPlanner", "planned_stream"]

Offset = dict[str, dict[str, int]]
"""A position as Spark keeps it in the checkpoint: `{topic: {partition: offset}}`."""

_STREAMING: Final = "org.apache.spark.sql.connector.read.streaming"


class OffsetPlanner(Protocol):
    """What a stream is planned by. Spark calls it from threads of its own, one call at a time."""

    @property
    def limit(self) -> int:
        """Rows of a batch at most, as Spark's admission control counts them."""

    def start(self) -> Offset:
        """Give where a new query begins."""

    def plan(self, start: Offset) -> Offset:
        """Give where the next batch ends; `start` if there is nothing. It may wait for something to come."""

    def end(self) -> Offset | None:
        """Give the end of what there is, as far as it is known without asking."""

    def freeze(self) -> None:
        """Take what there is now for all there will be."""

    def shares(self, start: Offset, end: Offset) -> Sequence[object]:
        """Divide a batch into tasks; each share is pickled and given to its task."""

    def close(self) -> None:
        """Release what it holds; nothing is asked after that."""


class _JavaObject:
    """What every object that Java sees must answer, and how it reaches Java itself."""

    def __init__(self, name: str, spark: SparkSession) -> None:
        self._name = name
        self._jvm: Any = spark.sparkContext._jvm
        self._gateway: Any = spark.sparkContext._gateway

    def hashCode(self) -> int:
        return id(self) & 0x7FFFFFFF

    def equals(self, other: object) -> bool:
        return other is self

    def toString(self) -> str:
        return self._name


class _Stream(_JavaObject):
    """Spark's MicroBatchStream."""

    def __init__(self, name: str, spark: SparkSession, planner: OffsetPlanner, factory: Any) -> None:
        super().__init__(name, spark)
        self._planner = planner
        self._factory = factory
        self._context: Any = spark.sparkContext
        # Py4J asks Java for each part of a name, each time: what every batch needs is looked up once.
        python = self._jvm.org.apache.spark.sql.execution.datasources.v2.python
        self._new_offset = python.PythonStreamingSourceOffset
        self._new_partition = python.PythonStreamingInputPartition
        self._partition = self._jvm.org.apache.spark.sql.connector.read.InputPartition
        self._none = self._jvm.scala.Option.empty()
        self._planned: tuple[str, str, Any] | None = None
        """The batch that was planned last, and its tasks: Spark asks twice."""

    def initialOffset(self) -> Any:
        return self._offset(self._planner.start())

    def deserializeOffset(self, text: str) -> Any:
        return self._new_offset(text)

    def getDefaultReadLimit(self) -> Any:
        return getattr(self._jvm, f"{_STREAMING}.ReadLimit").maxRows(self._planner.limit)

    def latestOffset(self, start: Any = None, limit: Any = None) -> Any:
        return self._offset(self._planner.plan(json.loads(start.json())))

    def reportLatestOffset(self) -> Any:
        end = self._planner.end()
        return None if end is None else self._offset(end)

    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.freeze()

    def planInputPartitions(self, start: Any, end: Any) -> Any:
        begin, until = start.json(), end.json()
        if self._planned is None or self._planned[:2] != (begin, until):
            self._planned = (begin, until, self._partitions(json.loads(begin), json.loads(until)))
        return self._planned[2]

    def _partitions(self, start: Offset, end: Offset) -> Any:
        from pyspark.serializers import CPickleSerializer

        shares, rows = self._planner.shares(start, end), _rows(start, end)
        # Py4J lets this run in the thread of the query, whose jobs and stages come next: they are named here.
        text = f"{self._name}: {rows} offsets in {len(shares)} tasks"
        self._context.setLocalProperty("spark.job.description", text)
        self._context.setLocalProperty("callSite.short", self._name)
        found = self._gateway.new_array(self._partition, len(shares))
        pickled: Callable[[object], bytes] = CPickleSerializer().dumps
        for number, share in enumerate(shares):
            found[number] = self._new_partition(number, pickled(share), self._none)
        return found

    def createReaderFactory(self) -> Any:
        return self._factory

    def commit(self, end: Any) -> None:
        """Spark has noted a batch as written; progress is kept with the output, so nothing is to be done."""

    def stop(self) -> None:
        self._planner.close()

    def _offset(self, offset: Offset) -> Any:
        return self._new_offset(json.dumps(offset))

    class Java:
        implements: Final = [f"{_STREAMING}.MicroBatchStream", f"{_STREAMING}.SupportsTriggerAvailableNow"]


def _rows(start: Offset, end: Offset) -> int:
    """Count the offsets between two positions."""
    return sum(
        max(0, last - start.get(topic, {}).get(part, 0))
        for topic, ends in end.items()
        for part, last in ends.items()
    )


class _Table(_JavaObject):
    """Spark's Table, its ScanBuilder and its Scan at once: there is one way to read it."""

    def __init__(self, name: str, spark: SparkSession, schema: Any, stream: _Stream) -> None:
        super().__init__(name, spark)
        self._schema = schema
        self._stream = stream
        modes = getattr(self._jvm, "org.apache.spark.sql.connector.read.Scan$ColumnarSupportMode")
        self._mode = modes.PARTITION_DEFINED
        self._no_metrics = self._none_of("metric.CustomMetric")
        self._no_task_metrics = self._none_of("metric.CustomTaskMetric")

    def name(self) -> str:
        return self._name

    def id(self) -> None:
        return None

    def version(self) -> None:
        return None

    def schema(self) -> Any:
        return self._schema

    def columns(self) -> Any:
        utilities = self._jvm.org.apache.spark.sql.connector.catalog.CatalogV2Util
        return utilities.structTypeToV2Columns(self._schema)

    def partitioning(self) -> Any:
        return self._none_of("expressions.Transform")

    def properties(self) -> Any:
        return self._jvm.java.util.HashMap()

    def capabilities(self) -> Any:
        found = self._jvm.java.util.HashSet()
        found.add(self._jvm.org.apache.spark.sql.connector.catalog.TableCapability.MICRO_BATCH_READ)
        return found

    def newScanBuilder(self, options: Any) -> _Table:
        return self

    def build(self) -> _Table:
        return self

    def readSchema(self) -> Any:
        return self._schema

    def description(self) -> str:
        return self._name

    def toMicroBatchStream(self, checkpoint: str) -> _Stream:
        return self._stream

    def supportedCustomMetrics(self) -> Any:
        return self._no_metrics

    def reportDriverMetrics(self) -> Any:
        return self._no_task_metrics

    def columnarSupportMode(self) -> Any:
        return self._mode

    def _none_of(self, kind: str) -> Any:
        return self._gateway.new_array(getattr(self._jvm, f"org.apache.spark.sql.connector.{kind}"), 0)

    class Java:
        implements: Final = [
            "org.apache.spark.sql.connector.catalog.SupportsRead",
            "org.apache.spark.sql.connector.read.ScanBuilder",
            "org.apache.spark.sql.connector.read.Scan",
        ]


def planned_stream(
    spark: SparkSession,
    name: str,
    ddl: str,
    planner: OffsetPlanner,
    read: Callable[[Any], Iterator[pa.RecordBatch]],
) -> DataFrame:
    """Give the rows of a stream with the columns `ddl`: in the tasks, `read` makes batches of a share.

    Spark's internal classes are used as version 4.2 has them.
    """
    from pyspark.java_gateway import ensure_callback_server_started
    from pyspark.serializers import CPickleSerializer
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType
    from pyspark.sql.udf import _wrap_function

    context = spark.sparkContext
    jvm: Any = context._jvm
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
    _quiet_callbacks()
    columns: Any = StructType.fromDDL(ddl)
    schema = spark._jsparkSession.parseDataType(columns.json())
    none = jvm.scala.Option.empty()
    python = jvm.org.apache.spark.sql.execution.datasources.v2.python
    source = python.UserDefinedPythonDataSource(_wrap_function(context, _Stream))
    pickled: Callable[[object], bytes] = CPickleSerializer().dumps
    command = pickled((_task(read), columns))
    factory = python.PythonStreamingPartitionReaderFactory(source, command, schema, none, none)
    table = _Table(name, spark, schema, _Stream(name, spark, planner, factory))
    relation = jvm.org.apache.spark.sql.catalyst.streaming.StreamingRelationV2(
        none,
        name,
        table,
        jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap.empty(),
        jvm.org.apache.spark.sql.catalyst.types.DataTypeUtils.toAttributes(schema),
        none,
        none,
        none,
        getattr(getattr(jvm, "org.apache.spark.sql.catalyst.streaming.Unassigned$"), "MODULE$"),
    )
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, relation), spark)


def _task(
    read: Callable[[Any], Iterator[pa.RecordBatch]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function that a task calls with its share, one cell with pickled bytes.

    `read` travels pickled inside of it: to unpickle it imports libraries, which another platform lacks.
    """
    from pyspark.serializers import CPickleSerializer

    pickled: Callable[[object], bytes] = CPickleSerializer().dumps
    packed, platform = pickled(read), sysconfig.get_platform()

    def data_source_read_func(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark.serializers import CPickleSerializer

        if (here := sysconfig.get_platform()) != platform:
            raise RuntimeError(f"a worker of Spark runs on {here}, the driver on {platform}")
        unpickled: Callable[[bytes], Any] = CPickleSerializer().loads
        read = unpickled(packed)
        for batch in batches:
            share = unpickled(batch.column(0)[0].as_py())
            yield from read(share)

    return data_source_read_func


def _quiet_callbacks() -> None:
    """Keep Py4J from printing the traceback of what a planner raises: the query fails with it."""
    logger = logging.getLogger("py4j")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)
