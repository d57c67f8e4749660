"""The tables of the pipelines as one page with charts, for people.

It reads the Parquet files with Arrow and needs no Spark and no Java: who gets the tables from somewhere else can make
the page on a laptop. ``barnabas report`` is the command; `barnabas.report.page.make_report` is the function.
"""
