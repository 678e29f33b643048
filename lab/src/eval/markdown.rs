//! A report as Markdown.

use super::report::EvalReport;
use super::section::{EvalGoal, GoalState, Grid, Section};

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
    let all = sections.iter().flat_map(|section| &section.goals);
    let lines = all.map(|goal| format!("- {}\n", told(goal)));
    let lines: String = lines.collect();
    match lines.as_str() {
        "" => String::new(),
        lines => format!("## Goals\n\n{lines}\n"),
    }
}

fn told(goal: &EvalGoal) -> String {
    let mark = match goal.state {
        GoalState::Met => "✓",
        GoalState::Missed => "✗",
        GoalState::Open => "?",
    };
    let (state, what, found) = (goal.state, &goal.what, &goal.found);
    format!("{mark} {state}: {what}. Found: {found}.")
}

fn one(section: &Section) -> String {
    let label = section.source.label();
    let mut text = format!("## {} ({label})\n\n", section.title);
    for paragraph in &section.about {
        text += &format!("{paragraph}\n\n");
    }
    for goal in &section.goals {
        text += &format!("- {}\n", told(goal));
    }
    if !section.goals.is_empty() {
        text.push('\n');
    }
    for grid in &section.grids {
        text += &format!("**{}** ({label})\n\n{}\n", grid.caption, table(grid));
    }
    if let Some(written) = &section.written {
        text += &format!("{}\n\n", written.trim_end());
    }
    for missing in &section.missing {
        text += &format!("- missing: {missing}\n");
    }
    if !section.missing.is_empty() {
        text.push('\n');
    }
    text + &format!("```sh\n{}\n```\n\n", section.commands.join("\n"))
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
