//! The page round figures and tables: one file without anything from the network, for light and dark screens, narrow
//! ones, and paper.

use std::fmt::Write;

use super::figure::{COLOURS, Figure, GRID, INK, Series, colour, text};

/// The colours of series on a dark background, in the order of [`COLOURS`].
const DARK: [&str; 8] = [
    "#5B9BEB", "#2FC18D", "#EDB53C", "#3FA63F", "#9A52FF", "#F07372", "#EE97B8", "#F2834F",
];

const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#FCFCFA;--ink:#222220;--soft:#666660;--rule:#DDDCD8;--bad:#B3261E}\
*{box-sizing:border-box}\
body{margin:0 auto;max-width:72rem;padding:1.5rem 1rem 4rem;background:var(--paper);color:var(--ink);\
font:16px/1.5 system-ui,sans-serif;overflow-wrap:break-word}\
h1{font-size:1.7rem;line-height:1.2;margin:0 0 .5rem}h2{font-size:1.25rem;margin:2.5rem 0 .5rem;\
padding-top:1rem;border-top:1px solid var(--rule)}h3{font-size:1.05rem;margin:1.5rem 0 .3rem}\
p{max-width:46rem}.soft{color:var(--soft)}.bad{color:var(--bad)}\
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,34rem),1fr));gap:1rem 1.5rem}\
figure{margin:0;min-width:0;max-width:44rem}figcaption{font-weight:600;margin:.5rem 0 .2rem}\
.drawing{overflow-x:auto}.drawing svg{display:block;width:100%;min-width:34rem;height:auto}\
.drawing text{font-family:system-ui,sans-serif}\
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1rem;padding:0;margin:.2rem 0;font-size:.85rem}\
.legend li{overflow-wrap:anywhere}.legend svg{width:26px;height:12px;margin-right:.35rem;vertical-align:middle}\
.table{overflow-x:auto}table{border-collapse:collapse;font-size:.85rem;font-variant-numeric:tabular-nums}\
th,td{padding:.25rem .6rem .25rem 0;text-align:right;border-bottom:1px solid var(--rule);white-space:nowrap}\
th:first-child,td:first-child,td.long{text-align:left}\
td.long{white-space:normal;min-width:18rem;overflow-wrap:anywhere}th{font-weight:600;vertical-align:bottom;white-space:normal}\
dl{display:grid;grid-template-columns:auto 1fr;gap:.1rem 1rem;font-size:.9rem}dt{color:var(--soft)}\
dd{margin:0;overflow-wrap:anywhere}\
@media print{:root{color-scheme:light;--paper:#FFF}table{font-size:8pt}th,td{padding-right:.5rem;white-space:normal}\
body{max-width:none;padding:0;font-size:10pt}\
.figures{grid-template-columns:1fr 1fr}.drawing svg{min-width:0}.drawing,.table{overflow:visible}\
figure,table,tr{break-inside:avoid}h2,h3,h3+p{break-after:avoid}}";

/// Bytes of a cell beyond which its text is broken into lines.
const LONG: usize = 60;

/// A page that grows from top to bottom.
pub(super) struct Page(String);

/// Text as it stands between tags and in attributes.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

/// Rules that exchange the colours of the figures on a dark screen.
fn dark_colours() -> String {
    let mut rules = String::new();
    let mut rule = |from: &str, to: &str| {
        for what in ["fill", "stroke"] {
            // Writing to a string does not fail.
            let _ = write!(
                rules,
                ".drawing [{what}=\"{from}\"],.legend [{what}=\"{from}\"]{{{what}:{to}}}"
            );
        }
    };
    rule(&text(INK), "#D8D7D2");
    rule(&text(GRID), "#3A3A38");
    for (place, to) in DARK.into_iter().enumerate() {
        rule(&text(colour(place)), to);
    }
    format!(
        "@media screen and (prefers-color-scheme:dark){{:root{{--paper:#1A1A19;--ink:#EAE9E4;--soft:#A3A29C;\
         --rule:#3A3A38;--bad:#F2817A}}{rules}}}"
    )
}

impl Page {
    pub(super) fn new(title: &str) -> Self {
        let title = escaped(title);
        Self(format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{title}</title>\n\
             <style>{STYLE}{}</style>\n<h1>{title}</h1>\n",
            dark_colours()
        ))
    }

    pub(super) fn heading(&mut self, text: &str) {
        self.push(&format!("<h2>{}</h2>\n", escaped(text)));
    }

    pub(super) fn smaller_heading(&mut self, text: &str) {
        self.push(&format!("<h3>{}</h3>\n", escaped(text)));
    }

    pub(super) fn paragraph(&mut self, text: &str) {
        self.push(&format!("<p>{}</p>\n", escaped(text)));
    }

    pub(super) fn warning(&mut self, text: &str) {
        self.push(&format!("<p class=\"bad\">{}</p>\n", escaped(text)));
    }

    pub(super) fn link(&mut self, text: &str, to: &str) {
        let (text, to) = (escaped(text), escaped(to));
        self.push(&format!("<p><a href=\"{to}\">{text}</a></p>\n"));
    }

    /// Names and what they stand for.
    pub(super) fn facts<'a>(&mut self, facts: impl IntoIterator<Item = (&'a String, &'a String)>) {
        self.push("<dl>\n");
        for (name, fact) in facts {
            self.push(&format!(
                "<dt>{}</dt><dd>{}</dd>\n",
                escaped(name),
                escaped(fact)
            ));
        }
        self.push("</dl>\n");
    }

    /// A table with a row of heads, which stand between ` | `. A wide one scrolls, which `tabindex` permits without a
    /// mouse.
    pub(super) fn table(&mut self, head: &str, rows: &[Vec<String>]) {
        self.push("<div class=\"table\" tabindex=\"0\"><table>\n<thead><tr>");
        for cell in head.split(" | ") {
            self.push(&format!("<th scope=\"col\">{}</th>", escaped(cell)));
        }
        // A head of its own, so that it is repeated on each page of paper.
        self.push("</tr></thead>\n");
        for row in rows {
            self.push("<tr>");
            for cell in row {
                let class = if cell.len() > LONG {
                    " class=\"long\""
                } else {
                    ""
                };
                self.push(&format!("<td{class}>{}</td>", escaped(cell)));
            }
            self.push("</tr>\n");
        }
        self.push("</table></div>\n");
    }

    /// Figures beside each other where there is room.
    pub(super) fn figures(&mut self, figures: &[Figure]) -> Result<(), String> {
        self.push("<div class=\"figures\">\n");
        for figure in figures {
            let title = escaped(&figure.title);
            let Some(svg) = figure.svg() else {
                self.push(&format!(
                    "<figure>\n<figcaption>{title}</figcaption>\n\
                     <p class=\"soft\">No value: no step that it needs succeeded.</p>\n</figure>\n"
                ));
                continue;
            };
            let svg = svg?.replacen(
                "<svg ",
                &format!("<svg role=\"img\" aria-label=\"{title}\" "),
                1,
            );
            let legend: String = figure.series.iter().map(legend).collect();
            self.push(&format!(
                "<figure>\n<figcaption>{title}</figcaption>\n<ul class=\"legend\">{legend}</ul>\n\
                 <div class=\"drawing\" tabindex=\"0\">{svg}</div>\n</figure>\n"
            ));
        }
        self.push("</div>\n");
        Ok(())
    }

    /// The whole page.
    pub(super) fn end(self) -> String {
        self.0
    }

    fn push(&mut self, text: &str) {
        self.0.push_str(text);
    }
}

