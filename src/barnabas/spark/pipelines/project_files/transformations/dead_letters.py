"""Records that no table could use, with the reason and their bytes.

Add the name of a table here when you add a topic. With ``spark.barnabas.dead.letter.topic`` in ``spark-pipeline.yml``
they also go to a topic.

``dead_letters`` is computed from the tables, and no streaming table with a flow for each of them: Spark numbers the
batches of each flow from 0, and a Parquet table skips a number that it has already seen from another flow.
"""

from functools import reduce

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from barnabas.spark.pipelines import dead_letter, declared

spark = SparkSession.active()
TABLES = ("order_records", "request_log", "client_telemetry", "quota_usage")


@dp.materialized_view
def dead_letters() -> DataFrame:
    return reduce(DataFrame.unionByName, (dead_letter.dead_letters(spark.read.table(table)) for table in TABLES))


def send_to_topic(table: str) -> None:
    @dp.append_flow(target="dead_letter_topic", name=f"{table}_to_topic")
    def records() -> DataFrame:
        return declared.dead_letter_records(spark.readStream.table(table))


topic = declared.dead_letter_topic(spark)
if topic:
    dp.create_sink("dead_letter_topic", "barnabas", declared.sink_options(spark, topic))
    for name in TABLES:
        send_to_topic(name)
