// The style sheet and the script of report.html.
#pragma once

#include <string_view>

namespace lockstep {

inline constexpr std::string_view kPageStyle = R"css(
:root{--ink:#1d2733;--soft:#5d6b7a;--line:#dfe5ec;--card:#fff;--page:#f5f7fa;--accent:#2563b8;
--data_wait:#f0b429;--forward:#7fb2ee;--backward:#2f6fc0;--exposed_transfer:#e4572e;--arrival_wait:#a45bb5;--optimizer:#3aa58b;--other:#a9b3be;--blocked:#d4dae1;--transfer:#ef8354}
@media (prefers-color-scheme:dark){:root{--ink:#e4eaf1;--soft:#9aa8b7;--line:#313b47;--card:#1b222b;--page:#12171d;--accent:#7fb2ee;--blocked:#39434f}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
main{max-width:1080px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:24px;margin:0}h2{font-size:17px;margin:0 0 4px}
.sub{color:var(--soft);margin:2px 0 18px}
.headline{border-left:5px solid var(--accent);background:var(--card);padding:14px 18px;font-size:17px;border-radius:6px;margin-bottom:16px}
.alert{border-left-color:var(--exposed_transfer);font-size:15px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(160px,1fr));gap:12px;margin-bottom:16px}
.tile,section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px}
.tile b{display:block;white-space:nowrap;font-size:23px;font-weight:650;line-height:1.25}.tile span{color:var(--soft);font-size:13px}
section{margin-bottom:16px;overflow-x:auto}
section>p{color:var(--soft);margin:0 0 8px;font-size:13.5px;max-width:86ch}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:10px}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:4px 7px;border-bottom:1px solid var(--line);white-space:nowrap}
th{white-space:normal;vertical-align:bottom;color:var(--soft);font-weight:600;cursor:pointer}
td.text,th.text{text-align:left;white-space:normal}
.key{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:13px;color:var(--soft);margin:2px 0 4px}
.key i{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:6px;vertical-align:-1px}
svg{width:100%;height:auto;display:block}
svg text{fill:var(--soft);font-size:11.5px}.mid{text-anchor:middle}.end{text-anchor:end}
.grid{stroke:var(--line);stroke-width:1}
.p-data_wait{fill:var(--data_wait);background:var(--data_wait)}.p-forward{fill:var(--forward);background:var(--forward)}
.p-backward{fill:var(--backward);background:var(--backward)}.p-exposed_transfer{fill:var(--exposed_transfer);background:var(--exposed_transfer)}
.p-arrival_wait{fill:var(--arrival_wait);background:var(--arrival_wait)}.p-optimizer{fill:var(--optimizer);background:var(--optimizer)}
.p-other{fill:var(--other);background:var(--other)}.blocked{fill:var(--blocked);background:var(--blocked)}
.transfer{fill:var(--transfer);background:var(--transfer)}.queued{fill:var(--data_wait);fill-opacity:.45;background:var(--data_wait)}
.shade{fill:var(--backward);fill-opacity:.1}.mark{stroke:var(--ink);stroke-width:1.6}
.line,.line-a,.line-b{fill:none;stroke-width:1.8;stroke-linejoin:round}
.line,.line-a{stroke:var(--accent);background:var(--accent)}.line-b{stroke:var(--exposed_transfer);background:var(--exposed_transfer)}
.dot{stroke-width:5}.band{fill:var(--accent);fill-opacity:.22}
.note{color:var(--soft);font-size:13px;margin:6px 0}
dl{display:grid;grid-template-columns:max-content 1fr;gap:2px 18px;margin:0;font-size:13.5px}dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
)css";

// Click on a column's head sorts the table by it. No "less than" and no "and" signs: the page stays well-formed as XML.
inline constexpr std::string_view kPageScript = R"js(
document.querySelectorAll("table").forEach(function(table){
  var body=table.tBodies[0];
  Array.prototype.forEach.call(table.tHead.rows[0].cells,function(head,column){
    var sign=1;
    head.addEventListener("click",function(){
      var rows=Array.prototype.slice.call(body.rows);
      rows.sort(function(a,b){
        var x=a.cells[column].textContent,y=b.cells[column].textContent,n=parseFloat(x)-parseFloat(y);
        return sign*(isNaN(n)?x.localeCompare(y):n);
      });
      sign=-sign;
      rows.forEach(function(row){body.appendChild(row);});
    });
  });
});
)js";

}  // namespace lockstep
