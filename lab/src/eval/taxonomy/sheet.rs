//! The map as text, as Markdown, and as one HTML page.

use strum::VariantArray;

use super::cells::{ExchangePattern, LossBound, ModelPlace, Timing, TrainingCell};
use super::outcome::{CellRuns, CellState, MappedCell, TaxonomyReport};
use super::plan::{STALE_STEPS, TEAM, TOLERANCE, TRAINED_STEPS, TRAINED_TOLERANCE};
use crate::eval::section::EvalGoal;
use gradwire_report::html::{cell, document, heads, row};
use gradwire_report::svg::escaped;

const TITLE: &str = "gradwire: the map of distributed training";
/// A column of numbers: its name, and the value of a cell's runs.
type NumberColumn = (&'static str, fn(&CellRuns) -> String);

const COLUMNS: [NumberColumn; 8] = [
    ("step, us", |runs| format!("{:.0}", runs.simulated.step_us)),
    ("hosts, MB", |runs| {
        megabytes(runs.simulated.host_link_bytes)
    }),
    ("switches, MB", |runs| {
        megabytes(runs.simulated.between_bytes)
    }),
    ("lost, %", |runs| {
        format!("{:.3}", runs.simulated.lost_share * 100.0)
    }),
    ("loss", |runs| format!("{:.3}", runs.trained.loss)),
    ("accuracy", |runs| format!("{:.3}", runs.trained.accuracy)),
    ("apart", |runs| format!("{:.1e}", runs.trained.apart)),
    ("ahead", |runs| runs.trained.ahead.to_string()),
];
/// Of these, the ones that come from the simulator; the others come from the training.
const SIMULATED: usize = 4;

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

/// How the numbers came about.
fn about(report: &TaxonomyReport) -> [String; 3] {
    let (fabric, percents) = (report.fabric, TOLERANCE * 100.0);
    let trained_percents = TRAINED_TOLERANCE * 100.0;
    let stale = STALE_STEPS;
    [
        format!(
            "Each legal cell ran twice. Simulated: steps of VGG16 on {fabric}, eight hosts of \
             which servers are the first ones, the last worker 1.5 times as slow; step is the mean \
             time of a worker's step; hosts and switches are the bytes of a step on links of hosts \
             and between switches, with all headers and repairs."
        ),
        format!(
            "Trained: the subject of texts by softmax regression, {TRAINED_STEPS} steps, six to \
             eight ranks in one process over links that lose 2 % of packets, workers of drawn \
             speeds. Loss and accuracy are of the server's or the centre's model, else of the \
             workers' mean; apart is the largest difference between two workers' values, ahead \
             the most steps that one worker was before another."
        ),
        format!(
            "Bounded-stale is {stale} steps, a bounded loss {percents} % of a message in the \
             simulator and {trained_percents} % in the training, a team of a hierarchy {TEAM} \
             workers. The cells show ways to train over gradwire's protocol (and over switches \
             that add); they are no copies of the systems that they stand for."
        ),
    ]
}

/// The runs as a table for a terminal.
pub fn text(report: &TaxonomyReport) -> String {
    let columns = COLUMNS.iter().map(|(name, _)| format!("{name:>22}"));
    let mut text = format!(
        "# {TITLE}\n# the first {SIMULATED} numbers are simulated, the others trained\n{:<54}{}\n",
        "cell",
        columns.collect::<String>()
    );
    for one in &report.cells {
        match &one.state {
            CellState::Ran(runs) => {
                let values = COLUMNS
                    .iter()
                    .map(|(_, value)| format!("{:>22}", value(runs)));
                text += &format!("{:<54}{}\n", one.name, values.collect::<String>());
            }
            CellState::Failed(failure) => {
                text += &format!("{:<54}  failed: {failure}\n", one.name);
            }
            CellState::Illegal(_) => {}
        }
    }
    for reason in report.reasons() {
        let without = illegal(report, reason).count();
        text += &format!("{without:>3} cells make no sense: {reason}\n");
    }
    let goals = report.goals.iter();
    let goals = goals.map(|goal| format!("{:<7} {}: {}\n", goal.state, goal.what, goal.found));
    text + &goals.collect::<String>()
}

fn illegal<'a>(
    report: &'a TaxonomyReport,
    reason: &'a str,
) -> impl Iterator<Item = &'a MappedCell> {
    let cells = report.cells.iter();
    cells.filter(move |one| matches!(one.state, CellState::Illegal(own) if own == reason))
}

