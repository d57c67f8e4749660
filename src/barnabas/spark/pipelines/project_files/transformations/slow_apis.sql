-- The APIs of each hour with their mean and longest time, from the records of the request log.
CREATE MATERIALIZED VIEW slow_apis AS
SELECT
  date_trunc('HOUR', timestamp) AS hour,
  request.api AS api,
  count(*) AS requests,
  avg(request.end_time_us - request.start_time_us) / 1000 AS mean_ms,
  max(request.end_time_us - request.start_time_us) / 1000 AS max_ms
FROM request_log
WHERE problem IS NULL
GROUP BY ALL;
