"""Renders the tables of the pipelines as one page with charts.

It reads the Parquet files with Arrow and needs neither Spark nor Java, so the page can be rendered on a laptop from
copied tables. The command is ``barnabas report``; the function is `barnabas.report.page.make_report`.

===============  =======================================================================
`table_reader`   reads the tables
`traffic`        bytes and throttle times by tenant, and noisy tenants
`latency`        the parts of the time of requests, and percentiles
`quota_use`      usage of quotas, advised limits, dry runs
`clients`        the metrics that clients push
`tenancy`        the names of tenants, and groups of them
`failures`       which failed requests are a reason for alarm
`comparison`     the differences to an earlier report
`conclusions`    what the numbers mean, in sentences, with commands
`sections`       the sections of the page: charts and tables
`charts`         what each chart shows, as the definitions of `chart`
`chart_html`     renders charts for the page, `chart_png` as images
`page`           puts the page together, with the files of `page_assets`
===============  =======================================================================
"""
