-- An example of a table in SQL: it reads a streaming table that a Python file defines.
CREATE MATERIALIZED VIEW revenue_by_customer AS
SELECT record.customer, count(*) AS orders, sum(record.total) AS revenue, max(timestamp) AS last_order
FROM order_records
WHERE problem IS NULL
GROUP BY record.customer;
