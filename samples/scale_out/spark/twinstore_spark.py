"""An engine: with ``--engine spark://host:7077`` executors of Spark lend their processes.

Executors need twinstore and the settings of both stores. Without an address, spark-defaults.conf says where.
"""

from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession


class Spark:
    """Each slice ("claim ranges for 20 s") is a job of one task, which Spark may run twice."""

    def __init__(self, address, options):
        builder = SparkSession.builder.appName("twinstore")
        session = builder.master(f"spark://{address}") if address else builder
        self.context = session.getOrCreate().sparkContext
        self.jobs = ThreadPoolExecutor(1024)

    def slots(self):
        return self.context.defaultParallelism

    def submit(self, function, /, *arguments):
        return self.jobs.submit(self.run, function, arguments)

    def run(self, function, arguments):
        def attempt(_):
            try:
                return [(function(*arguments), None)]
            except Exception as error:  # noqa: BLE001  # Spark would return its text only, and try again
                return [(None, error)]

        ((result, error),) = self.context.parallelize([0], 1).mapPartitions(attempt).collect()
        if error:
            raise error
        return result

    def close(self):
        self.context.cancelAllJobs()
        self.jobs.shutdown()
        self.context.stop()
