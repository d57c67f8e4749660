"""``barnabas report``: renders the tables of the pipelines as one page with charts.

barnabas report --out tables
barnabas report --out tables --html monday.html --png charts --open
barnabas report --out tables --json > monday.json
barnabas report --out tables --compare monday.json
barnabas report --out tables --bootstrap-server kafka:9092
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.cli.admin import administered
from barnabas.cli.arguments import add_command
from barnabas.cli.cluster import Cluster, add_cluster
from barnabas.cli.console import CommandError, UsageError, reason, say, shown

if TYPE_CHECKING:
    from barnabas.cli.arguments import Commands

DESCRIPTION: Final = """Renders the tables that barnabas pipeline has written as one page: traffic, latency, quotas,
noisy neighbours, advice, clients. The page is self-contained: it needs no server and no network. The command does not
need Spark, only an extra: pip install 'barnabas[report]'.

  barnabas report --out tables --html monday.html
  barnabas report --out tables --png charts
  barnabas report --out tables --group 'finance=billing*,invoices' --group 'web=shop-*'
  barnabas report --out tables --json > monday.json
  barnabas report --out tables --compare monday.json
  barnabas report --out tables --bootstrap-server kafka:9092

If a cluster is named, the page also shows what its topics hold and which groups lag."""
DEFAULT_OUT: Final = "barnabas-tables"
DEFAULT_HTML: Final = Path("barnabas-report.html")


def add_report(commands: Commands) -> None:
    parser = add_command(commands, "report", report_command, "render the tables as a page with charts", DESCRIPTION)
    parser.add_argument(
        "--out", default=DEFAULT_OUT, metavar="DIR", help=f"the directory of the tables; default: {DEFAULT_OUT}"
    )
    parser.add_argument(
        "--html",
        type=Path,
        metavar="FILE",
        help=f"the page to write; default: {DEFAULT_HTML}, unless --png is given",
    )
    parser.add_argument("--png", type=Path, metavar="DIR", help="write each chart as an image to this directory")
    parser.add_argument(
        "--by",
        choices=("user", "client-id", "user,client-id"),
        default="client-id",
        help="what identifies a tenant; default: client-id",
    )
    parser.add_argument(
        "--group",
        dest="groups",
        action="append",
        default=[],
        metavar="NAME=PATTERN,...",
        help="show the tenants that match a pattern as one, such as finance=billing*,invoices; may be repeated",
    )
    parser.add_argument(
        "--compare", type=Path, metavar="FILE", help="show what has changed since the report with this JSON (--json)"
    )
    add_cluster(parser)
    parser.add_argument("--title", default="Barnabas report", metavar="TEXT", help="the heading of the page")
    parser.add_argument("--open", dest="opens", action="store_true", help="open the page in the browser")
    parser.add_argument(
        "--json", dest="as_json", action="store_true", help="print the numbers; no page unless --html or --png is given"
    )


def report_command(
    out: str,
    html: Path | None,
    png: Path | None,
    by: str,
    groups: list[str],
    compare: Path | None,
    title: str,
    opens: bool,
    as_json: bool,
    cluster: Cluster,
) -> None:
    """Renders the report."""
    from barnabas.cli.output import print_json, print_rich
    from barnabas.spark.pipelines.quota_proposal import Tenancy

    if html is None and ((png is None and not as_json) or opens):
        html = DEFAULT_HTML
    from barnabas.report.cluster_state import read_cluster
    from barnabas.report.page import make_report
    from barnabas.report.table_reader import ReportError
    from barnabas.report.tenancy import parse_groups
    from barnabas.report.terminal import conclusion_lines, summary_table

    try:
        combined = parse_groups(groups)
    except ValueError as error:
        raise UsageError(str(error)) from None
    state = None
    if not cluster.is_default:
        with administered(cluster) as admin:
            state = read_cluster(admin)
    try:
        report = make_report(out, title, Tenancy(by), combined, compare, state)
        if html is not None:
            report.write_html(html)
        pictures = report.write_pngs(png) if png is not None else []
    except (ReportError, ImportError) as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"the report cannot be written: {reason(error)}") from None
    if as_json:
        print_json(report.summary)
    else:
        print_rich(summary_table(report.summary))
        say(shown("\n".join(conclusion_lines(report.conclusions))) + "\n", sys.stdout)
        if html is not None:
            say(f"The report: {html.resolve().as_uri()}\n", sys.stdout)
        if png is not None:
            say(f"Charts: {len(pictures)} in {png}\n", sys.stdout)
    if opens and html is not None:
        import webbrowser

        webbrowser.open(html.resolve().as_uri())