/// The report as Markdown.
pub fn markdown(report: &TaxonomyReport) -> String {
    let mut text = format!("# {TITLE}\n\n");
    for paragraph in about(report) {
        text += &format!("{paragraph}\n\n");
    }
    for EvalGoal { what, found, state } in &report.goals {
        text += &format!("- {} {state}: {what}. Found: {found}.\n", state.mark());
    }
    let names = COLUMNS.map(|(name, _)| name).join(" | ");
    let rules = " ---: |".repeat(COLUMNS.len());
    text += &format!("\n| cell | systems | {names} | command |\n| --- | --- |{rules} --- |\n");
    for one in &report.cells {
        let Some(runs) = one.state.runs() else {
            continue;
        };
        let values = COLUMNS.map(|(_, value)| value(runs)).join(" | ");
        let (name, systems) = (&one.name, one.systems.join("; "));
        text += &format!("| {name} | {systems} | {values} | `{}` |\n", runs.command);
    }
    text += "\n## Cells that make no sense\n\n";
    for reason in report.reasons() {
        let names = illegal(report, reason).map(|one| one.name.as_str());
        text += &format!("- {reason}: {}\n", names.collect::<Vec<_>>().join("; "));
    }
    text +=
        "\n## Systems across the cells\n\n| system | changes | command |\n| --- | --- | --- |\n";
    for system in report.crossing {
        text += &format!(
            "| {} | {} | `{}` |\n",
            system.name, system.changes, system.command
        );
    }
    text
}

/// The report as one HTML page.
pub fn page(report: &TaxonomyReport) -> String {
    let mut body = format!("<h1>{}</h1>\n", escaped(TITLE));
    for paragraph in about(report) {
        body += &format!("<p>{}</p>\n", escaped(&paragraph));
    }
    body += &goals(&report.goals);
    body += "<h2>The map</h2>\n<p>Time of a step over that of the synchronous lossless all-reduce \
             without a ring, and the loss of the training. Darker is slower. A number in brackets \
             is the reason why a cell is empty.</p>\n";
    body += &map(report);
    for &architecture in ModelPlace::VARIANTS {
        let name: &str = architecture.into();
        body += &format!("<h2>{name}</h2>\n{}", index(report, architecture));
    }
    body += &format!("<h2>Systems across the cells</h2>\n{}", crossing(report));
    body += &format!(
        "<footer>gradwire {}, seed {}, {:.0} s. Simulated numbers were not measured on a network; \
         the same version and seed give the same numbers.</footer>\n",
        report.version, report.seed, report.wall_s
    );
    document(TITLE, &body)
}

fn goals(goals: &[EvalGoal]) -> String {
    let rows = goals.iter().map(|EvalGoal { what, found, state }| {
        row(&[
            format!("<td class=\"told\">{}</td>", escaped(what)),
            format!("<td class=\"told\">{}</td>", escaped(found)),
            format!("<td class=\"{state}\">{} {state}</td>", state.mark()),
        ])
    });
    format!("<table>\n{}</table>\n", rows.collect::<String>())
}

/// The grid of all cells.
fn map(report: &TaxonomyReport) -> String {
    let mut patterns = vec!["<th></th><th></th>".to_owned()];
    let mut losses = vec!["<th></th><th></th>".to_owned()];
    for &pattern in ExchangePattern::VARIANTS {
        let name: &str = pattern.into();
        patterns.push(format!(
            "<th colspan=\"{}\">{name}</th>",
            LossBound::VARIANTS.len()
        ));
        for &loss in LossBound::VARIANTS {
            let name: &str = loss.into();
            losses.push(format!("<th>{name}</th>"));
        }
    }
    let mut text = row(&patterns) + &row(&losses);
    let reasons = report.reasons();
    for &architecture in ModelPlace::VARIANTS {
        for (number, &timing) in Timing::VARIANTS.iter().enumerate() {
            let mut cells = Vec::new();
            if number == 0 {
                let (name, rows): (&str, usize) = (architecture.into(), Timing::VARIANTS.len());
                cells.push(format!("<th rowspan=\"{rows}\" class=\"side\">{name}</th>"));
            }
            let name: &str = timing.into();
            cells.push(format!("<th class=\"side\">{name}</th>"));
            let is_in_row = |one: &&MappedCell| {
                (one.cell.architecture, one.cell.timing) == (architecture, timing)
            };
            let in_row = report.cells.iter().filter(is_in_row);
            cells.extend(in_row.map(|one| place(report, one, &reasons)));
            text += &row(&cells);
        }
    }
    let reasons = reasons
        .iter()
        .map(|reason| format!("<li>{}</li>\n", escaped(reason)));
    format!(
        "<div class=\"wide\"><table class=\"map\">\n{text}</table></div>\n<ol class=\"reasons\">\n\
         {}</ol>\n",
        reasons.collect::<String>()
    )
}

