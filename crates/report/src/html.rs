//! The building blocks of a self-contained page: no scripts, no fonts, nothing loaded from elsewhere. Such a
//! page can be mailed, archived and printed.

use crate::chart::Chart;

/// A figure and its caption.
pub struct Figure {
    /// Inline SVG.
    pub svg: String,
    /// The text below it; empty for none.
    pub caption: String,
}

impl Figure {
    /// A chart whose plot has the given size.
    pub fn new(chart: &Chart, plot: (f64, f64), caption: impl Into<String>) -> Self {
        // An SVG inside a page needs no name space, and is set in the fonts of the page.
        let svg = chart
            .svg_of(plot)
            .replace(" xmlns=\"http://www.w3.org/2000/svg\"", "")
            .replacen(" font-family=\"sans-serif\"", "", 1)
            .replace(" font-family=\"Hack, sans-serif\"", "");
        Self { svg, caption: caption.into() }
    }

    /// As HTML, alone in its row or one of several.
    pub fn html(&self, alone: bool) -> String {
        let class = if alone { " class=\"one\"" } else { "" };
        let caption = match self.caption.as_str() {
            "" => String::new(),
            caption => format!("<figcaption>{}</figcaption>", escape(caption)),
        };
        format!("<figure{class}>{}{caption}</figure>\n", self.svg)
    }
}

/// Figures side by side, two in a row.
pub fn figures(figures: &[Figure]) -> String {
    rows_of(figures, "charts")
}

/// Small figures side by side, three in a row.
pub fn small_figures(figures: &[Figure]) -> String {
    rows_of(figures, "charts small")
}

fn rows_of(figures: &[Figure], class: &str) -> String {
    let cells: String = figures.iter().map(|figure| figure.html(false)).collect();
    format!("<div class=\"{class}\">\n{cells}</div>\n")
}

/// How a page looks, also one that is served.
pub const STYLE: &str = include_str!("html/style.css");

/// A whole page.
pub fn page(title: &str, body: &str, footer: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n\
         <style>\n{}</style>\n</head>\n<body>\n{body}\
         <footer>Written by dpsgd {}. {}</footer>\n</body>\n</html>\n",
        escape(title),
        STYLE,
        env!("CARGO_PKG_VERSION"),
        escape(footer),
    )
}

/// Text, escaped for HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A paragraph of text.
pub fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escape(text))
}

/// A heading with HTML below it.
pub fn section(title: &str, content: &str) -> String {
    format!("<section>\n<h2>{}</h2>\n{content}</section>\n", escape(title))
}

/// A list of texts.
pub fn list(items: &[String]) -> String {
    let items: String = items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect();
    format!("<ul>\n{items}</ul>\n")
}

/// A [`table`] of many columns.
pub fn wide_table(header: &[String], rows: &[Vec<String>]) -> String {
    format!("<div class=\"wide\">\n{}</div>\n", table(header, rows))
}

/// A table; the first cell of each row is its heading. An empty `header` makes no heading row.
pub fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let mut text = "<table>\n".to_string();
    if !header.is_empty() {
        let cells: String = header.iter().map(|cell| format!("<th>{}</th>", escape(cell))).collect();
        text.push_str(&format!("<thead><tr>{cells}</tr></thead>\n"));
    }
    text.push_str("<tbody>\n");
    for row in rows {
        text.push_str("<tr>");
        for (i, cell) in row.iter().enumerate() {
            let tag = if i == 0 { "th" } else { "td" };
            text.push_str(&format!("<{tag}>{}</{tag}>", escape(cell)));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody>\n</table>\n");
    text
}
