-- The slowest APIs of each hour, from the roll-up of the request log.
CREATE MATERIALIZED VIEW slow_apis AS
SELECT window_start, api, sum(count) AS requests, sum(sum) / sum(weight) AS mean_ms, max(max) AS max_ms
FROM latency_1h
WHERE part = 'total'
GROUP BY window_start, api;