fn place(report: &TaxonomyReport, one: &MappedCell, reasons: &[&str]) -> String {
    match &one.state {
        CellState::Ran(runs) => {
            let reference = report.reference().unwrap_or(runs);
            let times = runs.simulated.step_us / reference.simulated.step_us;
            // A quarter of the time is white, four times as much as dark as it gets.
            let dark = (times.log2() / 2.0).mul_add(0.5, 0.5).clamp(0.0, 1.0) * 0.45;
            let system = one.systems.first().copied().unwrap_or_default();
            format!(
                "<td style=\"background:rgba(0,114,178,{dark:.2})\"><a href=\"#{}\">{times:.2}</a>\
                 <span>{:.3}</span><i>{}</i></td>",
                anchor(one.cell),
                runs.trained.loss,
                escaped(system)
            )
        }
        CellState::Illegal(reason) => {
            let number = reasons.iter().position(|own| own == reason);
            format!("<td class=\"no\">[{}]</td>", number.map_or(0, |at| at + 1))
        }
        CellState::Failed(_) => "<td class=\"missed\">failed</td>".to_owned(),
    }
}

fn anchor(of: TrainingCell) -> String {
    of.name().replace(' ', "-")
}

/// The cells of an architecture with all numbers and their commands.
fn index(report: &TaxonomyReport, architecture: ModelPlace) -> String {
    let sources = [
        ("simulated", SIMULATED),
        ("trained", COLUMNS.len() - SIMULATED),
    ];
    let sources = sources.map(|(source, columns)| {
        format!("<th colspan=\"{columns}\"><span class=\"{source}\">{source}</span></th>")
    });
    let mut text = row(&[&["<th></th>".to_owned()], &sources[..]].concat());
    text += &heads(std::iter::once("cell").chain(COLUMNS.map(|(name, _)| name)));
    let own = report.cells.iter();
    for one in own.filter(|one| one.cell.architecture == architecture) {
        let (values, told) = match &one.state {
            CellState::Ran(runs) => (COLUMNS.map(|(_, value)| value(runs)), &runs.command),
            CellState::Failed(failure) => (COLUMNS.map(|_| "-".to_owned()), failure),
            CellState::Illegal(_) => continue,
        };
        let name = one.name.split_once(' ').map_or("", |(_, rest)| rest);
        let mut cells = vec![format!(
            "<td id=\"{}\">{name}<br><b>{}</b></td>",
            anchor(one.cell),
            escaped(&one.systems.join("; "))
        )];
        cells.extend(values.iter().map(|value| cell(value)));
        text += &row(&cells);
        let columns = COLUMNS.len() + 1;
        text += &row(&[format!(
            "<td colspan=\"{columns}\" class=\"run\"><code>{}</code></td>",
            escaped(told)
        )]);
    }
    format!("<div class=\"wide\"><table class=\"index\">\n{text}</table></div>\n")
}

fn crossing(report: &TaxonomyReport) -> String {
    let rows = report.crossing.iter().map(|system| {
        let told = |text: &str| format!("<td class=\"told\">{}</td>", escaped(text));
        let command = format!(
            "<td class=\"told\"><code>{}</code></td>",
            escaped(system.command)
        );
        row(&[told(system.name), told(system.changes), command])
    });
    let names =
        ["system", "changes", "command"].map(|name| format!("<th class=\"told\">{name}</th>"));
    format!(
        "<table>\n{}{}</table>\n",
        row(&names),
        rows.collect::<String>()
    )
}
