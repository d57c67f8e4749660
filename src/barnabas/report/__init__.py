"""Renders the tables of the pipelines as one page with charts.

It reads the Parquet files with Arrow and needs neither Spark nor Java, so the page can be rendered on a laptop from
copied tables. The command is ``barnabas report``; the function is `barnabas.report.page.make_report`.
"""