/// One entry of a legend, with the line and the mark of the series.
fn legend(series: &Series) -> String {
    let colour = text(colour(series.colour));
    let line = match (series.scattered, series.dashed) {
        (true, _) => String::new(),
        (false, dashed) => {
            let dash = if dashed {
                " stroke-dasharray=\"7 4\""
            } else {
                ""
            };
            format!(
                "<line x1=\"0\" y1=\"6\" x2=\"26\" y2=\"6\" stroke=\"{colour}\" stroke-width=\"2\"{dash}/>"
            )
        }
    };
    let mark = match series.dashed {
        true => format!("<path d=\"M13 1 L18 10 L8 10 Z\" fill=\"{colour}\"/>"),
        false => format!("<circle cx=\"13\" cy=\"6\" r=\"4\" fill=\"{colour}\"/>"),
    };
    let name = escaped(&series.name);
    format!("<li><svg viewBox=\"0 0 26 12\" aria-hidden=\"true\">{line}{mark}</svg>{name}</li>")
}

const _: () = assert!(COLOURS.len() == DARK.len());

#[cfg(test)]
mod tests {
    use super::{
        super::figure::{FONT, SIZE},
        *,
    };

    #[test]
    fn names_cannot_break_out_of_the_page() {
        let mut page = Page::new("<b>");
        page.table("a", &[vec!["<script>\"&".to_owned()]]);
        let page = page.end();
        assert!(!page.contains("<script>") && page.contains("&lt;script&gt;&quot;&amp;"));
        assert!(page.contains("<title>&lt;b&gt;</title>"));
    }

