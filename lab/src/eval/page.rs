//! A report as one HTML file with its pictures.

use pulldown_cmark::{Event, Options, Parser, html};

use super::report::EvalReport;
use super::section::{Chart, ChartShape, EvalGoal, Grid, Section, Source};
use gradwire_report::html::{cell, document, figure, heads, row};
use gradwire_report::plot::{self, SERIES};
use gradwire_report::svg::escaped;

/// Width and height of a picture.
const SIZE: (f64, f64) = (1_140.0, 300.0);

/// The whole page.
pub fn page(report: &EvalReport) -> String {
    let mut body = format!(
        "<h1>{}</h1>\n<p>{}</p>\n",
        escaped(report.title),
        escaped(&report.about)
    );
    let all = report
        .sections
        .iter()
        .flat_map(|section| &section.outcome.found.goals);
    let all: Vec<&EvalGoal> = all.collect();
    if !all.is_empty() {
        body += &format!("<h2>Goals</h2>\n{}", goals(&all));
    }
    for section in &report.sections {
        body += &one(section);
    }
    body += &format!("<footer>\n{}\n</footer>\n", escaped(&report.cost.told()));
    document(report.title, &body)
}

fn label(source: Source) -> String {
    let class = match source {
        Source::Simulated => "simulated",
        Source::Trained => "trained",
    };
    format!("<span class=\"{class}\">{}</span>", source.label())
}

fn goals(goals: &[&EvalGoal]) -> String {
    let names = [
        "<th>goal</th>",
        "<th class=\"told\">found</th>",
        "<th></th>",
    ];
    let mut text = row(&names.map(str::to_owned));
    for goal in goals {
        let (state, mark) = (goal.state, goal.state.mark());
        text += &row(&[
            format!("<td class=\"told\">{}</td>", escaped(&goal.what)),
            format!("<td class=\"told\">{}</td>", escaped(&goal.found)),
            format!("<td class=\"{state}\">{mark} {state}</td>"),
        ]);
    }
    format!("<table>\n{text}</table>\n")
}

fn one(section: &Section) -> String {
    let outcome = &section.outcome;
    let found = &outcome.found;
    let mut text = format!(
        "<h2 id=\"{}\">{} {}</h2>\n",
        section.name,
        escaped(section.title),
        label(section.source)
    );
    for paragraph in &found.about {
        text += &format!("<p>{}</p>\n", escaped(paragraph));
    }
    if !found.goals.is_empty() {
        text += &goals(&found.goals.iter().collect::<Vec<_>>());
    }
    for chart in &found.charts {
        text += &picture(chart, section.source);
    }
    for grid in &found.grids {
        text += &table(grid, section.source);
    }
    if let Some(written) = &outcome.written {
        text += &format!("<div class=\"written\">\n{}</div>\n", rendered(written));
    }
    for missing in &outcome.missing {
        text += &format!("<p><b>missing:</b> {}</p>\n", escaped(missing));
    }
    let commands = outcome.commands.iter().map(|line| escaped(line));
    let commands: Vec<String> = commands.collect();
    text + &format!("<div class=\"command\">{}</div>\n", commands.join("<br>\n"))
}

/// Turns Markdown into HTML; HTML within it is shown as text.
fn rendered(written: &str) -> String {
    let plain = |event| match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        event => event,
    };
    let events = Parser::new_ext(written, Options::ENABLE_TABLES).map(plain);
    let mut text = String::new();
    html::push_html(&mut text, events);
    text
}

fn table(grid: &Grid, source: Source) -> String {
    let names: Vec<String> = grid.columns.iter().map(|name| escaped(name)).collect();
    let mut text = heads(names.iter().map(String::as_str));
    for values in &grid.rows {
        let cells = values.iter().map(|value| cell(&escaped(&value.shown())));
        text += &row(&cells.collect::<Vec<_>>());
    }
    let caption = escaped(&grid.caption);
    format!(
        "<h3>{caption} {}</h3>\n<div class=\"wide\"><table>\n{text}</table></div>\n",
        label(source)
    )
}

fn picture(chart: &Chart, source: Source) -> String {
    let picture = match &chart.shape {
        ChartShape::Bars(series, groups) => {
            if groups.is_empty() {
                return String::new();
            }
            plot::bars(SIZE, &chart.axis, series, groups)
        }
        ChartShape::Curves(across, curves) => {
            if curves.iter().all(|(_, points)| points.is_empty()) {
                return String::new();
            }
            let colours = SERIES.iter().cycle();
            let curves: Vec<_> = curves
                .iter()
                .zip(colours)
                .map(|((name, points), colour)| (name.clone(), points.clone(), *colour))
                .collect();
            plot::curves(SIZE, (across, &chart.axis), &curves)
        }
    };
    let caption = format!("{} {}", escaped(&chart.caption), label(source));
    figure(&caption, &picture)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_of_studies_becomes_safe_html() {
        let text = rendered("### mnist\n\n| lost | 10 % |\n|---|---:|\n| <b>all | 0.9 |\n");
        assert!(text.contains("<h3>mnist</h3>"), "{text}");
        assert!(text.contains("<td>&lt;b&gt;all</td>"), "{text}");
    }
}
