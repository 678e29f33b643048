//! A report as Markdown.

use super::report::EvalReport;
use super::section::{EvalGoal, Grid, Section};

/// The whole report.
pub fn document(report: &EvalReport) -> String {
    let mut text = format!("# {}\n\n{}\n\n", report.title, report.about);
    text += &goals(&report.sections);
    for section in &report.sections {
        text += &one(section);
    }
    text + &format!("## Cost\n\n{}\n", report.cost.told())
}

fn goals(sections: &[Section]) -> String {
    let all = sections
        .iter()
        .flat_map(|section| &section.outcome.found.goals);
    let lines = all.map(|goal| format!("- {}\n", told(goal)));
    let lines: String = lines.collect();
    match lines.as_str() {
        "" => String::new(),
        lines => format!("## Goals\n\n{lines}\n"),
    }
}

fn told(goal: &EvalGoal) -> String {
    let mark = goal.state.mark();
    let (state, what, found) = (goal.state, &goal.what, &goal.found);
    format!("{mark} {state}: {what}. Found: {found}.")
}

fn one(section: &Section) -> String {
    let (label, outcome) = (section.source.label(), &section.outcome);
    let found = &outcome.found;
    let mut text = format!("## {} ({label})\n\n", section.title);
    for paragraph in &found.about {
        text += &format!("{paragraph}\n\n");
    }
    for goal in &found.goals {
        text += &format!("- {}\n", told(goal));
    }
    if !found.goals.is_empty() {
        text.push('\n');
    }
    for grid in &found.grids {
        text += &format!("**{}** ({label})\n\n{}\n", grid.caption, table(grid));
    }
    if let Some(written) = &outcome.written {
        text += &format!("{}\n\n", written.trim_end());
    }
    for missing in &outcome.missing {
        text += &format!("- missing: {missing}\n");
    }
    if !outcome.missing.is_empty() {
        text.push('\n');
    }
    text + &format!("```sh\n{}\n```\n\n", outcome.commands.join("\n"))
}

fn table(grid: &Grid) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let safe = |text: &str| text.replace('|', "\\|");
    let rules = (0..grid.columns.len()).map(|column| match column {
        0 => "---".to_owned(),
        _ => "---:".to_owned(),
    });
    let mut text = line(grid.columns.iter().map(|name| safe(name)).collect());
    text += &line(rules.collect());
    for row in &grid.rows {
        text += &line(row.iter().map(|value| safe(&value.shown())).collect());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::section::Value;
    use super::*;

    #[test]
    fn markdown_tables_have_names_rules_and_rows() {
        let grid = Grid {
            caption: String::new(),
            columns: vec!["a|b".to_owned(), "ms".to_owned()],
            rows: vec![vec![Value::text("x"), Value::number(Some(2.0), 1)]],
        };
        assert_eq!(
            table(&grid),
            "| a\\|b | ms |\n| --- | ---: |\n| x | 2.0 |\n"
        );
    }
}
