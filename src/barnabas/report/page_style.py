"""The style sheet and the script of the page. Both are embedded, so that the page is self-contained."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root{--font:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;--page:#f6f8fb;--card:#fff;
color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--page:#12161c;--card:#1a2028}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 var(--font)}
header,main{max-width:1080px;margin:0 auto;padding:0 20px}
header{padding-top:28px}
h1{margin:0;font-size:26px}
h2{margin:0 0 4px;font-size:19px}
h3{margin:18px 0 6px;font-size:14px}
p{margin:0 0 10px;color:var(--muted)}
nav{display:flex;flex-wrap:wrap;gap:6px 18px;margin:14px 0 18px}
a{color:var(--s0);text-decoration:none}
a:hover{text-decoration:underline}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:18px 20px;margin:0 0 18px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(115px,1fr));gap:10px;margin:14px 0}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 12px}
.tiles b{display:block;font-size:19px;white-space:nowrap}
.tiles span{color:var(--muted);font-size:12px}
.alarm,.tiles .alarm b{color:var(--alarm)}
figure{margin:12px 0 4px}
figure svg{width:100%;height:auto;display:block}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:4px 9px 4px 0;text-align:left;border-bottom:1px solid var(--line);white-space:nowrap}
th.n,td.n{text-align:right}
th button{all:unset;cursor:pointer;color:var(--muted);font-weight:600}
th button:focus-visible{outline:2px solid var(--s0)}
th[aria-sort=ascending] button::after{content:" \\2191"}
th[aria-sort=descending] button::after{content:" \\2193"}
.few tbody tr:nth-child(n+11){display:none}
.more{margin-top:6px;border:1px solid var(--line);border-radius:6px;background:none;color:var(--s0);
font:13px var(--font);padding:3px 10px;cursor:pointer}
@media print{.few tbody tr:nth-child(n+11){display:table-row}.more{display:none}}
.missing{border-left:3px solid var(--s1);padding-left:12px}
code{font:13px ui-monospace,Menlo,Consolas,monospace;color:var(--ink)}
@media print{section{break-inside:avoid}nav{display:none}}
"""
SCRIPT: Final = """
for(const more of document.querySelectorAll('.more'))more.onclick=()=>{
more.previousElementSibling.firstChild.classList.remove('few');more.remove()};
for(const button of document.querySelectorAll('th button'))button.onclick=()=>{
const th=button.parentNode,row=th.parentNode,body=row.parentNode.parentNode.tBodies[0],place=th.cellIndex;
const down=th.classList.contains('n')?th.ariaSort!=='descending':th.ariaSort==='ascending';
for(const other of row.cells)other.removeAttribute('aria-sort');
th.setAttribute('aria-sort',down?'descending':'ascending');
const key=tr=>{const td=tr.cells[place];return td.dataset.v??td.textContent};
const number=th.classList.contains('n');
[...body.rows].sort((a,b)=>(down?-1:1)*(number?key(a)-key(b):key(a).localeCompare(key(b)))).forEach(tr=>body.append(tr));
};
"""
