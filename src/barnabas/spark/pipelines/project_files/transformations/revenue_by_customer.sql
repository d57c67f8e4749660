-- An example of a table in SQL: it reads a table that a Python file defines.
CREATE MATERIALIZED VIEW revenue_by_customer AS
SELECT customer, count(*) AS orders, sum(total) AS revenue, max(timestamp) AS last_order
FROM orders
GROUP BY customer;