    #[test]
    fn a_table_has_heads_and_scrolls_by_the_keyboard() {
        let mut page = Page::new("page");
        page.table("a", &[vec!["b".to_owned()]]);
        let page = page.end();
        assert!(page.contains("<div class=\"table\" tabindex=\"0\"><table>"));
        assert!(page.contains("<th scope=\"col\">a</th>"));
    }

    /// The relative luminance of a colour such as `#FCFCFA`, as WCAG 2.2 defines it.
    fn luminance(colour: &str) -> f64 {
        let part = |at: usize| {
            let value = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            match value <= 0.04045 {
                true => value / 12.92,
                false => ((value + 0.055) / 1.055).powf(2.4),
            }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }

    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    /// WCAG 2.2, 1.4.11: what is needed to understand a figure has a contrast of at least 3 to 1.
    #[test]
    fn every_colour_of_a_series_stands_out_from_its_paper() {
        assert!((contrast("#FFFFFF", "#000000") - 21.0).abs() < 1e-9);
        let palettes = [
            (STYLE.to_owned(), COLOURS.map(text)),
            (dark_colours(), DARK.map(str::to_owned)),
        ];
        for (style, colours) in palettes {
            let (_, rest) = style.split_once("--paper:").unwrap();
            for colour in colours {
                let contrast = contrast(&colour, &rest[..7]);
                assert!(contrast >= 3.0, "{colour}: {contrast:.2}");
            }
        }
    }

    #[test]
    fn a_narrow_page_scrolls_a_figure_instead_of_shrinking_its_letters() {
        let (width, letter) = (f64::from(SIZE.0), f64::from(FONT.1));
        // 34 times 16 pixels; a column beside another one is as wide, and needs no scrolling.
        assert!(544.0 / width * letter > 14.0);
        assert!(STYLE.contains("minmax(min(100%,34rem),1fr)"));
        assert!(STYLE.contains(".drawing{overflow-x:auto}"));
        assert!(STYLE.contains("width:100%;min-width:34rem;"));
        assert!(STYLE.contains(".drawing svg{min-width:0}.drawing,.table{overflow:visible}"));
    }

    #[test]
    fn a_long_error_without_a_space_is_broken_into_lines() {
        let mut page = Page::new("page");
        page.table("error", &[vec!["/a".repeat(LONG)]]);
        let page = page.end();
        assert!(page.contains("<td class=\"long\">/a/a"));
        assert!(page.contains("min-width:18rem;overflow-wrap:anywhere}"));
    }
}
