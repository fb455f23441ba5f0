//! The common head, style and end of all laboratory pages. A page loads nothing from elsewhere.

/// Returns the start of a page, up to its title.
pub(super) fn page_head(title: &str) -> String {
    let title = escape_html(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>bcnet laboratory: {title}</title>\n<style>\n{STYLE}</style></head><body><main><h1>{title}</h1>\n"
    )
}

/// Returns a section of a page: a text, a plot, and the command that produces the data, if any.
pub(super) fn section(title: &str, text: &str, plot: &str, command: &str) -> String {
    let command = match command {
        "" => String::new(),
        command => format!("<p class=\"small\"><code>{command}</code></p>"),
    };
    format!("<section><h2>{title}</h2><p>{text}</p><figure>{plot}</figure>{command}</section>")
}

/// Escapes text for HTML.
pub(super) fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The end of a page.
pub(super) const PAGE_END: &str = "</main></body></html>\n";

const STYLE: &str = r#":root{color-scheme:light dark;--bg:#fcfcfa;--fg:#1c1e21;--dim:#5f6670;--rule:#dcdedf;--card:#f2f3f1;--stock:#c8501c;--stock-light:#e8a888;
--bcnet:#11795f;--bcnet-light:#86c2b1;--game:#5b7fb5;--head:#a9b4c2;--again:#8e62a8;--acks:#c8501c;--inside:#fff}
@media (prefers-color-scheme:dark){:root{--bg:#15181c;--fg:#e6e8ea;--dim:#9aa3ad;--rule:#333a42;--card:#1e2329;--stock:#f08a55;--stock-light:#8a5236;
--bcnet:#3fbf9b;--bcnet-light:#2a6a58;--game:#7fa3d8;--head:#5c6673;--again:#b48ad0;--acks:#f08a55;--inside:#15181c}}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:900px;margin:0 auto;padding:32px 20px 64px}h1{font-size:30px;line-height:1.2;margin:0 0 12px}h2{font-size:21px;margin:40px 0 8px}
.lead{font-size:18px}.small{color:var(--dim);font-size:13.5px}code{font:13px ui-monospace,Menlo,Consolas,monospace;background:var(--card);padding:1px 5px;border-radius:4px}
figure{margin:14px 0}svg{width:100%;height:auto;display:block}svg text{fill:var(--fg);font-family:inherit}
.tick,.legend{font-size:13px}.axis{font-size:13.5px;fill:var(--dim)!important}.value{font-size:12.5px}.inside{font-size:12px;fill:var(--inside)!important}
.grid{stroke:var(--rule);stroke-width:1}.line{fill:none!important;stroke-width:2.2;stroke-linejoin:round}
rect.stock,circle.stock{fill:var(--stock)}rect.bcnet,circle.bcnet{fill:var(--bcnet)}rect.stock-light{fill:var(--stock-light)}rect.bcnet-light{fill:var(--bcnet-light)}
.line.stock{stroke:var(--stock)}.line.bcnet{stroke:var(--bcnet)}rect.game{fill:var(--game)}rect.head{fill:var(--head)}rect.again{fill:var(--again)}rect.acks{fill:var(--acks)}
.stock-text{color:var(--stock);font-weight:600}.bcnet-text{color:var(--bcnet);font-weight:600}.unit{color:var(--dim);font-size:13px}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(250px,1fr));gap:12px;margin:22px 0}.card{background:var(--card);border-radius:10px;padding:12px 14px}
.label{font-size:13.5px;color:var(--dim);min-height:40px}.pair{font-size:21px}
.scroll{overflow-x:auto}.wide{width:max-content;min-width:100%;max-width:calc(100vw - 40px);position:relative;left:50%;transform:translateX(-50%)}table{border-collapse:collapse;font-size:14px;width:100%}th,td{text-align:left;vertical-align:top;padding:8px 10px;border-bottom:1px solid var(--rule)}
.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}.tag{font-size:12px;padding:2px 8px;border-radius:99px;border:1px solid currentColor}
rect.c0,circle.c0{fill:#c8501c}.line.c0{stroke:#c8501c}rect.c1,circle.c1{fill:#11795f}.line.c1{stroke:#11795f}rect.c2,circle.c2{fill:#5b7fb5}.line.c2{stroke:#5b7fb5}rect.c3,circle.c3{fill:#8e62a8}.line.c3{stroke:#8e62a8}rect.c4,circle.c4{fill:#b58900}.line.c4{stroke:#b58900}rect.c5,circle.c5{fill:#2aa1b3}.line.c5{stroke:#2aa1b3}rect.c6,circle.c6{fill:#d0568a}.line.c6{stroke:#d0568a}rect.c7,circle.c7{fill:#6b8e23}.line.c7{stroke:#6b8e23}rect.c8,circle.c8{fill:#9a6b4f}.line.c8{stroke:#9a6b4f}rect.c9,circle.c9{fill:#555fd0}.line.c9{stroke:#555fd0}rect.c10,circle.c10{fill:#7a7f87}.line.c10{stroke:#7a7f87}rect.c11,circle.c11{fill:#c0392b}.line.c11{stroke:#c0392b}
.lane{stroke:var(--dim);stroke-width:1.5}.hop{stroke-width:1.3}.hop.acks{stroke:var(--acks)}.hop.game{stroke:var(--game)}.hop.lost{stroke:var(--dim)}.line.acks{stroke:var(--acks)}.line.game{stroke:var(--game)}.line.again{stroke:var(--again)}.hop.lost{stroke-dasharray:4 3}.ladder text{font-size:11px}
.holds{color:var(--bcnet)}.refuted{color:var(--stock)}.partly{color:var(--again)}
"#;
