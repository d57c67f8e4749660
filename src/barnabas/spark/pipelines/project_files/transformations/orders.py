"""An example: a topic of your own, with expectations. Change it, or copy it for the next topic.

Send it something, run the project again, and look at ``orders``, ``revenue_by_customer`` and ``dead_letters``:

    echo '{"id": 1, "customer": "anna", "total": 12.5}' | barnabas produce orders
    echo '{"id": 2, "customer": "berta", "total": -1}' | barnabas produce orders
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from barnabas.spark.pipelines.declared import expect, read_topics, usable, with_json

spark = SparkSession.active()


@dp.table
def order_records() -> DataFrame:
    """All records, each once; ``problem`` says why a record cannot be used."""
    records = read_topics(spark, "order_records", "orders")
    parsed = with_json(records, "id bigint, customer string, total double")
    return expect(
        parsed,
        {
            "id is missing": "record.id is not null",
            "customer is missing": "record.customer is not null",
            "total is negative": "record.total >= 0",
        },
    )


@dp.materialized_view
def orders() -> DataFrame:
    return usable(spark.read.table("order_records")).select("timestamp", "record.*")
