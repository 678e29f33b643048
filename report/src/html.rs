//! The elements of a page: one file that needs no script, font or picture from elsewhere.
//!
//! Texts are HTML already; text from a user goes through [`escaped`] first. The callers decide
//! about the content.

use super::svg::escaped;

const STYLE: &str = include_str!("page.css");
/// On a narrow screen pictures and tables scroll; keys reach those that do.
const SCROLL: &str = "\
for (const part of document.querySelectorAll('figure, table, .wide, .written')) {
  if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
}
";

/// A whole page; `title` is plain text, `body` HTML.
pub fn document(title: &str, body: &str) -> String {
    let title = escaped(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
         <body>\n<main>\n{body}</main>\n<script>\n{SCROLL}</script>\n</body>\n</html>\n"
    )
}

/// A heading, a paragraph, and their content.
pub fn section(title: &str, text: &str, content: &str) -> String {
    format!("<h2>{title}</h2>\n<p>{text}</p>\n{content}")
}

/// A row of a table.
pub fn row(cells: &[String]) -> String {
    format!("<tr>{}</tr>\n", cells.concat())
}

/// The row of a table that names its columns.
pub fn heads<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let cells = names.into_iter().map(|name| format!("<th>{name}</th>"));
    row(&cells.collect::<Vec<_>>())
}

/// A table with these names of columns, `|` between them, and a cell for each text, which is HTML.
pub fn table(names: &str, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows = rows.into_iter().map(|texts| {
        let cells = texts.iter().map(|text| cell(text));
        row(&cells.collect::<Vec<_>>())
    });
    let rows: String = rows.collect();
    format!("<table>\n{}{rows}</table>\n", heads(names.split(" | ")))
}

/// A cell of a table.
pub fn cell(text: &str) -> String {
    format!("<td>{text}</td>")
}

/// A name behind a spot of its colour.
pub fn swatch(colour: &str, name: &str) -> String {
    let name = escaped(name);
    format!("<span class=\"swatch\" style=\"background:{colour}\"></span>{name}")
}

/// A picture below its caption, if it has one.
pub fn figure(caption: &str, picture: &str) -> String {
    let caption = match caption {
        "" => String::new(),
        caption => format!("<figcaption>{caption}</figcaption>"),
    };
    format!("<figure>{caption}{picture}</figure>\n")
}
